//! The same elements, in row-major order, under another shape.

use super::prelude::*;

/// Changes the shape: `x` of any plain dtype → the same with `shape`, of provably as many elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// The shape of the result.
    pub shape: Vec<Dim>,
}

impl Define for Reshape {
    declare!("reshape" { shape });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_plain("x", x)?;
        let result = x.with_shape(self.shape.iter().cloned());
        refuse_if!(!result.is_tractable(), "the shape {:?} has too many axes or terms", self.shape);
        let (from, to) = (x.elements(), result.elements());
        refuse_if!(from != to, "x {x} has {from} elements, {:?} has {to}", self.shape);
        Ok(vec![result])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![inputs[0].reshape(outputs[0])])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            Reshape { shape: crate::dims!["tokens", 4, 16].to_vec() },
            &[
                (&["f32[tokens, 64]"], "f32[tokens, 4, 16]"),
                (
                    &["f32[tokens, 60]"],
                    "reshape: x f32[tokens, 60] has 60*tokens elements, [tokens, 4, 16] has 64*tokens",
                ),
                (
                    &["q8_0[tokens, 64]"],
                    "reshape: x is q8_0[tokens, 64], whose blocks have no single elements",
                ),
            ],
        );
        let x = Tensor::from_slice([2, 3], &[1u8, 2, 3, 4, 5, 6]).permute(&[1, 0]);
        assert_eq!(
            numbers(Reshape { shape: crate::dims![6].to_vec() }, &[&x]),
            [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
        );
    }
}
