//! Results whose index along each axis says, by itself, the index along that axis of the operand: paddings and
//! repetitions. Copies runs; bound by memory.

use std::sync::Arc;

use bytemuck::Pod;
use engine::{Kernel, KernelCall, View, ViewMut};
use graph::ops::{Flip, Pad, PadMode, RepeatInterleave};

use super::gather::Ids;
use super::operands::{CHUNK, elements, elements_mut, view, with_width};
use super::strided::Strided;
use crate::Pool;

/// Puts elements around others.
pub(crate) struct PadKernel {
    /// Which.
    pub(crate) op: Pad,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for PadKernel {
    fn name(&self) -> String {
        format!("pad[{}]", self.op.mode.name())
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let value = (self.op.mode == PadMode::Constant).then(|| view(&call, 1).bytes);
        (0..x.shape.rank()).try_for_each(|axis| self.op.check(axis, x.shape[axis]))?;
        map_axes(&self.pool, x, value, &mut call.outputs[0], |axis, len| {
            let (size, padded) = (x.shape[axis], self.op.before[axis] + self.op.after[axis] > 0);
            padded.then(|| (0..len).map(move |index| self.op.source(axis, index, size)))
        })
    }
}

/// Repeats the whole.
pub(crate) struct TileKernel {
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for TileKernel {
    fn name(&self) -> String {
        "tile".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        map_axes(&self.pool, x, None, &mut call.outputs[0], |axis, len| {
            let size = x.shape[axis];
            (size != len).then(|| (0..len).map(move |index| Some(index % size)))
        })
    }
}

/// Repeats each element of an axis.
pub(crate) struct RepeatInterleaveKernel {
    /// How.
    pub(crate) op: RepeatInterleave,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for RepeatInterleaveKernel {
    fn name(&self) -> String {
        "repeat_interleave".to_string()
    }

    fn sizes(&self, inputs: &[View<'_>]) -> Result<Option<Vec<usize>>, String> {
        Ok(Some(vec![RepeatInterleave::total(&counts(inputs[1]))?]))
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, axis) = (view(&call, 0), self.op.axis);
        let counts = (call.inputs.len() > 1).then(|| counts(view(&call, 1)));
        let (size, counts, result) = (x.shape[axis], counts.as_deref(), &mut call.outputs[0]);
        self.op.check(size, counts, result.shape[axis])?;
        map_axes(&self.pool, x, None, result, |other, _| {
            (other == axis).then(|| self.op.sources(size, counts).map(Some))
        })
    }
}

fn counts(repeats: View<'_>) -> Vec<i64> {
    let counts = Ids::of(repeats);
    (0..counts.len()).map(|i| counts.get(i)).collect()
}

/// Turns axes around.
pub(crate) struct FlipKernel {
    /// Which.
    pub(crate) op: Flip,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for FlipKernel {
    fn name(&self) -> String {
        "flip".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let result = &mut *call.outputs[0].bytes;
        if result.is_empty() {
            return Ok(());
        }
        let (mut strides, mut offset) = (x.shape.row_major_strides(), 0);
        for &axis in &self.op.axes {
            offset += (x.shape[axis] - 1) * strides[axis] as usize;
            strides[axis] = -strides[axis];
        }
        let walk = Strided::new(x.shape.dims(), &strides[..x.shape.rank()], offset);
        with_width!(x.dtype.block().bytes, T => {
            let x = elements::<T>(x.bytes);
            let copy = |index, piece: &mut [T]| walk.copy(&x, index * CHUNK, piece);
            self.pool.run_on_pieces(elements_mut::<T>(result), CHUNK, &copy);
        });
        Ok(())
    }
}

/// For each index along an axis of the result, the index along the axis of the operand, or nothing where the fill goes.
/// `None` where they are the same.
type AxisMap = Option<Vec<Option<usize>>>;

/// Indices that come one after another in both arrays.
struct Run {
    /// In the result.
    start: usize,
    /// In the operand, if they are there.
    source: Option<usize>,
}

/// Fills a result; `fill` is one element, `sources` the map of an axis whose size in the result is given.
///
/// # Errors
/// If there is no memory for the maps. A result without elements needs none, however long an axis of it.
fn map_axes<I: Iterator<Item = Option<usize>>>(
    pool: &Pool,
    x: View<'_>,
    fill: Option<&[u8]>,
    result: &mut ViewMut<'_>,
    sources: impl Fn(usize, usize) -> Option<I>,
) -> Result<(), String> {
    if result.bytes.is_empty() {
        return Ok(());
    }
    let mut maps: Vec<AxisMap> = Vec::with_capacity(x.shape.rank());
    for (axis, &len) in result.shape.iter().enumerate() {
        let Some(sources) = sources(axis, len) else {
            maps.push(None);
            continue;
        };
        let mut map = Vec::new();
        let refused = |_| format!("the system refused memory for the {len} indices of axis {axis}");
        map.try_reserve_exact(len).map_err(refused)?;
        map.extend(sources);
        maps.push(Some(map));
    }
    with_width!(x.dtype.block().bytes, T => {
        let fill = fill.map(|fill| elements::<T>(fill)[0]).unwrap_or_default();
        Walk::<T>::new(&x, &maps, fill, result).run(pool, elements_mut(result.bytes));
    });
    Ok(())
}

struct Walk<'a, T: Pod> {
    x: std::borrow::Cow<'a, [T]>,
    /// Of the axes outside that of the runs: the size in the result, the stride in the operand, the map.
    outer: Vec<(usize, usize, &'a AxisMap)>,
    /// The axis of the runs: the size in the operand and in the result.
    sizes: (usize, usize),
    runs: Vec<Run>,
    /// Elements under one index of the axis of the runs.
    inner: usize,
    fill: T,
}

impl<'a, T: Pod + Send + Sync> Walk<'a, T> {
    fn new(x: &View<'a>, maps: &'a [AxisMap], fill: T, result: &ViewMut<'_>) -> Walk<'a, T> {
        let last = maps.iter().rposition(Option::is_some);
        let strides = x.shape.row_major_strides();
        let axes = maps.iter().enumerate().take(last.unwrap_or(0));
        let outer = axes.map(|(axis, map)| (result.shape[axis], strides[axis] as usize, map)).collect();
        let elements = elements(x.bytes);
        match last {
            None => {
                let runs = vec![Run { start: 0, source: Some(0) }];
                Walk {
                    inner: 1,
                    sizes: (elements.len(), elements.len()),
                    x: elements,
                    outer: vec![],
                    runs,
                    fill,
                }
            }
            Some(axis) => {
                let inner = x.shape[axis + 1..].iter().product();
                let sizes = (x.shape[axis], result.shape[axis]);
                let runs = runs(maps[axis].as_deref().expect("a map"));
                Walk { x: elements, outer, sizes, runs, inner, fill }
            }
        }
    }

    fn run(&self, pool: &Pool, result: &mut [T]) {
        if result.is_empty() {
            return;
        }
        let per_piece = (CHUNK / self.inner).max(1);
        pool.run_on_pieces(result, per_piece * self.inner, &|index, piece| {
            let mut rest = piece;
            let mut position = index * per_piece;
            while !rest.is_empty() {
                let taken = self.next(position, rest);
                rest = &mut rest[taken * self.inner..];
                position += taken;
            }
        });
    }

    /// Writes what is at `position`, counted in indices of the axis of the runs, up to the end of its run; returns how
    /// many indices that were.
    fn next(&self, position: usize, out: &mut [T]) -> usize {
        let (row, within) = (position / self.sizes.1, position % self.sizes.1);
        let run = self.runs.partition_point(|run| run.start <= within) - 1;
        let end = self.runs.get(run + 1).map_or(self.sizes.1, |next| next.start);
        let count = (end - within).min(out.len() / self.inner);
        let out = &mut out[..count * self.inner];
        let source = self.runs[run].source.map(|source| source + within - self.runs[run].start);
        match self.row(row).zip(source) {
            None => out.fill(self.fill),
            Some((row, source)) => out.copy_from_slice(&self.x[row + source * self.inner..][..out.len()]),
        }
        count
    }

    /// Where a row of the result starts in the operand, if it is there.
    fn row(&self, row: usize) -> Option<usize> {
        let (mut rest, mut start) = (row, 0);
        for &(size, stride, map) in self.outer.iter().rev() {
            let index = rest % size;
            start += stride * map.as_ref().map_or(Some(index), |map| map[index])?;
            rest /= size;
        }
        Some(start)
    }
}

fn runs(map: &[Option<usize>]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, &source) in map.iter().enumerate() {
        let continues = runs.last().is_some_and(|run| match (run.source, source) {
            (Some(start), Some(source)) => start + (index - run.start) == source,
            (None, None) => true,
            _ => false,
        });
        if !continues {
            runs.push(Run { start: index, source });
        }
    }
    runs
}
