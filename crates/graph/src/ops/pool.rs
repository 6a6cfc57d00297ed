//! The mean or the largest element of each window of an image.

use super::field::Field;
use super::prelude::*;
use super::window::{ImageLayout, Images, Windows, expect_extents, indices, taps};

/// What becomes of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The largest element; NaN if one is NaN.
    Max,
    /// The mean.
    Average {
        /// Whether padding counts as zeros. What reaches beyond the padding never counts.
        count_padding: bool,
    },
}

/// Pooling over height and width: images of any float dtype → as many of the same dtype and channels, with one element
/// for each position of the window. Padding is smaller than the window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pool2d {
    /// Mean or largest.
    pub kind: PoolKind,
    /// Height and width of the window.
    pub window: Vec<usize>,
    /// How it slides.
    pub windows: Windows,
    /// Whether a window counts that reaches beyond the end, if it starts before it.
    pub round_up: bool,
    /// Of `x` and of the result.
    pub layout: ImageLayout,
}

impl Pool2d {
    /// Pooling with windows side by side, channels last.
    pub fn new(kind: PoolKind, window: [usize; 2]) -> Pool2d {
        let windows = Windows::new(2).with_strides(window);
        Pool2d { kind, window: window.to_vec(), windows, round_up: false, layout: ImageLayout::default() }
    }

    /// How many elements of a window along an axis count for a mean over padding too.
    pub fn counted(&self, axis: usize, position: usize, size: usize) -> usize {
        let windows = &self.windows;
        let end = size + windows.padding[axis][0] + windows.padding[axis][1];
        let spare = end.saturating_sub(position * windows.strides[axis]);
        spare.div_ceil(windows.dilations[axis]).min(self.window[axis])
    }
}

/// `skip_padding` for a mean that leaves padding out.
impl Field for PoolKind {
    fn write(&self, _name: &str, attributes: Attributes) -> Attributes {
        (*self == PoolKind::Average { count_padding: false }).write("skip_padding", attributes)
    }

    fn read(op: &str, _name: &str, attributes: &mut Attributes) -> Result<PoolKind, TypeError> {
        if op == NAMES[0] {
            return Ok(PoolKind::Max);
        }
        Ok(PoolKind::Average { count_padding: !bool::read(op, "skip_padding", attributes)? })
    }
}

const NAMES: &[&str] = &["max_pool2d", "avg_pool2d"];

impl Define for Pool2d {
    declare!(NAMES[|op| usize::from(op.kind != PoolKind::Max)] {
        window, windows, round_up, kind, layout = ImageLayout::default()
    });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_dtype("x", x, FLOATS)?;
        expect_rank("x", x, 4)?;
        self.windows.expect_axes(2)?;
        expect_extents("window", &self.window, 2, 1)?;
        let mut shape = x.shape.clone();
        for (axis, &size) in self.window.iter().enumerate() {
            let (reach, padding) = (self.windows.reach(axis, size), self.windows.padding[axis]);
            refuse_if!(
                padding.iter().any(|&padding| padding >= reach),
                "padding {padding:?} of spatial axis {axis} is no smaller than the {reach} that a window spans"
            );
            let dim: &mut Dim = &mut shape[self.layout.first_spatial_axis() + axis];
            *dim = self.windows.positions(axis, dim, size, self.round_up)?;
        }
        Ok(vec![x.with_shape(shape)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        if outputs[0].contains(&0) {
            return Ok(vec![Tensor::zeros(inputs[0].dtype(), outputs[0])]);
        }
        let x = inputs[0].to_f64_vec();
        let from = Images::new(self.layout, inputs[0].shape());
        let to = Images::new(self.layout, &outputs[0]);
        let mut y = vec![0.0; outputs[0].elements()];
        for at in indices(&to.spatial) {
            let counted: usize =
                (0..2).map(|axis| self.counted(axis, at[axis], from.spatial[axis])).product();
            for (n, c) in (0..to.batch).flat_map(|n| (0..to.channels).map(move |c| (n, c))) {
                let window: Vec<f64> = taps(&self.windows, &self.window, &at, &from.spatial)
                    .map(|(_, element)| x[from.position(n, c, &element)])
                    .collect();
                let sum: f64 = window.iter().sum();
                y[to.position(n, c, &at)] = match self.kind {
                    PoolKind::Max => window.into_iter().fold(f64::NEG_INFINITY, larger),
                    PoolKind::Average { count_padding: true } => sum / counted as f64,
                    PoolKind::Average { count_padding: false } => sum / window.len() as f64,
                };
            }
        }
        Ok(vec![from_f64(inputs[0].dtype(), outputs[0], &y)])
    }
}

/// The larger of two, NaN if one is NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    fn pool(kind: PoolKind) -> Pool2d {
        Pool2d {
            windows: Windows::new(2).with_strides([2, 2]).with_padding(&[1, 1]),
            round_up: true,
            layout: ImageLayout::ChannelsFirst,
            ..Pool2d::new(kind, [3, 2])
        }
    }

    #[test]
    fn types() {
        let max = pool(PoolKind::Max);
        check_types(
            max.clone(),
            &[
                (&["f32[n, 3, 5, 5]"], "f32[n, 3, 3, 3]"),
                (&["bf16[n, c, h, 6]"], "bf16[n, c, ((h + 2)//(2)), 4]"),
                (&["i32[n, 3, 5, 5]"], "max_pool2d: x is i32[n, 3, 5, 5], expected f16, bf16, f32 or f64"),
                (&["f32[3, 5, 5]"], "max_pool2d: x is f32[3, 5, 5], expected 4 axes"),
            ],
        );
        check_types(
            Pool2d { windows: Windows::new(2).with_padding(&[0, 2]), ..max },
            &[(
                &["f32[n, 3, 5, 5]"],
                "max_pool2d: padding [2, 2] of spatial axis 1 is no smaller than the 2 that a window spans",
            )],
        );
        let halves = Pool2d::new(PoolKind::Average { count_padding: true }, [2, 2]);
        check_types(
            halves,
            &[
                (&["f32[n, 6, w, 3]"], "f32[n, 3, ((w)//(2)), 3]"),
                (
                    &["f32[n, 6, 1, 3]"],
                    "avg_pool2d: a window of 2 elements spans 2 along spatial axis 1, which has 1 and 0 of padding",
                ),
            ],
        );
    }

    /// Of `torch.nn.functional.max_pool2d` and `avg_pool2d`, f64, on `x_i = sin(i)`.
    #[test]
    fn values_of_pytorch() {
        let x: Vec<f64> = (0..25).map(|i| f64::from(i).sin()).collect();
        let x = Tensor::from_slice([1, 1, 5, 5], &x);
        let table: [(PoolKind, [f64; 3]); 3] = [
            (PoolKind::Max, [0.0, 0.9092974268256817, 0.9893582466233818]),
            (
                PoolKind::Average { count_padding: true },
                [-0.1598207124438564, 0.3547232520255736, 0.13096570743617955],
            ),
            (
                PoolKind::Average { count_padding: false },
                [-0.4794621373315692, 0.5320848780383604, 0.19644856115426934],
            ),
        ];
        for (kind, first) in table {
            assert_close(&numbers(pool(kind), &[&x])[..3], &first, 1e-12);
        }
        let nan = Tensor::from_slice([1, 1, 2, 2], &[1.0f32, f32::NAN, 2.0, 0.0]);
        let max = Pool2d { layout: ImageLayout::ChannelsFirst, ..Pool2d::new(PoolKind::Max, [2, 2]) };
        assert!(numbers(max, &[&nan])[0].is_nan());
    }
}
