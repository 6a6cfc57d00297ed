//! f32 and halves as f32: for kernels that compute in f32 whatever their operands are.

use std::borrow::Cow;

use engine::{View, ViewMut};
use tensor::{DType, bf16, f16};

use super::convert::{Half, to_f32};
use super::operands::{elements, elements_mut, filled};

/// Whether a dtype is f32 or a half.
pub(crate) fn is_float(dtype: DType) -> bool {
    [DType::F32, DType::F16, DType::BF16].contains(&dtype)
}

/// The elements of an operand, widened.
///
/// # Errors
/// If there is not enough memory.
pub(crate) fn read(view: View<'_>) -> Result<Cow<'_, [f32]>, String> {
    if view.dtype == DType::F32 {
        return Ok(elements(view.bytes));
    }
    let mut values = filled(0f32, view.shape.elements())?;
    to_f32(view.dtype, view.bytes, &mut values);
    Ok(Cow::Owned(values))
}

/// Lets `compute` write the elements of a result, which are narrowed then.
///
/// # Errors
/// If there is not enough memory.
///
/// # Panics
/// If the result is neither f32 nor a half.
pub(crate) fn write<R>(result: &mut ViewMut<'_>, compute: impl FnOnce(&mut [f32]) -> R) -> Result<R, String> {
    if result.dtype == DType::F32 {
        return Ok(compute(elements_mut(result.bytes)));
    }
    let mut values = filled(0f32, result.shape.elements())?;
    let outcome = compute(&mut values);
    match result.dtype {
        DType::F16 => f16::narrow(&values, elements_mut(result.bytes)),
        DType::BF16 => bf16::narrow(&values, elements_mut(result.bytes)),
        other => unreachable!("a kernel of floats for {other}"),
    }
    Ok(outcome)
}
