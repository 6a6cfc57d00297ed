//! A pattern that memory is filled with before a step, and found in what the step did not write.

use tensor::DType;

use crate::{Operand, ViewMut};

/// Uninitialized memory: a signaling NaN as f32, a NaN as bf16, and unlikely as anything else.
const POISON: [u8; 4] = 0x7fa5_5aa5_u32.to_le_bytes();

/// Fills the results with the pattern, but for one that holds an operand.
pub(super) fn poison(operands: &[Operand<'_>], results: &mut [ViewMut<'_>]) {
    let in_place = operands.iter().any(|operand| matches!(operand, Operand::InResult));
    results.iter_mut().skip(usize::from(in_place)).for_each(|result| fill(result.bytes));
}

pub(super) fn fill(bytes: &mut [u8]) {
    bytes.chunks_mut(POISON.len()).for_each(|chunk| chunk.copy_from_slice(&POISON[..chunk.len()]));
}

/// The first element of memory that was filled and not written since.
pub(super) fn find_poison(dtype: DType, bytes: &[u8]) -> Option<usize> {
    let word = bytes.chunks_exact(POISON.len()).position(|word| word == POISON)?;
    let block = dtype.block();
    Some(word * POISON.len() / block.bytes * block.elements)
}
