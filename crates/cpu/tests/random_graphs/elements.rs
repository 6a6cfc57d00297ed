//! Kinds of nodes that compute each element, or along an axis.

use graph::ops::*;
use graph::{Error, Type, Value};
use tensor::{DType, Tensor};

use crate::data::cast as cast_to;
use crate::growth::{Growth, Kindred, misfit};

pub(crate) const KINDS: &[Kindred] = &[
    unary,
    unary,
    unary,
    binary,
    binary,
    binary,
    select,
    cast,
    reduce,
    arg_reduce,
    softmax,
    |g| along(g, |axis| LogSoftmax { axis }),
    layer_norm,
    rms_norm,
    group_norm,
    cumsum,
    gated,
];

const NUMBERS: [DType; 13] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
];

fn unary(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let function = g.choose(0, Unary::ALL);
    let x = g.find(0, |ty| function.infer(&[ty]).is_ok())?;
    g.b.ops(function, &[x])
}

fn binary(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let function = g.choose(0, Binary::ALL);
    let x = g.find(0, |ty| function.infer(&[ty, ty]).is_ok())?;
    let fits = |ty: &Type| function.infer(&[g.b.ty(x), ty]).is_ok();
    let mut y = g.find(1, fits)?;
    if ["div", "floor_div", "mod", "pow"].contains(&function.name()) && g.b.ty(y).dtype.is_integer() {
        let one = g.constant(cast_to(&Tensor::scalar(1f32), g.b.ty(y).dtype))?;
        y = g.b.op(Binary::Max, &[y, one])?;
    }
    let operands = if g.number(1, 2) == 0 { [x, y] } else { [y, x] };
    g.b.ops(function, &operands)
}

fn select(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let condition = g.find(0, |ty| ty.dtype == DType::Bool)?;
    g.apply(Select, condition, 2)
}

fn cast(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.any(0)?;
    let to = g.choose(0, &NUMBERS);
    Ok(vec![g.b.cast(x, to)?])
}

/// An op along an axis of an operand that it takes.
fn along<O: Define + Into<graph::Op>>(g: &mut Growth, op: impl Fn(usize) -> O) -> Result<Vec<Value>, Error> {
    let axis = g.number(0, 3);
    let x = g.find(0, |ty| ty.rank() > axis && op(axis).infer(&[ty]).is_ok())?;
    g.b.ops(op(axis), &[x])
}

fn reduce(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let kind = g.choose(1, ReduceKind::ALL);
    along(g, |axis| Reduce { kind, axis })
}

fn arg_reduce(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let kind = g.choose(1, &[ArgReduceKind::Max, ArgReduceKind::Min]);
    along(g, |axis| ArgReduce { kind, axis })
}

fn softmax(g: &mut Growth) -> Result<Vec<Value>, Error> {
    along(g, |axis| Softmax { axis })
}

fn cumsum(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let (exclusive, reverse) = (g.number(1, 2) == 0, g.number(2, 2) == 0);
    along(g, |axis| CumSum { axis, exclusive, reverse })
}

fn layer_norm(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 1)?;
    let columns = g.b.dim(x, -1)?;
    let weight = g.weight(DType::F32, [columns.clone()])?;
    let bias = g.weight(DType::F32, [columns])?;
    Ok(vec![g.b.layer_norm(x, weight, bias, 1e-3)?])
}

fn rms_norm(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 1)?;
    let columns = g.b.dim(x, -1)?;
    let weight = g.weight(DType::F32, [columns])?;
    Ok(vec![g.b.rms_norm(x, weight, 1e-3)?])
}

fn group_norm(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 2)?;
    let channels = g.b.dim(x, 1)?.as_static().ok_or_else(|| misfit("unknown channels"))?;
    let groups = g.choose(0, &[1, 2, channels]);
    let (weight, bias) = (g.weight(DType::F32, [channels])?, g.weight(DType::F32, [channels])?);
    g.b.ops(GroupNorm { groups, eps: 1e-3 }, &[x, weight, bias])
}

/// `x · sigmoid(x)`, twice: what passes take for one function.
fn gated(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.dtype == DType::F32)?;
    let gate = g.b.op(Unary::Sigmoid, &[x])?;
    let y = g.b.op(Binary::Mul, &[x, gate])?;
    let again = g.b.op(Unary::Sigmoid, &[x])?;
    Ok(vec![y, g.b.op(Binary::Mul, &[y, again])?])
}
