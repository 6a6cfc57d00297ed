//! `y_i = W[e_i] · x_i`: rows times the matrices of experts that were chosen for them.

use super::indexing::integers;
use super::prelude::*;
use super::unary::Unary;

/// The linear layer of a mixture of experts (Shazeer et al. 2017): each row is multiplied with the matrix of one
/// expert, `[.., columns] · [experts, rows, columns]ᵀ → [.., rows]`.
///
/// Operands, in order: `x: f32[.., columns]`; the experts, u32, i32 or i64, of the shape `[..]`, or `[.., k]` where each
/// row of `x` goes to `k` experts; the weights [experts, rows, columns] of any float or block dtype, one, or two with
/// a gate. Result: `f32[.., rows]` with the axes of the experts. An expert must be in `0..experts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpertLinear {
    /// With two weights: the result is `gate(y_0) · y_1`.
    pub gate: Option<Unary>,
}

impl ExpertLinear {
    /// How many weights there are.
    pub fn weights(&self) -> usize {
        1 + usize::from(self.gate.is_some())
    }
}

impl Define for ExpertLinear {
    declare!("expert_linear" { gate });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        if self.gate == Some(Unary::Not) {
            return Err(TypeError::new("gate `not` takes truth values, expected a function of floats"));
        }
        let [x, experts, weights @ ..] = inputs else { return Err(self.arity(inputs.len())) };
        if weights.len() != self.weights() {
            return Err(self.arity(inputs.len()));
        }
        expect_dtype("x", x, &[DType::F32])?;
        let columns = last_axis("x", x)?;
        expect_dtype("experts", experts, INDICES)?;
        let rows = &x.shape[..x.rank() - 1];
        let fits = |shape: &[_]| shape == rows;
        let each = experts.shape.split_last().is_some_and(|(_, before)| fits(before));
        refuse_if!(!fits(&experts.shape) && !each, "rows differ: x {x}, experts {experts}");
        for weight in weights {
            expect_experts("weight", weight)?;
            refuse_if!(weight.shape[2] != *columns, "inner axes differ: x {x}, weight {weight}");
            if weight.shape[..2] != weights[0].shape[..2] {
                let (gate, up) = (weights[0], weight);
                return Err(type_error!("experts or rows of gated weights differ: {gate}, {up}"));
            }
        }
        Ok(vec![x.with_shape(experts.shape.iter().chain([&weights[0].shape[1]]).cloned())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (x, weights) = (inputs[0], &inputs[2..]);
        let &[experts, rows, columns] = &weights[0].shape()[..] else {
            unreachable!("the type rule asks for 3")
        };
        let check = |(position, id): (usize, i128)| {
            let message =
                || format!("expert {id} at position {position} is out of range for {experts} experts");
            let expert = usize::try_from(id).ok().filter(|&expert| expert < experts);
            expert.ok_or_else(|| Error::evaluation("expert_linear", message()))
        };
        let chosen = integers(inputs[1]).into_iter().enumerate().map(check).collect::<Result<Vec<_>, _>>()?;
        // The axis that x lacks, if it lacks one.
        let per_row = if inputs[1].shape().rank() < x.shape().rank() {
            1
        } else {
            *inputs[1].shape().last().expect("one more axis than the rows of x")
        };
        let x = x.to_f64_vec();
        let products = |weight: &Tensor| {
            let weight = weight.to_f64_vec();
            let mut y = Vec::with_capacity(chosen.len() * rows);
            for (i, expert) in chosen.iter().enumerate() {
                let x = &x[i / per_row * columns..][..columns];
                let matrix = &weight[expert * rows * columns..][..rows * columns];
                let dot = |row: usize| (0..columns).map(|i| x[i] * matrix[row * columns + i]).sum::<f64>();
                y.extend((0..rows).map(dot));
            }
            y
        };
        let mut y = products(weights[0]);
        if let Some(gate) = self.gate {
            y.iter_mut().zip(products(weights[1])).for_each(|(y, up)| *y = gate.evaluate(*y) * up);
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &y)])
    }
}

impl ExpertLinear {
    fn arity(&self, got: usize) -> TypeError {
        let expected = 2 + self.weights();
        type_error!("takes {expected} operands with these attributes, got {got}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;

    const PLAIN: ExpertLinear = ExpertLinear { gate: None };
    const GATED: ExpertLinear = ExpertLinear { gate: Some(Unary::Relu) };

    #[test]
    fn types() {
        check_types(
            PLAIN,
            &[
                (&["f32[tokens, 256]", "i64[tokens, 2]", "q4_k[8, 64, 256]"], "f32[tokens, 2, 64]"),
                (&["f32[tokens, 2, 8]", "u32[tokens, 2]", "bf16[4, 3, 8]"], "f32[tokens, 2, 3]"),
                (&["f32[8]", "u32[]", "f32[4, 3, 8]"], "f32[3]"),
                (
                    &["f32[n, 8]", "u32[m, 2]", "f32[4, 3, 8]"],
                    "expert_linear: rows differ: x f32[n, 8], experts u32[m, 2]",
                ),
                (
                    &["f32[n, 8]", "u32[n]", "f32[4, 3, 9]"],
                    "expert_linear: inner axes differ: x f32[n, 8], weight f32[4, 3, 9]",
                ),
                (&["f16[n, 8]", "u32[n]", "f32[4, 3, 8]"], "expert_linear: x is f16[n, 8], expected f32"),
                (
                    &["f32[n, 8]", "f32[n]", "f32[4, 3, 8]"],
                    "expert_linear: experts is f32[n], expected u32, i32 or i64",
                ),
                (
                    &["f32[n, 8]", "u32[n]", "f32[4, 8]"],
                    "expert_linear: weight is f32[4, 8], expected 3 axes",
                ),
                (
                    &["f32[n, 48]", "u32[n]", "q8_0[4, 4, 48]"],
                    "expert_linear: weight is q8_0[4, 4, 48], whose rows do not divide into blocks of 32",
                ),
                (&["f32[n, 8]", "u32[n]"], "expert_linear: takes 3 operands with these attributes, got 2"),
            ],
        );
        check_types(
            GATED,
            &[
                (
                    &["f32[n, 8]", "u32[n]", "f32[4, 3, 8]", "q8_0[4, 3, 8]"],
                    "expert_linear: weight is q8_0[4, 3, 8], whose rows do not divide into blocks of 32",
                ),
                (&["f32[n, 8]", "u32[n]", "f32[4, 3, 8]", "f16[4, 3, 8]"], "f32[n, 3]"),
                (
                    &["f32[n, 8]", "u32[n]", "f32[4, 3, 8]", "f32[4, 2, 8]"],
                    "expert_linear: experts or rows of gated weights differ: f32[4, 3, 8], f32[4, 2, 8]",
                ),
                (
                    &["f32[n, 8]", "u32[n]", "f32[4, 3, 8]"],
                    "expert_linear: takes 4 operands with these attributes, got 3",
                ),
            ],
        );
        let not = ExpertLinear { gate: Some(Unary::Not) };
        check_types(
            not,
            &[(&[], "expert_linear: gate `not` takes truth values, expected a function of floats")],
        );
    }

    #[test]
    fn values() {
        let x = Tensor::from_slice([2, 2], &[3.0f32, 4.0, 1.0, -1.0]);
        // The identity; twice the sum and the difference; zeros.
        let experts = [1.0f32, 0.0, 0.0, 1.0, 2.0, 2.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0];
        let weight = Tensor::from_slice([3, 2, 2], &experts);
        let chosen = Tensor::from_slice([2], &[1u32, 0]);
        assert_eq!(numbers(PLAIN, &[&x, &chosen, &weight]), [14.0, -1.0, 1.0, -1.0]);
        let two = Tensor::from_slice([2, 2], &[0i64, 1, 2, 1]);
        assert_eq!(numbers(PLAIN, &[&x, &two, &weight]), [3.0, 4.0, 14.0, -1.0, 0.0, 0.0, 0.0, 2.0]);
        assert_eq!(numbers(GATED, &[&x, &chosen, &weight, &weight]), [196.0, 0.0, 1.0, 0.0]);
        let none = Tensor::from_slice([0, 2], &[0.0f32; 0]);
        assert!(numbers(PLAIN, &[&none, &Tensor::from_slice([0, 3], &[0u32; 0]), &weight]).is_empty());
    }

    #[test]
    fn experts_out_of_range_are_refused() {
        let x = Tensor::from_slice([2, 1], &[3.0f32, 4.0]);
        let weight = Tensor::from_slice([2, 1, 1], &[1.0f32, 2.0]);
        for wrong in [2i32, -1] {
            let error = run(PLAIN, &[&x, &Tensor::from_slice([2], &[0, wrong]), &weight]).unwrap_err();
            let expected =
                format!("expert_linear: expert {wrong} at position 1 is out of range for 2 experts");
            assert_eq!(error.to_string(), expected);
        }
    }
}
