//! Slices as Python writes them: `x[1, ..., 2:-1, None]`, of tensors and of buffers.

use tensor::{DType, Tensor};

use super::Builder;
use crate::ops::*;
use crate::{Dim, Error, Type, Value};

/// What becomes of an axis, or of several, in a slice. Axes that no index names stay as they are.
#[derive(Debug, Clone, PartialEq)]
pub enum Index {
    /// One element, and the axis is gone: `x[i]`. A negative index counts from the end.
    At(i64),
    /// As [`Index::At`], of a value [] of u32, i32 or i64.
    AtValue(Value),
    /// Elements `start`, `start + step`, … before `stop`: `x[start:stop:step]`. Negative ends count from the end; those
    /// outside an axis whose size is a number become its ends, as in Python. Where the size is a symbol, they must lie
    /// within it when the graph runs.
    Range {
        /// The first; `None` is the first there is.
        start: Option<i64>,
        /// The one after the last; `None` is the end.
        stop: Option<i64>,
        /// The distance. A negative one goes backwards, as in Python; the axis of a tensor, and its size a number.
        step: i64,
    },
    /// As [`Index::Range`], with ends that are values [] of i32 or i64: `x[(slice(start, stop, step), out_dim)]`. The
    /// size is `out_dim`; a symbol that has no size yet gets it from the data.
    Span {
        /// The first; `None` is the first there is.
        start: Option<Value>,
        /// The one after the last; `None` is the end.
        stop: Option<Value>,
        /// The distance, at least 1, and of a buffer a constant; `None` is 1.
        step: Option<Value>,
        /// The size of the axis of the result.
        out_dim: Dim,
    },
    /// `size` elements from a value [] of i32 or i64 on, all of which must be there.
    Window {
        /// The first; a negative one counts from the end.
        start: Value,
        /// How many.
        size: Dim,
    },
    /// As many whole axes as the other indices leave: `x[...]`. At most one.
    Ellipsis,
    /// A new axis of size 1: `x[None]`.
    NewAxis,
}

impl Index {
    /// The whole of an axis: `x[:]`.
    pub const ALL: Index = Index::Range { start: None, stop: None, step: 1 };

    /// `x[start:stop]`.
    pub fn range(start: impl Into<Option<i64>>, stop: impl Into<Option<i64>>) -> Index {
        Index::Range { start: start.into(), stop: stop.into(), step: 1 }
    }
}

/// An axis of a box in a buffer.
struct Side {
    start: Start,
    size: Dim,
    step: usize,
}

enum Start {
    Known(i64),
    Value(Value),
}

impl Builder {
    /// A slice of a tensor, as Python writes it: `b.slice_tensor(x, &[Index::At(0), Index::Ellipsis])`.
    #[track_caller]
    pub fn slice_tensor(&mut self, x: Value, indices: &[Index]) -> Result<Value, Error> {
        let indices = self.expand("slice_tensor", x, indices)?;
        let (mut x, mut axis) = (x, 0);
        // What the axes of the last reshape are.
        let mut shape: Vec<Dim> = Vec::new();
        for index in indices {
            match index {
                Index::NewAxis => {
                    shape.push(Dim::from(1));
                    continue;
                }
                Index::AtValue(value) => {
                    self.expect_scalar("slice_tensor", value)?;
                    let value = self.transfer_to(value, self.ty(x).device)?;
                    x = self.op(Gather { axis }, &[x, value])?;
                    continue;
                }
                _ => x = self.slice_axis(x, axis, &index)?,
            }
            if !matches!(index, Index::At(_)) {
                shape.push(self.ty(x).shape[axis].clone());
            }
            axis += 1;
        }
        if shape == self.ty(x).shape { Ok(x) } else { self.reshape(x, shape) }
    }

    /// A slice of what a buffer holds at this point. Reads the slice alone.
    #[track_caller]
    pub fn load_slice(&mut self, buffer: Value, indices: &[Index]) -> Result<Value, Error> {
        let indices = self.expand("load_slice", buffer, indices)?;
        let sides = self.sides("load_slice", buffer, &indices)?;
        let starts = self.starts(&sides)?;
        let starts = self.transfer_to(starts, self.ty(buffer).device)?;
        let shape: Vec<Dim> = sides.iter().map(|side| side.size.clone()).collect();
        let steps = sides.iter().map(|side| side.step).collect();
        let x = self.op(LoadSlice { shape, steps }, &[buffer, starts])?;
        let shape = seen(&indices, &sides);
        if shape == self.ty(x).shape { Ok(x) } else { self.reshape(x, shape) }
    }

    /// Overwrites a slice of a buffer with `x`, which is broadcast to its shape: `buffer[i:j] = x`.
    #[track_caller]
    pub fn store_slice(&mut self, buffer: Value, indices: &[Index], x: Value) -> Result<(), Error> {
        let indices = self.expand("store_slice", buffer, indices)?;
        self.operand("store_slice", x)?;
        let sides = self.sides("store_slice", buffer, &indices)?;
        let starts = self.starts(&sides)?;
        let starts = self.transfer_to(starts, self.ty(buffer).device)?;
        let shape = seen(&indices, &sides);
        let x = if shape == self.ty(x).shape { x } else { self.broadcast(x, shape)? };
        let shape: Vec<Dim> = sides.iter().map(|side| side.size.clone()).collect();
        let x = if shape == self.ty(x).shape { x } else { self.reshape(x, shape)? };
        let steps = sides.iter().map(|side| side.step).collect();
        self.ops(StoreSlice { steps }, &[buffer, x, starts]).map(|_| ())
    }

    /// `x` with an index applied to an axis, which stays.
    #[track_caller]
    fn slice_axis(&mut self, x: Value, axis: usize, index: &Index) -> Result<Value, Error> {
        match index {
            Index::At(at) => {
                let stop = (*at != -1).then(|| at.wrapping_add(1));
                self.op(Slice { axis, start: *at, stop, step: 1 }, &[x])
            }
            Index::Range { start, stop, step } => match usize::try_from(*step) {
                Ok(step) => {
                    let (start, stop) = clip(&self.ty(x).shape[axis], *start, *stop);
                    match (start, stop, step) {
                        (0, None, 1) => Ok(x),
                        _ => self.op(Slice { axis, start, stop, step }, &[x]),
                    }
                }
                Err(_) => self.slice_backwards(x, axis, *start, *stop, *step),
            },
            Index::Span { start, stop, step, out_dim } => {
                let out_dim = self.out_dim(out_dim);
                let mut operands = vec![x];
                for (end, otherwise) in [(start, 0), (stop, i64::MAX), (step, 1i64)] {
                    let end = match *end {
                        Some(end) => end,
                        None => self.constant(Tensor::scalar(otherwise)),
                    };
                    operands.push(self.transfer_to(end, self.ty(x).device)?);
                }
                self.op(DynamicSlice { axis, out_dim }, &operands)
            }
            Index::Window { start, size } => {
                let step = self.constant(Tensor::scalar(1i64));
                let device = self.ty(x).device;
                let (start, step) = (self.transfer_to(*start, device)?, self.transfer_to(step, device)?);
                let out_dim = OutDim::Known(size.clone());
                self.op(DynamicSlice { axis, out_dim }, &[x, start, step])
            }
            Index::AtValue(_) | Index::Ellipsis | Index::NewAxis => {
                unreachable!("no index that keeps an axis")
            }
        }
    }

    /// Gathers the elements of an axis from `start` down to the one after `stop`.
    #[track_caller]
    fn slice_backwards(
        &mut self,
        x: Value,
        axis: usize,
        start: Option<i64>,
        stop: Option<i64>,
        step: i64,
    ) -> Result<Value, Error> {
        let dim = &self.ty(x).shape[axis];
        let Some(size) = dim.as_static().and_then(|size| i64::try_from(size).ok()) else {
            let message = format!("the step of a slice is {step}, but the size of axis {axis} is `{dim}`");
            return Err(self.refuse("slice_tensor", format!("{message}, expected a number")));
        };
        let end = |end: i64| if end < 0 { end.saturating_add(size).max(-1) } else { end.min(size - 1) };
        let (first, last) = (start.map_or(size - 1, end), stop.map_or(-1, end));
        // Nothing, if the ends are the other way round.
        let last = last.min(first);
        let indices = self.range(first as f64, last as f64, step as f64, DType::I64)?;
        self.op(Gather { axis }, &[x, indices])
    }

    /// Parts of a tensor along an axis. Their sizes, which may be symbols, sum to the size of the axis.
    ///
    /// # Errors
    /// If there is no such axis, or the sizes have another sum.
    #[track_caller]
    pub fn split_dims(&mut self, x: Value, axis: isize, sizes: &[Dim]) -> Result<Vec<Value>, Error> {
        if let Some(sizes) = sizes.iter().map(Dim::as_static).collect::<Option<Vec<usize>>>() {
            return self.split(x, axis, &sizes);
        }
        let axis = self.axis("split", x, axis)?;
        if let Some(size) = sizes.iter().find(|size| size.as_integer().is_some_and(i64::is_negative)) {
            return Err(self.refuse("split", format!("the size {size} is negative")));
        }
        let (sum, size) = (sizes.iter().fold(Dim::from(0), |sum, size| &sum + size), &self.ty(x).shape[axis]);
        if sum != *size {
            let message = format!("the sizes sum to `{sum}`, expected `{size}`, the size of axis {axis}");
            return Err(self.refuse("split", message));
        }
        let (mut start, mut parts) = (Dim::from(0), Vec::new());
        for size in sizes {
            let at = self.sizes_to_tensor(std::slice::from_ref(&start))?;
            let at = self.reshape(at, [])?;
            parts.push(self.slice_axis(x, axis, &Index::Window { start: at, size: size.clone() })?);
            start = &start + size;
        }
        Ok(parts)
    }

    /// The box of a buffer that indices name.
    #[track_caller]
    fn sides(&mut self, op: &'static str, buffer: Value, indices: &[Index]) -> Result<Vec<Side>, Error> {
        let shape = self.ty(buffer).shape.clone();
        let named = indices.iter().filter(|&index| *index != Index::NewAxis);
        let mut sides = Vec::new();
        for (size, index) in shape.iter().zip(named) {
            let one = Dim::from(1);
            sides.push(match index {
                Index::At(at) => Side { start: Start::Known(*at), size: one, step: 1 },
                Index::AtValue(value) => Side { start: Start::Value(*value), size: one, step: 1 },
                Index::Window { start, size } => {
                    Side { start: Start::Value(*start), size: size.clone(), step: 1 }
                }
                Index::Range { start, stop, step } => self.known_side(op, size, *start, *stop, *step)?,
                Index::Span { start, stop, step, out_dim } => {
                    self.side_of_values(op, size, [*start, *stop, *step], out_dim)?
                }
                Index::Ellipsis | Index::NewAxis => unreachable!("they are expanded"),
            });
        }
        Ok(sides)
    }

    /// The side of a box from numbers.
    #[track_caller]
    fn known_side(
        &self,
        op: &'static str,
        size: &Dim,
        start: Option<i64>,
        stop: Option<i64>,
        step: i64,
    ) -> Result<Side, Error> {
        let step = self.known_step(op, step)?;
        let (start, stop) = clip(size, start, stop);
        // The dtype does not matter.
        let whole = Type::new(DType::U8, [size.clone()]);
        match (Slice { axis: 0, start, stop, step }).infer(&[&whole]) {
            Ok(mut part) => {
                let size = part.swap_remove(0).shape.swap_remove(0);
                Ok(Side { start: Start::Known(start), size, step })
            }
            Err(error) => Err(self.refuse(op, error.0)),
        }
    }

    /// The side of a box from values: start, stop and step. That it has the size, the positions along the axis show, of
    /// which the same slice is taken.
    #[track_caller]
    fn side_of_values(
        &mut self,
        op: &'static str,
        size: &Dim,
        ends: [Option<Value>; 3],
        out_dim: &Dim,
    ) -> Result<Side, Error> {
        let known = ends.map(|end| end.map(|end| self.known_integer(end)));
        let Some(step) = known[2].unwrap_or(Some(1)) else {
            return Err(self.refuse(op, "the step of a slice of a buffer is no constant"));
        };
        if let [None | Some(Some(_)), None | Some(Some(_)), _] = known {
            let side = self.known_side(op, size, known[0].flatten(), known[1].flatten(), step)?;
            if side.size == *out_dim {
                return Ok(side);
            }
            if side.size.as_static().is_some() && out_dim.as_static().is_some() {
                let message =
                    format!("the slice of axis `{size}` has {} elements, expected {out_dim}", side.size);
                return Err(self.refuse(op, message));
            }
        }
        let distance = self.known_step(op, step)?;
        let positions = self.range_to(size.clone(), DType::I64)?;
        let [start, stop, step_value] = ends;
        let span = Index::Span { start, stop, step: step_value, out_dim: out_dim.clone() };
        let part = self.slice_axis(positions, 0, &span)?;
        // An empty slice starts at the end of the axis.
        let (first, end) = (self.reduce_min(part, 0)?, self.shape_to_tensor(positions)?);
        let first = self.min(first, end)?;
        let start = Start::Value(self.reshape(first, [])?);
        Ok(Side { start, size: out_dim.clone(), step: distance })
    }

    #[track_caller]
    fn known_step(&self, op: &'static str, step: i64) -> Result<usize, Error> {
        match usize::try_from(step) {
            Ok(step @ 1..) => Ok(step),
            _ => {
                Err(self
                    .refuse(op, format!("the step of a slice of a buffer is {step}, expected at least 1")))
            }
        }
    }

    /// The integer that a constant is.
    fn known_integer(&self, value: Value) -> Option<i64> {
        match self.owner(value)?.defined_by(value)? {
            (Op::Constant(constant), _) if constant.value.0.dtype() == DType::I64 => {
                constant.value.0.to_vec::<i64>().first().copied()
            }
            _ => None,
        }
    }

    /// The starts of a box as one value, `i64[rank]`.
    #[track_caller]
    fn starts(&mut self, sides: &[Side]) -> Result<Value, Error> {
        let known: Option<Vec<i64>> = sides
            .iter()
            .map(|side| match side.start {
                Start::Known(start) => Some(start),
                Start::Value(_) => None,
            })
            .collect();
        if let Some(starts) = known {
            return Ok(self.constant(Tensor::from_slice([starts.len()], &starts)));
        }
        let mut parts = Vec::new();
        for side in sides {
            parts.push(match side.start {
                Start::Known(start) => self.constant(Tensor::from_slice([1], &[start])),
                Start::Value(value) => {
                    self.expect_scalar("slice", value)?;
                    let value = self.cast(value, DType::I64)?;
                    self.reshape(value, [Dim::from(1)])?
                }
            });
        }
        self.concat(&parts, 0)
    }

    #[track_caller]
    fn expect_scalar(&self, op: &'static str, value: Value) -> Result<(), Error> {
        let ty = self.operand(op, value)?;
        let is_index = [DType::U32, DType::I32, DType::I64].contains(&ty.dtype);
        if is_index && ty.rank() == 0 {
            Ok(())
        } else {
            Err(self.refuse(op, format!("an index is {ty}, expected u32[], i32[] or i64[]")))
        }
    }

    /// Indices for every axis of `x`: the ellipsis, and axes that are not named, become whole axes.
    #[track_caller]
    fn expand(&self, op: &'static str, x: Value, indices: &[Index]) -> Result<Vec<Index>, Error> {
        let ty = self.operand(op, x)?;
        let named = indices.iter().filter(|index| !matches!(index, Index::Ellipsis | Index::NewAxis)).count();
        let mut ellipses = indices.iter().filter(|&index| *index == Index::Ellipsis);
        if ellipses.next().is_some() && ellipses.next().is_some() {
            return Err(self.refuse(op, "more than one ellipsis"));
        }
        let Some(left) = ty.rank().checked_sub(named) else {
            return Err(self.refuse(op, format!("{named} indices into {ty}, which has {} axes", ty.rank())));
        };
        let whole = std::iter::repeat_n(Index::ALL, left);
        let at = indices.iter().position(|index| *index == Index::Ellipsis);
        let (before, after) = match at {
            Some(at) => (&indices[..at], &indices[at + 1..]),
            None => (indices, &[][..]),
        };
        Ok(before.iter().cloned().chain(whole).chain(after.iter().cloned()).collect())
    }
}

/// The shape that indices make of a box: axes with one index are gone, new ones are there.
fn seen(indices: &[Index], sides: &[Side]) -> Vec<Dim> {
    let mut sides = sides.iter();
    let mut shape = Vec::new();
    for index in indices {
        match index {
            Index::NewAxis => shape.push(Dim::from(1)),
            Index::At(_) | Index::AtValue(_) => drop(sides.next()),
            _ => shape.extend(sides.next().map(|side| side.size.clone())),
        }
    }
    shape
}

/// The ends of a range, clipped to an axis whose size is a number, as in Python.
fn clip(size: &Dim, start: Option<i64>, stop: Option<i64>) -> (i64, Option<i64>) {
    let Some(size) = size.as_static().and_then(|size| i64::try_from(size).ok()) else {
        return (start.unwrap_or(0), stop);
    };
    let end = |end: i64| if end < 0 { end.saturating_add(size).max(0) } else { end.min(size) };
    let start = end(start.unwrap_or(0));
    let stop = end(stop.unwrap_or(size)).max(start);
    (start, (stop != size).then_some(stop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Graph, dims};

    /// `x` is i32[3, n] holding 0, 1, …; the shape and the elements of its slice.
    fn check(indices: impl FnOnce(&mut Builder) -> Vec<Index>, expected: Result<(&str, &[i32]), &str>) {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::I32, dims![3, "n"]));
        let indices = indices(&mut b);
        let result = b.slice_tensor(x, &indices).and_then(|slice| {
            let ty = b.ty(slice).to_string();
            let results = b.finish(&[slice])?.evaluate(&[numbers()], &|_| None)?;
            Ok((ty, results.outputs[0].to_vec::<i32>()))
        });
        match (result, expected) {
            (Ok((ty, values)), Ok(expected)) => assert_eq!((&ty[..], &values[..]), expected),
            (Err(error), Err(expected)) => assert_eq!(error.without_location().to_string(), expected),
            (result, expected) => panic!("{result:?}, expected {expected:?}"),
        }
    }

    fn numbers() -> Tensor {
        Tensor::from_slice([3, 4], &(0..12).collect::<Vec<i32>>())
    }

    fn scalar(b: &mut Builder, value: i64) -> Value {
        b.constant(Tensor::scalar(value))
    }

    #[test]
    fn negative_steps_go_backwards_along_axes_whose_size_is_a_number() {
        let slice =
            |start, stop, step| move |_: &mut Builder| vec![Index::Range { start, stop, step }, Index::At(0)];
        check(slice(None, None, -1), Ok(("i32[3]", &[8, 4, 0])));
        check(slice(None, None, -2), Ok(("i32[2]", &[8, 0])));
        check(slice(Some(9), Some(0), -1), Ok(("i32[2]", &[8, 4])));
        check(slice(Some(-2), Some(-9), -1), Ok(("i32[2]", &[4, 0])));
        check(slice(Some(0), Some(2), -1), Ok(("i32[0]", &[])));
        check(slice(Some(0), Some(0), i64::MIN), Ok(("i32[0]", &[])));
        let expected =
            "slice_tensor: the step of a slice is -1, but the size of axis 1 is `n`, expected a number";
        let last = Index::Range { start: None, stop: None, step: -1 };
        check(|_| vec![Index::ALL, last], Err(expected));
    }

    #[test]
    fn parts_may_have_symbols_as_sizes() {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::I32, dims!["n"]));
        let y = b.input("y", Type::new(DType::I32, dims!["m"]));
        let both = b.concat(&[x, y, x], 0).unwrap();
        let (n, m) = (Dim::symbol("n"), Dim::symbol("m"));
        let parts =
            b.split_dims(both, -1, &[n.clone(), Dim::from(1), &m - &Dim::from(1), n.clone()]).unwrap();
        let error = |b: &mut Builder, sizes: &[Dim]| {
            b.split_dims(both, 0, sizes).unwrap_err().without_location().to_string()
        };
        assert_eq!(error(&mut b, &[Dim::integer(-1), n.clone()]), "split: the size -1 is negative");
        let expected = "split: the sizes sum to `n + m`, expected `2*n + m`, the size of axis 0";
        assert_eq!(error(&mut b, &[n, m]), expected);
        let graph = b.finish(&parts).unwrap();
        let inputs = [Tensor::from_slice([2], &[1, 2]), Tensor::from_slice([3], &[3, 4, 5])];
        let outputs = graph.evaluate(&inputs, &|_| None).unwrap().outputs;
        let values: Vec<Vec<i32>> = outputs.iter().map(|part| part.to_vec()).collect();
        assert_eq!(values, [vec![1, 2], vec![3], vec![4, 5], vec![1, 2]]);
    }

    #[test]
    fn tensors() {
        check(|_| vec![], Ok(("i32[3, n]", &(0..12).collect::<Vec<_>>())));
        check(|_| vec![Index::At(-1)], Ok(("i32[n]", &[8, 9, 10, 11])));
        check(|_| vec![Index::At(0), Index::At(-1)], Ok(("i32[]", &[3])));
        check(|_| vec![Index::Ellipsis, Index::At(1)], Ok(("i32[3]", &[1, 5, 9])));
        check(
            |_| vec![Index::NewAxis, Index::range(1, 99), Index::range(0, 2)],
            Ok(("i32[1, 2, 2]", &[4, 5, 8, 9])),
        );
        check(|_| vec![Index::range(2, 1)], Ok(("i32[0, n]", &[])));
        check(
            |_| vec![Index::Range { start: None, stop: None, step: 2 }, Index::At(0), Index::NewAxis],
            Ok(("i32[2, 1]", &[0, 8])),
        );
        check(|b| vec![Index::AtValue(scalar(b, -2)), Index::range(-2, None)], Ok(("i32[2]", &[6, 7])));
        check(
            |b| {
                let (start, stop) = (Some(scalar(b, -3)), Some(scalar(b, 99)));
                vec![Index::At(0), Index::Span { start, stop, step: None, out_dim: "m".into() }]
            },
            Ok(("i32[m]", &[1, 2, 3])),
        );
        check(
            |b| vec![Index::Window { start: scalar(b, 1), size: 2.into() }, Index::At(0)],
            Ok(("i32[2]", &[4, 8])),
        );
        check(|_| vec![Index::At(0); 3], Err("slice_tensor: 3 indices into i32[3, n], which has 2 axes"));
        check(|_| vec![Index::Ellipsis; 2], Err("slice_tensor: more than one ellipsis"));
        check(
            |_| vec![Index::At(3)],
            Err("slice: the range 3..4 does not fit the 3 elements of axis 0 of x i32[3, n]"),
        );
    }

    fn buffer(body: impl FnOnce(&mut Builder, Value) -> Result<Vec<Value>, Error>) -> Result<Graph, Error> {
        let mut b = Builder::new("g");
        let buffer = b.input("buffer", Type::buffer(DType::I32, dims![3, "n"]));
        let outputs = body(&mut b, buffer)?;
        b.finish(&outputs)
    }

    #[test]
    fn buffers() {
        let graph = buffer(|b, buffer| {
            let row = b.constant(Tensor::from_slice([2], &[-1i32, -2]));
            b.store_slice(buffer, &[Index::range(1, None), Index::range(1, 3)], row)?;
            let at = b.constant(Tensor::scalar(0i32));
            let one = b.constant(Tensor::scalar(7i32));
            b.store_slice(buffer, &[Index::AtValue(at), Index::At(-1)], one)?;
            let column = b.load_slice(buffer, &[Index::Ellipsis, Index::At(1), Index::NewAxis])?;
            Ok(vec![column])
        });
        let evaluation = graph.unwrap().evaluate(&[numbers()], &|_| None).unwrap();
        assert_eq!(evaluation.outputs[0].shape().dims(), [3, 1]);
        assert_eq!(evaluation.outputs[0].to_vec::<i32>(), [1, -1, -1]);
        let expected = [0, 1, 2, 7, 4, -1, -2, 7, 8, -1, -2, 11];
        assert_eq!(evaluation.buffers[0].to_vec::<i32>(), expected);
    }

    /// The rows of a buffer that a span loads, after it has doubled them.
    fn doubled(start: Option<i64>, stop: i64, step: i64, out_dim: &str) -> Result<(String, Vec<i32>), Error> {
        let mut b = Builder::new("g");
        let buffer = b.input("buffer", Type::buffer(DType::I32, dims![5, "n"]));
        let stop_value = b.input("stop", Type::new(DType::I64, dims![]));
        let start = start.map(|start| scalar(&mut b, start));
        let step = Some(scalar(&mut b, step));
        let rows = [Index::Span {
            start,
            stop: Some(stop_value),
            step,
            out_dim: out_dim.parse().map_or_else(|_| out_dim.into(), |size: usize| size.into()),
        }];
        let values = b.load_slice(buffer, &rows)?;
        let twice = b.add(values, values)?;
        b.store_slice(buffer, &rows, twice)?;
        let ty = b.ty(values).to_string();
        let x = Tensor::from_slice([5, 1], &[1, 2, 3, 4, 5]);
        let evaluation = b.finish(&[values])?.evaluate(&[x, Tensor::scalar(stop)], &|_| None)?;
        Ok((ty, evaluation.buffers[0].to_vec::<i32>()))
    }

    #[test]
    fn spans_of_buffers_have_the_size_that_is_said() {
        let ok = |ty: &str, values: [i32; 5]| Ok((ty.to_string(), values.to_vec()));
        assert_eq!(doubled(Some(1), 3, 1, "m"), ok("i32[m, n]", [1, 4, 6, 4, 5]));
        assert_eq!(doubled(None, -1, 2, "m"), ok("i32[m, n]", [2, 2, 6, 4, 5]));
        assert_eq!(doubled(Some(-2), 9, 1, "2"), ok("i32[2, n]", [1, 2, 3, 8, 10]));
        assert_eq!(doubled(Some(3), 3, 1, "m"), ok("i32[m, n]", [1, 2, 3, 4, 5]));
        let error = doubled(Some(0), 3, 1, "2").unwrap_err().to_string();
        assert_eq!(error, "dynamic_slice: the data gives a size of 3, expected 2");
        let error = doubled(Some(0), 3, 0, "2").unwrap_err().without_location().to_string();
        assert_eq!(error, "load_slice: the step of a slice of a buffer is 0, expected at least 1");
        let known = |out_dim: Dim| {
            buffer(|b, buffer| {
                let stop = Some(scalar(b, 2));
                let span = Index::Span { start: None, stop, step: None, out_dim };
                b.load_slice(buffer, &[span]).map(|value| vec![value])
            })
        };
        let graph = known(2.into()).unwrap();
        assert!(!graph.to_string().contains("dynamic_slice"), "{graph}");
        let error = known(3.into()).unwrap_err().without_location().to_string();
        assert_eq!(error, "load_slice: the slice of axis `3` has 2 elements, expected 3");
    }
}
