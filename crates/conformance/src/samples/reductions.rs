//! Problems of ops that reduce an axis, or see all of it: softmax and norms.

use tensor::{DType, Shape, Tensor};

use super::{List, rounding, unary};
use crate::Tolerance;
use crate::data::SIZES;
use graph::ops::*;

impl List {
    pub(super) fn reductions(&mut self) {
        for (shape, axis) in axes() {
            for &kind in ReduceKind::ALL {
                let x = self.random.floats(shape, 1.5);
                let absolute = 1e-6 * shape[axis].max(1) as f64;
                let tolerance = match kind {
                    ReduceKind::Max | ReduceKind::Min => Tolerance::Exact,
                    ReduceKind::Prod => Tolerance::Close { relative: absolute, absolute: 1e-37 },
                    _ => Tolerance::Close { relative: 1e-6, absolute },
                };
                self.add(&format!("axis {axis}"), Reduce { kind, axis }, vec![x], tolerance);
            }
            if shape[axis] > 0 {
                for kind in [ArgReduceKind::Max, ArgReduceKind::Min] {
                    // Few different values, so that there are ties.
                    let x = unary(Unary::Round, &self.random.floats(shape, 9.0));
                    self.add(&format!("axis {axis}"), ArgReduce { kind, axis }, vec![x], Tolerance::Exact);
                }
            }
        }
        let nan = Tensor::from_slice(
            [3, 3],
            &[1.0, f32::NAN, 2.0, f32::NAN, f32::NAN, f32::NAN, f32::NAN, -1.0, -1.0],
        );
        for kind in [ArgReduceKind::Max, ArgReduceKind::Min] {
            self.add("with NaN", ArgReduce { kind, axis: 1 }, vec![nan.clone()], Tolerance::Exact);
        }
        for &kind in ReduceKind::ALL {
            self.add("with NaN", Reduce { kind, axis: 1 }, vec![nan.clone()], Tolerance::Exact);
            if kind != ReduceKind::Mean {
                let x = self.random.tensor(DType::I32, [3, 17], 1.0);
                self.add("axis 1", Reduce { kind, axis: 1 }, vec![x], Tolerance::Exact);
            }
        }
    }

    pub(super) fn softmax(&mut self) {
        for (shape, axis) in axes() {
            let x = self.random.floats(shape, 20.0);
            self.add(&format!("axis {axis}"), Softmax { axis }, vec![x], rounding(DType::F32, 1e-37));
        }
        let x = self.random.tensor(DType::F16, [3, 17], 5.0);
        self.add("", Softmax { axis: 1 }, vec![x], rounding(DType::F16, 1e-7));
        let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
        let rows = [
            [0.0, low, 1.0],
            [low, low, low],
            [nan, 0.0, 1.0],
            [3e38, -3e38, 0.0],
            [f32::INFINITY, 0.0, 1.0],
        ];
        let x = Tensor::from_slice([5, 3], &rows.concat());
        self.add("awkward", Softmax { axis: 1 }, vec![x], rounding(DType::F32, 1e-37));
    }

    pub(super) fn norms(&mut self) {
        let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
        for columns in SIZES {
            let x = self.random.floats([3, columns], 3.0);
            let (weight, bias) = (self.random.floats([columns], 2.0), self.random.floats([columns], 1.0));
            self.add("", RmsNorm { eps: 1e-5 }, vec![x.clone(), weight.clone()], tolerance);
            self.add("", LayerNorm { eps: 1e-5 }, vec![x, weight, bias], tolerance);
        }
        let one = Tensor::from_slice([4], &[1.0f32; 4]);
        let zero = Tensor::from_slice([4], &[0.0f32; 4]);
        let rows = [[0.0f32; 4], [1e-20; 4], [f32::NAN, 1.0, 2.0, 3.0], [5.0, 5.0, 5.0, 5.0]];
        let x = Tensor::from_slice([4, 4], &rows.concat());
        self.add("awkward", RmsNorm { eps: 1e-5 }, vec![x.clone(), one.clone()], tolerance);
        self.add("awkward", LayerNorm { eps: 1e-5 }, vec![x, one.clone(), zero], tolerance);
        let empty = Tensor::zeros(DType::F32, [0, 4]);
        self.add("", RmsNorm { eps: 1e-5 }, vec![empty, one], tolerance);
    }
}

/// Shapes and an axis of each.
fn axes() -> Vec<(Shape, usize)> {
    let last = SIZES.into_iter().map(|size| (Shape::new(&[3, size]), 1));
    let others = [(Shape::new(&[17, 15]), 0), (Shape::new(&[2, 16, 3]), 1), (Shape::new(&[2, 0]), 0)];
    last.chain(others).collect()
}
