//! `y_i = x_(n-1-i)` along some axes.

use super::indexing::mapped;
use super::prelude::*;

/// Turns axes around: `x` of any plain dtype → its type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Flip {
    /// Which; each once.
    pub axes: Vec<usize>,
}

impl Define for Flip {
    declare!("flip" { axes });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_plain("x", x)?;
        for (position, &axis) in self.axes.iter().enumerate() {
            expect_axis("x", x, axis)?;
            refuse_if!(
                self.axes[..position].contains(&axis),
                "axes is {:?}, which names axis {axis} twice",
                self.axes
            );
        }
        Ok(vec![x.with_shape(x.shape.clone())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let shape = inputs[0].shape();
        let source = |axis: usize, index: usize| {
            Some(if self.axes.contains(&axis) { shape[axis] - 1 - index } else { index })
        };
        let positions = mapped(shape, &outputs[0], source);
        Ok(vec![take(inputs[0], outputs[0], positions.into_iter().flatten())])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            Flip { axes: vec![1, 1] },
            &[
                (&["f32[2, 3]"], "flip: axes is [1, 1], which names axis 1 twice"),
                (&["f32[2]"], "flip: x f32[2] has no axis 1"),
            ],
        );
        let x = Tensor::from_slice([2, 2], &[1i8, 2, 3, 4]);
        assert_eq!(numbers(Flip { axes: vec![1] }, &[&x]), [2., 1., 4., 3.]);
        assert_eq!(numbers(Flip { axes: vec![1, 0] }, &[&x]), [4., 3., 2., 1.]);
        assert_eq!(numbers(Flip { axes: vec![] }, &[&x]), [1., 2., 3., 4.]);
    }
}
