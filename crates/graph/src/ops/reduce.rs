//! `y = f(x_0, …, x_n)` along one axis, which stays with size 1.

use super::prelude::*;

/// Reduces one axis: any float or integer dtype → the same dtype, with size 1 along the axis.
///
/// Of no elements the result is the neutral one: 0, 1, the smallest or the largest value; the mean is NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// How.
    pub kind: ReduceKind,
    /// Along which axis.
    pub axis: usize,
}

/// What a [`Reduce`] computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceKind {
    /// `Σ x`; integers wrap around.
    Sum,
    /// `Σ x / n`, of floats.
    Mean,
    /// The largest; NaN if any is.
    Max,
    /// The smallest; NaN if any is.
    Min,
    /// `Π x`; integers wrap around.
    Prod,
}

const NAMES: &[&str] = &["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"];

impl ReduceKind {
    /// Every kind.
    pub const ALL: &[ReduceKind] =
        &[ReduceKind::Sum, ReduceKind::Mean, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod];

    fn of_floats(self, values: &[f64]) -> f64 {
        match self {
            ReduceKind::Sum => sum(values),
            ReduceKind::Mean => sum(values) / values.len() as f64,
            ReduceKind::Prod => values.iter().product(),
            _ if values.iter().any(|value| value.is_nan()) => f64::NAN,
            ReduceKind::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ReduceKind::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
        }
    }

    fn of_integers(self, values: &[i128], (lowest, highest): (i128, i128)) -> i128 {
        match self {
            ReduceKind::Sum => values.iter().sum(),
            ReduceKind::Prod => values.iter().fold(1i128, |product, &value| product.wrapping_mul(value)),
            ReduceKind::Max => values.iter().copied().max().unwrap_or(lowest),
            ReduceKind::Min => values.iter().copied().min().unwrap_or(highest),
            ReduceKind::Mean => unreachable!("the mean of integers"),
        }
    }
}

impl Define for Reduce {
    declare!(NAMES[kind in ReduceKind::ALL] { axis });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        match self.kind {
            ReduceKind::Mean => expect_dtype("x", x, FLOATS)?,
            _ => expect_number("x", x)?,
        }
        Ok(vec![reduced(x, self.axis)?])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (dtype, lanes) = (inputs[0].dtype(), Lanes::of(inputs[0].shape(), self.axis));
        let result = match Numbers::of(inputs[0]) {
            Numbers::Floats(x) => {
                let lane = |lane: &mut dyn Iterator<Item = usize>| lane.map(|i| x[i]).collect::<Vec<_>>();
                let values: Vec<f64> = lanes.all().map(|mut i| self.kind.of_floats(&lane(&mut i))).collect();
                from_f64(dtype, outputs[0], &values)
            }
            Numbers::Integers(x) => {
                let range = integer_range(dtype);
                let lane = |lane: &mut dyn Iterator<Item = usize>| lane.map(|i| x[i]).collect::<Vec<_>>();
                let values: Vec<i128> =
                    lanes.all().map(|mut i| self.kind.of_integers(&lane(&mut i), range)).collect();
                from_i128(dtype, outputs[0], &values)
            }
        };
        Ok(vec![result])
    }
}

/// Finds an extreme along one axis: any float or integer dtype → its index as i64, with size 1 along the
/// axis.
///
/// Of equal ones the first. NaN is the extreme, as it is the result of the reductions: if there is one, the first is found.
/// The axis must not be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArgReduce {
    /// Which extreme.
    pub kind: ArgReduceKind,
    /// Along which axis.
    pub axis: usize,
}

/// What an [`ArgReduce`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArgReduceKind {
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

const ARG_NAMES: &[&str] = &["arg_max", "arg_min"];

impl Define for ArgReduce {
    declare!(ARG_NAMES[kind in &[ArgReduceKind::Max, ArgReduceKind::Min]] { axis });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_number("x", x)?;
        let result = reduced(x, self.axis)?;
        match x.shape[self.axis].as_static() {
            Some(0) => Err(type_error!("axis {} of x {x} is empty", self.axis)),
            _ => Ok(vec![result.with_dtype(DType::I64)]),
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (x, lanes) = (Numbers::of(inputs[0]), Lanes::of(inputs[0].shape(), self.axis));
        if lanes.len == 0 {
            return Err(Error::evaluation(self.name(), format!("axis {} of x is empty", self.axis)));
        }
        let better = |i: usize, best: usize| match self.kind {
            ArgReduceKind::Max => x.compare(i, &x, best).is_some_and(|order| order.is_gt()),
            ArgReduceKind::Min => x.compare(i, &x, best).is_some_and(|order| order.is_lt()),
        };
        let first_best = |lane: Vec<usize>| {
            let mut best = 0;
            for (index, &i) in lane.iter().enumerate() {
                if better(i, lane[best]) || (x.is_nan(i) && !x.is_nan(lane[best])) {
                    best = index;
                }
            }
            best as i64
        };
        let indices: Vec<i64> = lanes.iter().map(|lane| first_best(lane.collect())).collect();
        Ok(vec![Tensor::from_slice(outputs[0], &indices)])
    }
}

/// From +0, so that the sum of nothing is that (`Iterator::sum` starts at -0).
fn sum(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |sum, value| sum + value)
}

fn reduced(x: &Type, axis: usize) -> Result<Type, TypeError> {
    expect_axis("x", x, axis)?;
    let mut shape = x.shape.clone();
    shape[axis] = Dim::from(1);
    Ok(x.with_shape(shape))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    #[test]
    fn types() {
        let sum = |axis| Reduce { kind: ReduceKind::Sum, axis };
        check_types(
            sum(1),
            &[
                (&["f16[n, 3, 2]"], "f16[n, 1, 2]"),
                (&["f32[n]"], "reduce_sum: x f32[n] has no axis 1"),
                (&["bool[n, 1]"], "reduce_sum: x is bool[n, 1], expected a float or an integer"),
            ],
        );
        let mean = Reduce { kind: ReduceKind::Mean, axis: 0 };
        check_types(mean, &[(&["i32[2]"], "reduce_mean: x is i32[2], expected f16, bf16, f32 or f64")]);
        let first = ArgReduce { kind: ArgReduceKind::Max, axis: 0 };
        check_types(
            first,
            &[(&["f32[n, 2]"], "i64[1, 2]"), (&["f32[0, 2]"], "arg_max: axis 0 of x f32[0, 2] is empty")],
        );
    }

    #[test]
    fn values() {
        let nan = f32::NAN;
        let x = Tensor::from_slice([3, 2], &[3.0f32, 1.0, -2.0, nan, 3.0, 4.0]);
        let table: [(ReduceKind, [f64; 2]); 5] = [
            (ReduceKind::Sum, [4.0, f64::NAN]),
            (ReduceKind::Mean, [4.0 / 3.0, f64::NAN]),
            (ReduceKind::Max, [3.0, f64::NAN]),
            (ReduceKind::Min, [-2.0, f64::NAN]),
            (ReduceKind::Prod, [-18.0, f64::NAN]),
        ];
        for (kind, expected) in table {
            assert_close(&numbers(Reduce { kind, axis: 0 }, &[&x]), &expected, 1e-7);
        }
        assert_eq!(numbers(ArgReduce { kind: ArgReduceKind::Max, axis: 0 }, &[&x]), [0.0, 1.0]);
        assert_eq!(numbers(ArgReduce { kind: ArgReduceKind::Min, axis: 0 }, &[&x]), [1.0, 1.0]);
        assert_eq!(numbers(ArgReduce { kind: ArgReduceKind::Max, axis: 1 }, &[&x]), [0.0, 1.0, 1.0]);
        let all_nan = Tensor::from_slice([2], &[nan, nan]);
        assert_eq!(numbers(ArgReduce { kind: ArgReduceKind::Min, axis: 0 }, &[&all_nan]), [0.0]);
    }

    #[test]
    fn nothing_and_integers() {
        let empty = Tensor::zeros(DType::F32, [2, 0]);
        let infinity = f64::INFINITY;
        for (kind, value) in ReduceKind::ALL.iter().zip([0.0, f64::NAN, -infinity, infinity, 1.0]) {
            assert_close(&numbers(Reduce { kind: *kind, axis: 1 }, &[&empty]), &[value; 2], 0.0);
        }
        let none = Tensor::zeros(DType::I8, [0]);
        assert_eq!(numbers(Reduce { kind: ReduceKind::Max, axis: 0 }, &[&none]), [-128.0]);
        let x = Tensor::from_slice([3], &[100i8, 100, -3]);
        assert_eq!(numbers(Reduce { kind: ReduceKind::Sum, axis: 0 }, &[&x]), [-59.0]);
        assert_eq!(numbers(Reduce { kind: ReduceKind::Min, axis: 0 }, &[&x]), [-3.0]);
    }
}
