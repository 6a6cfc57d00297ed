//! Broadcasting: `x` seen under a larger shape, and the rule by which shapes meet: aligned at the last axis,
//! sizes are equal, 1 or absent.

use super::prelude::*;

/// Repeats `x` along axes where it has size 1 or none: any plain dtype → the same with `shape`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broadcast {
    /// The shape of the result.
    pub shape: Vec<Dim>,
}

impl Define for Broadcast {
    declare!("broadcast" { shape });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_plain("x", x)?;
        let fits = broadcast(&x.shape, &self.shape).is_some_and(|shape| shape == self.shape);
        refuse_if!(!fits, "x {x} cannot become {:?}", self.shape);
        Ok(vec![x.with_shape(self.shape.iter().cloned())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let x = inputs[0];
        Ok(vec![take(x, outputs[0], broadcast_positions(x.shape(), &outputs[0]))])
    }
}

/// The shape that both shapes broadcast to, if sizes are provably equal, 1 or absent.
pub(super) fn broadcast(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let one = Dim::from(1);
    let rank = a.len().max(b.len());
    let size = |shape: &[Dim], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(position) => shape[position].clone(),
        None => one.clone(),
    };
    (0..rank)
        .map(|axis| match (size(a, axis), size(b, axis)) {
            (x, y) if x == y || y == one => Some(x),
            (x, y) if x == one => Some(y),
            _ => None,
        })
        .collect()
}

/// The shape that two operands broadcast to, or an error that names both.
pub(super) fn broadcast_operands(a: (&str, &Type), b: (&str, &Type)) -> Result<Vec<Dim>, TypeError> {
    broadcast(&a.1.shape, &b.1.shape)
        .ok_or_else(|| type_error!("shapes do not broadcast: {} {}, {} {}", a.0, a.1, b.0, b.1))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        let op = Broadcast { shape: crate::dims![2, "n", 3].to_vec() };
        check_types(
            op,
            &[
                (&["f32[n, 1]"], "f32[2, n, 3]"),
                (&["u8[]"], "u8[2, n, 3]"),
                (&["f32[2, 1]"], "broadcast: x f32[2, 1] cannot become [2, n, 3]"),
                (&["f32[1, 2, 1, 1]"], "broadcast: x f32[1, 2, 1, 1] cannot become [2, n, 3]"),
                (&["q8_0[32]"], "broadcast: x is q8_0[32], whose blocks have no single elements"),
            ],
        );
        let x = Tensor::from_slice([2, 1], &[1i16, 2]);
        let op = Broadcast { shape: crate::dims![2, 2, 3].to_vec() };
        assert_eq!(numbers(op, &[&x]), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    }
}
