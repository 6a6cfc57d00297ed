//! The CPU device: thread pool and kernels.

mod error;
pub mod isa;
pub mod kernels;
mod threads;
pub mod vec;

pub use error::Error;
pub use threads::Pool;
