//! The `k` largest elements of the last axis, in descending order, and where they were.

use tensor::{DType, Shape, Tensor};

use super::attributes::required;
use super::check::{expect_number, last_axis, operands};
use super::elements::{Lanes, Numbers, take};
use super::{Attribute, Attributes, Define};
use crate::{Dim, Error, Type, TypeError};

/// Selects and sorts: `x` [.., n] of any float or integer dtype → values [.., k] and indices `i64[.., k]`. Of
/// equal ones the lowest index comes first; NaN comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TopK {
    /// How many; at most the size of the last axis.
    pub k: usize,
}

impl Define for TopK {
    const NAMES: &[&str] = &["top_k"];

    fn name(&self) -> &'static str {
        "top_k"
    }

    fn attributes(&self) -> Attributes {
        Attributes::default().with("k", Attribute::index(self.k))
    }

    fn parse(_name: &str, attributes: &mut Attributes) -> Result<TopK, TypeError> {
        Ok(TopK { k: required("k", attributes.int("k")?)? })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_number("x", x)?;
        if last_axis("x", x)?.as_static().is_some_and(|size| size < self.k) {
            return Err(TypeError::new(format!("k = {} is more than the last axis of x {x}", self.k)));
        }
        let mut shape = x.shape.clone();
        shape[x.rank() - 1] = Dim::from(self.k);
        let values = x.with_shape(shape);
        let indices = values.with_dtype(DType::I64);
        Ok(vec![values, indices])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (shape, k) = (inputs[0].shape(), self.k);
        let lanes = Lanes::of(shape, shape.rank() - 1);
        if lanes.len < k {
            return Err(Error::evaluation(
                "top_k",
                format!("k = {k} is more than the last axis of x {shape}"),
            ));
        }
        let x = Numbers::of(inputs[0]);
        let descending = |&i: &usize, &j: &usize| match x.compare(j, &x, i) {
            Some(order) => order,
            None => x.is_nan(i).cmp(&x.is_nan(j)),
        };
        let mut positions = Vec::new();
        for lane in lanes.iter() {
            let mut lane: Vec<usize> = lane.collect();
            lane.sort_by(descending); // stable
            positions.extend_from_slice(&lane[..k]);
        }
        let indices: Vec<i64> =
            positions.iter().map(|position| (position % lanes.len.max(1)) as i64).collect();
        Ok(vec![take(inputs[0], outputs[0], positions), Tensor::from_slice(outputs[1], &indices)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            TopK { k: 2 },
            &[
                (&["f16[n, 5]"], "f16[n, 2], i64[n, 2]"),
                (&["f32[1]"], "top_k: k = 2 is more than the last axis of x f32[1]"),
                (&["f32[]"], "top_k: x is f32[], expected at least 1 axis"),
            ],
        );
        let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
        let x = Tensor::from_slice([2, 4], &[1.0f32, 3.0, 3.0, 2.0, nan, low, 5.0, nan]);
        let results = run(TopK { k: 4 }, &[&x]).unwrap();
        assert_eq!(results[1].to_vec::<i64>(), [1, 2, 3, 0, 2, 1, 0, 3]);
        assert_eq!(results[0].to_vec::<f32>()[..6], [3.0, 3.0, 2.0, 1.0, 5.0, low]);
        let late = TopK { k: 5 }.reference(&[&x], &[Shape::new(&[2, 5]), Shape::new(&[2, 5])]).unwrap_err();
        assert_eq!(late.to_string(), "top_k: k = 5 is more than the last axis of x [2, 4]");
    }
}
