//! What data is: dtypes, shapes, strided tensors, mutable buffers, quantized blocks, small floats, random bits.
//!
//! Layer 0: knows no graph, no file format, no device.

pub mod blocks;
mod buffer;
mod checkpoint;
mod device;
pub mod dlpack;
mod dtype;
mod error;
mod far;
pub mod float8;
mod float_info;
mod layout;
mod mapped;
pub mod philox;
pub mod print;
mod scalar;
mod shape;
pub mod small_float;
mod storage;
mod tensor;

pub use buffer::{Buffer, FarGuard, Index, MapMode, ReadGuard, WriteGuard};
pub use checkpoint::{load_max_buffer, save_binary, save_max_checkpoint};
pub use device::{DeviceSpec, DeviceType};
pub use dlpack::{DlpackTensor, RawDlpack};
pub use dtype::{Block, DType, Element};
pub use error::Error;
pub use far::{Allocation, Allocator, FarMemory, HostAllocator};
pub use float_info::FloatInfo;
pub use half::{bf16, f16};
pub use mapped::MappedFile;
pub use scalar::Scalar;
pub use shape::{MAX_RANK, Shape};
pub use storage::{AlignedBytes, Bytes, HUGE_PAGE};
pub use tensor::Tensor;
