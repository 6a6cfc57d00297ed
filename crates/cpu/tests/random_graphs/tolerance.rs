//! How far from an op's reference a kernel may be, given the same operands.
//!
//! What moves, picks, sorts or compares is exact, and so is integer arithmetic, and float arithmetic of one rounding.
//! Functions are within some units in the last place. Sums of `n` products are within a unit for each of their terms, of
//! the largest term; that covers any order of summation.

use graph::Op;
use graph::ops::*;
use tensor::{DType, Tensor};

/// `|got - expected| <= relative · |expected| + absolute`. NaN and infinities must be met, unless `absolute` is infinite:
/// then there is no claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Slack {
    pub(crate) relative: f64,
    pub(crate) absolute: f64,
}

impl Slack {
    pub(crate) const EXACT: Slack = Slack { relative: 0.0, absolute: 0.0 };
    const ANY: Slack = Slack { relative: 0.0, absolute: f64::INFINITY };

    /// Whether a number of a dtype is near enough. Infinity is the number after the largest.
    pub(crate) fn accepts(self, dtype: DType, got: f64, expected: f64) -> bool {
        if got == expected || got.is_nan() && expected.is_nan() || self.absolute == f64::INFINITY {
            return true;
        }
        if self == Slack::EXACT {
            return false;
        }
        let largest = largest(dtype);
        let (got, expected) = (got.clamp(-largest, largest), expected.clamp(-largest, largest));
        (got - expected).abs() <= self.relative * expected.abs() + self.absolute
    }
}

fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::F32 => f64::from(f32::MAX),
        DType::BF16 => 3.39e38,
        _ => f64::MAX,
    }
}

/// Half a unit in the last place of 1.
pub(crate) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-53),
        DType::F32 => 2f64.powi(-24),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-8),
    }
}

/// The slack of all results of an op of these operands. `dtype` is the first result's.
pub(crate) fn slack(op: &Op, inputs: &[&Tensor], dtype: DType) -> Slack {
    match op {
        Op::Unary(function) => unary(*function, inputs[0]),
        Op::Binary(Binary::Pow) => function(dtype),
        Op::Reduce(Reduce { kind: ReduceKind::Sum | ReduceKind::Mean, axis }) => {
            sum(dtype, inputs[0].shape()[*axis], largest_of(inputs[0]))
        }
        Op::Reduce(Reduce { kind: ReduceKind::Prod, axis }) if dtype.is_float() => {
            Slack { relative: 4.0 * unit(dtype) * (inputs[0].shape()[*axis] as f64 + 4.0), absolute: 1e-37 }
        }
        Op::CumSum(op) => sum(dtype, inputs[0].shape()[op.axis], largest_of(inputs[0])),
        Op::Scatter(Scatter { kind: ScatterKind::Add | ScatterKind::Mul, .. })
        | Op::ScatterNd(ScatterNd { kind: ScatterKind::Add | ScatterKind::Mul }) => {
            let updates = &inputs[1..inputs.len() - 1];
            let terms = 1 + updates.iter().map(|x| x.elements()).max().unwrap_or(0);
            sum(dtype, terms, largest_of(inputs[0]).max(largest_of(inputs[1])))
        }
        Op::Softmax(_) => Slack { relative: 3e-5_f64.max(4.0 * unit(dtype)), absolute: 1e-30 + tiny(dtype) },
        Op::LogSoftmax(_) => {
            let reach = 1.0 + largest_of(inputs[0]);
            Slack { relative: 8.0 * unit(dtype), absolute: 64.0 * unit(dtype) * reach + tiny(dtype) }
        }
        Op::LayerNorm(_) | Op::RmsNorm(_) | Op::GroupNorm(_) => norm(inputs),
        Op::MatMul(_) | Op::SplitMatMul(_) => {
            let terms = *inputs[0].shape().last().unwrap_or(&1);
            sum(dtype, terms, largest_of(inputs[0]) * largest_of(inputs[1]))
        }
        // Exact products of rounded operands; one of another rounding is a step of 1/16 away.
        Op::Fp8Product(_) => {
            let terms = *inputs[0].shape().last().unwrap_or(&1);
            sum(dtype, terms, largest_of(inputs[0]) * largest_of(inputs[1]))
        }
        Op::Linear(op) => {
            let operands = op.operands(inputs);
            linear(inputs[0], operands.weights[0], operands.biases.first().copied())
        }
        Op::ExpertLinear(op) => {
            let weight = inputs[2];
            let &[experts, rows, columns] = weight.shape().dims() else { panic!("three axes") };
            let product = linear(inputs[0], &weight.reshape([experts * rows, columns]), None);
            // Each factor of a gate has the other's size, and the derivatives of gates are at most 1.13.
            let reach = columns as f64 * largest_of(inputs[0]) * largest_of(weight);
            let gate = if op.gate.is_some() { 1.0 + 3.0 * reach } else { 1.0 };
            Slack { absolute: product.absolute * gate, ..product }
        }
        Op::QMatMul(op) => {
            let bytes = inputs[1];
            let columns = bytes.shape()[1] / op.encoding.block().bytes * op.encoding.block().elements;
            let shape = [bytes.shape()[0], columns];
            let weight = crate::data::from_bytes(op.encoding, shape, bytes.contiguous().bytes());
            linear(inputs[0], &weight, None)
        }
        Op::GptqMatMul(op) => {
            let weight = op.dequantize(op.operands(inputs)).expect("a permutation");
            let columns = weight.shape()[1];
            let row = |row: &[f64]| row.iter().map(|w| w.abs()).sum::<f64>();
            let longest = weight.to_f64_vec().chunks(columns.max(1)).map(row).fold(0.0, f64::max);
            let largest = largest_of(inputs[0]);
            let exact = sum(dtype, columns, largest * largest_of(&weight));
            Slack { absolute: exact.absolute + longest * largest / 254.0, ..exact }
        }
        Op::Conv(_) | Op::ConvTranspose(_) => {
            let terms = inputs[1].elements();
            let bias = inputs.get(2).map_or(0.0, |bias| largest_of(bias));
            sum(dtype, terms, (largest_of(inputs[0]) * largest_of(inputs[1])).max(bias))
        }
        Op::Attention(op) => attention(inputs[0], inputs[1], inputs[2], f64::from(op.scale)),
        Op::RaggedAttention(op) => attention(inputs[0], inputs[1], inputs[2], f64::from(op.scale)),
        Op::PagedAttention(op) => attention(inputs[0], inputs[1], inputs[1], f64::from(op.scale)),
        Op::CausalConv(_) => {
            let inputs_of_all = largest_of(inputs[0]).max(largest_of(inputs[2]));
            sum(dtype, inputs[1].shape()[1], inputs_of_all * largest_of(inputs[1]))
        }
        // Steps and rates are small, and states do not grow but by what is added.
        Op::SelectiveScan(_) => {
            let tokens = inputs[0].shape()[0] as f64;
            let added = [0, 1, 3].map(|i| largest_of(inputs[i])).into_iter().product::<f64>();
            let state = largest_of(inputs[5]) + tokens * added;
            let read = inputs[4].shape()[2] as f64 * largest_of(inputs[4]);
            Slack { relative: 1e-5, absolute: 1e-6 * state * read.max(1.0) + 1e-37 }
        }
        // Keys and gates are below 1, so that a token adds a few times its values.
        Op::GatedDeltaRule(_) => {
            let [tokens, key_dim] = [0, 2].map(|axis| inputs[0].shape()[axis]);
            let state = largest_of(inputs[5]) + 4.0 * tokens as f64 * largest_of(inputs[2]);
            sum(dtype, 4 * key_dim * tokens, state * largest_of(inputs[0]).max(1.0))
        }
        Op::Fold(_) | Op::Pool2d(_) => sum(dtype, 16, largest_of(inputs[0])),
        Op::Resize(_) | Op::RoiAlign(_) => sum(dtype, 100, largest_of(inputs[0])),
        // Not every order of butterflies multiplies every part by the 0 that makes a NaN of it.
        Op::Irfft(_) if inputs[0].to_f64_vec().iter().any(|x| !x.is_finite()) => Slack::ANY,
        Op::Irfft(_) => sum(dtype, 64, largest_of(inputs[0])),
        Op::RopeTable(_) | Op::Rope(_) => sum(dtype, 16, largest_of(inputs[0]).max(1.0)),
        Op::Cond(_) | Op::While(_) | Op::Call(_) => region(inputs, dtype),
        _ => Slack::EXACT,
    }
}

/// The largest finite magnitude.
pub(crate) fn largest_of(x: &Tensor) -> f64 {
    x.to_f64_vec().into_iter().filter(|x| x.is_finite()).fold(0.0, |largest: f64, x| largest.max(x.abs()))
}

/// The smallest number of a dtype, which results far below 1 are rounded to.
fn tiny(dtype: DType) -> f64 {
    if dtype == DType::F16 { 6e-8 } else { 0.0 }
}

fn function(dtype: DType) -> Slack {
    let relative = match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 4e-6,
        _ => 2.0 * unit(dtype),
    };
    Slack { relative, absolute: 1e-37 + tiny(dtype) }
}

fn unary(op: Unary, x: &Tensor) -> Slack {
    use Unary::*;
    let dtype = x.dtype();
    let values = x.to_f64_vec();
    match op {
        Abs | Ceil | Floor | Neg | Not | Relu | Round | Trunc => Slack::EXACT,
        // Angles lose their meaning in f32 long before its end.
        Cos | Sin if values.iter().any(|x| x.abs() > 1e4) => Slack::ANY,
        // Products with infinity have no limits.
        _ if values.contains(&f64::NEG_INFINITY) && op.name() != "exp" => Slack::ANY,
        Exp | Rsqrt | Sqrt | Sigmoid | Silu => function(dtype),
        _ => Slack { absolute: function(dtype).absolute + 32.0 * unit(dtype), ..function(dtype) },
    }
}

/// A sum of terms whose magnitudes are at most `largest`.
fn sum(dtype: DType, terms: usize, largest: f64) -> Slack {
    if !dtype.is_float() {
        return Slack::EXACT;
    }
    let reach = (terms as f64 + 1.0) * largest;
    // Where partial sums overflow depends on their order.
    if reach > self::largest(dtype).min(1e37) {
        return Slack::ANY;
    }
    // Halves are summed in f32 or better, and rounded once.
    let absolute = 4.0 * unit(DType::F32).min(unit(dtype)) * reach + tiny(dtype);
    Slack { relative: 4.0 * unit(dtype), absolute }
}

/// `(x - mean) / sqrt(variance + eps)`, where `x - mean` has the error of `x`, and the divisor is at least 0.03.
fn norm(inputs: &[&Tensor]) -> Slack {
    let (reach, scale) =
        (largest_of(inputs[0]), inputs[1..].iter().map(|x| largest_of(x)).fold(1.0, f64::max));
    match reach > 1e15 {
        true => Slack::ANY,
        false => Slack { relative: 1e-5, absolute: 1e-5 * scale * (1.0 + reach) },
    }
}

/// A device may round `x` to what multiplies the weights: bf16, or 8 bits in blocks.
fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Slack {
    let rounding = match weight.dtype() {
        DType::BF16 => 1.0 / 256.0,
        dtype if dtype.is_block() => 1.0 / 254.0,
        _ => 0.0,
    };
    let columns = weight.shape()[1];
    let values = weight.to_f64_vec();
    let rows = values.chunks(columns.max(1)).map(|row| row.iter().map(|w| w.abs()).sum::<f64>());
    let longest = rows.fold(0.0, f64::max);
    let largest = (largest_of(x) * largest_of(weight)).max(bias.map_or(0.0, largest_of));
    let exact = sum(DType::F32, columns, largest);
    Slack { absolute: exact.absolute + rounding * longest * largest_of(x), ..exact }
}

/// Errors of scores become relative errors of shares.
fn attention(q: &Tensor, k: &Tensor, v: &Tensor, scale: f64) -> Slack {
    let width = *q.shape().last().unwrap_or(&1);
    let scores = sum(DType::F32, width, largest_of(q) * largest_of(k) * scale.abs());
    match scores.absolute > 0.1 {
        true => Slack::ANY,
        false => Slack { relative: 1e-5, absolute: (1e-5 + 4.0 * scores.absolute) * (largest_of(v) + 1e-30) },
    }
}

/// What the graphs that are run here compute: sums, products with 0.5, tanh, and two linear layers with a sigmoid.
fn region(inputs: &[&Tensor], dtype: DType) -> Slack {
    let largest = inputs.iter().map(|x| largest_of(x)).fold(1.0, f64::max);
    match inputs.iter().any(|x| x.to_f64_vec().contains(&f64::NEG_INFINITY)) {
        true => Slack::ANY,
        false => sum(dtype, 100, largest),
    }
}
