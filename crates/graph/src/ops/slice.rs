//! `y_i = x_(start + i·step)` along one axis.

use super::prelude::*;

/// Picks a range of an axis: `x` of any plain dtype → the same with `(stop - start) / step`, rounded up,
/// along the axis. Both ends must lie within the axis, also when its size is known only at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Along which axis.
    pub axis: usize,
    /// The first index; a negative one counts from the end.
    pub start: i64,
    /// The index after the last; a negative one counts from the end, none is the end.
    pub stop: Option<i64>,
    /// The distance between indices, at least 1.
    pub step: usize,
}

impl Define for Slice {
    declare!("slice" { axis, start, stop, step = 1 });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_plain("x", x)?;
        let size = expect_axis("x", x, self.axis)?;
        if self.step == 0 {
            return Err(TypeError::new("step is 0, expected at least 1"));
        }
        if let Some(size) = size.as_static() {
            self.range(size).map_err(|message| type_error!("{message} of x {x}"))?;
        }
        let from_start =
            |index: i64| if index < 0 { size + &Dim::integer(index) } else { Dim::integer(index) };
        let length = &self.stop.map_or_else(|| size.clone(), from_start) - &from_start(self.start);
        let step = Dim::from(self.step);
        let mut shape = x.shape.clone();
        shape[self.axis] = (&(&length + &step) - &Dim::from(1)).floor_div(&step);
        Ok(vec![x.with_shape(shape)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let lanes = Lanes::of(inputs[0].shape(), self.axis);
        let (start, stop) = self.range(lanes.len).map_err(|message| Error::evaluation("slice", message))?;
        let positions = (0..lanes.outer).flat_map(|outer| {
            let slice = move |index: usize| (outer * lanes.len + index) * lanes.inner;
            (start..stop).step_by(self.step).map(slice).flat_map(|first| first..first + lanes.inner)
        });
        Ok(vec![take(inputs[0], outputs[0], positions)])
    }
}

impl Slice {
    /// The range of indices in an axis of known size.
    ///
    /// # Errors
    /// If it leaves the axis, or ends before it starts.
    pub fn range(&self, size: usize) -> Result<(usize, usize), String> {
        let resolve = |index: i64| {
            if index < 0 { size.checked_sub(index.unsigned_abs() as usize) } else { Some(index as usize) }
        };
        let (start, stop) = (resolve(self.start), self.stop.map_or(Some(size), resolve));
        match (start, stop) {
            (Some(start), Some(stop)) if start <= stop && stop <= size => Ok((start, stop)),
            _ => {
                let stop = self.stop.map_or(String::new(), |stop| stop.to_string());
                Err(format!(
                    "the range {}..{stop} does not fit the {size} elements of axis {}",
                    self.start, self.axis
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;

    #[test]
    fn types() {
        let slice = |start, stop, step| Slice { axis: 0, start, stop, step };
        check_types(slice(1, None, 1), &[(&["f32[n, 2]"], "f32[n - 1, 2]"), (&["f32[5]"], "f32[4]")]);
        check_types(
            slice(-2, None, 1),
            &[
                (&["f32[n]"], "f32[2]"),
                (&["f32[1]"], "slice: the range -2.. does not fit the 1 elements of axis 0 of x f32[1]"),
            ],
        );
        check_types(slice(0, Some(5), 2), &[(&["f32[n]"], "f32[3]"), (&["f32[5]"], "f32[3]")]);
        check_types(
            slice(3, Some(2), 1),
            &[(&["f32[5]"], "slice: the range 3..2 does not fit the 5 elements of axis 0 of x f32[5]")],
        );
        check_types(slice(0, None, 0), &[(&["f32[5]"], "slice: step is 0, expected at least 1")]);
        check_types(
            slice(0, None, 2),
            &[(&["f32[n]"], "f32[((n + 1)//(2))]"), (&["f32[]"], "slice: x f32[] has no axis 0")],
        );
        check_types(
            slice(i64::MIN, Some(i64::MIN), 1),
            &[(
                &["f32[5]"],
                "slice: the range -9223372036854775808..-9223372036854775808 does not fit the 5 elements of axis 0 of x f32[5]",
            )],
        );
        check_types(slice(-(1 << 62), None, 1), &[(&["f32[n]"], "f32[4611686018427387904]")]);
    }

    #[test]
    fn values() {
        let x = Tensor::from_slice([2, 4], &[1i8, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(numbers(Slice { axis: 1, start: 1, stop: None, step: 2 }, &[&x]), [2.0, 4.0, 6.0, 8.0]);
        assert_eq!(numbers(Slice { axis: 1, start: -2, stop: Some(-1), step: 1 }, &[&x]), [3.0, 7.0]);
        assert_eq!(numbers(Slice { axis: 0, start: 1, stop: Some(2), step: 1 }, &[&x]), [5.0, 6.0, 7.0, 8.0]);
        // Sizes that are known only at run time are checked then.
        let late =
            Slice { axis: 1, start: 0, stop: Some(5), step: 1 }.reference(&[&x], &[Shape::new(&[2, 5])]);
        let message = "slice: the range 0..5 does not fit the 4 elements of axis 1";
        assert_eq!(late.unwrap_err().to_string(), message);
    }
}
