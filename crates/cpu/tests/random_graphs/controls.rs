//! Kinds of nodes that run graphs, and that read and write buffers.

use graph::ops::*;
use graph::{Builder, Error, Index, Type, Value};
use tensor::{DType, Tensor};

use crate::growth::{Growth, Kindred};

pub(crate) const KINDS: &[Kindred] =
    &[cond, cond, while_loop, while_loop, call, load, load, store, store, load_slice, store_slice, create];

/// Whether the sum of all elements is above 0.
fn is_positive(g: &mut Growth, operand: usize) -> Result<Value, Error> {
    let x = g.find(operand, |ty| ty.dtype == DType::F32)?;
    let flat = g.b.reshape(x, [g.b.ty(x).elements()])?;
    let sum = g.b.reduce(ReduceKind::Sum, flat, 0)?;
    let sum = g.b.reshape(sum, [])?;
    let zero = g.constant(Tensor::scalar(0f32))?;
    g.b.op(Binary::Greater, &[sum, zero])
}

fn cond(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let predicate = is_positive(g, 0)?;
    let x = g.find(1, |ty| ty.dtype == DType::F32)?;
    let (buffer, weight) = (g.buffer, g.name("w"));
    let z = g.find(2, |ty| *ty == Type::new(DType::F32, g.b.ty(buffer).shape.clone()))?;
    let then = |b: &mut Builder| {
        let half = b.constant(Tensor::scalar(0.5f32));
        b.store(buffer, z)?;
        let w = b.weight(weight, Type::new(DType::F32, [1usize]))?;
        let scaled = b.op(Binary::Mul, &[x, half])?;
        Ok(vec![b.op(Unary::Tanh, &[scaled])?, w])
    };
    let otherwise = |b: &mut Builder| {
        let two = b.constant(Tensor::from_slice([1], &[2f32]));
        Ok(vec![x, two])
    };
    g.b.cond(predicate, None, then, otherwise)
}

/// Adds what is captured a few times, and changes the buffer each time.
fn while_loop(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.dtype == DType::F32)?;
    let (zero, buffer) = (g.constant(Tensor::scalar(0i64))?, g.buffer);
    let times = g.number(0, 4) as i64;
    let few = |b: &mut Builder, carried: &[Value]| {
        let end = b.constant(Tensor::scalar(times));
        b.op(Binary::Less, &[carried[0], end])
    };
    let next = |b: &mut Builder, carried: &[Value]| {
        let one = b.constant(Tensor::scalar(1i64));
        let old = b.load(buffer)?;
        let negative = b.op(Unary::Neg, &[old])?;
        b.store(buffer, negative)?;
        let sum = b.op(Binary::Add, &[carried[1], x])?;
        Ok(vec![b.op(Binary::Add, &[carried[0], one])?, sum])
    };
    g.b.while_loop(&[zero, x], few, next)
}

/// One graph with a weight, called twice.
fn call(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 2)?;
    let columns = g.b.dim(x, -1)?;
    let square = Type::new(DType::F32, [columns.clone(), columns]);
    let body = |b: &mut Builder, v: &[Value]| {
        let w = b.weight("w", square)?;
        let y = b.linear(v[0], w)?;
        Ok(vec![b.op(Unary::Sigmoid, &[y])?])
    };
    let layer = Builder::subgraph(&g.name("layer"), &[("x", g.b.ty(x).clone())], body)?;
    let prefixes = [g.name("layer"), g.name("layer")].map(|name| format!("{name}."));
    let y = g.b.call(&layer, &[x], &prefixes[0])?;
    g.b.call(&layer, &y, &prefixes[1])
}

/// The ops after this use a new buffer, and no longer the one before.
fn create(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let ty = g.b.ty(g.buffer).clone();
    g.buffer = g.b.create_buffer(ty)?;
    Ok(vec![])
}

fn load(g: &mut Growth) -> Result<Vec<Value>, Error> {
    Ok(vec![g.b.load(g.buffer)?])
}

fn store(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let wanted = Type::new(DType::F32, g.b.ty(g.buffer).shape.clone());
    let x = g.find(0, |ty| *ty == wanted)?;
    g.b.store(g.buffer, x)?;
    Ok(vec![])
}

fn load_slice(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let at = g.constant(Tensor::scalar(g.number(0, 6) as i64))?;
    let indices = match g.number(1, 2) {
        0 => vec![Index::Ellipsis, Index::AtValue(at)],
        _ => vec![Index::ALL, Index::Range { start: Some(1), stop: None, step: 2 }],
    };
    Ok(vec![g.b.load_slice(g.buffer, &indices)?])
}

fn store_slice(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let column = g.find(0, |ty| ty.dtype == DType::F32 && ty.rank() == 0)?;
    let start = g.constant(Tensor::scalar(g.number(0, 4) as i32))?;
    let indices = [Index::ALL, Index::Window { start, size: 3.into() }];
    g.b.store_slice(g.buffer, &indices, column)?;
    Ok(vec![])
}
