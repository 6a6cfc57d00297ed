//! `c_ij = Σ_k a_ik · b_kj`: matrix products, over batches that broadcast.

use tensor::{DType, Shape, Tensor};

use super::broadcast::broadcast;
use super::check::{expect_dtype, expect_same_dtype, operands};
use super::elements::{broadcast_positions, from_f64};
use super::{Attributes, Define};
use crate::{Error, Type, TypeError};

/// Matrix products: `a` [.., m, k], `b` [.., k, n], both f32, f16 or bf16 → `f32[.., m, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatMul;

impl Define for MatMul {
    const NAMES: &[&str] = &["matmul"];

    fn name(&self) -> &'static str {
        "matmul"
    }

    fn parse(_name: &str, _attributes: &mut Attributes) -> Result<MatMul, TypeError> {
        Ok(MatMul)
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [a, b] = operands(inputs, ["a", "b"])?;
        expect_dtype("a", a, &[DType::F32, DType::F16, DType::BF16])?;
        expect_same_dtype(("a", a), ("b", b))?;
        let ([a_batch @ .., m, inner], [b_batch @ .., k, n]) = (&a.shape[..], &b.shape[..]) else {
            return Err(TypeError::new(format!("expected at least 2 axes: a {a}, b {b}")));
        };
        if inner != k {
            return Err(TypeError::new(format!("inner axes differ: a {a}, b {b}")));
        }
        let batch = broadcast(a_batch, b_batch)
            .ok_or_else(|| TypeError::new(format!("batches do not broadcast: a {a}, b {b}")))?;
        let shape = batch.iter().chain([m, n]).cloned();
        Ok(vec![a.with_shape(shape).with_dtype(DType::F32)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (a, b) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let split = |shape: &Shape| {
            (Shape::new(&shape[..shape.rank() - 2]), shape[shape.rank() - 2], shape[shape.rank() - 1])
        };
        let (a_batch, m, k) = split(inputs[0].shape());
        let (b_batch, _, n) = split(inputs[1].shape());
        let (batch, ..) = split(&outputs[0]);
        let mut c = Vec::with_capacity(outputs[0].elements());
        for (p, q) in broadcast_positions(&a_batch, &batch).zip(broadcast_positions(&b_batch, &batch)) {
            let (a, b) = (&a[p * m * k..][..m * k], &b[q * k * n..][..k * n]);
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                c.push((0..k).fold(0.0, |sum, l| sum + a[i * k + l] * b[l * n + j]));
            }
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &c)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            MatMul,
            &[
                (&["f32[b, 1, 2, k]", "f32[3, k, n]"], "f32[b, 3, 2, n]"),
                (&["bf16[2, 3]", "bf16[3, 4]"], "f32[2, 4]"),
                (
                    &["f32[tokens, 8]", "f32[4, 9]"],
                    "matmul: inner axes differ: a f32[tokens, 8], b f32[4, 9]",
                ),
                (
                    &["f32[2, 2, 3]", "f32[4, 3, 2]"],
                    "matmul: batches do not broadcast: a f32[2, 2, 3], b f32[4, 3, 2]",
                ),
                (&["f32[3]", "f32[3, 2]"], "matmul: expected at least 2 axes: a f32[3], b f32[3, 2]"),
                (&["f64[2, 3]", "f64[3, 2]"], "matmul: a is f64[2, 3], expected f32, f16 or bf16"),
            ],
        );
        let a = Tensor::from_slice([2, 1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0, 0.0, 1.0, 1.0, 0.0]);
        let b = Tensor::from_slice([1, 2, 1], &[5.0f32, 6.0]);
        assert_eq!(numbers(MatMul, &[&a, &b]), [17.0, 39.0, 6.0, 5.0]);
        let (none, also) = (Tensor::zeros(DType::F32, [1, 0]), Tensor::zeros(DType::F32, [0, 2]));
        assert_eq!(numbers(MatMul, &[&none, &also]), [0.0, 0.0]);
    }
}
