//! `y = [x_0 | x_1 | …]` along one axis.

use super::prelude::*;

/// Puts tensors one after another: any number of operands of one plain dtype, of one shape but for the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Concat {
    /// Along which axis.
    pub axis: usize,
}

impl Define for Concat {
    declare!("concat" { axis });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let (first, rest) =
            inputs.split_first().ok_or_else(|| TypeError::new("takes at least 1 operand, got 0"))?;
        expect_plain("x0", first)?;
        expect_axis("x0", first, self.axis)?;
        let mut shape = first.shape.clone();
        for (i, x) in rest.iter().enumerate() {
            let name = format!("x{}", i + 1);
            expect_same_dtype(("x0", first), (&name, x))?;
            let others = |ty: &Type| [&ty.shape[..self.axis], &ty.shape[self.axis + 1..]].concat();
            if x.rank() != first.rank() || others(x) != others(first) {
                let axis = self.axis;
                return Err(type_error!("shapes differ outside axis {axis}: x0 {first}, {name} {x}"));
            }
            shape[self.axis] = &shape[self.axis] + &x.shape[self.axis];
            refuse_if!(
                shape[self.axis].complexity() > Dim::MAX_COMPLEXITY,
                "axis {} would become {}",
                self.axis,
                shape[self.axis]
            );
        }
        Ok(vec![first.with_shape(shape)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let size = inputs[0].dtype().block().bytes;
        let parts: Vec<(Tensor, usize)> = inputs
            .iter()
            .map(|x| (x.contiguous(), x.shape()[self.axis..].iter().product::<usize>() * size))
            .collect();
        let outer: usize = outputs[0][..self.axis].iter().product();
        let bytes: Vec<u8> = (0..outer)
            .flat_map(|o| parts.iter().flat_map(move |(x, row)| x.bytes()[o * row..][..*row].iter().copied()))
            .collect();
        Ok(vec![from_bytes(inputs[0].dtype(), outputs[0], &bytes)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types_and_values() {
        check_types(
            Concat { axis: 0 },
            &[
                (&["f32[n, 2]", "f32[m, 2]", "f32[3, 2]"], "f32[n + m + 3, 2]"),
                (
                    &["f32[n, 2]", "f32[m, 3]"],
                    "concat: shapes differ outside axis 0: x0 f32[n, 2], x1 f32[m, 3]",
                ),
                (&["f32[n]", "f32[m, 3]"], "concat: shapes differ outside axis 0: x0 f32[n], x1 f32[m, 3]"),
                (&["f32[n]", "i32[m]"], "concat: dtypes differ: x0 f32[n], x1 i32[m]"),
                (&[], "concat: takes at least 1 operand, got 0"),
                (&["f32[]", "f32[]"], "concat: x0 f32[] has no axis 0"),
            ],
        );
        let (a, b) = (Tensor::from_slice([2, 1], &[1i16, 2]), Tensor::from_slice([2, 2], &[3i16, 4, 5, 6]));
        assert_eq!(numbers(Concat { axis: 1 }, &[&a, &b]), [1.0, 3.0, 4.0, 2.0, 5.0, 6.0]);
        assert_eq!(numbers(Concat { axis: 0 }, &[&a, &a]), [1.0, 2.0, 1.0, 2.0]);
    }
}
