//! The CPU device: thread pool and kernels.

pub mod kernels;
mod threads;

pub use threads::Pool;
