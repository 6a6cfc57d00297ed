//! f32 and halves as f32: for kernels that compute in f32 whatever their operands are.

use std::borrow::Cow;

use engine::{View, ViewMut};
use tensor::{DType, bf16, f16};

use super::convert::{Half, to_f32};
use super::operands::{elements, elements_mut};

/// Whether a dtype is f32 or a half.
pub(crate) fn is_float(dtype: DType) -> bool {
    [DType::F32, DType::F16, DType::BF16].contains(&dtype)
}

/// The elements of an operand, widened.
pub(crate) fn read(view: View<'_>) -> Cow<'_, [f32]> {
    if view.dtype == DType::F32 {
        return elements(view.bytes);
    }
    let mut values = vec![0f32; view.shape.elements()];
    to_f32(view.dtype, view.bytes, &mut values);
    Cow::Owned(values)
}

/// Lets `compute` write the elements of a result, which are narrowed then.
///
/// # Panics
/// If the result is neither f32 nor a half.
pub(crate) fn write<R>(result: &mut ViewMut<'_>, compute: impl FnOnce(&mut [f32]) -> R) -> R {
    if result.dtype == DType::F32 {
        return compute(elements_mut(result.bytes));
    }
    let mut values = vec![0f32; result.shape.elements()];
    let outcome = compute(&mut values);
    match result.dtype {
        DType::F16 => f16::narrow(&values, elements_mut(result.bytes)),
        DType::BF16 => bf16::narrow(&values, elements_mut(result.bytes)),
        other => unreachable!("a kernel of floats for {other}"),
    }
    outcome
}
