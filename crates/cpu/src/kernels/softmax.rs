//! `softmax(x) = exp(x - max x) / Σ exp(x - max x)` over the last axis.
//!
//! Bound by memory: three passes over a row, of which the first reads it from afar. Element `i` is summed in lane
//! `i mod 64` of four vectors, added pairwise at the end: an order fixed by the length alone.

use std::sync::Arc;

use engine::{Kernel, KernelCall, NodeTypes};
use tensor::{DType, Shape, bf16, f16};

use super::convert::Half;
use super::operands::{elements, elements_mut, view};
use super::rows::each_part;
use super::softmax_columns;
use crate::variant::{Variant, fastest, variants};
use crate::vec::{LANES, Simd, exp, with_scratch};
use crate::{Cpu, Pool};

/// Some whole rows of `x`, of the given length, into as many of `out`.
pub type RowKernel = unsafe fn(usize, &[f32], &mut [f32]);

variants! {
    /// Softmax of rows.
    pub static VARIANTS = rows, (dims: usize, x: &[f32], out: &mut [f32])
}

/// Softmax of each row of `x[rows, dims]`. A row of nothing but `-inf` becomes NaN, as the formula says.
///
/// # Panics
/// When the lengths disagree.
pub fn softmax(pool: &Pool, dims: usize, x: &[f32], out: &mut [f32]) {
    softmax_with(fastest(VARIANTS), pool, dims, x, out);
}

/// [`softmax`] by a variant of the caller's choice.
///
/// # Panics
/// When the lengths disagree, or this machine cannot run the variant.
pub fn softmax_with(variant: &Variant<RowKernel>, pool: &Pool, dims: usize, x: &[f32], out: &mut [f32]) {
    assert!((variant.available)(), "softmax: this machine cannot run {}", variant.name);
    // SAFETY: the variant is available.
    each_part("softmax", pool, dims, x, out, &|x, out| unsafe { (variant.run)(dims, x, out) });
}

#[inline(always)]
fn rows<S: Simd>(s: S, dims: usize, x: &[f32], out: &mut [f32]) {
    for (x, out) in x.chunks_exact(dims).zip(out.chunks_exact_mut(dims)) {
        let sum = weights(s, x, largest(s, x), out);
        // One division a row: of vectors they take longer than the exponentials. The sum is at least 1, or NaN.
        let factor = s.splat(1.0 / sum);
        for chunk in out.chunks_mut(LANES) {
            s.store_slice(chunk, s.mul(s.load_slice(chunk), factor));
        }
    }
}

#[inline(always)]
pub(super) fn largest<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut largest = [s.splat(f32::NEG_INFINITY); 4];
    let mut groups = x.chunks_exact(4 * LANES);
    for group in &mut groups {
        for (i, largest) in largest.iter_mut().enumerate() {
            // SAFETY: a group has four vectors.
            *largest = s.max(*largest, unsafe { s.load(group.as_ptr().add(i * LANES)) });
        }
    }
    let rest = groups.remainder().iter().fold(f32::NEG_INFINITY, |a, b| if a > *b { a } else { *b });
    let [a, b, c, d] = largest;
    let most = s.largest(s.max(s.max(a, b), s.max(c, d)));
    if most > rest { most } else { rest }
}

/// Writes `exp(x - largest)` and returns the sum.
#[inline(always)]
pub(super) fn weights<S: Simd>(s: S, x: &[f32], largest: f32, out: &mut [f32]) -> f32 {
    let largest = s.splat(largest);
    let mut sums = [s.splat(0.0); 4];
    let mut groups = x.chunks_exact(4 * LANES).zip(out.chunks_exact_mut(4 * LANES));
    for (x, out) in &mut groups {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a group has four vectors.
            unsafe {
                let weight = exp(s, s.sub(s.load(x.as_ptr().add(i * LANES)), largest));
                s.store(out.as_mut_ptr().add(i * LANES), weight);
                *sum = s.add(*sum, weight);
            }
        }
    }
    let done = x.len() / (4 * LANES) * 4 * LANES;
    let rest = x[done..].chunks(LANES).zip(out[done..].chunks_mut(LANES));
    for ((x, out), sum) in rest.zip(&mut sums) {
        s.store_slice(out, exp(s, s.sub(s.load_slice(x), largest)));
        *sum = s.add(*sum, s.load_slice(out));
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

/// `e^(x_i) / Σ_j e^(x_j)` along an axis.
pub(crate) fn kernel_for(cpu: &Cpu, axis: usize, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
    let (x, pool) = (node.inputs[0], Arc::clone(&cpu.pool));
    let rows = cpu.pick(VARIANTS);
    match x.dtype {
        DType::F32 => {
            Some(Arc::new(SoftmaxKernel { axis, rows, columns: cpu.pick(softmax_columns::VARIANTS), pool }))
        }
        DType::F16 => {
            Some(Arc::new(LaneSoftmaxKernel::<f16> { axis, softmax: softmax_half::<f16>, rows, pool }))
        }
        DType::BF16 => {
            Some(Arc::new(LaneSoftmaxKernel::<bf16> { axis, softmax: softmax_half::<bf16>, rows, pool }))
        }
        DType::F64 => Some(Arc::new(LaneSoftmaxKernel::<f64> { axis, softmax: softmax_f64, rows, pool })),
        _ => None,
    }
}

/// Of f32.
struct SoftmaxKernel {
    axis: usize,
    rows: &'static Variant<RowKernel>,
    columns: &'static Variant<softmax_columns::ColumnsKernel>,
    pool: Arc<Pool>,
}

impl Kernel for SoftmaxKernel {
    fn name(&self) -> String {
        format!("softmax[f32].{}", self.rows.name)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (n, inner) = axis_sizes(x.shape, self.axis);
        let (x, out) = (elements(x.bytes), elements_mut(call.outputs[0].bytes));
        match inner {
            1 => softmax_with(self.rows, &self.pool, n, &x, out),
            _ => softmax_columns::softmax(self.columns, &self.pool, n, inner, &x, out),
        }
        Ok(())
    }
}

/// Softmax of a lane, which is gathered into a row and scattered again.
type LaneSoftmax<T> = fn(&Variant<RowKernel>, Lane, &[T], &mut [T]);

/// Of the other floats.
struct LaneSoftmaxKernel<T> {
    axis: usize,
    softmax: LaneSoftmax<T>,
    rows: &'static Variant<RowKernel>,
    pool: Arc<Pool>,
}

/// Elements along an axis.
#[derive(Clone, Copy)]
struct Lane {
    first: usize,
    stride: usize,
    len: usize,
}

impl Lane {
    fn positions(self) -> impl Iterator<Item = usize> {
        (0..self.len).map(move |i| self.first + i * self.stride)
    }
}

impl<T: tensor::Element> Kernel for LaneSoftmaxKernel<T> {
    fn name(&self) -> String {
        format!("softmax[{}].{}", T::DTYPE, if T::DTYPE == DType::F64 { "portable" } else { self.rows.name })
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (len, stride) = axis_sizes(x.shape, self.axis);
        let (x, out) = (elements::<T>(x.bytes), elements_mut::<T>(call.outputs[0].bytes));
        if !out.is_empty() {
            self.pool.run_on_pieces(out, len * stride, &|index, out| {
                let x = &x[index * len * stride..][..len * stride];
                (0..stride).for_each(|first| (self.softmax)(self.rows, Lane { first, stride, len }, x, out));
            });
        }
        Ok(())
    }
}

fn softmax_half<T: Half>(rows: &Variant<RowKernel>, lane: Lane, x: &[T], out: &mut [T]) {
    with_scratch(2 * lane.len, |scratch| {
        let (row, result) = scratch.split_at_mut(lane.len);
        for (slot, i) in row.iter_mut().zip(lane.positions()) {
            T::widen(&x[i..=i], std::slice::from_mut(slot));
        }
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (rows.run)(lane.len, row, result) };
        for (value, i) in result.iter().zip(lane.positions()) {
            T::narrow(std::slice::from_ref(value), &mut out[i..=i]);
        }
    });
}

fn softmax_f64(_rows: &Variant<RowKernel>, lane: Lane, x: &[f64], out: &mut [f64]) {
    let largest = lane.positions().map(|i| x[i]).fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for i in lane.positions() {
        out[i] = (x[i] - largest).exp();
        sum += out[i];
    }
    lane.positions().for_each(|i| out[i] /= sum);
}

/// The size of an axis, and the elements under one index of it.
fn axis_sizes(shape: &Shape, axis: usize) -> (usize, usize) {
    (shape[axis], shape[axis + 1..].iter().product())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(x: &[f32]) -> Vec<f64> {
        let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f64> = x.iter().map(|x| (f64::from(*x) - f64::from(largest)).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    fn check(dims: usize, x: &[f32]) {
        for variant in VARIANTS.iter().filter(|variant| (variant.available)()) {
            let mut out = vec![f32::NAN; x.len()];
            softmax_with(variant, &Pool::new(4), dims, x, &mut out);
            for (x, out) in x.chunks(dims).zip(out.chunks(dims)) {
                for (got, want) in out.iter().zip(reference(x)) {
                    let off = (f64::from(*got) - want).abs();
                    assert!(off <= 3e-6 * want + 1e-37, "{} {dims}: {got} for {want}", variant.name);
                }
                let mut alone = vec![f32::NAN; dims];
                softmax_with(variant, &Pool::new(1), dims, x, &mut alone);
                assert!(alone.iter().zip(out).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }

    #[test]
    fn agrees_with_the_reference() {
        for dims in [1, 2, 15, 16, 17, 48, 63, 64, 65, 100, 1000, 5000] {
            let x: Vec<f32> = (0..7 * dims).map(|i| ((i * 7919) % 1009) as f32 / 40.0 - 12.0).collect();
            check(dims, &x);
        }
    }

    #[test]
    fn huge_and_infinite_values_are_weighed_right() {
        let mut x = vec![1e38, -1e38, f32::NEG_INFINITY, 0.0, 1e38];
        check(5, &x);
        x.resize(75, f32::NEG_INFINITY);
        check(75, &x);
        x.rotate_right(3);
        check(75, &x);
    }

    #[test]
    fn a_row_of_nothing_is_nan() {
        let mut out = [0.0; 20];
        softmax(&Pool::new(1), 20, &[f32::NEG_INFINITY; 20], &mut out);
        assert!(out.iter().all(|x| x.is_nan()));
        let mut x = [0.0; 20];
        x[18] = f32::NAN;
        softmax(&Pool::new(1), 20, &x, &mut out);
        assert!(out.iter().all(|x| x.is_nan()));
    }
}
