//! GPUs of any maker as devices, through Vulkan, Metal or DirectX 12: memory, kernels in WGSL, weights in the CPU's panels.

#![deny(unsafe_code)]

mod adapter;
mod device;
mod fused;
mod gpu;
mod kernels;
mod memory;
mod recorder;
mod shader;
mod weights;

pub use adapter::{ADAPTERS, Adapters};
