//! The epilogue: products of a panel with a tile, on their way to the outputs.

use std::ops::Range;

use super::activation::Activation;
use super::panel::ROWS;
use super::simd::MAX_TILE;

/// For each token of a tile the products with 16 rows.
pub(super) type Products = [[f32; ROWS]; MAX_TILE];

/// What happens to the products of one panel (or of two, with a gate) before they are stored.
pub(super) struct Finish<'a> {
    /// Of the panel's rows, and of the rows that are gated.
    pub biases: [[f32; ROWS]; 2],
    pub activation: Option<Activation>,
    /// [tokens, rows], added last.
    pub residual: Option<&'a [f32]>,
    /// [tokens, rows]
    pub output: *mut f32,
    /// Rows of the whole matrix.
    pub rows: usize,
    /// The panel's rows that exist.
    pub range: Range<usize>,
}

/// Stores `act(products + bias) [· (gated + bias)] [+ residual]` for each token of a tile.
///
/// # Safety
/// The output has room for all tokens, and nobody else touches these rows of these tokens.
#[inline(always)]
pub(super) unsafe fn finish(
    call: &Finish,
    tokens: Range<usize>,
    products: &Products,
    gated: Option<&Products>,
) {
    let count = call.range.len();
    for (lane, token) in tokens.enumerate() {
        let mut values = products[lane];
        add(&mut values, &call.biases[0]);
        if let Some(activation) = call.activation {
            activation.apply(&mut values);
        }
        if let Some(gated) = gated {
            let mut factors = gated[lane];
            add(&mut factors, &call.biases[1]);
            values.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
        }
        let start = token * call.rows + call.range.start;
        if let Some(residual) = call.residual {
            let residual = &residual[start..start + count];
            match residual.first_chunk::<ROWS>() {
                Some(residual) => add(&mut values, residual),
                None => values.iter_mut().zip(residual).for_each(|(value, more)| *value += more),
            }
        }
        // SAFETY: rows `range` of this token lie within the output.
        unsafe {
            let output = call.output.add(start);
            if count == ROWS {
                output.cast::<[f32; ROWS]>().write_unaligned(values);
            } else {
                output.copy_from_nonoverlapping(values.as_ptr(), count);
            }
        }
    }
}

#[inline(always)]
fn add(values: &mut [f32; ROWS], more: &[f32; ROWS]) {
    for (value, more) in values.iter_mut().zip(more) {
        *value += more;
    }
}
