//! Perihelion: compile a graph once, bind weights, execute on the CPU; or load a language model and let it write.
//!
//! This crate holds no code of its own. It gives the parts the names that users know: [`driver`] (what data is and
//! where it is computed on), [`graph`], [`engine`], [`models`], [`pipelines`].

#![forbid(unsafe_code)]

pub use engine;
pub use graph;
pub use models;
pub use pipelines;
pub use weights;

/// What data is, and the devices that compute on it.
pub mod driver {
    pub use cpu::Cpu;
    pub use engine::Device;
    pub use tensor::{Buffer, DType, Shape, Tensor};
}
