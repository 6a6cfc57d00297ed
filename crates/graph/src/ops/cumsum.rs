//! `y_i = Σ_(j ≤ i) x_j` along an axis.

use super::prelude::*;

/// Running sums: `x` of any float or integer dtype → its type. Integers wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CumSum {
    /// Along which axis.
    pub axis: usize,
    /// Whether an element is left out of its own sum, so that the first is 0.
    pub exclusive: bool,
    /// Whether the sums start at the end of the axis.
    pub reverse: bool,
}

impl Define for CumSum {
    declare!("cumsum" { axis, exclusive, reverse });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_number("x", x)?;
        expect_axis("x", x, self.axis)?;
        Ok(vec![x.with_shape(x.shape.clone())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (dtype, lanes) = (inputs[0].dtype(), Lanes::of(inputs[0].shape(), self.axis));
        let result = match Numbers::of(inputs[0]) {
            Numbers::Floats(x) => from_f64(dtype, outputs[0], &self.sums(lanes, &x, 0.0, |a, b| a + b)),
            Numbers::Integers(x) => {
                from_i128(dtype, outputs[0], &self.sums(lanes, &x, 0, i128::wrapping_add))
            }
        };
        Ok(vec![result])
    }
}

impl CumSum {
    fn sums<T: Copy>(&self, lanes: Lanes, x: &[T], zero: T, add: impl Fn(T, T) -> T) -> Vec<T> {
        let mut sums = x.to_vec();
        for lane in lanes.iter() {
            let mut lane: Vec<usize> = lane.collect();
            if self.reverse {
                lane.reverse();
            }
            let mut sum = zero;
            for position in lane {
                let after = add(sum, x[position]);
                sums[position] = if self.exclusive { sum } else { after };
                sum = after;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        let sum = |axis, exclusive, reverse| CumSum { axis, exclusive, reverse };
        check_types(
            sum(1, false, false),
            &[
                (&["bf16[n, 2]"], "bf16[n, 2]"),
                (&["bool[n, 2]"], "cumsum: x is bool[n, 2], expected a float or an integer"),
                (&["f32[n]"], "cumsum: x f32[n] has no axis 1"),
            ],
        );
        let x = Tensor::from_slice([2, 3], &[1i8, 2, 126, 4, 5, 6]);
        assert_eq!(numbers(sum(1, false, false), &[&x]), [1., 3., -127., 4., 9., 15.]);
        assert_eq!(numbers(sum(1, true, false), &[&x]), [0., 1., 3., 0., 4., 9.]);
        assert_eq!(numbers(sum(1, false, true), &[&x])[3..], [15., 11., 6.]);
        assert_eq!(numbers(sum(0, true, true), &[&x]), [4., 5., 6., 0., 0., 0.]);
        let halves = Tensor::from_slice([2], &[tensor::f16::from_f32(2048.0), tensor::f16::from_f32(1.0)]);
        assert_eq!(numbers(sum(0, false, false), &[&halves]), [2048., 2048.]);
    }
}
