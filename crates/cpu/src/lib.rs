//! The CPU device: thread pool and kernels.

mod cpu;
mod device;
mod error;
mod instruction_set;
pub mod kernels;
pub mod limits;
mod nvtx;
mod targets;
mod threads;
pub mod variant;
pub mod vec;

pub use cpu::Cpu;
pub use error::Error;
pub use instruction_set::InstructionSet;
pub use threads::Pool;
