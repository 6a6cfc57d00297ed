//! `y_i = e^(x_i) / Σ_j e^(x_j)` along one axis.

use super::prelude::*;

/// Makes the elements along an axis positive with sum 1: any float dtype → the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Softmax {
    /// Along which axis.
    pub axis: usize,
}

impl Define for Softmax {
    declare!("softmax" { axis });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_dtype("x", x, FLOATS)?;
        expect_axis("x", x, self.axis)?;
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let mut values = inputs[0].to_f64_vec();
        for lane in Lanes::of(inputs[0].shape(), self.axis).iter() {
            let shares = softmax(&lane.clone().map(|i| values[i]).collect::<Vec<_>>());
            lane.zip(shares).for_each(|(i, share)| values[i] = share);
        }
        Ok(vec![from_f64(inputs[0].dtype(), outputs[0], &values)])
    }
}

/// One lane.
pub(super) fn softmax(scores: &[f64]) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            Softmax { axis: 1 },
            &[
                (&["bf16[n, 3]"], "bf16[n, 3]"),
                (&["f32[3]"], "softmax: x f32[3] has no axis 1"),
                (&["i32[3, 3]"], "softmax: x is i32[3, 3], expected f16, bf16, f32 or f64"),
            ],
        );
        let weights = [0.090_030_573_170_380_46, 0.244_728_471_054_797_64, 0.665_240_955_774_821_9];
        let x = Tensor::from_slice([1, 3], &[1001.0f64, 1002.0, 1003.0]);
        assert_close(&numbers(Softmax { axis: 1 }, &[&x]), &weights, 1e-15);
        assert_eq!(numbers(Softmax { axis: 0 }, &[&x]), [1.0, 1.0, 1.0]);
        let low = f64::NEG_INFINITY;
        let masked = Tensor::from_slice([2, 2], &[low, 5.0, low, low]);
        assert_close(&numbers(Softmax { axis: 1 }, &[&masked]), &[0.0, 1.0, f64::NAN, f64::NAN], 0.0);
    }
}
