//! `y_i = epilogue(norm(x) · W_iᵀ + b_i)`: the linear layer of a network, with what fuses into it.

use super::Unary;

/// Matrix products of one input with one or more weights, `[.., columns] · [rows, columns]ᵀ → [.., rows]`,
/// and what surrounds them. A plain linear layer is `Linear::default()`; passes set the rest.
///
/// Operands, in order: `x` f32[.., columns]; the norm's weight f32[columns] if `norm`; the weights,
/// [rows_i, columns] of any float or block dtype; their biases f32[rows_i] if `bias`; `residual`, of the
/// first result's type, if `residual`. Results: f32[.., rows_i] for each weight; one if `gate`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Linear {
    /// How many weights share the input.
    pub weights: usize,
    /// The `eps` of an RMS norm of `x` that comes first.
    pub norm: Option<f32>,
    /// Whether each weight has a bias.
    pub bias: bool,
    /// With two weights: the one result is `gate(y_0) · y_1`.
    pub gate: Option<Unary>,
    /// Whether a residual is added to the (one) result.
    pub residual: bool,
}

/// The operands of a [`Linear`] by role.
#[derive(Debug, Clone, Copy)]
pub struct LinearOperands<'a, T> {
    /// The input.
    pub x: &'a T,
    /// The weight of the norm.
    pub norm: Option<&'a T>,
    /// The weights.
    pub weights: &'a [T],
    /// The biases: none, or as many as weights.
    pub biases: &'a [T],
    /// What is added at the end.
    pub residual: Option<&'a T>,
}

impl Default for Linear {
    fn default() -> Linear {
        Linear { weights: 1, norm: None, bias: false, gate: None, residual: false }
    }
}

impl Linear {
    /// How many operands there must be.
    pub fn arity(&self) -> usize {
        1 + usize::from(self.norm.is_some())
            + self.weights * (1 + usize::from(self.bias))
            + usize::from(self.residual)
    }

    /// The operands by role.
    ///
    /// # Panics
    /// If their number is not [`Linear::arity`].
    pub fn operands<'a, T>(&self, inputs: &'a [T]) -> LinearOperands<'a, T> {
        assert_eq!(inputs.len(), self.arity(), "operands of linear");
        let (x, rest) = inputs.split_first().expect("arity is at least 2");
        let (norm, rest) = rest.split_at(usize::from(self.norm.is_some()));
        let (weights, rest) = rest.split_at(self.weights);
        let (biases, residual) = rest.split_at(if self.bias { self.weights } else { 0 });
        LinearOperands { x, norm: norm.first(), weights, biases, residual: residual.first() }
    }
}
