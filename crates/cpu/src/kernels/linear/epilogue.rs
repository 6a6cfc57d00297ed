//! The epilogue: products of a panel with a tile, on their way to the outputs.

use std::ops::Range;

use super::activation::Activation;
use super::simd::{Isa, ROWS};
use crate::vec::Simd;

/// What follows the products and biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    /// Nothing.
    Plain,
    /// Every output is `act(x · Wᵀ + b)`.
    Activate(Activation),
    /// The one output is `act(x · W₀ᵀ + b₀) · (x · W₁ᵀ + b₁)`.
    Gate(Activation),
}

/// Turns the products of a matrix, or of two with a gate, into outputs.
pub(super) struct Finish<'a> {
    /// Of the rows, and of the rows that are gated.
    pub biases: [Option<&'a [f32]>; 2],
    pub activation: Option<Activation>,
    /// [tokens, rows], added last.
    pub residual: Option<&'a [f32]>,
    /// [tokens, rows]
    pub output: *mut f32,
    /// Where in the output each token goes; none if they are in order.
    pub order: Option<&'a [usize]>,
    /// Rows of the whole matrix.
    pub rows: usize,
}

impl Finish<'_> {
    /// Where in the output a token goes.
    #[inline(always)]
    pub(super) fn place(&self, token: usize) -> usize {
        self.order.map_or(token, |order| order[token])
    }
}

/// The products of a panel and a tile.
pub(super) struct PanelProducts<'a> {
    pub panel: usize,
    pub tokens: Range<usize>,
    /// [tokens, 16]
    pub products: &'a [[f32; ROWS]],
    /// Those that are gated, if there is a gate.
    pub gated: Option<&'a [[f32; ROWS]]>,
}

/// Stores `act(products + bias) [· (gated + bias)] [+ residual]` of a panel for each token of a tile.
///
/// # Safety
/// As [`Isa`]; the output has room for all tokens, of which no two go to one place, and no other thread touches these rows
/// of these tokens.
#[inline(always)]
pub(super) unsafe fn finish<I: Isa>(call: &Finish, of: &PanelProducts) {
    let &PanelProducts { panel, ref tokens, products, gated } = of;
    let rows = panel * ROWS..call.rows.min((panel + 1) * ROWS);
    let count = rows.len();
    // SAFETY: slices are cut to the panel's rows before they are loaded; the output is the caller's promise.
    unsafe {
        let s = I::lanes();
        let load = |values: &[f32]| match values.len() {
            ROWS => s.load(values.as_ptr()),
            len => s.load_partial(values.as_ptr(), len),
        };
        let biases = call.biases.map(|bias| bias.map_or(s.splat(0.0), |bias| load(&bias[rows.clone()])));
        for (lane, token) in tokens.clone().enumerate() {
            let mut values = s.add(load(&products[lane]), biases[0]);
            if let Some(activation) = call.activation {
                values = activation.apply(s, values);
            }
            if let Some(gated) = gated {
                values = s.mul(values, s.add(load(&gated[lane]), biases[1]));
            }
            let start = call.place(token) * call.rows + rows.start;
            if let Some(residual) = call.residual {
                values = s.add(values, load(&residual[start..start + count]));
            }
            match count {
                ROWS => s.store(call.output.add(start), values),
                count => s.store_partial(call.output.add(start), values, count),
            }
        }
    }
}
