//! The indices that put lanes in order.
//!
//! An element becomes a key whose order as an integer is its own, with its index below: no two are equal, so that any
//! way to sort them is stable. Short lanes are sorted one to a thread; long ones in parts, which are then merged in
//! pairs, each result cut into pieces for the threads. Bound by comparisons.

use std::sync::{Arc, OnceLock};

use engine::{Kernel, KernelCall, PackError};
use graph::ops::ArgSort;
use tensor::{DType, Element, bf16, f16};

use super::disjoint::Disjoint;
use super::operands::{CHUNK, elements_mut, filled, view, with_type};
use crate::Pool;

/// A kernel that sorts along an axis.
pub(crate) fn kernel(op: ArgSort, dtype: DType, pool: &Arc<Pool>) -> Option<Arc<dyn Kernel>> {
    let pool = Arc::clone(pool);
    let key = with_type!(dtype, T => key_at::<T>, _ => return None);
    Some(Arc::new(ArgSortKernel { op, dtype, key, pool }))
}

struct ArgSortKernel {
    op: ArgSort,
    dtype: DType,
    /// The key of an element.
    key: fn(&[u8], usize) -> u64,
    pool: Arc<Pool>,
}

impl Kernel for ArgSortKernel {
    fn name(&self) -> String {
        format!("argsort[{}]", self.dtype)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (n, inner) = (x.shape[self.op.axis], x.shape[self.op.axis + 1..].iter().product::<usize>());
        if x.bytes.is_empty() {
            return Ok(());
        }
        let result = Disjoint::new(elements_mut::<i64>(call.outputs[0].bytes));
        let lanes = x.shape.elements() / n;
        let start = |lane: usize| lane / inner * n * inner + lane % inner;
        let key = |lane: usize, i: usize| {
            let key = (self.key)(x.bytes, start(lane) + i * inner);
            let key = if self.op.descending { !key } else { key };
            u128::from(key) << 64 | i as u128
        };
        let write = |lane: usize, i: usize, key: u128| {
            let slot = start(lane) + i * inner;
            // SAFETY: each element of the result is written once, by one task.
            let slot = unsafe { result.part(slot..slot + 1) };
            slot[0] = key as u64 as i64;
        };
        if n > CHUNK && lanes < self.pool.threads() {
            for lane in 0..lanes {
                let keys = sorted(&self.pool, n, &|i| key(lane, i))?;
                self.pool.run(n.div_ceil(CHUNK), &|chunk| {
                    (chunk * CHUNK..n.min((chunk + 1) * CHUNK)).for_each(|i| write(lane, i, keys[i]));
                });
            }
            return Ok(());
        }
        let (per_task, refused) = ((CHUNK / n).max(1), OnceLock::new());
        self.pool.run(lanes.div_ceil(per_task), &|task| {
            let mut keys: Vec<u128> = match filled(0, n) {
                Ok(keys) => keys,
                Err(error) => return drop(refused.set(error)),
            };
            for lane in task * per_task..lanes.min((task + 1) * per_task) {
                keys.iter_mut().enumerate().for_each(|(i, slot)| *slot = key(lane, i));
                keys.sort_unstable();
                keys.iter().enumerate().for_each(|(i, &key)| write(lane, i, key));
            }
        });
        refused.into_inner().map_or(Ok(()), |error: PackError| Err(error.into()))
    }
}

fn key_at<T: Key>(bytes: &[u8], index: usize) -> u64 {
    bytemuck::pod_read_unaligned::<T>(&bytes[index * size_of::<T>()..][..size_of::<T>()]).key()
}

/// An element type with an order of its values.
pub(super) trait Key: Element {
    /// An integer of the same order, zeros being equal and NaN above all numbers.
    fn key(self) -> u64;
}

macro_rules! integers {
    ($($T:ty),*) => { $(
        impl Key for $T {
            fn key(self) -> u64 {
                (i128::from(self) - i128::from(<$T>::MIN)) as u64
            }
        }
    )* };
}

integers!(u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! floats {
    ($($T:ty),*) => { $(
        impl Key for $T {
            fn key(self) -> u64 {
                let value = f64::from(self);
                // Without the sign of zero; the bits of negative numbers, which fall as they rise, turned around.
                let bits = (value + 0.0).to_bits();
                let key = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
                if value.is_nan() { u64::MAX } else { key }
            }
        }
    )* };
}

floats!(f16, bf16, f32, f64);

/// The keys of a long lane, in order.
fn sorted(pool: &Pool, n: usize, key: &(dyn Fn(usize) -> u128 + Sync)) -> Result<Vec<u128>, PackError> {
    let mut keys = filled(0, n)?;
    pool.run_on_pieces(&mut keys, CHUNK, &|index, part| {
        part.iter_mut().enumerate().for_each(|(i, slot)| *slot = key(index * CHUNK + i));
        part.sort_unstable();
    });
    let mut merged = filled(0, n)?;
    let mut length = CHUNK;
    while length < n {
        pool.run_on_pieces(&mut merged, CHUNK, &|index, piece| {
            let start = index * CHUNK;
            let pair = start / (2 * length) * (2 * length);
            let middle = n.min(pair + length);
            merge(&keys[pair..middle], &keys[middle..n.min(pair + 2 * length)], start - pair, piece);
        });
        std::mem::swap(&mut keys, &mut merged);
        length *= 2;
    }
    Ok(keys)
}

/// The elements `start..start + piece.len()` of two sorted lists merged.
fn merge(a: &[u128], b: &[u128], start: usize, piece: &mut [u128]) {
    // How many of the first `start` come from `a`: the fewest such that the rest of `b` is larger.
    let (mut low, mut high) = (start.saturating_sub(b.len()), start.min(a.len()));
    while low < high {
        let middle = (low + high) / 2;
        if a[middle] < b[start - middle - 1] { low = middle + 1 } else { high = middle }
    }
    let (mut i, mut j) = (low, start - low);
    for slot in piece {
        let from_a = j == b.len() || (i < a.len() && a[i] < b[j]);
        *slot = if from_a { a[i] } else { b[j] };
        if from_a { i += 1 } else { j += 1 }
    }
}
