//! Problems of matrix products and linear layers.

use tensor::{DType, Shape, Tensor};

use super::{FLOATS, List};
use crate::Tolerance;
use graph::ops::*;

impl List {
    pub(super) fn matmul(&mut self) {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (a, b) in matmul_shapes() {
                let k = a[a.rank() - 1];
                let (a, b) = (self.random.tensor(dtype, a, 1.0), self.random.tensor(dtype, b, 1.0));
                let absolute = 1e-6 * (k as f64).sqrt();
                self.add("", MatMul, vec![a, b], Tolerance::Close { relative: 1e-6, absolute });
            }
        }
    }

    /// A partial sum near the middle of two halves may be rounded to either.
    pub(super) fn split_matmul(&mut self) {
        for (m, k, n) in [(1, 1, 1), (15, 17, 16), (3, 1000, 33), (0, 4, 4), (2, 0, 3)] {
            for (dtype, step) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
                let (a, b) =
                    (self.random.tensor(dtype, [2, m, k], 1.0), self.random.tensor(dtype, [k, n], 1.0));
                let tolerance = Tolerance::Close { relative: step, absolute: step * (k as f64).sqrt() };
                self.add("", SplitMatMul { chunk: 16 }, vec![a, b], tolerance);
            }
        }
    }

    pub(super) fn fp8_products(&mut self) {
        for (m, k, n) in [(1, 1, 1), (15, 17, 16), (3, 1000, 33), (0, 4, 4)] {
            for dtype in [DType::F32, DType::BF16] {
                let (a, b) =
                    (self.random.tensor(dtype, [2, m, k], 1.0), self.random.tensor(dtype, [k, n], 1.0));
                let absolute = 1e-6 * k as f64;
                let tolerance = Tolerance::Close { relative: 1e-6, absolute };
                self.add("", Fp8Product::MatMul, vec![a, b], tolerance);
                let (x, w) = (self.random.floats([m, k], 1.0), self.random.tensor(dtype, [n, k], 1.0));
                self.add("", Fp8Product::Linear, vec![x, w], Tolerance::Close { relative: 1e-6, absolute });
            }
        }
    }

    pub(super) fn linear(&mut self) {
        let weights = FLOATS.into_iter().filter(|&dtype| dtype != DType::F64);
        for dtype in weights.chain(DType::ALL.iter().copied().filter(|dtype| dtype.is_block())) {
            let block = dtype.block().elements;
            for (tokens, rows, blocks) in
                [(1, 17, 1), (1, 16, 3), (5, 33, 2), (16, 15, 1), (17, 100, 4), (0, 4, 1)]
            {
                let columns = if block == 1 { [15, 64, 100, 1, 256][blocks] } else { block * blocks };
                let (x, weight) =
                    (self.random.floats([tokens, columns], 2.0), self.random.weight(dtype, rows, columns));
                self.linear_of("", Linear::default(), vec![x, weight]);
            }
        }
        let (x, weight) = (self.random.floats([2, 3, 32], 2.0), self.random.weight(DType::Q8_0, 5, 32));
        self.linear_of("", Linear::default(), vec![x, weight]);
    }

    pub(super) fn linear_variants(&mut self) {
        let plain = Linear::default();
        let gated = Linear { weights: 2, gate: Some(Unary::Silu), ..plain };
        let variants = [
            ("norm", Linear { norm: Some(1e-5), ..plain }),
            ("bias", Linear { bias: true, ..plain }),
            ("residual", Linear { residual: true, ..plain }),
            ("three weights", Linear { weights: 3, norm: Some(1e-6), bias: true, ..plain }),
            ("silu gate", gated),
            ("gelu", Linear { activation: Some(Unary::Gelu), bias: true, ..plain }),
            ("gelu gate", Linear { gate: Some(Unary::GeluTanh), norm: Some(1e-5), ..gated }),
            ("everything", Linear { norm: Some(1e-5), bias: true, residual: true, ..gated }),
        ];
        for dtype in [DType::F32, DType::BF16, DType::Q8_0, DType::Q4K] {
            for (what, linear) in variants {
                for (tokens, rows) in [(1, 16), (5, 17), (17, 48)] {
                    let columns = 256;
                    let mut inputs = vec![self.random.floats([tokens, columns], 1.0)];
                    if linear.norm.is_some() {
                        inputs.push(self.random.floats([columns], 1.0));
                    }
                    inputs.extend((0..linear.weights).map(|_| self.random.weight(dtype, rows, columns)));
                    if linear.bias {
                        inputs.extend((0..linear.weights).map(|_| self.random.floats([rows], 1.0)));
                    }
                    if linear.residual {
                        inputs.push(self.random.floats([tokens, rows], 1.0));
                    }
                    self.linear_of(what, linear, inputs);
                }
            }
        }
    }

    pub(super) fn expert_linear(&mut self) {
        let weights = FLOATS.into_iter().filter(|&dtype| dtype != DType::F64);
        for dtype in weights.chain(DType::ALL.iter().copied().filter(|dtype| dtype.is_block())) {
            let columns = if dtype.is_block() { dtype.block().elements } else { 17 };
            for (tokens, chosen, experts, rows) in
                [(1, 2, 8, 17), (5, 1, 1, 16), (17, 3, 4, 15), (40, 2, 3, 33), (0, 2, 4, 4), (3, 0, 4, 4)]
            {
                let x = self.random.floats([tokens, columns], 2.0);
                let ids = self.random.indices([tokens, chosen], experts);
                let weight = self.random.experts(dtype, [experts, rows, columns]);
                self.expert_linear_of("", ExpertLinear::default(), vec![x, ids, weight]);
            }
            let (x, ids) = (self.random.floats([2, 3, columns], 1.0), self.random.indices([2, 3], 5));
            let inputs = [(); 2].map(|()| self.random.experts(dtype, [5, 17, columns]));
            let gated = ExpertLinear { gate: Some(Unary::Silu) };
            self.expert_linear_of("silu gate", gated, [x, ids].into_iter().chain(inputs).collect());
        }
    }

    fn expert_linear_of(&mut self, what: &str, op: ExpertLinear, inputs: Vec<Tensor>) {
        let tolerance = product_tolerance(largest(&inputs[0]), &inputs[2], op.gate.is_some());
        self.add(what, op, inputs, tolerance);
    }

    fn linear_of(&mut self, what: &str, linear: Linear, inputs: Vec<Tensor>) {
        let operands = linear.operands(&inputs);
        // A normalized row is at most √n long, and random ones are at most 3 in any place.
        let x = operands.norm.map_or_else(|| largest(operands.x), |norm| 3.0 * largest(norm));
        let tolerance = product_tolerance(x, &operands.weights[0], linear.gate.is_some());
        self.add(what, linear, inputs, tolerance);
    }
}

/// The largest magnitude.
fn largest(x: &Tensor) -> f64 {
    x.to_f64_vec().into_iter().fold(0.0, |largest: f64, x| largest.max(x.abs()))
}

/// A device may round `x`, whose elements are at most `reach`, to what multiplies the weights: bf16, or int8 in
/// blocks. Six standard deviations of the error of a sum of such products are allowed, and what a gate makes of them.
fn product_tolerance(reach: f64, weight: &Tensor, gated: bool) -> Tolerance {
    let unit = match weight.dtype() {
        DType::BF16 => 1.0 / 512.0,
        dtype if dtype.is_block() => 1.0 / 254.0,
        _ => 1e-7,
    };
    let rows: usize = weight.shape()[..weight.shape().rank() - 1].iter().product();
    let squares: f64 = weight.to_f64_vec().iter().map(|w| w * w).sum();
    let deviation = (squares / rows as f64).sqrt() * reach;
    let mut absolute = 6.0 * deviation * unit + 1e-6;
    if gated {
        // The derivatives of the gates are at most 1.13.
        absolute *= (1.13 + 1.0) * deviation * 4.0;
    }
    Tolerance::Close { relative: 1e-5, absolute }
}

fn matmul_shapes() -> Vec<(Shape, Shape)> {
    let of = |a: &[usize], b: &[usize]| (Shape::new(a), Shape::new(b));
    vec![
        of(&[1, 1], &[1, 1]),
        of(&[15, 17], &[17, 16]),
        of(&[1, 1000], &[1000, 17]),
        of(&[16, 16], &[16, 1]),
        of(&[2, 1, 3, 16], &[5, 16, 4]),
        of(&[3, 0], &[0, 2]),
        of(&[0, 3], &[3, 2]),
    ]
}
