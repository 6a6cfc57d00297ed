//! `c = s_a · s_b · Σ_k f8(a_k / s_a) · f8(b_k / s_b)`: products of operands rounded to 8-bit floats, with one scale each.

use tensor::float8;

use super::linear::Linear;
use super::matmul::MatMul;
use super::prelude::*;

/// The largest finite `f8e4m3`.
const LARGEST: f32 = 448.0;

/// A product as [`Linear`] or as [`MatMul`], of floats that are rounded to `f8e4m3`. The scale of an operand is the
/// largest magnitude of its finite elements over 448, as an f32 (1 if that is 0); infinities become the largest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fp8Product {
    /// `x: f32[.., columns]`, `weight` [rows, columns] of f32, f16, bf16 or f64 → `f32[.., rows]`.
    Linear,
    /// `a` [.., m, k], `b` [.., k, n], both f32, f16 or bf16 → `f32[.., m, n]`.
    MatMul,
}

const NAMES: &[&str] = &["fp8_linear", "fp8_matmul"];

impl Fp8Product {
    /// Replaces numbers by those over their scale, rounded to `f8e4m3`, which f32 holds exactly; returns the scale.
    pub fn round(values: &mut [f32]) -> f32 {
        let finite = values.iter().map(|value| value.abs()).filter(|value| value.is_finite());
        let scale = match finite.fold(0.0, f32::max) / LARGEST {
            0.0 => 1.0,
            scale => scale,
        };
        let decoded = float8::values(DType::F8E4M3);
        for value in values {
            *value = decoded[usize::from(float8::encode_saturating(DType::F8E4M3, *value / scale))];
        }
        scale
    }
}

impl Define for Fp8Product {
    declare!(NAMES[self in &[Fp8Product::Linear, Fp8Product::MatMul]]);

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        match (self, inputs) {
            (Fp8Product::Linear, [_, weight]) if !FLOATS.contains(&weight.dtype) => {
                Err(type_error!("weight is {weight}, expected f16, bf16, f32 or f64"))
            }
            (Fp8Product::Linear, _) => Linear::default().infer(inputs),
            (Fp8Product::MatMul, _) => MatMul.infer(inputs),
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let round = |x: &Tensor| {
            let mut values = x.to_f32_vec();
            let scale = Fp8Product::round(&mut values);
            (Tensor::from_slice(*x.shape(), &values), f64::from(scale))
        };
        let ((a, a_scale), (b, b_scale)) = (round(inputs[0]), round(inputs[1]));
        let products = match self {
            Fp8Product::Linear => Linear::default().reference(&[&a, &b], outputs)?,
            Fp8Product::MatMul => MatMul.reference(&[&a, &b], outputs)?,
        };
        let scaled: Vec<f64> = products[0].to_f64_vec().iter().map(|sum| sum * (a_scale * b_scale)).collect();
        Ok(vec![from_f64(DType::F32, outputs[0], &scaled)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            Fp8Product::Linear,
            &[
                (&["f32[n, 8]", "bf16[4, 8]"], "f32[n, 4]"),
                (
                    &["f32[n, 32]", "q8_0[4, 32]"],
                    "fp8_linear: weight is q8_0[4, 32], expected f16, bf16, f32 or f64",
                ),
                (&["f32[n, 8]", "f32[4, 9]"], "fp8_linear: inner axes differ: x f32[n, 8], weight f32[4, 9]"),
            ],
        );
        check_types(Fp8Product::MatMul, &[(&["f16[b, 2, 3]", "f16[b, 3, 4]"], "f32[b, 2, 4]")]);
        // Scales 2 and 1: of 17 over 2, 8 is nearest; of 17, 16 is.
        let x = Tensor::from_slice([1, 2], &[896f32, 17.0]);
        let (w, column) = ([1f32, 448.0], [448f32, 17.0]);
        let w = Tensor::from_slice([1, 2], &w);
        assert_eq!(numbers(Fp8Product::Linear, &[&x, &w]), [2.0 * (448.0 + 8.0 * 448.0)]);
        let column = Tensor::from_slice([2, 1], &column);
        assert_eq!(numbers(Fp8Product::MatMul, &[&x, &column]), [2.0 * (448.0 * 448.0 + 8.0 * 16.0)]);
    }

    #[test]
    fn zeros_and_infinities_have_scales() {
        let round = |mut values: [f32; 2]| (Fp8Product::round(&mut values), values);
        assert_eq!(round([0.0, -0.0]), (1.0, [0.0, 0.0]));
        assert_eq!(round([f32::NEG_INFINITY, 896.0]), (2.0, [-448.0, 448.0]));
        assert!(round([f32::NAN, 1.0]).1[0].is_nan());
    }
}
