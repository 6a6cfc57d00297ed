//! The indices that put the elements of an axis in order.

use super::prelude::*;

/// Sorts: `x` of any float or integer dtype → i64 indices along the axis, of the same shape. Equal elements keep their
/// order, in both directions. NaN is above all numbers: last where the order ascends, first where it descends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArgSort {
    /// Along which axis.
    pub axis: usize,
    /// Whether the largest comes first.
    pub descending: bool,
}

impl Define for ArgSort {
    declare!("argsort" { axis, descending });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_number("x", x)?;
        expect_axis("x", x, self.axis)?;
        Ok(vec![x.with_shape(x.shape.clone()).with_dtype(DType::I64)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let lanes = Lanes::of(inputs[0].shape(), self.axis);
        let x = Numbers::of(inputs[0]);
        let mut indices = vec![0i64; inputs[0].elements()];
        for lane in lanes.iter() {
            let positions: Vec<usize> = lane.collect();
            let mut order: Vec<usize> = (0..positions.len()).collect();
            order.sort_by(|&i, &j| x.rank(positions[i], positions[j], self.descending)); // stable
            for (position, index) in positions.into_iter().zip(order) {
                indices[position] = index as i64;
            }
        }
        Ok(vec![Tensor::from_slice(outputs[0], &indices)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            ArgSort { axis: 0, descending: false },
            &[
                (&["f16[n]"], "i64[n]"),
                (&["bool[n]"], "argsort: x is bool[n], expected a float or an integer"),
                (&["f16[]"], "argsort: x f16[] has no axis 0"),
            ],
        );
        let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
        let x = Tensor::from_slice([6], &[nan, 2.0f32, low, 2.0, 0.0, -0.0]);
        let of = |descending, axis, x| numbers(ArgSort { axis, descending }, &[x]);
        assert_eq!(of(false, 0, &x), [2., 4., 5., 1., 3., 0.]);
        assert_eq!(of(true, 0, &x), [0., 1., 3., 4., 5., 2.]);
        let matrix = Tensor::from_slice([2, 2], &[5i64, i64::MAX, i64::MIN, i64::MAX - 1]);
        assert_eq!(of(false, 0, &matrix), [1., 1., 0., 0.]);
        assert_eq!(of(true, 1, &matrix), [1., 0., 1., 0.]);
    }
}
