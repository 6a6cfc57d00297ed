//! Floats that should not be there: the first NaN or infinity of a result.

use tensor::{DType, Shape};

use crate::ViewMut;

pub(super) fn expect_no_nan(position: usize, result: &ViewMut<'_>) -> Result<(), String> {
    match find_float(result.dtype, result.bytes, f64::is_nan) {
        None => Ok(()),
        Some(element) => Err(format!(
            "result {position}, {}{}, is NaN at {:?}",
            result.dtype,
            result.shape,
            coordinates(&result.shape, element)
        )),
    }
}

/// The first element of a float dtype that is as asked for.
pub(super) fn find_float(dtype: DType, bytes: &[u8], is_bad: impl Fn(f64) -> bool) -> Option<usize> {
    let halves = || bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    match dtype {
        DType::F64 => {
            bytes.chunks_exact(8).position(|b| is_bad(f64::from_le_bytes(b.try_into().expect("8"))))
        }
        DType::F32 => {
            bytes.chunks_exact(4).position(|b| is_bad(f32::from_le_bytes(b.try_into().expect("4")).into()))
        }
        DType::BF16 => halves().position(|bits| is_bad(tensor::bf16::from_bits(bits).into())),
        DType::F16 => halves().position(|bits| is_bad(tensor::f16::from_bits(bits).into())),
        dtype if dtype.is_float8() => {
            let values = tensor::float8::values(dtype);
            bytes.iter().position(|&byte| is_bad(values[usize::from(byte)].into()))
        }
        _ => None,
    }
}

/// The index along each axis of an element.
pub(super) fn coordinates(shape: &Shape, element: usize) -> Vec<usize> {
    let mut rest = element;
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let i = rest % size;
            rest /= size;
            i
        })
        .collect();
    index.reverse();
    index
}
