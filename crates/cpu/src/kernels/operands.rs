//! Typed access to what a call is given.

use std::borrow::Cow;

use bytemuck::Pod;
use engine::{KernelCall, Operand, PackError, View};

/// The elements of an operand: the bytes themselves, or a copy where they are not aligned, as in a mapped file.
pub(crate) fn elements<'m, T: Pod>(bytes: &'m [u8]) -> Cow<'m, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(elements) => Cow::Borrowed(elements),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(bytes)),
    }
}

/// The elements of a result.
///
/// # Panics
/// If they are not aligned; the memory plan aligns results to cache lines.
pub(crate) fn elements_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    if bytes.is_empty() {
        return &mut []; // A result without elements may lie anywhere.
    }
    bytemuck::try_cast_slice_mut(bytes)
        .unwrap_or_else(|error| panic!("a result of whole, aligned elements: {error}"))
}

/// `len` copies of a value, for lengths that data or shapes choose.
///
/// # Errors
/// If there is not enough memory.
pub(crate) fn filled<T: Clone>(value: T, len: usize) -> Result<Vec<T>, PackError> {
    let mut values = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    values.try_reserve_exact(len).map_err(|_| PackError::OutOfMemory { bytes })?;
    values.resize(len, value);
    Ok(values)
}

/// An operand that is a value in memory.
///
/// # Panics
/// If it is something else, which a kernel without packings, buffers or in-place operands never gets.
pub(crate) fn view<'m>(call: &KernelCall<'_, 'm>, position: usize) -> View<'m> {
    match &call.inputs[position] {
        Operand::View(view) => *view,
        Operand::InResult => {
            panic!("operand {position} is in the result of a kernel that computes it elsewhere")
        }
        Operand::Buffer(_) => panic!("operand {position} is a buffer to write, expected a value"),
        Operand::Packed(packed) => {
            panic!("operand {position} is packed as {}, expected a value", packed.layout)
        }
    }
}

/// Elements one thread takes at a time: large enough to be worth handing out (64 KiB of f32), and fixed, so
/// that results cannot depend on the number of threads.
pub(crate) const CHUNK: usize = 16 * 1024;

/// How many rows of `width` elements make about [`CHUNK`] elements together; at least one.
pub(crate) fn rows_per_chunk(width: usize) -> usize {
    (CHUNK / width.max(1)).max(1)
}

/// Calls a generic function for the Rust type of a dtype: `with_type!(dtype, T => expression, _ => otherwise)`.
/// The plain numbers only; `bool` data is read as `u8`.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr, _ => $otherwise:expr) => {
        match $dtype {
            tensor::DType::F16 => {
                type $T = tensor::f16;
                $body
            }
            tensor::DType::BF16 => {
                type $T = tensor::bf16;
                $body
            }
            tensor::DType::F32 => {
                type $T = f32;
                $body
            }
            tensor::DType::F64 => {
                type $T = f64;
                $body
            }
            tensor::DType::U8 => {
                type $T = u8;
                $body
            }
            tensor::DType::I8 => {
                type $T = i8;
                $body
            }
            tensor::DType::U16 => {
                type $T = u16;
                $body
            }
            tensor::DType::I16 => {
                type $T = i16;
                $body
            }
            tensor::DType::U32 => {
                type $T = u32;
                $body
            }
            tensor::DType::I32 => {
                type $T = i32;
                $body
            }
            tensor::DType::U64 => {
                type $T = u64;
                $body
            }
            tensor::DType::I64 => {
                type $T = i64;
                $body
            }
            _ => $otherwise,
        }
    };
}

pub(crate) use with_type;

/// Calls a generic function for an integer as wide as an element: what moves elements need not know more.
macro_rules! with_width {
    ($bytes:expr, $T:ident => $body:expr) => {
        match $bytes {
            1 => {
                type $T = u8;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            8 => {
                type $T = u64;
                $body
            }
            other => panic!("elements of {other} bytes"),
        }
    };
}

pub(crate) use with_width;
