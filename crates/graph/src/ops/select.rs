//! `z = a where the condition is true, else b`, with broadcasting.

use super::broadcast::{broadcast, broadcast_operands};
use super::prelude::*;

/// Picks elements: `condition` bool, `a` and `b` of any one plain dtype → that dtype; all three broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Select;

impl Define for Select {
    declare!("select");

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

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            Select,
            &[
                (&["bool[2, 1]", "f16[n]", "f16[]"], "f16[2, n]"),
                (&["u8[1]", "f16[n]", "f16[]"], "select: condition is u8[1], expected bool"),
                (&["bool[1]", "f16[n]", "f32[]"], "select: dtypes differ: a f16[n], b f32[]"),
                (
                    &["bool[2]", "f16[3]", "f16[]"],
                    "select: shapes do not broadcast: condition bool[2], a f16[3], b f16[]",
                ),
            ],
        );
        let condition = Tensor::from_bools([2, 1], &[true, false]);
        let (a, b) = (Tensor::from_slice([2], &[1.0f32, f32::NAN]), Tensor::scalar(7.0f32));
        let results = numbers(Select, &[&condition, &a, &b]);
        assert!(results[1].is_nan());
        assert_eq!([results[0], results[2], results[3]], [1.0, 7.0, 7.0]);
    }
}
