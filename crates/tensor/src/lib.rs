//! What data is: dtypes, shapes, strided tensors, mutable buffers, quantized blocks, 8-bit floats.
//!
//! Floor 0: knows no graph, no file format, no device.

pub mod blocks;
mod buffer;
mod dtype;
pub mod float8;
mod shape;
mod storage;
mod tensor;

pub use buffer::{Buffer, BufferBusy, ReadGuard, WriteGuard};
pub use dtype::{Block, DType, Element};
pub use half::{bf16, f16};
pub use shape::{MAX_RANK, Shape};
pub use storage::{AlignedBytes, Bytes};
pub use tensor::{Tensor, TensorError};
