//! Kinds of nodes that give elements other places: shapes, slices, repetition.

use graph::ops::*;
use graph::{DeviceRef, Dim, Error, Index, Value, dims};
use tensor::{DType, Tensor};

use crate::data::Noise;
use crate::growth::{Growth, Kindred, misfit};

pub(crate) const KINDS: &[Kindred] = &[
    concat,
    concat,
    split,
    slice,
    reshape,
    unsqueeze,
    transpose,
    transpose,
    broadcast,
    pad,
    tile,
    repeat_interleave,
    repeat_by,
    flip,
    band_part,
    slice_tensor,
    dynamic_slice,
    window,
    shape_to_tensor,
    rebind,
    transfer,
    range,
    random,
];

fn concat(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let axis = g.axis(0, x);
    g.apply(Concat { axis }, x, 1 + g.number(1, 2))
}

fn split(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 1).or_else(|_| g.with_axes(0))?;
    let axis = g.axis(0, x);
    let size = g.b.dim(x, axis as isize)?.as_static().ok_or_else(|| misfit("an unknown size"))?;
    let first = g.number(1, size + 1);
    g.b.split(x, axis as isize, &[first, size - first])
}

fn slice(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let axis = g.axis(0, x);
    let size = g.size(x, axis);
    let start = g.number(1, size + 1);
    let stop = start + g.number(2, size - start + 1);
    let start = if g.number(4, 3) == 0 && start > 0 { start as i64 - size as i64 } else { start as i64 };
    let stop = if stop == size { None } else { Some(stop as i64) };
    g.b.ops(Slice { axis, start, stop, step: 1 + g.number(3, 3) }, &[x])
}

fn reshape(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.any(0)?;
    let shape = g.b.ty(x).shape.clone();
    let all = g.b.ty(x).elements();
    let new = match (g.number(0, 3), &shape[..]) {
        (0, [first, second, rest @ ..]) => [&[first * second], rest].concat(),
        (1, [rest @ .., last]) if last.as_static().is_some_and(|size| size % 2 == 0) => {
            [rest, &[last.floor_div(&Dim::from(2)), Dim::from(2)]].concat()
        }
        _ => vec![all],
    };
    Ok(vec![g.b.reshape(x, new)?])
}

fn unsqueeze(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.rank() < 5)?;
    let mut shape = g.b.ty(x).shape.clone();
    shape.insert(g.number(0, shape.len() + 1), Dim::from(1));
    Ok(vec![g.b.reshape(x, shape)?])
}

fn transpose(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.rank() >= 2)?;
    let mut order: Vec<usize> = (0..g.b.ty(x).rank()).collect();
    for i in 1..order.len() {
        order.swap(i, g.number(i.min(4), i + 1));
    }
    Ok(vec![g.b.transpose(x, &order)?])
}

fn broadcast(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.rank() < 4)?;
    let one = Dim::from(1);
    let wide = g.choose(0, &dims![3, "n", 0, 1]);
    let grown = g.b.ty(x).shape.iter().map(|dim| if *dim == one { wide.clone() } else { dim.clone() });
    let mut shape: Vec<Dim> = grown.collect();
    if g.number(1, 2) == 0 {
        shape.insert(0, Dim::from(2));
    }
    Ok(vec![g.b.broadcast(x, shape)?])
}

fn pad(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| (1..5).contains(&ty.rank()))?;
    let mut paddings = vec![(0, 0); g.b.ty(x).rank()];
    let axis = g.axis(0, x);
    // Mirrored elements must be there.
    let most = g.size(x, axis).min(4);
    paddings[axis] = (g.number(1, most), g.number(2, most));
    match g.number(3, 3) {
        0 => Ok(vec![g.b.pad_reflect(x, &paddings)?]),
        1 => Ok(vec![g.b.pad_edge(x, &paddings)?]),
        _ => {
            let value = Noise(3).tensor(g.b.ty(x).dtype, []);
            let value = g.constant(value)?;
            Ok(vec![g.b.pad(x, &paddings, value)?])
        }
    }
}

fn tile(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| (1..4).contains(&ty.rank()))?;
    let mut repeats = vec![Dim::from(1); g.b.ty(x).rank()];
    let axis = g.axis(0, x);
    repeats[axis] = g.choose(1, &dims![2, 0, "n", 3]);
    Ok(vec![g.b.tile(x, repeats)?])
}

fn repeat_interleave(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let (repeats, axis) = (g.number(0, 4), g.axis(1, x));
    Ok(vec![g.b.repeat_interleave(x, repeats, axis as isize)?])
}

fn repeat_by(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let axis = g.axis(0, x);
    let repeats = g.noise().indices(DType::I64, [g.size(x, axis)], 4);
    let repeats = g.constant(repeats)?;
    let length = g.b.dim(x, axis as isize)?;
    let repeats = counted(g, repeats, length)?;
    let name = g.name("repeated");
    Ok(vec![g.b.repeat_interleave_by(x, repeats, axis as isize, &name[..])?])
}

fn flip(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let axis = g.axis(0, x) as isize;
    let axes: &[isize] = if axis > 0 && g.number(1, 2) == 0 { &[axis, 0] } else { &[axis] };
    Ok(vec![g.b.flip(x, axes)?])
}

fn band_part(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.rank() >= 2)?;
    let (lower, upper) = (g.choose(0, &[None, Some(0), Some(2)]), g.choose(1, &[None, Some(0), Some(1)]));
    g.b.ops(BandPart { lower, upper, exclude: g.number(2, 2) == 0 }, &[x])
}

fn slice_tensor(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.rank() >= 2)?;
    let size = g.size(x, 0);
    let at = g.number(0, size) as i64;
    let value = g.constant(Tensor::scalar(at))?;
    let last = Index::Range { start: None, stop: None, step: 2 };
    let indices = match g.number(1, 4) {
        0 => vec![Index::At(at), Index::Ellipsis, Index::NewAxis],
        1 => vec![Index::AtValue(value), Index::Ellipsis, last],
        2 => vec![Index::NewAxis, Index::range(at, None)],
        _ => vec![Index::Ellipsis, Index::At(-1)],
    };
    Ok(vec![g.b.slice_tensor(x, &indices)?])
}

/// A part whose size follows from values.
fn dynamic_slice(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let size = g.size(x, 0);
    let ends = [g.number(0, size + 1), g.number(1, size + 3), 1 + g.number(2, 3)];
    let mut end = |end: usize| g.constant(Tensor::scalar(end as i64));
    let (start, stop, step) = (Some(end(ends[0])?), Some(end(ends[1])?), Some(end(ends[2])?));
    let name = g.name("part");
    let span = Index::Span { start, stop, step, out_dim: Dim::symbol(&name) };
    Ok(vec![g.b.slice_tensor(x, &[span])?])
}

fn window(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let length = g.size(x, 0);
    let size = g.number(0, length + 1);
    let start = g.constant(Tensor::scalar(g.number(1, length - size + 1) as i32))?;
    Ok(vec![g.b.slice_tensor(x, &[Index::Window { start, size: size.into() }])?])
}

fn shape_to_tensor(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.any(0)?;
    g.b.ops(ShapeToTensor, &[x])
}

/// Sizes that are known to be, and a symbol that gets one.
fn rebind(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let mut shape = g.b.ty(x).shape.clone();
    let axis = g.axis(0, x);
    let symbol = g.name("length");
    let is_new = g.number(1, 2) == 0;
    shape[axis] = if is_new { Dim::symbol(&symbol) } else { g.size(x, axis).into() };
    let symbols = if is_new { vec![symbol] } else { vec![] };
    g.b.ops(Rebind { shape, symbols, message: Some("as said".to_string()) }, &[x])
}

/// To where it is.
fn transfer(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.any(0)?;
    g.b.ops(Transfer { device: DeviceRef::Cpu }, &[x])
}

fn range(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let dtype = g.choose(0, &[DType::F32, DType::I64, DType::U8, DType::F16]);
    match g.number(1, 3) {
        0 => Ok(vec![g.b.range(1.0, 1.0 + g.number(2, 20) as f64, 2.0, dtype)?]),
        1 => Ok(vec![g.b.range_to("n", dtype)?]),
        _ => {
            let ends = [1, 1 + g.number(2, 20) as i64, 3];
            let [start, stop, step] = ends.map(|end| g.constant(Tensor::scalar(end)));
            let name = g.name("range");
            Ok(vec![g.b.range_of(start?, stop?, step?, &name[..])?])
        }
    }
}

fn random(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let dtype = g.choose(0, &[DType::F32, DType::F16, DType::BF16, DType::F64]);
    let shape = dims![g.choose(1, &dims![17, "n"]), 2];
    g.b.set_seed(g.noise().bits());
    let uniform = g.b.random_uniform(dtype, shape.clone(), -1.0, 3.0)?;
    Ok(vec![uniform, g.b.random_normal(dtype, shape, 0.5, 2.0)?])
}

/// A vector said to have the length of an axis.
fn counted(g: &mut Growth, x: Value, length: Dim) -> Result<Value, Error> {
    match length.as_static() {
        Some(_) => Ok(x),
        None => g.b.op(Rebind { shape: vec![length], symbols: vec![], message: None }, &[x]),
    }
}
