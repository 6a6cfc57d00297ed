//! How a graph becomes an executable: passes, lowering, memory plan, session, the Device trait.
//!
//! Layer 2: knows `tensor`, `graph` and `extensions`. Knows no architecture and no kernel, and has no `unsafe`.
//!
//! ```text
//! Graph ─verify─▶ PASSES ─verify, split, lower─▶ Program = CompiledModel ─init: bind, pack─▶ Model ─execute─▶ Buffers
//!                 passes/*        split, lower      │                     bind         execute, frame, memory, run
//!                                       file ◀─save─┘ artifact, cache
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod artifact;
mod artifact_fault;
mod bind;
mod block;
mod bound_weight;
mod cache;
mod clamp;
mod compiled_model;
mod custom;
mod debug;
mod device;
pub mod devices;
mod error;
mod execute;
mod export;
mod frame;
mod host;
mod instruments;
mod leaf;
mod log;
mod lower;
mod memory;
mod model;
pub mod passes;
mod place;
mod plan;
mod print;
mod profile;
mod program;
mod reference;
mod registry;
mod run;
mod schedule;
mod session;
mod settings;
mod split;
mod stop;
mod target;
#[cfg(test)]
mod testing;
mod trace;
mod watch;
mod workspace;
mod written;

/// Libraries of custom ops one by one, and packages of them.
pub mod extension {
    pub use extensions::{Compiler, Error, Library, MANIFEST, pack};
}

pub use arguments::Argument;
pub use artifact::{Artifact, ArtifactModel, ArtifactWeight, AtomicFile, checksum};
pub use artifact_fault::ArtifactFault;
pub use bind::Progress;
pub use cache::{CacheHealth, CompileCache};
pub use compiled_model::CompiledModel;
pub use custom::Extensions;
pub use debug::DebugConfig;
pub use device::far::{Far, FarArray, FarBytes, FarCall, FarKernel, FarOperand, FarStep, Segment};
pub use device::{
    Device, Kernel, KernelCall, Marker, NodeTypes, Operand, PackError, PackedWeight, View, ViewMut,
};
pub use error::Error;
pub use export::ExportOptions;
pub use log::show_logs;
pub use model::{Model, TensorSpec};
pub use passes::Passes;
pub use place::Placement;
pub use profile::{Profile, StepTime, Totals};
pub use program::{DeviceShare, Program, WeightMemory};
pub use reference::ReferenceDevice;
pub use registry::{WeightValue, WeightsRegistry};
pub use session::{Builder, CacheUse, CompileOptions, GraphSource, InferenceSession, InitOptions};
pub use settings::{
    AssertLevel, DeviceSettings, KernelSettings, LogLevel, PrintOptions, PrintStyle, Profiling, Reproducible,
    SplitKReductionPrecision, TopKKernel, UninitializedReadMode,
};
pub use stop::{CancelHandle, ExecuteOptions};
pub use target::Target;
