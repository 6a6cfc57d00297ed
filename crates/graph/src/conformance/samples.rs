//! The problems, op by op.

mod moves;

use std::sync::Arc;

use tensor::{DType, Shape, Tensor};

use super::data::{Random, SIZES, awkward, cast};
use super::{Problem, Tolerance};
use crate::ops::*;
use crate::{Graph, Op};

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];
const INTEGERS: [DType; 8] =
    [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32, DType::U64, DType::I64];

/// Every problem; the same each time.
pub fn problems() -> Vec<Problem> {
    let mut list = List { problems: Vec::new(), random: Random::new(2024) };
    list.constants();
    list.unary();
    list.binary();
    list.select_and_cast();
    list.elementwise();
    list.reductions();
    list.softmax();
    list.norms();
    list.matmul();
    list.fp8_products();
    list.split_matmul();
    list.linear();
    list.linear_variants();
    list.expert_linear();
    list.lookups();
    list.movement();
    list.memory();
    list.moves();
    list.rope();
    list.attention();
    list.control();
    list.shapes();
    list.problems.extend(super::samples_nn::problems());
    list.dense_attention();
    list.ragged_attention();
    list.problems
}

struct List {
    problems: Vec<Problem>,
    random: Random,
}

impl List {
    fn add(&mut self, what: &str, op: impl Into<Op>, inputs: Vec<Tensor>, tolerance: Tolerance) {
        let op = op.into();
        let types: Vec<String> = inputs.iter().map(|x| format!("{}{}", x.dtype(), x.shape())).collect();
        let mut name = format!("{} {}", op.name(), types.join(" "));
        if !what.is_empty() {
            name = format!("{name} {what}");
        }
        let problem = Problem::new(name, op, inputs, tolerance).unwrap_or_else(|error| panic!("{error}"));
        self.problems.push(problem);
    }

    fn constants(&mut self) {
        for size in [0, 1, 17] {
            let value = self.random.floats([size], 1.0);
            self.add(&format!("of {size}"), Constant::new(value), vec![], Tolerance::Exact);
        }
    }

    fn unary(&mut self) {
        use Unary::*;
        for &function in Unary::ALL {
            if function == Not {
                let x = self.random.tensor(DType::Bool, [17], 1.0);
                self.add("", Not, vec![x], Tolerance::Exact);
                continue;
            }
            let tolerance = |dtype| match function {
                Abs | Ceil | Floor | Neg | Relu | Round | Trunc => Tolerance::Exact,
                Acos | Atanh | Cos | Erf | Gelu | GeluQuick | GeluTanh | Log | Log1p | Sin | Tanh => {
                    rounding(dtype, 1e-6)
                }
                _ => rounding(dtype, 1e-37),
            };
            for size in SIZES {
                let x = self.random.floats([size], 8.0);
                self.add("", function, vec![x], tolerance(DType::F32));
            }
            // Angles lose their meaning in f32 long before its end; limits of products with infinity are
            // nobody's.
            let keep = |x: f32| match function {
                Cos | Sin => x.abs() < 1e4 || !x.is_finite(),
                Gelu | GeluQuick | GeluTanh | Silu => x != f32::NEG_INFINITY,
                _ => true,
            };
            for dtype in FLOATS {
                self.add(
                    "awkward",
                    function,
                    vec![awkward(dtype, |x| keep(cast_to(x, dtype)))],
                    tolerance(dtype),
                );
            }
            if [Abs, Neg, Relu].contains(&function) {
                for dtype in [DType::I8, DType::I32, DType::I64] {
                    let x = self.random.tensor(dtype, [17], 1.0);
                    self.add("", function, vec![x], Tolerance::Exact);
                }
            }
        }
    }

    fn binary(&mut self) {
        for &function in Binary::ALL {
            let dtypes: Vec<DType> = match function {
                _ if function.is_logical() => vec![DType::Bool],
                _ => FLOATS.into_iter().chain(INTEGERS).collect(),
            };
            for dtype in dtypes {
                self.binary_of(function, dtype);
            }
            if !function.is_logical() && function != Binary::Pow {
                let x = awkward(DType::F32, |_| true);
                let n = x.elements();
                self.add("awkward", function, vec![x.reshape([n, 1]), x], Tolerance::Exact);
            }
        }
    }

    fn binary_of(&mut self, function: Binary, dtype: DType) {
        let shapes: [[&[usize]; 2]; 5] =
            [[&[17], &[17]], [&[3, 1, 15], &[16, 1]], [&[], &[1000]], [&[2, 16], &[2, 16]], [&[0, 3], &[3]]];
        for [a, b] in shapes {
            let mut x = self.random.tensor(dtype, Shape::new(a), 4.0);
            let mut y = self.random.tensor(dtype, Shape::new(b), 4.0);
            if function == Binary::Pow && dtype.is_float() {
                x = unary(Unary::Abs, &x);
            }
            if function == Binary::Pow && dtype.is_integer() {
                y = binary(Binary::Max, &y, &cast(&Tensor::scalar(0.0f32), dtype));
            }
            if [Binary::Div, Binary::FloorDiv, Binary::Mod].contains(&function) && dtype.is_integer() {
                // No zeros, and quotients other than 0.
                let one = cast(&Tensor::scalar(1.0f32), dtype);
                let three = cast(&Tensor::scalar(3.0f32), dtype);
                y = binary(Binary::Max, &binary(Binary::Div, &y, &three), &one);
            }
            let tolerance = if function == Binary::Pow { rounding(dtype, 1e-37) } else { Tolerance::Exact };
            self.add("", function, vec![x, y], tolerance);
        }
    }

    fn select_and_cast(&mut self) {
        for dtype in [DType::F32, DType::I64, DType::U8, DType::F16] {
            let condition = self.random.tensor(DType::Bool, [5, 1], 1.0);
            let (a, b) = (self.random.tensor(dtype, [17], 1.0), self.random.tensor(dtype, [5, 17], 1.0));
            self.add("", Select, vec![condition, a, b], Tolerance::Exact);
        }
        let dtypes: Vec<DType> = FLOATS.into_iter().chain(INTEGERS).chain([DType::Bool]).collect();
        for &to in &dtypes {
            for &from in &dtypes {
                let x = if FLOATS.contains(&from) {
                    awkward(from, |_| true)
                } else {
                    self.random.tensor(from, [17], 1.0)
                };
                self.add(&format!("to {to}"), Cast { to }, vec![x], Tolerance::Exact);
            }
        }
    }

    fn elementwise(&mut self) {
        let program = |text: &str| {
            let text = Attribute::Text(text.to_string());
            Op::parse("elementwise", Attributes::default().with("program", text)).expect("a program")
        };
        for size in SIZES {
            let [x, bias] = [&[3, size][..], &[size]].map(|shape| self.random.floats(Shape::new(shape), 4.0));
            let op = program("mul(x0, x1); add(t0, x2); gelu(t1); add(t2, x3); mul(t3, x0)");
            let scalar = Tensor::scalar(0.75f32);
            self.add("", op, vec![x, scalar, bias.clone(), bias], rounding(DType::F32, 1e-5));
        }
        for dtype in FLOATS {
            let x = awkward(dtype, |_| true);
            let op = program("neg(x0); max(t0, x1); less(x0, x1); select(t2, t1, x0); cast[bf16](t3)");
            let y = self.random.tensor(dtype, [x.elements(), 1], 4.0);
            self.add("awkward", op, vec![x, y], Tolerance::Exact);
        }
        for dtype in [DType::I8, DType::I64] {
            let [x, y] = [17, 1].map(|n| self.random.tensor(dtype, [n], 50.0));
            let op = program("mul(x0, x1); abs(t0); cast[u8](t1); cast[f32](t2)");
            self.add("", op, vec![x, y], Tolerance::Exact);
        }
        let [p, q] = [[4, 1], [1, 17]].map(|shape| self.random.tensor(DType::Bool, shape, 1.0));
        self.add("", program("and(x0, x1); not(t0); xor(t1, x0)"), vec![p, q], Tolerance::Exact);
    }

    fn dense_attention(&mut self) {
        let shapes =
            [[1, 1, 1, 1, 1, 1], [2, 15, 17, 3, 16, 8], [1, 17, 16, 2, 5, 33], [1, 3, 130, 1, 64, 64]];
        for [batch, tokens, keys, heads, dim, width] in shapes {
            let [q, k, v] = [[tokens, dim], [keys, dim], [keys, width]]
                .map(|[rows, dim]| self.random.floats([batch, rows, heads, dim], 1.0));
            let mut mask = self.random.floats([tokens, keys], 4.0).to_vec::<f32>();
            mask.iter_mut().step_by(3).skip(1).for_each(|mask| *mask = f32::NEG_INFINITY);
            let mask = Tensor::from_slice([tokens, keys], &mask);
            let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
            let op = Attention { scale: 0.25 };
            self.add("", op, vec![q.clone(), k.clone(), v.clone()], tolerance);
            self.add("", op, vec![q, k, v, mask], tolerance);
        }
    }

    fn ragged_attention(&mut self) {
        let batches: [&[u32]; 5] = [&[0, 1], &[0, 17], &[0, 15, 15, 16, 33], &[0, 130], &[0]];
        for offsets in batches {
            let tokens = offsets[offsets.len() - 1] as usize;
            let row_offsets = Tensor::from_slice([offsets.len()], offsets);
            for (heads, dim, width, reach) in [(1, 1, 1, 0), (3, 16, 8, 7), (2, 5, 33, 128)] {
                let [q, k, v] = [dim, dim, width].map(|dim| self.random.floats([tokens, heads, dim], 2.0));
                let bias = self.random.floats([heads, 2 * reach + 1], 4.0);
                let tolerance = Tolerance::Close { relative: 1e-5, absolute: 1e-5 };
                let what = format!("{} sequences", offsets.len() - 1);
                let op = RaggedAttention { scale: 0.25 };
                let inputs = vec![q, k, v, row_offsets.clone()];
                self.add(&what, op, inputs.clone(), tolerance);
                self.add(&what, op, inputs.into_iter().chain([bias]).collect(), tolerance);
            }
        }
    }

    fn reductions(&mut self) {
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

    fn softmax(&mut self) {
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

    fn norms(&mut self) {
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

    fn matmul(&mut self) {
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
    fn split_matmul(&mut self) {
        for (m, k, n) in [(1, 1, 1), (15, 17, 16), (3, 1000, 33), (0, 4, 4), (2, 0, 3)] {
            for (dtype, step) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
                let (a, b) =
                    (self.random.tensor(dtype, [2, m, k], 1.0), self.random.tensor(dtype, [k, n], 1.0));
                let tolerance = Tolerance::Close { relative: step, absolute: step * (k as f64).sqrt() };
                self.add("", SplitMatMul { chunk: 16 }, vec![a, b], tolerance);
            }
        }
    }

    fn fp8_products(&mut self) {
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

    fn linear(&mut self) {
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

    fn linear_variants(&mut self) {
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

    fn expert_linear(&mut self) {
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

    fn lookups(&mut self) {
        for dtype in [DType::F32, DType::I64, DType::Bool] {
            for axis in 0..3 {
                let table = self.random.tensor(dtype, [4, 5, 17], 1.0);
                let indices = self.random.indices([2, 3], 4);
                self.add(&format!("axis {axis}"), Gather { axis }, vec![table, indices], Tolerance::Exact);
            }
        }
        let table = self.random.floats([5, 2], 1.0);
        let from_end = Tensor::from_slice([4], &[-1i64, 0, -5, 4]);
        self.add("from the end", Gather { axis: 0 }, vec![table, from_end], Tolerance::Exact);
        for dtype in FLOATS.into_iter().chain(DType::ALL.iter().copied().filter(|dtype| dtype.is_block())) {
            let table = self.random.weight(dtype, 17, 256);
            let ids = self.random.indices([15], 17);
            self.add("", Embedding, vec![table, ids], Tolerance::Exact);
        }
        let table = self.random.weight(DType::F16, 3, 15);
        self.add(
            "",
            Embedding,
            vec![table.clone(), Tensor::from_slice([2, 2], &[2i64, 0, 1, 2])],
            Tolerance::Exact,
        );
        self.add("", Embedding, vec![table, Tensor::from_slice([0], &[0i32; 0])], Tolerance::Exact);
    }

    fn movement(&mut self) {
        for dtype in [DType::F32, DType::U8, DType::F16, DType::I64] {
            let x = self.random.tensor(dtype, [3, 17, 4], 1.0);
            for axis in 0..3 {
                let mut other = *x.shape();
                other = Shape::new(
                    &other
                        .iter()
                        .enumerate()
                        .map(|(i, &n)| if i == axis { 2 } else { n })
                        .collect::<Vec<_>>(),
                );
                let y = self.random.tensor(dtype, other, 1.0);
                let axis_name = format!("axis {axis}");
                self.add(&axis_name, Concat { axis }, vec![x.clone(), y, x.clone()], Tolerance::Exact);
                let sizes = vec![1, x.shape()[axis] - 1, 0];
                self.add(&axis_name, Split { axis, sizes }, vec![x.clone()], Tolerance::Exact);
                for (start, stop, step) in [(0, None, 2), (1, Some(-1), 1), (-2, None, 1), (2, Some(2), 1)] {
                    let what = format!("axis {axis} {start}..{stop:?} by {step}");
                    self.add(&what, Slice { axis, start, stop, step }, vec![x.clone()], Tolerance::Exact);
                }
            }
            for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0]] {
                let op = Transpose { order: order.to_vec() };
                self.add(&format!("{order:?}"), op, vec![x.clone()], Tolerance::Exact);
            }
            self.add("", Reshape { shape: crate::dims![17, 12].to_vec() }, vec![x.clone()], Tolerance::Exact);
            let row = self.random.tensor(dtype, [1, 17, 1], 1.0);
            self.add(
                "",
                Broadcast { shape: crate::dims![2, 3, 17, 4].to_vec() },
                vec![row],
                Tolerance::Exact,
            );
        }
    }

    fn memory(&mut self) {
        let (x, y) = (self.random.floats([3, 17], 1.0), self.random.floats([3, 17], 1.0));
        self.add("", Load, vec![x.clone()], Tolerance::Exact);
        self.add("", Store, vec![x, y], Tolerance::Exact);
    }

    fn rope(&mut self) {
        let tolerance = Tolerance::Close { relative: 1e-6, absolute: 1e-6 };
        for (tokens, pairs, head_dim) in [(1, 1, 2), (15, 16, 32), (17, 15, 40), (3, 64, 128), (0, 4, 8)] {
            let positions = self.random.indices([tokens], 100_000);
            let powers = (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32));
            let frequencies = Tensor::from_slice([pairs], &powers.collect::<Vec<_>>());
            self.add("", RopeTable::default(), vec![positions.clone(), frequencies.clone()], tolerance);
            self.add(
                "scaled",
                RopeTable { scale: 1.25 },
                vec![positions.clone(), frequencies.clone()],
                tolerance,
            );
            let shape = Shape::new(&[tokens, 2, pairs]);
            let table =
                RopeTable::default().reference(&[&positions, &frequencies], &[shape]).expect("a table");
            for style in [RopeStyle::Interleaved, RopeStyle::HalfSplit] {
                let x = self.random.floats([tokens, 3, head_dim], 2.0);
                self.add(style.name(), Rope { style }, vec![x, table[0].clone()], tolerance);
            }
        }
    }

    fn attention(&mut self) {
        let batches: [&[(usize, usize)]; 5] = [
            &[(0, 1)],
            &[(0, 17)],
            &[(40, 1), (3, 1), (15, 1), (16, 1)],
            &[(0, 5), (0, 0), (17, 16), (31, 2)],
            &[],
        ];
        for (number, sequences) in batches.into_iter().enumerate() {
            let [offsets, lengths] = ragged(sequences);
            let tokens = sequences.iter().map(|&(_, new)| new).sum::<usize>();
            let ids = self.random.indices([tokens], 1000);
            let what = format!("batch {number}");
            self.add(&what, RaggedPositions, vec![ids, offsets.clone(), lengths.clone()], Tolerance::Exact);
            for (heads, kv_heads, head_dim, page_size) in
                [(1, 1, 4, 16), (4, 2, 16, 16), (6, 2, 24, 32), (8, 8, 64, 16)]
            {
                let (table, pages) = self.page_table(sequences, page_size);
                let dtype = [DType::F32, DType::BF16, DType::F16][(number + head_dim / 8) % 3];
                let shape = [pages, 2, 2, kv_heads, page_size * head_dim];
                let cache = self.random.tensor(dtype, shape, 2.0);
                let heads_of =
                    |random: &mut Random, heads: usize| random.floats([tokens, heads, head_dim], 2.0);
                let [k, v, q] = [kv_heads, kv_heads, heads].map(|heads| heads_of(&mut self.random, heads));
                let what = format!("batch {number} pages of {page_size}");
                let inputs = vec![cache.clone(), k, v, offsets.clone(), lengths.clone(), table.clone()];
                self.add(&what, KvStore { layer: 1 }, inputs, Tolerance::Exact);
                for (rule, window, softcap) in
                    [("", None, None), ("window", Some(7), None), ("softcap", Some(20), Some(3.0))]
                {
                    let op = PagedAttention { layer: 1, scale: 0.25, window, softcap };
                    let inputs =
                        vec![q.clone(), cache.clone(), offsets.clone(), lengths.clone(), table.clone()];
                    self.add(
                        &format!("{what} {rule}"),
                        op,
                        inputs,
                        Tolerance::Close { relative: 1e-5, absolute: 1e-5 },
                    );
                }
            }
        }
    }

    /// Pages in random order for sequences of (cached, new) tokens, unused entries of the table being 0, and
    /// how many pages there are.
    fn page_table(&mut self, sequences: &[(usize, usize)], page_size: usize) -> (Tensor, usize) {
        let needed: Vec<usize> =
            sequences.iter().map(|&(cached, new)| (cached + new).div_ceil(page_size)).collect();
        let max_pages = needed.iter().copied().max().unwrap_or(0) + 1;
        let pages = needed.iter().sum::<usize>() + 2;
        let mut free = self.random.shuffled(pages).into_iter();
        let mut table = vec![0u32; sequences.len() * max_pages];
        for (row, &count) in table.chunks_exact_mut(max_pages).zip(&needed) {
            row[..count].fill_with(|| free.next().expect("enough pages"));
        }
        (Tensor::from_slice([sequences.len(), max_pages], &table), pages)
    }
}

impl List {
    fn shapes(&mut self) {
        for shape in [&[][..], &[0], &[17, 1], &[2, 3, 4]] {
            let x = self.random.floats(shape, 1.0);
            let dims = shape.iter().copied().map(crate::Dim::from).collect();
            let rebind = Rebind { shape: dims, symbols: vec![], message: None };
            self.add("", rebind, vec![x.clone()], Tolerance::Exact);
            self.add("", ShapeToTensor, vec![x], Tolerance::Exact);
        }
    }

    fn control(&mut self) {
        let graph = |text: &str| Arc::new(Graph::parse(text).expect("a graph"));
        let negate = graph("graph negate(%x: f32[n, 2]) { %y = neg(%x) return %y, %x }");
        let same = graph("graph same(%x: f32[n, 2]) { return %x, %x }");
        for size in [0, 1, 17] {
            let x = self.random.floats([size, 2], 1.0);
            for condition in [true, false] {
                let op = Cond { then: Arc::clone(&negate), otherwise: Arc::clone(&same) };
                let inputs = vec![Tensor::from_bools([], &[condition]), x.clone()];
                self.add(&condition.to_string(), op, inputs, Tolerance::Exact);
            }
            let call = Call { graph: Arc::clone(&negate), prefix: String::new() };
            self.add("", call, vec![x], Tolerance::Exact);
        }
        let text = |body: &str| {
            graph(&format!("graph g(%i: i64[], %x: f32[n], %end: i64[], %b: mut f32[n]) {{ {body} }}"))
        };
        let op = While {
            predicate: text("%y = less(%i, %end) return %y"),
            body: text(
                "%one = constant [1] : i64[]
                 %next = add(%i, %one)
                 %old = load(%b)
                 %sum = add(%x, %old)
                 store(%b, %x)
                 return %next, %sum",
            ),
        };
        for (size, end) in [(1, 3), (17, 10), (5, 0), (0, 2)] {
            let [x, b] = [(); 2].map(|()| self.random.floats([size], 1.0));
            let inputs = vec![Tensor::scalar(0i64), x, Tensor::scalar(end as i64), b];
            self.add(&format!("to {end}"), op.clone(), inputs, Tolerance::Exact);
        }
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

/// Row offsets and cache lengths of sequences of (cached, new) tokens.
fn ragged(sequences: &[(usize, usize)]) -> [Tensor; 2] {
    let mut offsets = vec![0u32];
    offsets.extend(sequences.iter().scan(0, |end, &(_, new)| {
        *end += new as u32;
        Some(*end)
    }));
    let lengths: Vec<u32> = sequences.iter().map(|&(cached, _)| cached as u32).collect();
    [Tensor::from_slice([offsets.len()], &offsets), Tensor::from_slice([lengths.len()], &lengths)]
}

/// Shapes and an axis of each.
fn axes() -> Vec<(Shape, usize)> {
    let last = SIZES.into_iter().map(|size| (Shape::new(&[3, size]), 1));
    let others = [(Shape::new(&[17, 15]), 0), (Shape::new(&[2, 16, 3]), 1), (Shape::new(&[2, 0]), 0)];
    last.chain(others).collect()
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

/// Good float kernels are within some units in the last place; halves are rounded once more.
fn rounding(dtype: DType, absolute: f64) -> Tolerance {
    match dtype {
        DType::F64 => Tolerance::Close { relative: 1e-12, absolute: 1e-300 + absolute * 1e-6 },
        // One unit of the smallest numbers.
        DType::F16 => Tolerance::Close { relative: 1.0 / 1024.0, absolute: 6e-8 + absolute },
        DType::BF16 => Tolerance::Close { relative: 1.0 / 128.0, absolute: 1e-37 + absolute },
        _ => Tolerance::Close { relative: 4e-6, absolute },
    }
}

fn cast_to(value: f32, dtype: DType) -> f32 {
    cast(&Tensor::scalar(value), dtype).to_f32_vec()[0]
}

fn unary(function: Unary, x: &Tensor) -> Tensor {
    function.reference(&[x], &[*x.shape()]).expect("arithmetic").swap_remove(0)
}

fn binary(function: Binary, x: &Tensor, y: &Tensor) -> Tensor {
    function.reference(&[x, y], &[*x.shape()]).expect("arithmetic").swap_remove(0)
}
