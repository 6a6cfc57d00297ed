//! Tensors at other sizes, one axis after the other: weighted sums of neighbours, in their order.
//!
//! Bound by memory. Threads share the elements of the result; those before the last axis are computed in runs.

use std::sync::Arc;

use engine::Call;
use graph::ops::{Neighbors, Resize};
use tensor::{DType, Shape};

use super::floats::{self, is_float};
use super::operands::view;
use super::variant::{Variant, variants};
use crate::vec::Simd;
use crate::{Cpu, Pool};

/// One axis of a tensor at another size.
pub(crate) struct Pass<'a> {
    x: &'a [f32],
    /// What each element of the axis is made of.
    neighbors: Vec<(usize, Vec<f32>)>,
    /// Elements of the axis before.
    from: usize,
    /// Elements under one of the axis.
    inner: usize,
}

/// Some lines of the result, [.., inner], from one with a number on; whole axes where `inner` is 1.
pub(crate) type Kernel = unsafe fn(&Pass<'_>, usize, &mut [f32]);

variants! {
    /// Lines of weighted sums.
    pub(crate) const VARIANTS = lines, (pass: &Pass<'_>, first: usize, out: &mut [f32])
}

/// Writes `x` of one shape to `out` of another.
///
/// # Errors
/// If `x` has no elements to make those of `out` of.
pub(crate) fn resize(
    variant: &Variant<Kernel>,
    pool: &Pool,
    op: &Resize,
    (x, from): (&[f32], &Shape),
    (out, to): (&mut [f32], &Shape),
) -> Result<(), String> {
    if out.is_empty() {
        return Ok(());
    }
    if x.is_empty() {
        return Err(format!("operand 0 of shape {from} has no elements to make {to} of"));
    }
    let mut shape = from.to_vec();
    let mut steps: Vec<(usize, Vec<Neighbors>)> =
        (0..to.rank()).filter_map(|axis| Some((axis, op.neighbors(from[axis], to[axis])?))).collect();
    let last = steps.pop();
    let mut current: Option<Vec<f32>> = None;
    for (axis, neighbors) in steps {
        let pass = Pass::new(current.as_deref().unwrap_or(x), &shape, axis, neighbors);
        shape[axis] = to[axis];
        let mut next = vec![0f32; shape.iter().product()];
        pass.run(variant, pool, &mut next);
        current = Some(next);
    }
    let x = current.as_deref().unwrap_or(x);
    match last {
        Some((axis, neighbors)) => Pass::new(x, &shape, axis, neighbors).run(variant, pool, out),
        None => out.copy_from_slice(x),
    }
    Ok(())
}

impl<'a> Pass<'a> {
    fn new(x: &'a [f32], shape: &[usize], axis: usize, neighbors: Vec<Neighbors>) -> Pass<'a> {
        let narrow = |n: Neighbors| (n.first, n.weights.iter().map(|&weight| weight as f32).collect());
        Pass {
            x,
            neighbors: neighbors.into_iter().map(narrow).collect(),
            from: shape[axis],
            inner: shape[axis + 1..].iter().product(),
        }
    }

    fn run(&self, variant: &Variant<Kernel>, pool: &Pool, out: &mut [f32]) {
        assert!((variant.available)(), "resize: this machine cannot run {}", variant.name);
        let line = self.line();
        let lines = (16 * 1024 / line).max(1);
        pool.run_on_pieces(out, lines * line, &|index, out| {
            // SAFETY: the variant is available.
            unsafe { (variant.run)(self, index * lines, out) };
        });
    }

    /// Elements that are computed in one go.
    fn line(&self) -> usize {
        if self.inner == 1 { self.neighbors.len() } else { self.inner }
    }
}

/// The kernel of the op, for a dtype.
pub(crate) fn kernel(cpu: &Cpu, op: &Resize, dtype: DType) -> Option<Arc<dyn engine::Kernel>> {
    let (op, variant, pool) = (op.clone(), cpu.pick(VARIANTS), Arc::clone(&cpu.pool));
    if is_float(dtype) { Some(Arc::new(ResizeKernel { op, dtype, variant, pool })) } else { None }
}

struct ResizeKernel {
    op: Resize,
    dtype: DType,
    variant: &'static Variant<Kernel>,
    pool: Arc<Pool>,
}

impl engine::Kernel for ResizeKernel {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.op.clone()).name(), self.dtype, self.variant.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (x, to) = (view(&call, 0), call.outputs[0].shape);
        let from = (&*floats::read(x), &x.shape);
        floats::write(&mut call.outputs[0], |out| {
            resize(self.variant, &self.pool, &self.op, from, (out, &to))
        })
    }
}

#[inline(always)]
fn lines<S: Simd>(_s: S, pass: &Pass<'_>, first: usize, out: &mut [f32]) {
    for (i, out) in out.chunks_exact_mut(pass.line()).enumerate() {
        match pass.inner {
            1 => across(pass, first + i, out),
            _ => down(pass, first + i, out),
        }
    }
}

/// All elements of the last axis.
#[inline(always)]
fn across(pass: &Pass<'_>, row: usize, out: &mut [f32]) {
    let x = &pass.x[row * pass.from..][..pass.from];
    for (out, (first, weights)) in out.iter_mut().zip(&pass.neighbors) {
        *out = match (&weights[..], &x[*first..]) {
            ([_], [x, ..]) => *x,
            ([a, b], [x, y, ..]) => a * x + b * y,
            (weights, x) => weights.iter().zip(x).fold(0.0, |sum, (weight, x)| sum + weight * x),
        };
    }
}

/// The elements under one of the axis.
#[inline(always)]
fn down(pass: &Pass<'_>, line: usize, out: &mut [f32]) {
    let count = pass.neighbors.len();
    let (first, weights) = &pass.neighbors[line % count];
    let row = |i: usize| &pass.x[(line / count * pass.from + first + i) * pass.inner..][..pass.inner];
    match weights[..] {
        [_] => out.copy_from_slice(row(0)),
        [a, b] => out.iter_mut().zip(row(0)).zip(row(1)).for_each(|((out, x), y)| *out = a * x + b * y),
        _ => {
            out.fill(0.0);
            for (i, weight) in weights.iter().enumerate() {
                out.iter_mut().zip(row(i)).for_each(|(out, x)| *out += weight * x);
            }
        }
    }
}
