//! `y = (x - mean(x)) / sqrt(variance(x) + eps) · weight + bias`, over the last axis.

use super::prelude::*;

/// Layer normalization: `x: f32[.., n]`, `weight: f32[n]`, `bias: f32[n]` → `f32[.., n]`. The variance is
/// that of the whole population (its divisor is n).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f32,
}

impl Define for LayerNorm {
    declare!("layer_norm" { eps });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, weight, bias] = operands(inputs, ["x", "weight", "bias"])?;
        expect_dtype("x", x, &[DType::F32])?;
        let last = last_axis("x", x)?;
        expect_type("weight", weight, DType::F32, &[last])?;
        expect_type("bias", bias, DType::F32, &[last])?;
        expect_eps(self.eps)?;
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [x, weight, bias] = [0, 1, 2].map(|i| inputs[i].to_f64_vec());
        let normalize = |row: &[f64]| {
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (variance + f64::from(self.eps)).sqrt();
            row.iter()
                .zip(&weight)
                .zip(&bias)
                .map(|((x, w), b)| (x - mean) * scale * w + b)
                .collect::<Vec<_>>()
        };
        let values: Vec<f64> = x.chunks_exact(weight.len().max(1)).flat_map(normalize).collect();
        Ok(vec![from_f64(DType::F32, outputs[0], &values)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        let op = LayerNorm { eps: 1e-5 };
        check_types(
            op,
            &[
                (&["f32[n, 4]", "f32[4]", "f32[4]"], "f32[n, 4]"),
                (&["f32[n, 4]", "f32[4]", "f32[n, 4]"], "layer_norm: bias is f32[n, 4], expected f32[4]"),
                (&["f32[n, 4]", "f32[4]"], "layer_norm: takes 3 operands (x, weight, bias), got 2"),
            ],
        );
        let x = Tensor::from_slice([1, 4], &[1.0f32, 2.0, 3.0, 4.0]);
        let weight = Tensor::from_slice([4], &[1.0f32, 1.0, 1.0, 10.0]);
        let bias = Tensor::from_slice([4], &[0.0f32, 1.0, 0.0, 0.0]);
        let expected =
            [-1.341_635_420_054_6, 1.0 - 0.447_211_806_684_9, 0.447_211_806_684_9, 13.416_354_200_546];
        assert_close(&numbers(op, &[&x, &weight, &bias]), &expected, 1e-7);
    }
}
