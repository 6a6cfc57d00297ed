//! `[y_0 | y_1 | …] = x` along one axis.

use super::prelude::*;

/// Takes a tensor apart: `x` of any plain dtype → one result for each size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Split {
    /// Along which axis.
    pub axis: usize,
    /// The sizes of the results along the axis; their sum is the operand's.
    pub sizes: Vec<usize>,
}

impl Define for Split {
    declare!("split" { axis, sizes });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_plain("x", x)?;
        let axis = expect_axis("x", x, self.axis)?;
        let sum = self.sizes.iter().fold(Dim::from(0), |sum, &size| &sum + &Dim::from(size));
        if sum != *axis {
            let sizes = &self.sizes;
            return Err(type_error!(
                "sizes {sizes:?} have sum {sum}, axis {} of x {x} has {axis}",
                self.axis
            ));
        }
        let result = |&size: &usize| {
            let mut shape = x.shape.clone();
            shape[self.axis] = Dim::from(size);
            x.with_shape(shape)
        };
        Ok(self.sizes.iter().map(result).collect())
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let Lanes { outer, len, inner } = Lanes::of(inputs[0].shape(), self.axis);
        let starts = self.sizes.iter().scan(0, |start, size| {
            *start += size;
            Some(*start - size)
        });
        let part = |(start, (&size, &shape)): (usize, (&usize, &Shape))| {
            let positions = (0..outer).flat_map(|o| {
                let first = (o * len + start) * inner;
                first..first + size * inner
            });
            take(inputs[0], shape, positions)
        };
        Ok(starts.zip(self.sizes.iter().zip(outputs)).map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    #[test]
    fn types_and_values() {
        let op = Split { axis: 1, sizes: vec![1, 0, 2] };
        check_types(
            op.clone(),
            &[
                (&["u8[n, 3]"], "u8[n, 1], u8[n, 0], u8[n, 2]"),
                (&["u8[n, 4]"], "split: sizes [1, 0, 2] have sum 3, axis 1 of x u8[n, 4] has 4"),
                (&["u8[n]"], "split: x u8[n] has no axis 1"),
            ],
        );
        let parts = run(op, &[&Tensor::from_slice([2, 3], &[1u8, 2, 3, 4, 5, 6])]).unwrap();
        let values: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        assert_eq!(values, [vec![1, 4], vec![], vec![2, 3, 5, 6]]);
    }
}
