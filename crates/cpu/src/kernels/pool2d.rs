//! The mean or the largest element of each window of an image: down its columns, then across.
//!
//! Bound by memory for small windows. Threads share rows of the result. Where channels lie last, all of a pixel are
//! computed side by side; where they come first, all positions of a row are.

use std::sync::Arc;

use engine::Call;
use graph::ops::{ImageLayout, Pool2d, PoolKind};
use tensor::{DType, Shape};

use super::floats::{self, is_float};
use super::operands::view;
use super::variant::{Variant, variants};
use super::window::inside;
use crate::vec::{Simd, with_scratch};
use crate::{Cpu, Pool};

/// Pooling of images of known sizes.
pub(crate) struct Pooling<'a> {
    /// The windows.
    pub(crate) op: &'a Pool2d,
    /// The images.
    pub(crate) x: &'a [f32],
    /// Height and width of an image.
    from: [usize; 2],
    /// Height and width of a result.
    to: [usize; 2],
    channels: usize,
}

/// Some rows of the result, from one with a number on.
pub(crate) type Kernel = unsafe fn(&Pooling<'_>, usize, &mut [f32]);

variants! {
    /// Rows of pooled elements.
    pub(crate) const VARIANTS = rows, (pooling: &Pooling<'_>, first: usize, out: &mut [f32])
}

impl<'a> Pooling<'a> {
    /// Pooling from images of one shape to a result of another.
    pub(crate) fn new(op: &'a Pool2d, x: &'a [f32], from: &Shape, to: &Shape) -> Pooling<'a> {
        let first = op.layout.first_spatial_axis();
        let size = |shape: &Shape| [shape[first], shape[first + 1]];
        Pooling { op, x, from: size(from), to: size(to), channels: from[op.layout.channel_axis(4)] }
    }

    /// Elements of a row of the result: one line of one channel, or of all where they lie last.
    fn row_len(&self) -> usize {
        match self.op.layout {
            ImageLayout::ChannelsLast => self.to[1] * self.channels,
            ImageLayout::ChannelsFirst => self.to[1],
        }
    }

    /// Where a tap of the window at position 0 falls.
    fn offset(&self, axis: usize, tap: usize) -> isize {
        let windows = &self.op.windows;
        (tap * windows.dilations[axis]) as isize - windows.padding[axis][0] as isize
    }

    /// How many elements of the window at a position count along an axis.
    fn count(&self, axis: usize, position: usize) -> usize {
        let size = self.from[axis];
        match self.op.kind {
            PoolKind::Average { count_padding: true } => self.op.counted(axis, position, size),
            _ => {
                let windows = &self.op.windows;
                let seen = |&tap: &usize| windows.element(axis, position, tap, size).is_some();
                (0..self.op.window[axis]).filter(seen).count()
            }
        }
    }
}

/// Pools images.
///
/// # Panics
/// If this machine cannot run the variant.
pub(crate) fn pool2d(variant: &Variant<Kernel>, pool: &Pool, pooling: &Pooling<'_>, out: &mut [f32]) {
    assert!((variant.available)(), "pool2d: this machine cannot run {}", variant.name);
    if out.is_empty() {
        return;
    }
    let rows = (16 * 1024 / pooling.row_len()).max(1);
    pool.run_on_pieces(out, rows * pooling.row_len(), &|index, out| {
        // SAFETY: the variant is available.
        unsafe { (variant.run)(pooling, index * rows, out) };
    });
}

/// The kernel of the op, for a dtype.
pub(crate) fn kernel(cpu: &Cpu, op: &Pool2d, dtype: DType) -> Option<Arc<dyn engine::Kernel>> {
    let (op, variant, pool) = (op.clone(), cpu.pick(VARIANTS), Arc::clone(&cpu.pool));
    if is_float(dtype) { Some(Arc::new(Pool2dKernel { op, dtype, variant, pool })) } else { None }
}

struct Pool2dKernel {
    op: Pool2d,
    dtype: DType,
    variant: &'static Variant<Kernel>,
    pool: Arc<Pool>,
}

impl engine::Kernel for Pool2dKernel {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.op.clone()).name(), self.dtype, self.variant.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (x, to) = (view(&call, 0), call.outputs[0].shape);
        let values = floats::read(x);
        let pooling = Pooling::new(&self.op, &values, &x.shape, &to);
        floats::write(&mut call.outputs[0], |out| pool2d(self.variant, &self.pool, &pooling, out));
        Ok(())
    }
}

#[inline(always)]
fn rows<S: Simd>(_s: S, pooling: &Pooling<'_>, first: usize, out: &mut [f32]) {
    for (i, out) in out.chunks_exact_mut(pooling.row_len()).enumerate() {
        let (image, line) = ((first + i) / pooling.to[0], (first + i) % pooling.to[0]);
        match pooling.op.kind {
            PoolKind::Max => row(pooling, image, line, out, f32::NEG_INFINITY, larger),
            PoolKind::Average { .. } => {
                row(pooling, image, line, out, 0.0, |a, b| a + b);
                divide(pooling, line, out);
            }
        }
    }
}

/// The larger of two, NaN if one is NaN.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a.is_nan() || a >= b { a } else { b }
}

/// Joins the elements of each window of a row: down the columns of the image first, then across.
#[inline(always)]
fn row(
    pooling: &Pooling<'_>,
    image: usize,
    line: usize,
    out: &mut [f32],
    start: f32,
    join: impl Fn(f32, f32) -> f32,
) {
    let ([height, width], windows) = (pooling.from, &pooling.op.windows);
    // Of one channel, or of all where they lie last.
    let lanes = out.len() / pooling.to[1];
    let x = &pooling.x[image * height * width * lanes..][..height * width * lanes];
    with_scratch(width * lanes, |columns| {
        columns.fill(start);
        for tap in 0..pooling.op.window[0] {
            let Some(from) = windows.element(0, line, tap, height) else { continue };
            let x = &x[from * width * lanes..][..width * lanes];
            columns.iter_mut().zip(x).for_each(|(column, x)| *column = join(*column, *x));
        }
        out.fill(start);
        for tap in 0..pooling.op.window[1] {
            across(pooling, tap, columns, out, &join);
        }
    });
}

/// Joins what a column of each window sees.
#[inline(always)]
fn across(
    pooling: &Pooling<'_>,
    tap: usize,
    columns: &[f32],
    out: &mut [f32],
    join: impl Fn(f32, f32) -> f32,
) {
    let (stride, before) = (pooling.op.windows.strides[1], pooling.offset(1, tap));
    let (lanes, seen) = (out.len() / pooling.to[1], inside(pooling.to[1], stride, before, pooling.from[1]));
    if seen.is_empty() {
        return;
    }
    let x = &columns[((seen.start * stride) as isize + before) as usize * lanes..];
    let out = &mut out[seen.start * lanes..seen.end * lanes];
    match (lanes, stride) {
        (_, 1) => out.iter_mut().zip(x).for_each(|(out, x)| *out = join(*out, *x)),
        (1, _) => out.iter_mut().zip(x.chunks(stride)).for_each(|(out, x)| *out = join(*out, x[0])),
        _ => {
            for (out, x) in out.chunks_exact_mut(lanes).zip(x.chunks(stride * lanes)) {
                out.iter_mut().zip(x).for_each(|(out, x)| *out = join(*out, *x));
            }
        }
    }
}

/// Divides the sums of a row by how many elements they have.
#[inline(always)]
fn divide(pooling: &Pooling<'_>, line: usize, out: &mut [f32]) {
    let down = pooling.count(0, line);
    let lanes = out.len() / pooling.to[1];
    for (position, out) in out.chunks_exact_mut(lanes).enumerate() {
        let count = (down * pooling.count(1, position)) as f32;
        out.iter_mut().for_each(|out| *out /= count);
    }
}
