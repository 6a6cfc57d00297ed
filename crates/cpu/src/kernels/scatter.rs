//! Elements and slabs picked, replaced, or combined with updates, at indices.
//!
//! Each index becomes the place of a slab first, where it is checked. Then threads take parts of the result, rows or
//! columns of slabs, and apply to them all updates that they meet, in order: so the result is that of one thread.
//! Halves and f32 are combined in f64 and rounded once. Bound by memory, and by the search for updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytemuck::Pod;
use engine::{Kernel, KernelCall, Operand, PackError, View};
use graph::ops::{ReduceKind, Scatter, ScatterKind};
use tensor::{DType, Shape};

use super::copy::CHUNK_BYTES;
use super::disjoint::Disjoint;
use super::gather::{Ids, coordinates};
use super::operands::{CHUNK, elements, elements_mut, filled, view, with_type, with_width};
use super::reduce::Accumulate;
use crate::Pool;

/// Slabs of at least so many elements are cut into columns.
const WIDE: usize = 1024;

/// Picks slabs at tuples of indices.
pub(crate) struct GatherNdKernel {
    /// The axes that both operands have in common.
    pub(crate) batch_dims: usize,
    /// Copies.
    pub(crate) pool: Arc<Pool>,
}

impl Kernel for GatherNdKernel {
    fn name(&self) -> String {
        "gather_nd".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, ids) = (view(&call, 0), view(&call, 1));
        let result = &mut *call.outputs[0].bytes;
        if result.is_empty() && ids.bytes.is_empty() {
            // Tuples of no indices, which there may be any number of.
            return Ok(());
        }
        let rows = tuples(&self.pool, x.shape, ids, 1, self.batch_dims)?;
        if result.is_empty() {
            return Ok(());
        }
        let slab = result.len() / rows.len();
        let per_chunk = (CHUNK_BYTES / slab).max(1);
        self.pool.run_on_pieces(result, per_chunk * slab, &|index, piece| {
            for (slot, &row) in piece.chunks_exact_mut(slab).zip(&rows[index * per_chunk..]) {
                slot.copy_from_slice(&x.bytes[row * slab..][..slab]);
            }
        });
        Ok(())
    }
}

/// Where updates go.
pub(crate) enum Place {
    /// One index for each update, along an axis.
    Axis(usize),
    /// A tuple of indices for each slab of updates.
    Tuples,
}

/// A kernel that applies updates.
pub(crate) fn kernel(
    op: &'static str,
    kind: ScatterKind,
    place: Place,
    dtype: DType,
    pool: &Arc<Pool>,
) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(pool);
    let combine = match kind {
        ScatterKind::Set => return Some(Arc::new(SetKernel { op, place, pool })),
        ScatterKind::Add => ReduceKind::Sum,
        ScatterKind::Max => ReduceKind::Max,
        ScatterKind::Min => ReduceKind::Min,
        ScatterKind::Mul => ReduceKind::Prod,
    };
    with_type!(dtype, T => {
        let element = std::marker::PhantomData::<T>;
        Some(Arc::new(CombineKernel { op, kind: combine, place, element, pool }))
    }, _ => None)
}

/// Replaces.
struct SetKernel {
    op: &'static str,
    place: Place,
    pool: Arc<Pool>,
}

impl Kernel for SetKernel {
    fn name(&self) -> String {
        self.op.to_string()
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let updates = view(&call, 1);
        let targets = self.place.targets(&self.pool, &call)?;
        copy_operand(&self.pool, &call.inputs[0], call.outputs[0].bytes);
        with_width!(updates.dtype.block().bytes, T => {
            let (updates, result) = (elements::<T>(updates.bytes), elements_mut::<T>(call.outputs[0].bytes));
            apply(&self.pool, &targets, result, &updates, &|slots: &mut [T], updates: &[T]| {
                slots.copy_from_slice(updates);
            });
        });
        Ok(())
    }
}

/// Combines.
struct CombineKernel<T> {
    op: &'static str,
    kind: ReduceKind,
    place: Place,
    element: std::marker::PhantomData<T>,
    pool: Arc<Pool>,
}

impl<T: Accumulate> Kernel for CombineKernel<T> {
    fn name(&self) -> String {
        format!("{}[{}]", self.op, T::DTYPE)
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        if Self::IS_WIDE { 0 } else { inputs[0].elements() * size_of::<T::Sum>() }
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (updates, kind) = (view(&call, 1), self.kind);
        let targets = self.place.targets(&self.pool, &call)?;
        copy_operand(&self.pool, &call.inputs[0], call.outputs[0].bytes);
        let (updates, result) = (elements::<T>(updates.bytes), &mut *call.outputs[0].bytes);
        let body = |sums: &mut [T::Sum], updates: &[T]| {
            for (sum, &update) in sums.iter_mut().zip(updates) {
                *sum = T::combine(kind, *sum, update.widen());
            }
        };
        if Self::IS_WIDE {
            apply(&self.pool, &targets, elements_mut::<T::Sum>(result), &updates, &body);
            return Ok(());
        }
        let (result, sums) = (elements_mut::<T>(result), elements_mut::<T::Sum>(call.scratch));
        self.pool.run_on_pieces(sums, CHUNK, &|index, piece| {
            let values = &result[index * CHUNK..];
            piece.iter_mut().zip(values).for_each(|(sum, &value)| *sum = value.widen());
        });
        apply(&self.pool, &targets, sums, &updates, &body);
        self.pool.run_on_pieces(result, CHUNK, &|index, piece| {
            let sums = &sums[index * CHUNK..];
            piece.iter_mut().zip(sums).for_each(|(value, &sum)| *value = T::finish(kind, sum, 1));
        });
        Ok(())
    }
}

impl<T: Accumulate> CombineKernel<T> {
    /// Whether elements are as wide as what they are combined in: the very same type then.
    const IS_WIDE: bool = size_of::<T>() == size_of::<T::Sum>();
}

fn copy_operand(pool: &Pool, operand: &Operand<'_>, result: &mut [u8]) {
    if let Operand::View(x) = operand {
        pool.run_on_pieces(result, CHUNK_BYTES, &|index, piece| {
            piece.copy_from_slice(&x.bytes[index * CHUNK_BYTES..][..piece.len()]);
        });
    }
}

impl Place {
    /// The slab that each update meets.
    fn targets(&self, pool: &Pool, call: &KernelCall<'_, '_>) -> Result<Vec<usize>, String> {
        let (shape, ids) = (call.outputs[0].shape, view(call, 2));
        if ids.bytes.is_empty() && view(call, 1).bytes.is_empty() {
            // Tuples of no indices, which there may be any number of.
            return Ok(Vec::new());
        }
        let axis = match *self {
            Place::Tuples => return tuples(pool, shape, ids, 2, 0),
            Place::Axis(axis) => axis,
        };
        let (counts, strides) = (ids.shape, shape.row_major_strides());
        for other in 0..shape.rank() {
            // The kind does not matter here.
            Scatter { kind: ScatterKind::Set, axis }.check(other, shape[other], counts[other])?;
        }
        let values = Ids::of(ids);
        let target = |update: usize| {
            let (mut rest, mut target) = (update, 0);
            for other in (0..shape.rank()).rev() {
                let along = if other == axis {
                    resolve(values.get(update), shape[axis])?
                } else {
                    rest % counts[other]
                };
                target += along * strides[other] as usize;
                rest /= counts[other];
            }
            Some(target)
        };
        compute(pool, values.len(), &target)?
            .map_err(|update| out_of_range(2, counts, update, values.get(update), shape[axis], axis))
    }
}

/// The slab, among all of `shape`, at each tuple of indices.
fn tuples(
    pool: &Pool,
    shape: &Shape,
    ids: View<'_>,
    operand: usize,
    batch: usize,
) -> Result<Vec<usize>, String> {
    let (counts, last) = (ids.shape, ids.shape.rank() - 1);
    let depth = counts[last];
    let per_batch: usize = counts[batch..last].iter().product();
    let values = Ids::of(ids);
    let target = |tuple: usize| {
        (0..depth).try_fold(tuple / per_batch, |row, k| {
            let limit = shape[batch + k];
            Some(row * limit + resolve(values.get(tuple * depth + k), limit)?)
        })
    };
    let count = counts[..last].iter().product();
    compute(pool, count, &target)?.map_err(|tuple| {
        let wrong = |&k: &usize| resolve(values.get(tuple * depth + k), shape[batch + k]).is_none();
        let k = (0..depth).find(wrong).expect("one index of the tuple is out of range");
        let (position, axis) = (tuple * depth + k, batch + k);
        out_of_range(operand, counts, position, values.get(position), shape[axis], axis)
    })
}

/// All of `target`, or the first place where there is none.
///
/// # Errors
/// If there is not enough memory.
fn compute(
    pool: &Pool,
    count: usize,
    target: &(dyn Fn(usize) -> Option<usize> + Sync),
) -> Result<Result<Vec<usize>, usize>, PackError> {
    let (mut targets, wrong) = (filled(0, count)?, AtomicUsize::new(usize::MAX));
    pool.run_on_pieces(&mut targets, CHUNK, &|index, piece| {
        for (i, slot) in piece.iter_mut().enumerate() {
            match target(index * CHUNK + i) {
                Some(target) => *slot = target,
                None => drop(wrong.fetch_min(index * CHUNK + i, Ordering::Relaxed)),
            }
        }
    });
    Ok(match wrong.into_inner() {
        usize::MAX => Ok(targets),
        first => Err(first),
    })
}

/// An index from the start, if it is within the axis.
fn resolve(index: i64, limit: usize) -> Option<usize> {
    let from_start = if index < 0 { index.checked_add_unsigned(limit as u64)? } else { index };
    usize::try_from(from_start).ok().filter(|&index| index < limit)
}

fn out_of_range(
    operand: usize,
    counts: &Shape,
    position: usize,
    value: i64,
    limit: usize,
    axis: usize,
) -> String {
    let position = coordinates(counts, position);
    format!(
        "operand {operand} at {position:?} is {value}, which is out of range for the {limit} elements of axis {axis}"
    )
}

/// Calls `body(slots, updates)` for each update, where `targets[u]` is the slab of slots that update `u` meets. Those of
/// one slot come in order.
fn apply<S: Pod + Send + Sync, T: Pod + Sync>(
    pool: &Pool,
    targets: &[usize],
    slots: &mut [S],
    updates: &[T],
    body: &(dyn Fn(&mut [S], &[T]) + Sync),
) {
    if updates.is_empty() {
        return;
    }
    let slab = updates.len() / targets.len();
    let rows = slots.len() / slab;
    let slots = Disjoint::new(slots);
    if slab >= WIDE {
        let columns = slab.div_ceil(pool.threads()).next_multiple_of(64);
        pool.run(slab.div_ceil(columns), &|part| {
            let (start, end) = (part * columns, slab.min((part + 1) * columns));
            for (u, &target) in targets.iter().enumerate() {
                // SAFETY: these columns belong to this part, whatever the row.
                let slots = unsafe { slots.part(target * slab + start..target * slab + end) };
                body(slots, &updates[u * slab + start..u * slab + end]);
            }
        });
        return;
    }
    let parts = if updates.len() < CHUNK { 1 } else { pool.threads() };
    let per_part = rows.div_ceil(parts);
    pool.run(rows.div_ceil(per_part), &|part| {
        let (start, end) = (part * per_part, rows.min((part + 1) * per_part));
        // SAFETY: each part has rows of its own.
        let slots = unsafe { slots.part(start * slab..end * slab) };
        for (u, &target) in targets.iter().enumerate().filter(|(_, target)| (start..end).contains(target)) {
            body(&mut slots[(target - start) * slab..][..slab], &updates[u * slab..][..slab]);
        }
    });
}
