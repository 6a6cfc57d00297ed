//! `z = a where the condition is true, else b`, with broadcasting.

use tensor::{DType, Shape, Tensor};

use super::broadcast::{broadcast, broadcast_operands};
use super::check::{expect_dtype, expect_plain, expect_same_dtype, operands};
use super::elements::{broadcast_positions, from_bytes, take};
use super::{Attributes, Define};
use crate::{Error, Type, TypeError};

/// Picks elements: `condition` bool, `a` and `b` of any one plain dtype → that dtype; all three broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Select;

impl Define for Select {
    const NAMES: &[&str] = &["select"];

    fn name(&self) -> &'static str {
        "select"
    }

    fn parse(_name: &str, _attributes: &mut Attributes) -> Result<Select, TypeError> {
        Ok(Select)
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [condition, a, b] = operands(inputs, ["condition", "a", "b"])?;
        expect_dtype("condition", condition, &[DType::Bool])?;
        expect_plain("a", a)?;
        expect_same_dtype(("a", a), ("b", b))?;
        let both = broadcast_operands(("a", a), ("b", b))?;
        match broadcast(&condition.shape, &both) {
            Some(shape) => Ok(vec![a.with_shape(shape)]),
            None => {
                let message = format!("shapes do not broadcast: condition {condition}, a {a}, b {b}");
                Err(TypeError::new(message))
            }
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let shape = outputs[0];
        let [condition, a, b] =
            [0, 1, 2].map(|i| take(inputs[i], shape, broadcast_positions(inputs[i].shape(), &shape)));
        let size = a.dtype().block().bytes;
        let pairs = a.bytes().chunks_exact(size).zip(b.bytes().chunks_exact(size));
        let picked = condition.bytes().iter().zip(pairs).map(|(&yes, (a, b))| if yes != 0 { a } else { b });
        Ok(vec![from_bytes(a.dtype(), shape, &picked.flatten().copied().collect::<Vec<u8>>())])
    }
}
