//! `y_i = x_(start + i·step)` along one axis, where data says from where, to where, and how far apart.

use super::indexing::integers;
use super::out_dim::OutDim;
use super::prelude::*;

/// Picks a range of an axis: `x` of any plain dtype, `start`, `stop` and `step` [] of i32 or i64 → the same with
/// another size along the axis.
///
/// As in Python and NumPy, ends that are negative count from the end, and those outside the axis become its ends. The
/// step must be at least 1. Where the size is known already, `stop` may be left out, `dynamic_slice(x, start, step)`: so
/// many elements from `start` on must then be there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DynamicSlice {
    /// Along which axis.
    pub axis: usize,
    /// How many elements there are.
    pub out_dim: OutDim,
}

impl DynamicSlice {
    /// The first index and the number of indices, along an axis of `size` elements.
    ///
    /// # Errors
    /// If the step is not positive, in words.
    pub fn range(size: usize, start: i64, stop: i64, step: i64) -> Result<(usize, usize), String> {
        if step < 1 {
            return Err(format!("step is {step}, expected at least 1"));
        }
        let end = |end: i64| {
            let from_start = if end < 0 { i128::from(end) + size as i128 } else { end.into() };
            from_start.clamp(0, size as i128) as usize
        };
        let (start, stop) = (end(start), end(stop));
        Ok((start, stop.saturating_sub(start).div_ceil(step as usize)))
    }

    /// The first index of `count` elements, along an axis of `size` elements.
    ///
    /// # Errors
    /// If they are not all there, or the step is not positive, in words.
    pub fn window(size: usize, start: i64, count: usize, step: i64) -> Result<usize, String> {
        let from = if start < 0 { i128::from(start) + size as i128 } else { start.into() };
        let last = from + (count as i128 - 1).max(0) * i128::from(step);
        if step > 0 && from >= 0 && (last < size as i128 || (count == 0 && from <= size as i128)) {
            Ok(from as usize)
        } else {
            Err(format!("{count} elements from {start} by {step} do not fit the {size} elements"))
        }
    }

    /// The first index along an axis of `size` elements; the result has `result` of them.
    ///
    /// # Errors
    /// If the ends, `start`, `stop` and `step` or `start` and `step`, give no such range, in words.
    pub fn first(&self, size: usize, ends: &[i64], result: usize) -> Result<usize, String> {
        let axis = |message| format!("{message} of axis {}", self.axis);
        match *ends {
            [start, step] => DynamicSlice::window(size, start, result, step).map_err(axis),
            [start, stop, step] => {
                let (first, count) = DynamicSlice::range(size, start, stop, step)?;
                self.out_dim.expect(count, result)?;
                Ok(first)
            }
            _ => unreachable!("the type rule asks for two or three ends"),
        }
    }
}

/// The ends among the operands.
fn ends(inputs: &[&Tensor]) -> Vec<i64> {
    inputs[1..].iter().map(|end| integers(end)[0] as i64).collect()
}

impl Define for DynamicSlice {
    declare!("dynamic_slice" { axis, out_dim });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let (x, ends) = match (&self.out_dim, inputs) {
            (OutDim::Known(_), [x, start, step]) => (*x, vec![("start", *start), ("step", *step)]),
            _ => {
                let [x, start, stop, step] = operands(inputs, ["x", "start", "stop", "step"])?;
                (x, vec![("start", start), ("stop", stop), ("step", step)])
            }
        };
        expect_plain("x", x)?;
        expect_axis("x", x, self.axis)?;
        for (name, ty) in ends {
            expect_dtype(name, ty, &[DType::I32, DType::I64])?;
            expect_rank(name, ty, 0)?;
        }
        let mut shape = x.shape.clone();
        shape[self.axis] = self.out_dim.dim()?;
        Ok(vec![x.with_shape(shape)])
    }

    fn defines(&self) -> Vec<&str> {
        self.out_dim.defines()
    }

    fn sizes(&self, inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
        let (size, ends) = (inputs[0].shape()[self.axis], ends(inputs));
        match (&self.out_dim, &ends[..]) {
            (OutDim::New(_), &[start, stop, step]) => {
                let range = DynamicSlice::range(size, start, stop, step);
                let (_, count) = range.map_err(|message| Error::evaluation("dynamic_slice", message))?;
                Ok(vec![count])
            }
            _ => Ok(vec![]),
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (ends, count) = (ends(inputs), outputs[0][self.axis]);
        let first = self.first(inputs[0].shape()[self.axis], &ends, count);
        let first = first.map_err(|message| Error::evaluation("dynamic_slice", message))?;
        let step = ends[ends.len() - 1] as usize;
        let lanes = Lanes::of(inputs[0].shape(), self.axis);
        let positions = (0..lanes.outer).flat_map(|outer| {
            let slab = move |index: usize| (outer * lanes.len + first + index * step) * lanes.inner;
            (0..count).map(slab).flat_map(|start| start..start + lanes.inner)
        });
        Ok(vec![take(inputs[0], outputs[0], positions)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;
    use crate::Graph;

    #[test]
    fn types() {
        check_types(
            DynamicSlice { axis: 1, out_dim: "m".into() },
            &[
                (&["bool[n, 9]", "i64[]", "i32[]", "i64[]"], "bool[n, m]"),
                (&["f32[n]", "i64[]", "i64[]", "i64[]"], "dynamic_slice: x f32[n] has no axis 1"),
                (
                    &["f32[n, 9]", "i64[]", "f32[]", "i64[]"],
                    "dynamic_slice: stop is f32[], expected i32 or i64",
                ),
                (
                    &["f32[n, 9]", "i64[]", "i64[1]", "i64[]"],
                    "dynamic_slice: stop is i64[1], expected 0 axes",
                ),
            ],
        );
    }

    #[test]
    fn ranges_are_those_of_python() {
        let cases = [
            ((5, 0, 5, 1), (0, 5)),
            ((5, -2, i64::MAX, 1), (3, 2)),
            ((5, i64::MIN, -1, 3), (0, 2)),
            ((5, 4, 2, 1), (4, 0)),
            ((5, 9, 12, 1), (5, 0)),
            ((0, 0, 7, 2), (0, 0)),
        ];
        for ((size, start, stop, step), expected) in cases {
            assert_eq!(
                DynamicSlice::range(size, start, stop, step),
                Ok(expected),
                "{start}..{stop} of {size}"
            );
        }
        assert!(DynamicSlice::range(5, 0, 5, 0).is_err());
    }

    #[test]
    fn values() {
        let text = "graph g(%x: i8[n, 2], %a: i64[], %b: i64[], %c: i64[]) {
                      %0 = dynamic_slice(%x, %a, %b, %c) {axis = 0, out_dim = m}
                      return %0
                    }";
        let graph = Graph::parse(text).unwrap();
        let x = Tensor::from_slice([3, 2], &[1i8, 2, 3, 4, 5, 6]);
        let evaluate = |ends: [i64; 3]| {
            let inputs: Vec<Tensor> = [x.clone()].into_iter().chain(ends.map(Tensor::scalar)).collect();
            graph.evaluate(&inputs, &|_| None).map(|results| results.outputs[0].to_vec::<i8>())
        };
        assert_eq!(evaluate([-2, 9, 1]).unwrap(), [3, 4, 5, 6]);
        assert_eq!(evaluate([0, 3, 2]).unwrap(), [1, 2, 5, 6]);
        let error = evaluate([0, 3, 0]).unwrap_err();
        assert_eq!(error.to_string(), "dynamic_slice: step is 0, expected at least 1");
        let known = DynamicSlice { axis: 0, out_dim: OutDim::Known(1.into()) };
        let ends = [0i64, 2, 1].map(Tensor::scalar);
        let error = run(known, &[&x, &ends[0], &ends[1], &ends[2]]).unwrap_err();
        assert_eq!(error.to_string(), "dynamic_slice: the data gives a size of 2, expected 1");
        let two = DynamicSlice { axis: 0, out_dim: OutDim::Known(2.into()) };
        let window = |start: i64| run(two.clone(), &[&x, &Tensor::scalar(start), &Tensor::scalar(1i64)]);
        assert_eq!(window(-2).unwrap()[0].to_vec::<i8>(), [3, 4, 5, 6]);
        let message = "dynamic_slice: 2 elements from 2 by 1 do not fit the 3 elements of axis 0";
        assert_eq!(window(2).unwrap_err().to_string(), message);
    }
}
