//! `y_i = x_i - ln Σ_j e^(x_j)` along one axis.

use super::prelude::*;

/// The logarithm of the softmax, which stays exact where that would be 0: any float dtype → the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogSoftmax {
    /// Along which axis.
    pub axis: usize,
}

impl Define for LogSoftmax {
    declare!("log_softmax" { axis });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_dtype("x", x, FLOATS)?;
        expect_axis("x", x, self.axis)?;
        Ok(vec![x.clone()])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let mut values = inputs[0].to_f64_vec();
        for lane in Lanes::of(inputs[0].shape(), self.axis).iter() {
            let largest = lane.clone().map(|i| values[i]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = lane.clone().map(|i| (values[i] - largest).exp()).sum();
            let logarithm = sum.ln();
            lane.for_each(|i| values[i] = values[i] - largest - logarithm);
        }
        Ok(vec![from_f64(inputs[0].dtype(), outputs[0], &values)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            LogSoftmax { axis: 1 },
            &[
                (&["bf16[n, 3]"], "bf16[n, 3]"),
                (&["f32[3]"], "log_softmax: x f32[3] has no axis 1"),
                (&["i32[3, 3]"], "log_softmax: x is i32[3, 3], expected f16, bf16, f32 or f64"),
            ],
        );
        let x = Tensor::from_slice([1, 3], &[1001.0f64, 1002.0, 1003.0]);
        let logarithms = [-2.407_605_964_444_38, -1.407_605_964_444_38, -0.407_605_964_444_38];
        assert_close(&numbers(LogSoftmax { axis: 1 }, &[&x]), &logarithms, 1e-13);
        assert_eq!(numbers(LogSoftmax { axis: 0 }, &[&x]), [0.0; 3]);
        let far = Tensor::from_slice([1, 3], &[0.0f32, -1e4, f32::NEG_INFINITY]);
        assert_eq!(numbers(LogSoftmax { axis: 1 }, &[&far]), [0.0, -1e4, f64::NEG_INFINITY]);
    }
}
