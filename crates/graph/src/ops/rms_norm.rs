//! `y = x / sqrt(mean(x²) + eps) · weight`, over the last axis.

use super::prelude::*;

/// Root-mean-square normalization: `x: f32[.., n]`, `weight: f32[n]` → `f32[.., n]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f32,
}

impl Define for RmsNorm {
    declare!("rms_norm" { eps });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, weight] = operands(inputs, ["x", "weight"])?;
        expect_dtype("x", x, &[DType::F32])?;
        expect_type("weight", weight, DType::F32, &[last_axis("x", x)?])?;
        expect_eps(self.eps)?;
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (x, weight) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let rows = x.chunks_exact(weight.len().max(1));
        let values: Vec<f64> = rows.flat_map(|row| normalize(row, &weight, self.eps)).collect();
        Ok(vec![from_f64(DType::F32, outputs[0], &values)])
    }
}

/// One row, normalized.
pub(super) fn normalize(row: &[f64], weight: &[f64], eps: f32) -> Vec<f64> {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    row.iter().zip(weight).map(|(x, w)| x * scale * w).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        let op = RmsNorm { eps: 1e-5 };
        check_types(
            op,
            &[
                (&["f32[tokens, 64]", "f32[64]"], "f32[tokens, 64]"),
                (&["f32[tokens, 64]", "f32[32]"], "rms_norm: weight is f32[32], expected f32[64]"),
                (&["f16[tokens, 64]", "f32[64]"], "rms_norm: x is f16[tokens, 64], expected f32"),
                (&["f32[]", "f32[1]"], "rms_norm: x is f32[], expected at least 1 axis"),
            ],
        );
        let wrong = RmsNorm { eps: -1.0 };
        check_types(
            wrong,
            &[(&["f32[4]", "f32[4]"], "rms_norm: eps is -1, expected a finite number of at least 0")],
        );
        let x = Tensor::from_slice([2, 4], &[1.0f32, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
        let weight = Tensor::from_slice([4], &[1.0f32, 1.0, 2.0, -1.0]);
        let row = [0.365_148_128_134_3, 0.730_296_256_268_5, 2.0 * 1.095_444_384_402_8, -1.460_592_512_537_1];
        assert_close(&numbers(op, &[&x, &weight]), &[&row[..], &[0.0; 4]].concat(), 1e-7);
        let empty = Tensor::zeros(DType::F32, [2, 0]);
        assert_eq!(numbers(op, &[&empty, &Tensor::zeros(DType::F32, [0])]), [0.0f64; 0]);
    }
}
