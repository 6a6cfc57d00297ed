//! Kinds of nodes that pick elements and put them by index, sort them, and find where they are.

use graph::ops::*;
use graph::{Dim, Error, Value};
use tensor::DType;

use crate::growth::{Growth, Kindred};

pub(crate) const KINDS: &[Kindred] = &[
    gather,
    gather,
    gather_nd,
    scatter,
    scatter,
    scatter_nd,
    scatter_nd,
    masked_scatter,
    nonzero,
    nonzero,
    argsort,
    top_k,
];

fn gather(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let axis = g.axis(0, x);
    let shape: &[usize] = [&[][..], &[5], &[2, 3], &[0]][g.number(1, 4)];
    let indices = g.indices(shape, g.size(x, axis))?;
    g.b.ops(Gather { axis }, &[x, indices])
}

fn gather_nd(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.rank() >= 2)?;
    let limit = g.size(x, 0).min(g.size(x, 1));
    let indices = g.indices([4, 2], limit)?;
    g.b.ops(GatherNd { batch_dims: 0 }, &[x, indices])
}

/// Updates and indices in the shape of the whole, so that elements are met several times.
fn scatter(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let kind = g.choose(0, ScatterKind::ALL);
    let op = |axis| Scatter { kind, axis };
    let x = g.find(0, |ty| {
        ty.rank() > 0
            && op(0).infer(&[ty, ty, &ty.with_dtype(DType::I64)]).is_ok()
            && ty.static_shape().is_some()
    })?;
    let axis = g.axis(1, x);
    let shape = g.shape(x).expect("a shape of numbers");
    let indices = g.indices(shape, shape[axis])?;
    let updates = g.find(1, |ty| ty == g.b.ty(x))?;
    g.b.ops(op(axis), &[x, updates, indices])
}

fn scatter_nd(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let kind = g.choose(0, ScatterKind::ALL);
    let updated = |ty: &graph::Type| ty.with_shape([&[Dim::from(5)], &ty.shape[1..]].concat());
    let indices_type = graph::Type::new(DType::I64, [5usize, 1]);
    let x = g.find(0, |ty| {
        ty.rank() > 0 && ScatterNd { kind }.infer(&[ty, &updated(ty), &indices_type]).is_ok()
    })?;
    let indices = g.indices([5, 1], g.size(x, 0))?;
    // Five of the operand's own slices.
    let own = g.noise().indices(DType::I64, [5], g.size(x, 0));
    let own = g.constant(own)?;
    let updates = g.b.gather(x, own, 0)?;
    g.b.ops(ScatterNd { kind }, &[x, updates, indices])
}

fn masked_scatter(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let mask = g.find(0, |ty| ty.dtype == DType::Bool)?;
    let shape = g.b.ty(mask).shape.clone();
    let x = g.find(1, |ty| ty.shape == shape)?;
    let updates = g.b.reshape(x, [g.b.ty(x).elements()])?;
    let name = g.name("masked");
    let out_dim = if g.number(0, 2) == 0 { Some(&name[..]) } else { None };
    Ok(vec![g.b.masked_scatter(x, mask, updates, out_dim)?])
}

/// The places of nonzero elements, and what is there.
fn nonzero(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let name = g.name("found");
    let places = g.b.nonzero(x, &name[..])?;
    let values = g.b.op(GatherNd { batch_dims: 0 }, &[x, places])?;
    Ok(vec![places, values])
}

fn argsort(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let (axis, descending) = (g.axis(0, x), g.number(1, 2) == 0);
    g.b.ops(ArgSort { axis, descending }, &[x])
}

fn top_k(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.with_axes(0)?;
    let axis = g.axis(0, x);
    let k = g.number(1, g.size(x, axis) + 1);
    g.b.ops(TopK { k, axis, smallest: g.number(2, 2) == 0 }, &[x])
}
