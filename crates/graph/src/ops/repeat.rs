//! Repetition: of a whole tensor, and of each element of an axis.

use super::field::Field;
use super::indexing::{integers, mapped};
use super::out_dim::OutDim;
use super::prelude::*;

/// The whole again and again along each axis: `x` [d..] of any plain dtype → [repeats · d..].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tile {
    /// How often, for each axis.
    pub repeats: Vec<Dim>,
}

impl Define for Tile {
    declare!("tile" { repeats });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_plain("x", x)?;
        if self.repeats.len() == x.rank() {
            Ok(vec![x.with_shape(x.shape.iter().zip(&self.repeats).map(|(size, n)| size * n))])
        } else {
            let message = format!("repeats is {:?}, expected one for each axis of x {x}", self.repeats);
            Err(TypeError::new(message))
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let shape = inputs[0].shape();
        let positions = mapped(shape, &outputs[0], |axis, index| Some(index % shape[axis]));
        Ok(vec![take(inputs[0], outputs[0], positions.into_iter().flatten())])
    }
}

/// Each element of an axis several times in a row: `x` of any plain dtype → the same with a longer axis.
///
/// How often is an attribute, or an operand `repeats: i32 or i64[n]` with a number for each of the `n` elements of the
/// axis; the size of the result is then their sum.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepeatInterleave {
    /// Along which axis.
    pub axis: usize,
    /// How often.
    pub repeats: Repeats,
}

/// How often a [`RepeatInterleave`] gives each element.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Repeats {
    /// Each as often.
    Each(usize),
    /// As an operand says; the axis of the result has this size.
    Counts(OutDim),
}

impl RepeatInterleave {
    /// The sum of counts.
    ///
    /// # Errors
    /// If one is negative, or there are too many, in words.
    pub fn total(counts: &[i64]) -> Result<usize, String> {
        if let Some((position, count)) = counts.iter().enumerate().find(|&(_, &count)| count < 0) {
            return Err(format!("repeats is {count} at position {position}, expected at least 0"));
        }
        let sum: i128 = counts.iter().map(|&count| i128::from(count)).sum();
        usize::try_from(sum).map_err(|_| format!("{sum} repetitions are too many"))
    }

    /// Refuses counts that do not make `result` of the `size` elements of the axis of `x`.
    ///
    /// # Errors
    /// If there are not as many as elements, one is negative, or their sum is another, in words.
    pub fn check(&self, size: usize, counts: Option<&[i64]>, result: usize) -> Result<(), String> {
        let (Repeats::Counts(out_dim), Some(counts)) = (&self.repeats, counts) else { return Ok(()) };
        if counts.len() == size {
            out_dim.expect(RepeatInterleave::total(counts)?, result)
        } else {
            Err(format!("repeats has {} elements, axis {} has {size}", counts.len(), self.axis))
        }
    }

    /// For each index along the axis of the result, the index along the axis of `size` elements of `x`; counts that were
    /// checked.
    pub fn sources(&self, size: usize, counts: Option<&[i64]>) -> impl Iterator<Item = usize> {
        let count = move |index: usize| match (&self.repeats, counts) {
            (Repeats::Each(repeats), _) => *repeats,
            (Repeats::Counts(_), counts) => counts.map_or(0, |counts| counts[index] as usize),
        };
        (0..size).flat_map(move |index| std::iter::repeat_n(index, count(index)))
    }
}

/// `repeats` for a number, what [`OutDim`] says for counts.
impl Field for Repeats {
    fn write(&self, name: &str, attributes: Attributes) -> Attributes {
        match self {
            Repeats::Each(repeats) => repeats.write(name, attributes),
            Repeats::Counts(out_dim) => out_dim.write(name, attributes),
        }
    }

    fn read(op: &str, name: &str, attributes: &mut Attributes) -> Result<Repeats, TypeError> {
        match Field::read(op, name, attributes)? {
            Some(repeats) => Ok(Repeats::Each(repeats)),
            None => Ok(Repeats::Counts(Field::read(op, name, attributes)?)),
        }
    }
}

impl Define for RepeatInterleave {
    declare!("repeat_interleave" { axis, repeats });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let (x, size) = match &self.repeats {
            Repeats::Each(repeats) => {
                let [x] = operands(inputs, ["x"])?;
                (x, expect_axis("x", x, self.axis)? * &Dim::from(*repeats))
            }
            Repeats::Counts(out_dim) => {
                let [x, repeats] = operands(inputs, ["x", "repeats"])?;
                expect_dtype("repeats", repeats, &[DType::I32, DType::I64])?;
                expect_rank("repeats", repeats, 1)?;
                let axis = expect_axis("x", x, self.axis)?;
                refuse_if!(
                    repeats.shape[0] != *axis,
                    "repeats is {repeats}, expected one for each of the {axis} elements of axis {} of x {x}",
                    self.axis
                );
                (x, out_dim.dim()?)
            }
        };
        expect_plain("x", x)?;
        let mut shape = x.shape.clone();
        shape[self.axis] = size;
        Ok(vec![x.with_shape(shape)])
    }

    fn defines(&self) -> Vec<&str> {
        match &self.repeats {
            Repeats::Each(_) => vec![],
            Repeats::Counts(out_dim) => out_dim.defines(),
        }
    }

    fn sizes(&self, inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
        match &self.repeats {
            Repeats::Each(_) => Ok(vec![]),
            Repeats::Counts(out_dim) => {
                let total = RepeatInterleave::total(&counts(inputs[1]));
                let total = total.map_err(|message| Error::evaluation("repeat_interleave", message))?;
                Ok(out_dim.sizes(total))
            }
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let refuse = |message| Error::evaluation("repeat_interleave", message);
        let shape = inputs[0].shape();
        let counts = inputs.get(1).map(|repeats| counts(repeats));
        let (size, counts) = (shape[self.axis], counts.as_deref());
        self.check(size, counts, outputs[0][self.axis]).map_err(refuse)?;
        if outputs[0].contains(&0) {
            // The axis may be of any length then, so it is not walked.
            return Ok(vec![Tensor::zeros(inputs[0].dtype(), outputs[0])]);
        }
        let sources: Vec<usize> = self.sources(size, counts).collect();
        let source = |axis, index| Some(if axis == self.axis { sources[index] } else { index });
        let positions = mapped(shape, &outputs[0], source);
        Ok(vec![take(inputs[0], outputs[0], positions.into_iter().flatten())])
    }
}

fn counts(repeats: &Tensor) -> Vec<i64> {
    integers(repeats).into_iter().map(|count| count as i64).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;
    use crate::{Graph, dims};

    #[test]
    fn tiles() {
        let tile = Tile { repeats: dims!["k", 2].to_vec() };
        check_types(
            tile,
            &[
                (&["f16[n, 3]"], "f16[k*n, 6]"),
                (&["f16[3]"], "tile: repeats is [k, 2], expected one for each axis of x f16[3]"),
            ],
        );
        let x = Tensor::from_slice([1, 2], &[1i8, 2]);
        assert_eq!(numbers(Tile { repeats: dims![2, 2].to_vec() }, &[&x]), [1., 2., 1., 2., 1., 2., 1., 2.]);
        assert_eq!(numbers(Tile { repeats: dims![0, 2].to_vec() }, &[&x]), [0.0; 0]);
    }

    #[test]
    fn elements_repeat() {
        let each = |repeats| RepeatInterleave { axis: 1, repeats: Repeats::Each(repeats) };
        let counted = |out_dim| RepeatInterleave { axis: 0, repeats: Repeats::Counts(out_dim) };
        check_types(
            each(3),
            &[(&["f16[2, n]"], "f16[2, 3*n]"), (&["f16[2]"], "repeat_interleave: x f16[2] has no axis 1")],
        );
        check_types(
            counted("total".into()),
            &[
                (&["f16[n, 2]", "i64[n]"], "f16[total, 2]"),
                (
                    &["f16[n, 2]", "i64[2]"],
                    "repeat_interleave: repeats is i64[2], expected one for each of the n elements of axis 0 of x f16[n, 2]",
                ),
            ],
        );
        let x = Tensor::from_slice([2, 2], &[1i16, 2, 3, 4]);
        assert_eq!(numbers(each(2), &[&x]), [1., 1., 2., 2., 3., 3., 4., 4.]);
        let text = "graph g(%x: i16[n, 2], %r: i64[n]) {
                      %0 = repeat_interleave(%x, %r) {axis = 0, out_dim = total}
                      return %0
                    }";
        let graph = Graph::parse(text).unwrap();
        let counts = Tensor::from_slice([2], &[0i64, 3]);
        let results = graph.evaluate(&[x.clone(), counts], &|_| None).unwrap();
        assert_eq!(results.outputs[0].to_vec::<i16>(), [3, 4, 3, 4, 3, 4]);
        let negative = graph.evaluate(&[x.clone(), Tensor::from_slice([2], &[1i64, -1])], &|_| None);
        let message = "repeat_interleave: repeats is -1 at position 1, expected at least 0";
        assert_eq!(negative.unwrap_err().to_string(), message);
        let known = counted(OutDim::Known(3.into()));
        let error = run(known, &[&x, &Tensor::from_slice([2], &[1i64, 1])]).unwrap_err();
        assert_eq!(error.to_string(), "repeat_interleave: the data gives a size of 2, expected 3");
    }
}
