//! Methods for ops that move, pick and sort elements, and for those that make them.

use std::f64::consts::TAU;

use tensor::{DType, Tensor};

use super::operand::literal_tensor;
use super::{Builder, Operand, Seed, ordered, widened};
use crate::ops::*;
use crate::{Dim, Error, Type, Value};

impl Builder {
    /// `x` [d..] with `(before, after)` elements around those of each axis, all `value` []: → [before + d + after..].
    #[track_caller]
    pub fn pad(&mut self, x: Value, paddings: &[(usize, usize)], value: Value) -> Result<Value, Error> {
        let (before, after) = paddings.iter().copied().unzip();
        self.op(Pad { mode: PadMode::Constant, before, after }, &[x, value])
    }

    /// As [`Builder::pad`], with elements of `x` that are mirrored at its ends.
    #[track_caller]
    pub fn pad_reflect(&mut self, x: Value, paddings: &[(usize, usize)]) -> Result<Value, Error> {
        let (before, after) = paddings.iter().copied().unzip();
        self.op(Pad { mode: PadMode::Reflect, before, after }, &[x])
    }

    /// As [`Builder::pad`], with the first and last elements of `x`.
    #[track_caller]
    pub fn pad_edge(&mut self, x: Value, paddings: &[(usize, usize)]) -> Result<Value, Error> {
        let (before, after) = paddings.iter().copied().unzip();
        self.op(Pad { mode: PadMode::Edge, before, after }, &[x])
    }

    /// The whole again and again: `x` [d..] → [repeats · d..].
    #[track_caller]
    pub fn tile(&mut self, x: Value, repeats: impl IntoIterator<Item = Dim>) -> Result<Value, Error> {
        self.op(Tile { repeats: repeats.into_iter().collect() }, &[x])
    }

    /// Each element of an axis `repeats` times in a row: [.., n, ..] → [.., repeats · n, ..].
    #[track_caller]
    pub fn repeat_interleave(&mut self, x: Value, repeats: usize, axis: isize) -> Result<Value, Error> {
        let axis = self.axis("repeat_interleave", x, axis)?;
        self.op(RepeatInterleave { axis, repeats: Repeats::Each(repeats) }, &[x])
    }

    /// Each element of an axis as often as `repeats` (i32 or `i64[n]`) says: [.., n, ..] → [.., out_dim, ..]. A symbol
    /// that has no size yet gets the sum.
    #[track_caller]
    pub fn repeat_interleave_by(
        &mut self,
        x: Value,
        repeats: Value,
        axis: isize,
        out_dim: impl Into<Dim>,
    ) -> Result<Value, Error> {
        let axis = self.axis("repeat_interleave", x, axis)?;
        let repeats_op = Repeats::Counts(self.out_dim(out_dim));
        self.op(RepeatInterleave { axis, repeats: repeats_op }, &[x, repeats])
    }

    /// Axes turned around: [..] → [..].
    #[track_caller]
    pub fn flip(&mut self, x: Value, axes: &[isize]) -> Result<Value, Error> {
        let axes = self.axes("flip", x, axes)?;
        self.op(Flip { axes }, &[x])
    }

    /// The band of `lower` diagonals below the main one and `upper` above it, `None` being all; other elements become 0:
    /// [.., rows, columns] → the same.
    #[track_caller]
    pub fn band_part(
        &mut self,
        x: Value,
        lower: Option<usize>,
        upper: Option<usize>,
    ) -> Result<Value, Error> {
        self.op(BandPart { lower, upper, exclude: false }, &[x])
    }

    /// Slices at tuples of indices: `x` [b.., n_0, …, n_(k-1), s..], `indices` [b.., i.., k] → [b.., i.., s..], where
    /// `batch_dims` axes `b` are common to both. Indices are of any integer dtype.
    #[track_caller]
    pub fn gather_nd(&mut self, x: Value, indices: Value, batch_dims: usize) -> Result<Value, Error> {
        let indices = self.indices("gather_nd", indices)?;
        self.op(GatherNd { batch_dims }, &[x, indices])
    }

    /// `x` where element [.., j, ..] of `updates` has met element [.., `indices[.., j, ..]`, ..]. `updates` and
    /// `indices` have one shape; those that meet the same element do so in order.
    #[track_caller]
    pub fn scatter(
        &mut self,
        kind: ScatterKind,
        x: Value,
        updates: Value,
        indices: Value,
        axis: isize,
    ) -> Result<Value, Error> {
        let axis = self.axis("scatter", x, axis)?;
        let (dtype, updated) = (self.ty(x).dtype, self.operand("scatter", updates)?.dtype);
        let (kind, computed) = scattered(kind, dtype);
        if dtype != updated {
            return Err(self.refuse(
                "scatter",
                format!("dtypes differ: x {}, updates {}", self.ty(x), self.ty(updates)),
            ));
        }
        let (x, updates) = (self.cast(x, computed)?, self.cast(updates, computed)?);
        let y = self.op(Scatter { kind, axis }, &[x, updates, indices])?;
        self.cast(y, dtype)
    }

    /// `x` [n_0, …, n_(k-1), s..] where `updates` [i.., s..] have met the slices at `indices` [i.., k], in order.
    #[track_caller]
    pub fn scatter_nd(
        &mut self,
        kind: ScatterKind,
        x: Value,
        updates: Value,
        indices: Value,
    ) -> Result<Value, Error> {
        let (dtype, updated) =
            (self.operand("scatter_nd", x)?.dtype, self.operand("scatter_nd", updates)?.dtype);
        let (kind, computed) = scattered(kind, dtype);
        if dtype != updated {
            return Err(self.refuse(
                "scatter_nd",
                format!("dtypes differ: x {}, updates {}", self.ty(x), self.ty(updates)),
            ));
        }
        let (x, updates) = (self.cast(x, computed)?, self.cast(updates, computed)?);
        let y = self.op(ScatterNd { kind }, &[x, updates, indices])?;
        self.cast(y, dtype)
    }

    /// `x` with the elements of `updates`, in row-major order, where `mask` (bool, broadcast to `x`) is true. `out_dim`
    /// is a new symbol for the number of such places, if it is of use elsewhere.
    #[track_caller]
    pub fn masked_scatter(
        &mut self,
        x: Value,
        mask: Value,
        updates: Value,
        out_dim: Option<&str>,
    ) -> Result<Value, Error> {
        self.op(MaskedScatter { out_dim: out_dim.map(str::to_string) }, &[x, mask, updates])
    }

    /// The indices of elements that are not 0: [..] → `i64[out_dim, rank]`. A symbol that has no size yet gets their
    /// number.
    #[track_caller]
    pub fn nonzero(&mut self, x: Value, out_dim: impl Into<Dim>) -> Result<Value, Error> {
        let out_dim = self.out_dim(out_dim);
        self.op(NonZero { out_dim }, &[x])
    }

    /// The indices (i64) that put an axis in ascending order: [..] → [..]. Equal elements keep their order; NaN is above
    /// all numbers.
    #[track_caller]
    pub fn argsort(&mut self, x: Value, axis: isize) -> Result<Value, Error> {
        let axis = self.axis("argsort", x, axis)?;
        let x = self.cast(x, ordered(self.ty(x).dtype))?;
        self.op(ArgSort { axis, descending: false }, &[x])
    }

    /// As [`Builder::argsort`], in descending order.
    #[track_caller]
    pub fn argsort_descending(&mut self, x: Value, axis: isize) -> Result<Value, Error> {
        let axis = self.axis("argsort", x, axis)?;
        let x = self.cast(x, ordered(self.ty(x).dtype))?;
        self.op(ArgSort { axis, descending: true }, &[x])
    }

    /// The `k` largest along an axis: `x` [.., n, ..] → values [.., k, ..] in descending order, and i64 indices. NaN is
    /// above all numbers, so it comes first; of equal ones the lowest index does.
    #[track_caller]
    pub fn top_k(&mut self, x: Value, k: usize, axis: isize) -> Result<(Value, Value), Error> {
        let axis = self.axis("top_k", x, axis)?;
        let dtype = self.ty(x).dtype;
        let x = self.cast(x, ordered(dtype))?;
        let results = self.ops(TopK { k, axis, smallest: false }, &[x])?;
        Ok((self.cast(results[0], dtype)?, results[1]))
    }

    /// The `k` smallest along an axis: `x` [.., n, ..] → values [.., k, ..] in ascending order, and i64 indices. NaN is
    /// above all numbers, so it comes last; of equal ones the lowest index comes first.
    #[track_caller]
    pub fn bottom_k(&mut self, x: Value, k: usize, axis: isize) -> Result<(Value, Value), Error> {
        let axis = self.axis("bottom_k", x, axis)?;
        let dtype = self.ty(x).dtype;
        let x = self.cast(x, ordered(dtype))?;
        let results = self.ops(TopK { k, axis, smallest: true }, &[x])?;
        Ok((self.cast(results[0], dtype)?, results[1]))
    }

    /// Running sums along an axis: [..] → [..]. Where `exclusive`, an element is left out of its own sum; where
    /// `reverse`, the sums start at the end. Of truth values, they are counts (i64).
    #[track_caller]
    pub fn cumsum(&mut self, x: Value, axis: isize, exclusive: bool, reverse: bool) -> Result<Value, Error> {
        let axis = self.axis("cumsum", x, axis)?;
        let x = self.countable(x)?;
        let dtype = self.ty(x).dtype;
        let x = self.cast(x, widened(dtype))?;
        let y = self.op(CumSum { axis, exclusive, reverse }, &[x])?;
        self.cast(y, dtype)
    }

    /// `start`, `start + step`, … before `stop`: → [⌈(stop - start) / step⌉] of a float or integer dtype.
    ///
    /// # Errors
    /// If the step leads away from `stop`, or there are 2^63 elements or more.
    #[track_caller]
    pub fn range(&mut self, start: f64, stop: f64, step: f64, dtype: DType) -> Result<Value, Error> {
        let size = match Range::count(start, stop, step) {
            Ok(size) if size > 0 || start == stop => size,
            Ok(_) => return Err(self.refuse("range", leads_away(start, stop, step))),
            Err(message) => return Err(self.refuse("range", message)),
        };
        let [start, stop, step] = [
            self.scalar("range", dtype, start)?,
            self.scalar("range", dtype, stop)?,
            self.scalar("range", dtype, step)?,
        ];
        let operands = [self.constant(start), self.constant(stop), self.constant(step)];
        self.op(Range { out_dim: OutDim::Known(size.into()) }, &operands)
    }

    /// As [`Builder::range`], of whole numbers, exactly.
    ///
    /// # Errors
    /// If the step leads away from `stop`, there are 2^63 elements or more, or the dtype cannot hold `start` and
    /// `step`.
    #[track_caller]
    pub fn range_of_integers(
        &mut self,
        start: i128,
        stop: i128,
        step: i128,
        dtype: DType,
    ) -> Result<Value, Error> {
        let size = match Range::count_integers(start, stop, step) {
            Ok(size) if size > 0 || start == stop => size,
            Ok(_) => return Err(self.refuse("range", leads_away(start, stop, step))),
            Err(message) => return Err(self.refuse("range", message)),
        };
        if dtype.is_block() || dtype == DType::Bool {
            return Err(self.refuse("range", format!("dtype is {dtype}, expected a float or an integer")));
        }
        let [start, step] = [start, step].map(|number| match i64::try_from(number) {
            Ok(number) => Operand::Int(number),
            // Only u64 holds more, and floats that round it.
            Err(_) => u64::try_from(number)
                .map_or(Operand::Float(number as f64), |number| Tensor::scalar(number).into()),
        });
        let operands = [self.constant_of(start, dtype)?, self.constant_of(step, dtype)?];
        self.op(Range { out_dim: OutDim::Known(size.into()) }, &operands)
    }

    /// `0, 1, …` before `size`, which may be a symbol: → `[size]` of a float or integer dtype.
    #[track_caller]
    pub fn range_to(&mut self, size: impl Into<Dim>, dtype: DType) -> Result<Value, Error> {
        let [start, step] = [self.scalar("range", dtype, 0.0)?, self.scalar("range", dtype, 1.0)?];
        let operands = [self.constant(start), self.constant(step)];
        self.op(Range { out_dim: OutDim::Known(size.into()) }, &operands)
    }

    /// `start`, `start + step`, … before `stop`, which are values [] of one float or integer dtype: → `[out_dim]`. A
    /// symbol that has no size yet gets their number.
    #[track_caller]
    pub fn range_of(
        &mut self,
        start: Value,
        stop: Value,
        step: Value,
        out_dim: impl Into<Dim>,
    ) -> Result<Value, Error> {
        let out_dim = self.out_dim(out_dim);
        self.op(Range { out_dim }, &[start, stop, step])
    }

    /// Hann's window, `(1 - cos(2πi / n)) / 2` → `[length]` of one of the four plain float dtypes. `n` is the length where
    /// the window is periodic, as for spectra, and one less where it is symmetric, as for filters.
    #[track_caller]
    pub fn hann_window(&mut self, length: usize, periodic: bool, dtype: DType) -> Result<Value, Error> {
        let period = if periodic { length } else { length.saturating_sub(1) };
        let value = |i| {
            if period == 0 || length == 1 { 1.0 } else { 0.5 - 0.5 * (TAU * i as f64 / period as f64).cos() }
        };
        if !dtype.is_float() || dtype.is_float8() {
            return Err(
                self.refuse("hann_window", format!("dtype is {dtype}, expected f16, bf16, f32 or f64"))
            );
        }
        let mut values: Vec<f64> = Vec::new();
        if values.try_reserve_exact(length).is_err() {
            return Err(self.refuse("hann_window", format!("{length} elements do not fit the memory")));
        }
        values.extend((0..length).map(value));
        Ok(self.constant(cast(&Tensor::from_slice([length], &values), dtype)))
    }

    /// Sets the seed of the next random op. Each op advances it by one, so that a graph draws the same numbers each
    /// time it is built and run.
    pub fn set_seed(&mut self, seed: u64) {
        self.scope.seed = Some(Seed { base: None, offset: seed });
    }

    /// As [`Builder::set_seed`], with a seed that is known when the graph runs: `i64[]` on the host.
    ///
    /// # Errors
    /// If it is something else.
    #[track_caller]
    pub fn set_seed_of(&mut self, seed: Value) -> Result<(), Error> {
        let ty = self.operand("set_seed", seed)?;
        if *ty != Type::new(DType::I64, [] as [Dim; 0]) {
            return Err(self.refuse("set_seed", format!("seed is {ty}, expected i64[]")));
        }
        self.scope.seed = Some(Seed { base: Some(seed), offset: 0 });
        Ok(())
    }

    /// Random numbers, evenly from `low` up to `high`: → [shape..] of one of the four plain float dtypes.
    ///
    /// # Errors
    /// If no seed was set.
    #[track_caller]
    pub fn random_uniform(
        &mut self,
        dtype: DType,
        shape: impl IntoIterator<Item = Dim>,
        low: f32,
        high: f32,
    ) -> Result<Value, Error> {
        self.random("random_uniform", Distribution::Uniform { low, high }, dtype, shape)
    }

    /// Random numbers, evenly from `low` up to `high`, which are numbers or values [] that are cast to the dtype: →
    /// [shape..] of any float or integer dtype. Integers are rounded down.
    ///
    /// # Errors
    /// If no seed was set, `low` and `high` are numbers and do not ascend, or an integer dtype does not hold them.
    #[track_caller]
    pub fn random_uniform_between(
        &mut self,
        dtype: DType,
        shape: impl IntoIterator<Item = Dim>,
        low: impl Into<Operand>,
        high: impl Into<Operand>,
    ) -> Result<Value, Error> {
        let (low, high) = (low.into(), high.into());
        let [first, last] = [low.number(), high.number()];
        if !dtype.is_float() && !dtype.is_integer() {
            return Err(
                self.refuse("random_uniform", format!("dtype is {dtype}, expected a float or an integer"))
            );
        }
        if let (Some(low), Some(high)) = (first, last)
            && !(low.is_finite() && high.is_finite() && low < high)
        {
            return Err(self.refuse("random_uniform", format!("there is no range from {low} to {high}")));
        }
        // An integer dtype must hold the numbers.
        for bound in [&low, &high].into_iter().filter(|bound| bound.number().is_some() && dtype.is_integer())
        {
            if let Err(error) = literal_tensor(bound, dtype) {
                return Err(self.refuse("random_uniform", error.0));
            }
        }
        let drawn = drawn_dtype(dtype);
        let value = match [first, last].map(|bound| as_parameter(bound, drawn)) {
            [Some(low), Some(high)] => self.random_uniform(drawn, shape, low, high)?,
            _ => {
                let unit = self.random_uniform(drawn, shape, 0.0, 1.0)?;
                let [low, high] = [self.number_in(low, drawn)?, self.number_in(high, drawn)?];
                let width = self.sub(high, low)?;
                let scaled = self.mul(unit, width)?;
                self.add(scaled, low)?
            }
        };
        let value = if dtype.is_float() { value } else { self.floor(value)? };
        self.cast(value, dtype)
    }

    /// Normally distributed random numbers: → [shape..] of one of the four plain float dtypes.
    ///
    /// # Errors
    /// If no seed was set.
    #[track_caller]
    pub fn random_normal(
        &mut self,
        dtype: DType,
        shape: impl IntoIterator<Item = Dim>,
        mean: f32,
        std: f32,
    ) -> Result<Value, Error> {
        self.random("random_normal", Distribution::Normal { mean, std }, dtype, shape)
    }

    /// Normally distributed random numbers, with mean and deviation that are numbers or values [] that are cast to the
    /// dtype: → [shape..] of any plain dtype. Those that are no floats are rounded.
    ///
    /// # Errors
    /// If no seed was set.
    #[track_caller]
    pub fn random_normal_around(
        &mut self,
        dtype: DType,
        shape: impl IntoIterator<Item = Dim>,
        mean: impl Into<Operand>,
        std: impl Into<Operand>,
    ) -> Result<Value, Error> {
        let (mean, std) = (mean.into(), std.into());
        let drawn = drawn_dtype(dtype);
        let value = match [&mean, &std].map(|number| as_parameter(number.number(), drawn)) {
            [Some(mean), Some(std)] if std >= 0.0 => self.random_normal(drawn, shape, mean, std)?,
            _ => {
                let standard = self.random_normal(drawn, shape, 0.0, 1.0)?;
                let [mean, std] = [self.number_in(mean, drawn)?, self.number_in(std, drawn)?];
                let scaled = self.mul(standard, std)?;
                self.add(scaled, mean)?
            }
        };
        let value = if dtype.is_float() { value } else { self.round(value)? };
        self.cast(value, dtype)
    }

    /// Pairs of neighbors of the last axis as the real and imaginary parts of complex numbers: [.., 2n] → [.., n, 2].
    #[track_caller]
    pub fn as_interleaved_complex(&mut self, x: Value) -> Result<Value, Error> {
        let ty = self.operand("as_interleaved_complex", x)?;
        let Some((last, outer)) = ty.shape.split_last() else {
            let message = format!("x is {ty}, expected at least 1 axis");
            return Err(self.refuse("as_interleaved_complex", message));
        };
        let pairs = last.floor_div(&Dim::from(2));
        if &pairs * &Dim::from(2) != *last {
            let message = format!("x is {ty}, whose last axis must be even");
            return Err(self.refuse("as_interleaved_complex", message));
        }
        let shape: Vec<Dim> = outer.iter().cloned().chain([pairs, Dim::from(2)]).collect();
        self.reshape(x, shape)
    }

    /// A size that follows from data: new where it is a symbol that has no size yet.
    pub(super) fn out_dim(&self, dim: impl Into<Dim>) -> OutDim {
        let dim = dim.into();
        match dim.as_symbol() {
            Some(symbol) if !self.knows(symbol) => OutDim::New(symbol.to_string()),
            _ => OutDim::Known(dim),
        }
    }

    #[track_caller]
    fn random(
        &mut self,
        op: &'static str,
        distribution: Distribution,
        dtype: DType,
        shape: impl IntoIterator<Item = Dim>,
    ) -> Result<Value, Error> {
        let Some(Seed { base, offset: seed }) = self.scope.seed else {
            return Err(self.refuse(op, "there is no seed: call set_seed first"));
        };
        let random = Random { distribution, dtype, shape: shape.into_iter().collect(), seed };
        let value = self.op(random, base.as_slice())?;
        self.scope.seed = Some(Seed { base, offset: seed.wrapping_add(1) });
        Ok(value)
    }

    /// A number or a value [] in a float dtype.
    #[track_caller]
    fn number_in(&mut self, number: Operand, dtype: DType) -> Result<Value, Error> {
        match (&number, number.number()) {
            (Operand::Value(value), _) => {
                let ty = self.operand("random", *value)?;
                if ty.rank() > 0 {
                    return Err(self.refuse("random", format!("a parameter is {ty}, expected 0 axes")));
                }
                self.cast(*value, dtype)
            }
            (_, Some(number)) => Ok(self.constant(cast(&Tensor::scalar(number), dtype))),
            (_, None) => Err(self.refuse("random", "a parameter is an array, expected one number")),
        }
    }

    /// A number in a dtype; integers must hold it exactly.
    #[track_caller]
    fn scalar(&self, op: &'static str, dtype: DType, number: f64) -> Result<Tensor, Error> {
        let value = if dtype.is_block() || dtype == DType::Bool {
            return Err(self.refuse(op, format!("dtype is {dtype}, expected a float or an integer")));
        } else {
            cast(&Tensor::scalar(number), dtype)
        };
        if dtype.is_integer() && value.to_f64_vec() != [number] {
            Err(self.refuse(op, format!("{number} is no {dtype}")))
        } else {
            Ok(value)
        }
    }
}

/// A number as a parameter of [`Distribution`], which are f32, if nothing is lost.
fn as_parameter(number: Option<f64>, drawn: DType) -> Option<f32> {
    let number = number?;
    let parameter = number as f32;
    (parameter.is_finite() && (drawn != DType::F64 || f64::from(parameter) == number)).then_some(parameter)
}

fn leads_away<T: std::fmt::Display>(start: T, stop: T, step: T) -> String {
    format!("the step {step} leads away from {stop}, starting at {start}")
}

/// How updates of a dtype are combined, and in which dtype: truth values as 0 and 1, where sums and products stay.
fn scattered(kind: ScatterKind, dtype: DType) -> (ScatterKind, DType) {
    match kind {
        ScatterKind::Set => (kind, dtype),
        ScatterKind::Add if dtype == DType::Bool => (ScatterKind::Max, DType::U8),
        ScatterKind::Mul if dtype == DType::Bool => (ScatterKind::Min, DType::U8),
        _ => (kind, ordered(dtype)),
    }
}

/// The dtype that random numbers are drawn in before they are cast.
fn drawn_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 | DType::F64 => dtype,
        dtype if dtype.is_integer() && dtype.size_in_bits() > 16 => DType::F64,
        _ => DType::F32,
    }
}

fn cast(x: &Tensor, to: DType) -> Tensor {
    Cast { to }.reference(&[x], &[*x.shape()]).expect("numbers can be cast").swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Type, dims};

    #[test]
    fn ranges_and_windows() {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, dims!["n"]));
        let down = b.range(5.0, 0.0, -2.0, DType::I32).unwrap();
        let to = b.range_to("n", DType::I64).unwrap();
        let window = b.hann_window(4, true, DType::F32).unwrap();
        let symmetric = b.hann_window(3, false, DType::F16).unwrap();
        let error = b.range(0.5, 3.0, 1.0, DType::I32).unwrap_err();
        assert_eq!(error.without_location().to_string(), "range: 0.5 is no i32");
        let graph = b.finish(&[down, to, window, symmetric, x]).unwrap();
        let outputs = graph.evaluate(&[Tensor::zeros(DType::F32, [3])], &|_| None).unwrap().outputs;
        assert_eq!(outputs[0].to_vec::<i32>(), [5, 3, 1]);
        assert_eq!(outputs[1].to_vec::<i64>(), [0, 1, 2]);
        assert_eq!(outputs[2].to_vec::<f32>(), [0.0, 0.5, 1.0, 0.5]);
        assert_eq!(outputs[3].to_f64_vec(), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn seeds_advance() {
        let mut b = Builder::new("g");
        let error = b.random_normal(DType::F32, dims![4], 0.0, 1.0).unwrap_err();
        assert_eq!(
            error.without_location().to_string(),
            "random_normal: there is no seed: call set_seed first"
        );
        b.set_seed(7);
        let draws = [(); 2].map(|()| b.random_uniform(DType::F32, dims![4], 0.0, 1.0).unwrap());
        b.set_seed(8);
        let again = b.random_uniform(DType::F32, dims![4], 0.0, 1.0).unwrap();
        let graph = b.finish(&[draws[0], draws[1], again]).unwrap();
        let outputs = graph.evaluate(&[], &|_| None).unwrap().outputs;
        assert_ne!(outputs[0].to_vec::<f32>(), outputs[1].to_vec::<f32>());
        assert_eq!(outputs[1].to_vec::<f32>(), outputs[2].to_vec::<f32>());
    }

    #[test]
    fn symbols_are_new_once() {
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, dims!["n"]));
        let found = b.nonzero(x, "found").unwrap();
        let again = b.nonzero(x, "found").unwrap();
        let all = b.nonzero(x, "n").unwrap();
        let complex = b.as_interleaved_complex(found);
        assert_eq!(
            complex.unwrap_err().without_location().to_string(),
            "as_interleaved_complex: x is i64[found, 1], whose last axis must be even"
        );
        let graph = b.finish(&[found, again, all]).unwrap();
        let evaluate =
            |values: &[f32]| graph.evaluate(&[Tensor::from_slice([values.len()], values)], &|_| None);
        assert_eq!(evaluate(&[1.0, 2.0]).unwrap().outputs[1].elements(), 2);
        let message = "nonzero: the data gives a size of 1, expected n = 2";
        assert_eq!(evaluate(&[0.0, 2.0]).unwrap_err().to_string(), message);
    }
}
