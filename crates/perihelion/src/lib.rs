//! Perihelion: compile a graph once, bind weights, execute on the CPU; or load a language model and let it write.
//!
//! This crate holds no logic but the choice of the CPU where a session is given no other host. It gives the parts the
//! names that users know: [`driver`] (what data is and
//! where it is computed on), [`graph`], [`engine`], [`models`], [`pipelines`].
//!
//! A language model writes:
//!
//! ```
//! use perihelion::prelude::*;
//!
//! # fn main() -> Result<(), perihelion::pipelines::Error> {
//! # let name = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
//! let generator = TextGenerator::open(name)?; // A file, a folder, "org/name", "org/name:Q4_K_M".
//! for piece in generator.stream("Once upon a time")?.text() {
//!     print!("{}", piece?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Any graph can be compiled once, and executed with inputs of any size:
//!
//! ```
//! use perihelion::driver::Buffer;
//! use perihelion::engine::InferenceSession;
//! use perihelion::graph::Graph;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let session = InferenceSession::new([])?; // On the CPU.
//! let graph = Graph::parse("graph twice(%x: f32[n]) { %y = add(%x, %x) return %y }")?;
//! let model = session.load(&graph, &())?; // A graph without weights.
//! for size in [1, 1000] {
//!     let outputs = model.execute(&[Buffer::from_slice([size], &vec![0.5f32; size])])?;
//!     assert_eq!(outputs[0].to_vec::<f32>(), vec![1.0; size]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What was compiled is saved, here with its weights packed, and starts again without packing:
//!
//! ```
//! # use std::collections::HashMap;
//! # use std::sync::Arc;
//! use perihelion::driver::{Buffer, Cpu, Device, Tensor};
//! use perihelion::engine::{ExportOptions, InferenceSession};
//! use perihelion::graph::Graph;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("perihelion-doc-{}.mef", std::process::id()));
//! let session = InferenceSession::new([Arc::new(Cpu::new(0)) as Arc<dyn Device>])?;
//! let text = r#"graph sum(%x: f32[n, 2]) { %w = weight "w" : f32[1, 2] %y = linear(%x, %w) return %y }"#;
//! let compiled = session.compile(&Graph::parse(text)?)?;
//! let weights = HashMap::from([("w".to_string(), Tensor::from_slice([1, 2], &[1.0f32, 1.0]))]);
//! compiled.export_mef_with(&path, ExportOptions { weights: Some(&weights), ..ExportOptions::default() })?;
//!
//! let model = session.load(&path, &())?; // In this process or another, and with no registry.
//! let outputs = model.execute(&[Buffer::from_slice([1, 2], &[3.0f32, 4.0])])?;
//! assert_eq!(outputs[0].to_vec::<f32>(), [7.0]);
//! # std::fs::remove_file(path)?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod engine;
#[cfg(feature = "pipelines")]
mod open;
#[cfg(feature = "pipelines")]
pub mod pipelines;

pub use graph;

#[cfg(feature = "pipelines")]
pub use models;
#[cfg(feature = "pipelines")]
pub use open::Open;
#[cfg(feature = "pipelines")]
pub use pipelines::{Embedder, TextGenerator};
#[cfg(feature = "pipelines")]
pub use sources;
#[cfg(feature = "pipelines")]
pub use weights;

/// The names that programs with models need: `use perihelion::prelude::*`.
#[cfg(feature = "pipelines")]
pub mod prelude {
    pub use crate::Open;
    pub use crate::pipelines::config::PipelineConfig;
    pub use crate::pipelines::{
        ChatMessage, Completion, Embedder, Embedding, EventKind, TextGenerator, TextRequest, TextStream,
    };
}

/// What data is, and the devices that compute on it.
pub mod driver {
    use std::sync::Arc;

    pub use cpu::{Cpu, InstructionSet};
    pub use engine::devices::{DeviceStats, Platform};
    pub use engine::{Device, Target};
    pub use tensor::{
        AlignedBytes, Block, Buffer, Bytes, DType, DeviceSpec, DeviceType, DlpackTensor, Element, Error,
        FloatInfo, Index, MAX_RANK, MapMode, RawDlpack, ReadGuard, Scalar, Shape, Tensor, WriteGuard, bf16,
        dlpack, f16, load_max_buffer,
    };

    /// The devices of this build.
    pub static PLATFORM: Platform = Platform::new(cpu).with_accelerators(&ACCELERATORS);

    #[cfg(feature = "webgpu")]
    use webgpu::ADAPTERS as ACCELERATORS;

    #[cfg(not(feature = "webgpu"))]
    static ACCELERATORS: NotBuilt = NotBuilt;

    /// In a build that drives no accelerators.
    #[cfg(not(feature = "webgpu"))]
    struct NotBuilt;

    #[cfg(not(feature = "webgpu"))]
    impl engine::devices::Accelerators for NotBuilt {
        fn count(&self) -> usize {
            0
        }

        fn absence(&self) -> String {
            "this build drives none, one with the feature webgpu does (cargo install --features webgpu), and so does the \
             Python package"
                .to_string()
        }

        fn open(&self, id: usize, _: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
            unreachable!("there is no accelerator {id}")
        }
    }

    /// The CPU, with a thread for each core.
    pub fn cpu() -> Arc<dyn Device> {
        Arc::new(Cpu::new(0))
    }

    /// An accelerator, counted from 0.
    ///
    /// # Errors
    /// If it is not there, with the number of those that are, and why there are no more.
    pub fn accelerator(id: i32) -> Result<Arc<dyn Device>, Error> {
        Ok(load_devices(&[DeviceSpec::accelerator(id)?])?.remove(0))
    }

    /// How many accelerators can be used.
    pub fn accelerator_count() -> usize {
        PLATFORM.accelerator_count()
    }

    /// Every accelerator; without any, the CPU.
    pub fn scan_available_devices() -> Vec<DeviceSpec> {
        PLATFORM.scan_available_devices()
    }

    /// Whether [`load_devices`] can open all of them.
    pub fn devices_exist(specs: &[DeviceSpec]) -> bool {
        PLATFORM.devices_exist(specs)
    }

    /// Opens devices, in this order.
    ///
    /// # Errors
    /// If one is not there, with the number of those that are, and why there are no more.
    pub fn load_devices(specs: &[DeviceSpec]) -> Result<Vec<Arc<dyn Device>>, Error> {
        PLATFORM.load_devices(specs)
    }
}

/// The example in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the library guide compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Library;

/// The examples of the page about extensions compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/write-an-extension.md")]
struct WriteAnExtension;
