//! The mean or the largest element of each window of an image: down its columns, then across.
//!
//! Bound by memory for small windows. Threads share rows of the result. Where channels lie last, all of a pixel are
//! computed side by side; where they come first, all positions of a row are.

use std::sync::Arc;

use engine::KernelCall;
use graph::ops::{ImageLayout, Pool2d, PoolKind};
use tensor::{DType, Shape};

use super::every::join_every;
use super::floats::{self, is_float};
use super::operands::view;
use super::window::inside;
use crate::variant::{Variant, variants};
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
    /// How many elements of the window at each position of a row count across.
    across: Vec<usize>,
}

/// Some rows of the result, from one with a number on.
pub(crate) type PoolingKernel = unsafe fn(&Pooling<'_>, usize, &mut [f32]);

variants! {
    /// Rows of pooled elements.
    pub(crate) static VARIANTS = rows, (pooling: &Pooling<'_>, first: usize, out: &mut [f32])
}

impl<'a> Pooling<'a> {
    /// Pooling from images of one shape to a result of another.
    pub(crate) fn new(op: &'a Pool2d, x: &'a [f32], from: &Shape, to: &Shape) -> Pooling<'a> {
        let first = op.layout.first_spatial_axis();
        let size = |shape: &Shape| [shape[first], shape[first + 1]];
        let channels = from[op.layout.channel_axis(4)];
        let mut pooling = Pooling { op, x, from: size(from), to: size(to), channels, across: Vec::new() };
        if !to.contains(&0) {
            pooling.across = (0..pooling.to[1]).map(|position| pooling.count(1, position)).collect();
        }
        pooling
    }

    /// Channels that lie side by side.
    fn lanes(&self) -> usize {
        match self.op.layout {
            ImageLayout::ChannelsLast => self.channels,
            ImageLayout::ChannelsFirst => 1,
        }
    }

    /// Elements of a row of the result: one line of one channel, or of all where they lie last.
    fn row_len(&self) -> usize {
        self.to[1] * self.lanes()
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
pub(crate) fn pool2d(variant: &Variant<PoolingKernel>, pool: &Pool, pooling: &Pooling<'_>, out: &mut [f32]) {
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
    variant: &'static Variant<PoolingKernel>,
    pool: Arc<Pool>,
}

impl engine::Kernel for Pool2dKernel {
    fn name(&self) -> String {
        format!("{}[{}].{}", graph::Op::from(self.op.clone()).name(), self.dtype, self.variant.name)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, to) = (view(&call, 0), call.outputs[0].shape);
        let values = floats::read(x)?;
        let pooling = Pooling::new(&self.op, &values, x.shape, to);
        floats::write(&mut call.outputs[0], |out| pool2d(self.variant, &self.pool, &pooling, out))?;
        Ok(())
    }
}

#[inline(always)]
fn rows<S: Simd>(_s: S, pooling: &Pooling<'_>, first: usize, out: &mut [f32]) {
    with_scratch(
        pooling.from[1] * pooling.lanes(),
        #[inline(always)]
        |columns| {
            for (i, out) in out.chunks_exact_mut(pooling.row_len()).enumerate() {
                match pooling.op.kind {
                    PoolKind::Max => row(pooling, first + i, columns, out, f32::NEG_INFINITY, larger),
                    PoolKind::Average { .. } => {
                        row(pooling, first + i, columns, out, 0.0, sum);
                        divide(pooling, (first + i) % pooling.to[0], out);
                    }
                }
            }
        },
    );
}

/// The larger of two, NaN if one is NaN.
///
/// The compiler would turn `if a.is_nan() || a >= b { a } else { b }` into masked stores, which are slow with AVX2.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    let larger = if b > a { b } else { a };
    let nan = if b.is_nan() { f32::NAN.to_bits() } else { 0 };
    f32::from_bits(larger.to_bits() | nan)
}

#[inline(always)]
fn sum(a: f32, b: f32) -> f32 {
    a + b
}

/// Joins the elements of each window of a row: down the columns of the image first, then across.
#[inline(always)]
fn row(
    pooling: &Pooling<'_>,
    number: usize,
    columns: &mut [f32],
    out: &mut [f32],
    start: f32,
    join: impl Fn(f32, f32) -> f32,
) {
    let (image, line) = (number / pooling.to[0], number % pooling.to[0]);
    let (height, len) = (pooling.from[0], columns.len());
    let x = &pooling.x[image * height * len..][..height * len];
    let seen = |&tap: &usize| pooling.op.windows.element(0, line, tap, height);
    let mut lines =
        (0..pooling.op.window[0]).filter_map(|tap| seen(&tap)).map(|from| &x[from * len..][..len]);
    match lines.next() {
        Some(x) => columns.iter_mut().zip(x).for_each(|(column, x)| *column = join(start, *x)),
        None => columns.fill(start),
    }
    for x in lines {
        columns.iter_mut().zip(x).for_each(|(column, x)| *column = join(*column, *x));
    }
    out.fill(start);
    for tap in 0..pooling.op.window[1] {
        across(pooling, tap, columns, out, &join);
    }
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
    let (lanes, seen) = (pooling.lanes(), inside(pooling.to[1], stride, before, pooling.from[1]));
    if seen.is_empty() {
        return;
    }
    let x = &columns[((seen.start * stride) as isize + before) as usize * lanes..];
    let out = &mut out[seen.start * lanes..seen.end * lanes];
    if lanes == 1 || stride == 1 {
        return join_every(stride, out, x, join);
    }
    for (out, x) in out.chunks_exact_mut(lanes).zip(x.chunks(stride * lanes)) {
        join_every(1, out, x, &join);
    }
}

/// Divides the sums of a row by how many elements they have.
#[inline(always)]
fn divide(pooling: &Pooling<'_>, line: usize, out: &mut [f32]) {
    let down = pooling.count(0, line);
    if pooling.lanes() == 1 {
        let counts = out.iter_mut().zip(&pooling.across);
        return counts.for_each(|(out, &across)| *out /= (down * across) as f32);
    }
    for (out, across) in out.chunks_exact_mut(pooling.lanes()).zip(&pooling.across) {
        let count = (down * across) as f32;
        out.iter_mut().for_each(|out| *out /= count);
    }
}
