//! `y[i_order[0], i_order[1], …] = x[i_0, i_1, …]`: the axes in another order.

use super::prelude::*;

/// Reorders axes: `x` of any plain dtype → the same with `x`'s axis `order[i]` as axis `i`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transpose {
    /// Which axis of the operand each axis of the result is; a permutation.
    pub order: Vec<usize>,
}

impl Define for Transpose {
    declare!("transpose" { order });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_plain("x", x)?;
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        refuse_if!(
            !sorted.into_iter().eq(0..x.rank()),
            "order {:?} is no permutation of the axes of x {x}",
            self.order
        );
        Ok(vec![x.with_shape(self.order.iter().map(|&axis| x.shape[axis].clone()))])
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![inputs[0].permute(&self.order).contiguous()])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        let op = Transpose { order: vec![2, 0, 1] };
        check_types(
            op.clone(),
            &[
                (&["f32[a, b, c]"], "f32[c, a, b]"),
                (&["f32[a, b]"], "transpose: order [2, 0, 1] is no permutation of the axes of x f32[a, b]"),
            ],
        );
        let twice = Transpose { order: vec![0, 0] };
        check_types(
            twice,
            &[(&["f32[a, b]"], "transpose: order [0, 0] is no permutation of the axes of x f32[a, b]")],
        );
        let x = Tensor::from_slice([2, 1, 3], &[1u8, 2, 3, 4, 5, 6]);
        assert_eq!(numbers(op, &[&x]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
