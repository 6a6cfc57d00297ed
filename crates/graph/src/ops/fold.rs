//! `y[n, c, o·stride + k·dilation - padding] += x[n, (c, k), o]`: windows laid over each other and summed.

use super::prelude::*;
use super::window::{Windows, expect_extents, indices};

/// Puts images together from their windows, as `torch.nn.functional.fold` does: `x` [batch, channels · height · width
/// of the window, positions] of any float dtype → `[batch, channels, size[0], size[1]]`. Elements that several windows
/// cover are their sum, those that none covers are 0.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fold {
    /// Height and width of the result.
    pub size: Vec<Dim>,
    /// Height and width of the window.
    pub window: Vec<usize>,
    /// How the window slides over the result.
    pub windows: Windows,
}

impl Define for Fold {
    declare!("fold" { size, window, windows });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_dtype("x", x, FLOATS)?;
        expect_rank("x", x, 3)?;
        self.windows.expect_axes(2)?;
        expect_extents("window", &self.window, 2, 1)?;
        refuse_if!(self.size.len() != 2, "size is {:?}, expected height and width", self.size);
        let elements = self.window[0] * self.window[1];
        let channels = match x.shape[1].as_static() {
            Some(size) if !size.is_multiple_of(elements) => {
                return Err(type_error!("axis 1 of x {x} is no multiple of the {elements} of a window"));
            }
            _ => x.shape[1].floor_div(&Dim::from(elements)),
        };
        let positions =
            |axis: usize| self.windows.positions(axis, &self.size[axis], self.window[axis], false);
        let positions = &positions(0)? * &positions(1)?;
        // What is not known yet is checked at run time.
        let differ = positions.as_static().zip(x.shape[2].as_static()).is_some_and(|(a, b)| a != b);
        refuse_if!(
            differ,
            "windows over {:?} have {positions} positions, x {x} holds {}",
            self.size,
            x.shape[2]
        );
        let [height, width] = &self.size[..] else { unreachable!("checked: height and width") };
        Ok(vec![x.with_shape([x.shape[0].clone(), channels, height.clone(), width.clone()])])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let positions = self
            .positions(inputs[0].shape(), &outputs[0])
            .map_err(|error| Error::evaluation("fold", error))?;
        let (x, [_, _, height, width]) =
            (inputs[0].to_f64_vec(), outputs[0].dims().try_into().expect("4 axes"));
        let [images, count] = [inputs[0].shape()[0] * outputs[0][1], positions[0] * positions[1]];
        let mut y = vec![0.0; outputs[0].elements()];
        for image in 0..images {
            for (tap_index, tap) in indices(&self.window).enumerate() {
                for (position, at) in indices(&positions).enumerate() {
                    let element = |axis: usize, size| self.windows.element(axis, at[axis], tap[axis], size);
                    if let (Some(row), Some(column)) = (element(0, height), element(1, width)) {
                        let row_of_x = image * self.window[0] * self.window[1] + tap_index;
                        y[(image * height + row) * width + column] += x[row_of_x * count + position];
                    }
                }
            }
        }
        Ok(vec![from_f64(inputs[0].dtype(), outputs[0], &y)])
    }
}

impl Fold {
    /// How many positions the window has down and across a result, for operand and result of these shapes.
    ///
    /// # Errors
    /// If `x` does not hold as many windows, or its axis 1 no whole number of them.
    pub fn positions(&self, x: &Shape, result: &Shape) -> Result<[usize; 2], String> {
        let along = |axis: usize| {
            let dim = self.windows.positions(axis, &Dim::from(result[2 + axis]), self.window[axis], false);
            dim.map(|dim| dim.as_static().unwrap_or(0)).map_err(|error| error.to_string())
        };
        let (positions, elements) = ([along(0)?, along(1)?], self.window[0] * self.window[1]);
        if positions[0] * positions[1] != x[2] {
            let [down, across] = positions;
            return Err(format!(
                "windows over {result} have {down} by {across} positions, x {x} holds {}",
                x[2]
            ));
        }
        if x[1] == result[1] * elements {
            Ok(positions)
        } else {
            Err(format!("axis 1 of x {x} is no multiple of the {elements} elements of a window"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    fn fold(size: [Dim; 2], window: [usize; 2], windows: Windows) -> Fold {
        Fold { size: size.to_vec(), window: window.to_vec(), windows }
    }

    #[test]
    fn types() {
        let windows = Windows::new(2).with_strides([2, 2]);
        check_types(
            fold(crate::dims![4, 6], [2, 2], windows.clone()),
            &[
                (&["f16[n, 12, 6]"], "f16[n, 3, 4, 6]"),
                (&["f16[n, 12, l]"], "f16[n, 3, 4, 6]"),
                (&["f16[n, 10, 6]"], "fold: axis 1 of x f16[n, 10, 6] is no multiple of the 4 of a window"),
                (&["f16[n, 12, 7]"], "fold: windows over [4, 6] have 6 positions, x f16[n, 12, 7] holds 7"),
                (&["f16[12, 6]"], "fold: x is f16[12, 6], expected 3 axes"),
            ],
        );
        let late = fold(crate::dims![4, 6], [2, 2], windows);
        let message = late.positions(&[1, 4, 5].into(), &[1, 1, 4, 6].into()).unwrap_err();
        assert_eq!(message, "windows over [1, 1, 4, 6] have 2 by 3 positions, x [1, 4, 5] holds 5");
    }

    /// Of `torch.nn.functional.fold`, f64, on `x_i = sin(i)`.
    #[test]
    fn values_of_pytorch() {
        let x: Vec<f64> = (0..72).map(|i| f64::from(i).sin()).collect();
        let x = Tensor::from_slice([1, 12, 6], &x);
        let op = fold(crate::dims![4, 6], [3, 2], Windows::new(2).with_strides([2, 2]).with_padding(&[1, 0]));
        let y = numbers(op, &[&x]);
        let expected = [-0.5365729180004349, -0.750987246771676, 0.4201670368266409, 0.14987720966295234];
        assert_close(&y[..4], &expected, 1e-12);
        let expected = [0.9200260381967906, 0.7738906815578891, 0.8268286794901034, 0.9510546532543747];
        assert_close(&y[44..], &expected, 1e-12);
    }
}
