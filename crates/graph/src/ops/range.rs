//! `y_i = start + i · step`.

use super::out_dim::OutDim;
use super::prelude::*;

/// An arithmetic sequence: `start`, `stop` and `step` [] of one float or integer dtype → `[n]` of that dtype: all
/// `start + i · step` before `stop`, `n = ⌈(stop - start) / step⌉` of them, or none.
///
/// Where `n` is known already, `stop` may be left out: `range(start, step)`. Integers wrap around then.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Range {
    /// How many elements there are.
    pub out_dim: OutDim,
}

impl Range {
    /// How many elements there are from `start` to `stop`.
    ///
    /// # Errors
    /// If the step is 0, or the number is none, in words.
    pub fn count(start: f64, stop: f64, step: f64) -> Result<usize, String> {
        let count = ((stop - start) / step).ceil();
        if count.is_finite() && step != 0.0 && count < i64::MAX as f64 {
            Ok(count.max(0.0) as usize)
        } else {
            Err(format!("there is no range from {start} to {stop} by {step}"))
        }
    }

    /// As [`Range::count`], of integers.
    ///
    /// # Errors
    /// If the step is 0, or there are too many, in words.
    pub fn count_integers(start: i128, stop: i128, step: i128) -> Result<usize, String> {
        let distance = if step < 0 { start - stop } else { stop - start };
        let count = (step != 0).then(|| distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs()));
        count
            .and_then(|count| i64::try_from(count).ok())
            .and_then(|count| usize::try_from(count).ok())
            .ok_or_else(|| format!("there is no range from {start} to {stop} by {step}"))
    }

    fn counted(inputs: &[&Tensor]) -> Result<usize, Error> {
        let values: Vec<Numbers> = inputs.iter().map(|x| Numbers::of(x)).collect();
        let count = match &values[..] {
            [Numbers::Floats(start), Numbers::Floats(stop), Numbers::Floats(step)] => {
                Range::count(start[0], stop[0], step[0])
            }
            [Numbers::Integers(start), Numbers::Integers(stop), Numbers::Integers(step)] => {
                Range::count_integers(start[0], stop[0], step[0])
            }
            _ => unreachable!("operands of one dtype"),
        };
        count.map_err(|message| Error::evaluation("range", message))
    }
}

impl Define for Range {
    declare!("range" { out_dim });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let (start, others) = match (&self.out_dim, inputs) {
            (OutDim::Known(_), [start, step]) => (*start, vec![("step", *step)]),
            _ => {
                let [start, stop, step] = operands(inputs, ["start", "stop", "step"])?;
                (start, vec![("stop", stop), ("step", step)])
            }
        };
        expect_number("start", start)?;
        expect_rank("start", start, 0)?;
        for (name, ty) in others {
            expect_same_dtype(("start", start), (name, ty))?;
            expect_rank(name, ty, 0)?;
        }
        Ok(vec![start.with_shape([self.out_dim.dim()?])])
    }

    fn defines(&self) -> Vec<&str> {
        self.out_dim.defines()
    }

    fn sizes(&self, inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
        match self.out_dim {
            OutDim::New(_) => Ok(self.out_dim.sizes(Range::counted(inputs)?)),
            OutDim::Known(_) => Ok(vec![]),
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (dtype, count): (DType, usize) = (inputs[0].dtype(), outputs[0][0]);
        if inputs.len() == 3 {
            let fits = self.out_dim.expect(Range::counted(inputs)?, count);
            fits.map_err(|message| Error::evaluation("range", message))?;
        }
        let result = match (Numbers::of(inputs[0]), Numbers::of(inputs[inputs.len() - 1])) {
            (Numbers::Floats(start), Numbers::Floats(step)) => {
                let values: Vec<f64> = (0..count).map(|i| start[0] + i as f64 * step[0]).collect();
                from_f64(dtype, outputs[0], &values)
            }
            (Numbers::Integers(start), Numbers::Integers(step)) => {
                let values: Vec<i128> = (0..count).map(|i| start[0] + i as i128 * step[0]).collect();
                from_i128(dtype, outputs[0], &values)
            }
            _ => unreachable!("operands of one dtype"),
        };
        Ok(vec![result])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;
    use crate::Graph;

    #[test]
    fn types() {
        check_types(
            Range { out_dim: "n".into() },
            &[
                (&["f16[]", "f16[]", "f16[]"], "f16[n]"),
                (&["f16[]", "f16[]"], "range: takes 3 operands (start, stop, step), got 2"),
                (&["i8[]", "i8[]", "i16[]"], "range: dtypes differ: start i8[], step i16[]"),
                (&["bool[]", "bool[]", "bool[]"], "range: start is bool[], expected a float or an integer"),
                (&["i8[1]", "i8[]", "i8[]"], "range: start is i8[1], expected 0 axes"),
            ],
        );
        let known = Range { out_dim: OutDim::Known("n".into()) };
        check_types(known, &[(&["i64[]", "i64[]"], "i64[n]")]);
    }

    #[test]
    fn values() {
        let known = |size: usize| Range { out_dim: OutDim::Known(size.into()) };
        let scalars = |values: [i32; 3]| values.map(Tensor::scalar);
        let [start, stop, step] = scalars([0, 5, 2]);
        assert_eq!(numbers(known(3), &[&start, &stop, &step]), [0., 2., 4.]);
        let error = run(known(2), &[&start, &stop, &step]).unwrap_err();
        assert_eq!(error.to_string(), "range: the data gives a size of 3, expected 2");
        let [start, stop, step] = scalars([3, 0, 0]);
        let error = run(known(2), &[&start, &stop, &step]).unwrap_err();
        assert_eq!(error.to_string(), "range: there is no range from 3 to 0 by 0");
        let [start, step] = [0.5f32, -0.25].map(Tensor::scalar);
        assert_eq!(numbers(known(3), &[&start, &step]), [0.5, 0.25, 0.0]);
        assert_eq!(Range::count(0.0, 1.0, 0.1), Ok(10));
        assert_eq!(Range::count(0.0, -1.0, 0.1), Ok(0));
        assert!(Range::count(0.0, f64::INFINITY, 1.0).is_err() && Range::count(f64::NAN, 0.0, 1.0).is_err());
        assert_eq!(Range::count_integers(5, -4, -3), Ok(3));
        assert!(
            Range::count(0.0, 2f64.powi(63), 1.0).is_err() && Range::count_integers(0, 1 << 63, 1).is_err()
        );
    }

    #[test]
    fn the_data_may_say_how_many() {
        let text = "graph g(%a: i64[], %b: i64[], %c: i64[]) {
                      %0 = range(%a, %b, %c) {out_dim = n}
                      return %0
                    }";
        let graph = Graph::parse(text).unwrap();
        let evaluate = |values: [i64; 3]| graph.evaluate(&values.map(Tensor::scalar), &|_| None);
        assert_eq!(evaluate([7, 0, -3]).unwrap().outputs[0].to_vec::<i64>(), [7, 4, 1]);
        assert_eq!(evaluate([7, 0, 3]).unwrap().outputs[0].elements(), 0);
        let message = "range: there is no range from 7 to 0 by 0";
        assert_eq!(evaluate([7, 0, 0]).unwrap_err().to_string(), message);
        let error = evaluate([i64::MIN, i64::MAX, 1]).unwrap_err();
        let message = "range: there is no range from -9223372036854775808 to 9223372036854775807 by 1";
        assert_eq!(error.to_string(), message);
    }
}
