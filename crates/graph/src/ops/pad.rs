//! Elements before and after those of each axis.

use super::field::words;
use super::indexing::mapped;
use super::prelude::*;

/// Pads: `x` [d..] of any plain dtype, and `value` [] of that dtype where the mode is constant →
/// [before + d + after..].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pad {
    /// What the new elements are.
    pub mode: PadMode,
    /// How many come before those of each axis.
    pub before: Vec<usize>,
    /// How many come after.
    pub after: Vec<usize>,
}

/// What a [`Pad`] puts around an array `a b c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PadMode {
    /// The value of an operand: `v v a b c v v`.
    Constant,
    /// The elements mirrored at the first and the last, which are not repeated: `c b a b c b a`. More than there are
    /// elements to mirror go back and forth, as in NumPy; of one element every copy is that one.
    Reflect,
    /// The first and the last element: `a a a b c c c`.
    Edge,
}

words!(PadMode: Constant = "constant", Reflect = "reflect", Edge = "edge");

impl Pad {
    /// The index, along an axis of `size` elements, of what is at `index` in the result; `None` is the value.
    pub fn source(&self, axis: usize, index: usize, size: usize) -> Option<usize> {
        let offset = index as i128 - self.before[axis] as i128;
        let last = size as i128 - 1;
        match self.mode {
            PadMode::Constant => (0..=last).contains(&offset).then_some(offset as usize),
            PadMode::Edge => Some(offset.clamp(0, last) as usize),
            PadMode::Reflect if last == 0 => Some(0),
            PadMode::Reflect => {
                let around = offset.rem_euclid(2 * last);
                Some(around.min(2 * last - around) as usize)
            }
        }
    }

    /// Refuses to mirror or repeat what is not there.
    ///
    /// # Errors
    /// If an axis without elements is padded with its elements, in words.
    pub fn check(&self, axis: usize, size: usize) -> Result<(), String> {
        let padded = self.before[axis] + self.after[axis] > 0;
        if self.mode == PadMode::Constant || size > 0 || !padded {
            Ok(())
        } else {
            Err(format!("axis {axis} has no elements for padding by {}", self.mode.name()))
        }
    }
}

impl Define for Pad {
    declare!("pad" { mode, before, after });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let x = match self.mode {
            PadMode::Constant => {
                let [x, value] = operands(inputs, ["x", "value"])?;
                expect_same_dtype(("x", x), ("value", value))?;
                expect_rank("value", value, 0)?;
                x
            }
            _ => operands(inputs, ["x"])?[0],
        };
        expect_plain("x", x)?;
        for (name, sizes) in [("before", &self.before), ("after", &self.after)] {
            refuse_if!(sizes.len() != x.rank(), "{name} is {sizes:?}, expected one for each axis of x {x}");
        }
        let mut shape = Vec::new();
        for (axis, size) in x.shape.iter().enumerate() {
            if let Some(size) = size.as_static() {
                self.check(axis, size).map_err(|message| type_error!("{message} of x {x}"))?;
            }
            let ends = &Dim::from(self.before[axis]) + &Dim::from(self.after[axis]);
            shape.push(size + &ends);
        }
        Ok(vec![x.with_shape(shape)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (x, shape) = (inputs[0].contiguous(), inputs[0].shape());
        for axis in 0..shape.rank() {
            self.check(axis, shape[axis]).map_err(|message| Error::evaluation("pad", message))?;
        }
        let size = x.dtype().block().bytes;
        let value = inputs.get(1).map(|value| value.contiguous());
        let positions = mapped(shape, &outputs[0], |axis, index| self.source(axis, index, shape[axis]));
        let bytes: Vec<u8> = positions
            .into_iter()
            .flat_map(|position| match position {
                Some(position) => x.bytes()[position * size..][..size].to_vec(),
                None => value.as_ref().expect("only constants come from nowhere").bytes().to_vec(),
            })
            .collect();
        Ok(vec![from_bytes(x.dtype(), outputs[0], &bytes)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    fn pad(mode: PadMode, before: &[usize], after: &[usize]) -> Pad {
        Pad { mode, before: before.to_vec(), after: after.to_vec() }
    }

    #[test]
    fn types() {
        check_types(
            pad(PadMode::Constant, &[1, 0], &[2, 0]),
            &[
                (&["f16[n, 3]", "f16[]"], "f16[n + 3, 3]"),
                (&["f16[n, 3]", "f32[]"], "pad: dtypes differ: x f16[n, 3], value f32[]"),
                (&["f16[n, 3]", "f16[1]"], "pad: value is f16[1], expected 0 axes"),
                (&["f16[n]", "f16[]"], "pad: before is [1, 0], expected one for each axis of x f16[n]"),
            ],
        );
        check_types(
            pad(PadMode::Edge, &[1], &[0]),
            &[(&["i8[0]"], "pad: axis 0 has no elements for padding by edge of x i8[0]")],
        );
    }

    #[test]
    fn values() {
        let x = Tensor::from_slice([3], &[1i32, 2, 3]);
        let value = Tensor::scalar(9i32);
        assert_eq!(numbers(pad(PadMode::Constant, &[1], &[2]), &[&x, &value]), [9., 1., 2., 3., 9., 9.]);
        assert_eq!(numbers(pad(PadMode::Edge, &[2], &[1]), &[&x]), [1., 1., 1., 2., 3., 3.]);
        assert_eq!(
            numbers(pad(PadMode::Reflect, &[5], &[2]), &[&x]),
            [2., 1., 2., 3., 2., 1., 2., 3., 2., 1.]
        );
        assert_eq!(numbers(pad(PadMode::Reflect, &[1], &[2]), &[&Tensor::from_slice([1], &[4i32])]), [4.; 4]);
        let matrix = Tensor::from_slice([1, 2], &[1i32, 2]);
        let around = pad(PadMode::Constant, &[1, 0], &[0, 1]);
        assert_eq!(numbers(around, &[&matrix, &value]), [9., 9., 9., 1., 2., 9.]);
    }
}
