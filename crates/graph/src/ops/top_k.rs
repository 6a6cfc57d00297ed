//! The `k` largest or smallest elements of an axis, in order, and where they were.

use super::prelude::*;

/// Selects and sorts: `x` of any float or integer dtype → values and i64 indices, both with `k` elements along the
/// axis. Of equal ones the lowest index comes first. NaN is above all numbers: `top_k` gives it first, `bottom_k` last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TopK {
    /// How many; at most the size of the axis.
    pub k: usize,
    /// Along which axis.
    pub axis: usize,
    /// Whether the smallest are selected, in ascending order, rather than the largest in descending order.
    pub smallest: bool,
}

const NAMES: &[&str] = &["top_k", "bottom_k"];

impl Define for TopK {
    declare!(NAMES[smallest in &[false, true]] { k, axis });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_number("x", x)?;
        let size = expect_axis("x", x, self.axis)?;
        refuse_if!(
            size.as_static().is_some_and(|size| size < self.k),
            "k = {} is more than axis {} of x {x}",
            self.k,
            self.axis
        );
        let mut shape = x.shape.clone();
        shape[self.axis] = Dim::from(self.k);
        let values = x.with_shape(shape);
        let indices = values.with_dtype(DType::I64);
        Ok(vec![values, indices])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (shape, k) = (inputs[0].shape(), self.k);
        let lanes = Lanes::of(shape, self.axis);
        if lanes.len < k {
            let message = format!("k = {k} is more than axis {} of x {shape}", self.axis);
            return Err(Error::evaluation(self.name(), message));
        }
        let x = Numbers::of(inputs[0]);
        let mut from = vec![0; outputs[0].elements()];
        let mut indices = vec![0i64; from.len()];
        for (lane, slots) in lanes.iter().zip(Lanes::of(&outputs[0], self.axis).iter()) {
            let lane: Vec<usize> = lane.collect();
            let mut order: Vec<usize> = (0..lane.len()).collect();
            order.sort_by(|&i, &j| x.rank(lane[i], lane[j], !self.smallest)); // stable
            for (slot, index) in slots.zip(order) {
                (from[slot], indices[slot]) = (lane[index], index as i64);
            }
        }
        Ok(vec![take(inputs[0], outputs[0], from), Tensor::from_slice(outputs[1], &indices)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    #[test]
    fn types_and_values() {
        let top = |k, axis| TopK { k, axis, smallest: false };
        check_types(
            top(2, 1),
            &[
                (&["f16[n, 5]"], "f16[n, 2], i64[n, 2]"),
                (&["f32[3, 1]"], "top_k: k = 2 is more than axis 1 of x f32[3, 1]"),
                (&["f32[]"], "top_k: x f32[] has no axis 1"),
            ],
        );
        let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
        let x = Tensor::from_slice([2, 4], &[1.0f32, 3.0, 3.0, 2.0, nan, low, 5.0, nan]);
        let results = run(top(4, 1), &[&x]).unwrap();
        assert_eq!(results[1].to_vec::<i64>(), [1, 2, 3, 0, 0, 3, 2, 1]);
        let values = results[0].to_vec::<f32>();
        assert_eq!((&values[..4], &values[6..]), (&[3.0, 3.0, 2.0, 1.0][..], &[5.0, low][..]));
        assert!(values[4].is_nan() && values[5].is_nan());
        let results = run(TopK { k: 3, axis: 1, smallest: true }, &[&x]).unwrap();
        assert_eq!(results[1].to_vec::<i64>(), [0, 3, 1, 1, 2, 0]);
        let results = run(top(1, 0), &[&x]).unwrap();
        assert_eq!(results[0].to_vec::<f32>()[1..3], [3.0, 5.0]);
        assert_eq!(results[1].to_vec::<i64>(), [1, 0, 1, 1]);
        let late = top(5, 1).reference(&[&x], &[Shape::new(&[2, 5]), Shape::new(&[2, 5])]).unwrap_err();
        assert_eq!(late.to_string(), "top_k: k = 5 is more than axis 1 of x [2, 4]");
    }
}
