//! `y_i = e^(x_i) / Σ_j e^(x_j)` along one axis.

use tensor::{Shape, Tensor};

use super::attributes::required;
use super::check::{FLOATS, expect_axis, expect_dtype, operands};
use super::elements::{Lanes, from_f64};
use super::{Attribute, Attributes, Define};
use crate::{Error, Type, TypeError};

/// Makes the elements along an axis positive with sum 1: any float dtype → the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Softmax {
    /// Along which axis.
    pub axis: usize,
}

impl Define for Softmax {
    const NAMES: &[&str] = &["softmax"];

    fn name(&self) -> &'static str {
        "softmax"
    }

    fn attributes(&self) -> Attributes {
        Attributes::default().with("axis", Attribute::index(self.axis))
    }

    fn parse(_name: &str, attributes: &mut Attributes) -> Result<Softmax, TypeError> {
        Ok(Softmax { axis: required("axis", attributes.int("axis")?)? })
    }

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
            let powers: Vec<f64> = lane.clone().map(|i| (values[i] - largest).exp()).collect();
            let sum: f64 = powers.iter().sum();
            lane.zip(powers).for_each(|(i, power)| values[i] = power / sum);
        }
        Ok(vec![from_f64(inputs[0].dtype(), outputs[0], &values)])
    }
}
