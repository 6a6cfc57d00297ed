//! Floats that should not be there: the first NaN or infinity of a result.

use tensor::{DType, Shape};

use crate::ViewMut;

/// Refuses a result with NaN, or with an infinity unless `infinities` are allowed because an operand had one.
pub(super) fn expect_finite(position: usize, result: &ViewMut<'_>, infinities: bool) -> Result<(), String> {
    let is_bad = |value: f64| value.is_nan() || !infinities && value.is_infinite();
    let Some(element) = find_float(result.dtype, result.bytes, is_bad) else { return Ok(()) };
    let (mut nans, mut infinite, mut first) = (0usize, 0usize, "NaN");
    // Counts all, as it never finds one.
    find_float(result.dtype, result.bytes, |value| {
        if nans + infinite == 0 && value.is_infinite() && !infinities {
            first = "infinite";
        }
        nans += usize::from(value.is_nan());
        infinite += usize::from(value.is_infinite());
        false
    });
    let index = coordinates(result.shape, element);
    let form = format!("{}{}", result.dtype, result.shape);
    Err(format!("result {position}, {form}, is {first} at {index:?} ({nans} NaN, {infinite} Inf)"))
}

/// Whether an element of a float dtype is infinite.
pub(super) fn has_infinity(dtype: DType, bytes: &[u8]) -> bool {
    find_float(dtype, bytes, f64::is_infinite).is_some()
}

/// The first element of a float dtype that is as asked for.
pub(super) fn find_float(dtype: DType, bytes: &[u8], mut is_bad: impl FnMut(f64) -> bool) -> Option<usize> {
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
