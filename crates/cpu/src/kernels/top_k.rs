//! The k largest, or smallest, along an axis, in order.
//!
//! Along the last axis rows are searched where they lie; columns are copied out first, some at a time.
//! Candidates that beat the worst of the k best so far are collected; when twice as many have come together, the
//! better half is selected and the bar raised. Blocks of f32 without a candidate are passed over by a loop that the
//! compiler vectorizes, so that for a small k a row is read about as fast as memory gives it.
//!
//! A session may ask for a selection by a bound (`bounded_top_k`) or for a sort of whole rows instead.

use std::sync::Arc;

use engine::{Kernel, KernelCall, TopKKernel as Way, View};
use graph::ops::TopK;
use tensor::DType;

use super::arg_sort::Key;
use super::bounded_top_k::{Bounded, Buffers};
use super::disjoint::Disjoint;
use super::operands::{elements_mut, rows_per_chunk, view, with_type, with_width};
use super::rank::{Rank, keep, position, rank};
use crate::variant::{Variant, variants};
use crate::vec::Simd;
use crate::{Cpu, Pool};

/// Elements looked at before it is decided whether to search them.
const BLOCK: usize = 64;

/// Columns copied out together: a cache line of f32.
const BAND: usize = 16;

variants! {
    /// Whether any of the f32 may be above the bar, or else below it: NaN may be both.
    pub static MAY_BEAT = may_beat, (smallest: bool, values: &[[u8; 4]], bar: f32, any: &mut bool)
}

type MayBeat = unsafe fn(bool, &[[u8; 4]], f32, &mut bool);

/// A kernel that picks along an axis.
pub(crate) fn kernel(cpu: &Cpu, op: TopK, dtype: DType, way: Way) -> Option<Arc<dyn Kernel>> {
    let order = with_type!(dtype, T => order::<T>, _ => return None);
    let variant = (dtype == DType::F32).then(|| cpu.pick(MAY_BEAT));
    let bounded = (way == Way::Bounded).then(|| Bounded::new(cpu, dtype, op.smallest, order)).flatten();
    let pool = Arc::clone(&cpu.pool);
    Some(Arc::new(TopKKernel { op, dtype, way, order, variant, bounded, pool }))
}

struct TopKKernel {
    op: TopK,
    dtype: DType,
    way: Way,
    /// Writes a whole number for each element: the smaller, the better.
    order: fn(bool, &[u8], &mut [u64]),
    /// For f32.
    variant: Option<&'static Variant<MayBeat>>,
    /// Selects by a bound: `None` if the session does not ask for that, or the dtype has no such kernel.
    bounded: Option<Bounded>,
    pool: Arc<Pool>,
}

impl Kernel for TopKKernel {
    fn name(&self) -> String {
        let name = format!("{}[{}]", graph::Op::from(self.op).name(), self.dtype);
        match (self.way, &self.bounded) {
            (Way::Sort, _) => format!("{name}.sort"),
            (_, Some(bounded)) => format!("bounded_{name}.{}", bounded.variant()),
            _ => format!("{name}.{}", self.variant.map_or("portable", |variant| variant.name)),
        }
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        let (View { dtype, shape, .. }, TopK { k, axis, .. }) = (inputs[0], self.op);
        match shape[axis] {
            n if k > n => Err(format!("k is {k}, but axis {axis} of operand 0, {dtype}{shape}, has {n}")),
            _ => Ok(()),
        }
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, TopK { k, axis, .. }) = (view(&call, 0), self.op);
        self.check(&[x])?;
        let (n, inner) = (x.shape[axis], x.shape[axis + 1..].iter().product::<usize>());
        let [values, indices] = call.outputs else { panic!("top_k makes two results") };
        if values.bytes.is_empty() {
            return Ok(());
        }
        let bytes = self.dtype.block().bytes;
        let values = Disjoint::new(&mut *values.bytes);
        let indices = Disjoint::new(elements_mut::<i64>(indices.bytes));
        let (width, bands) = (BAND.min(inner), inner.div_ceil(BAND));
        let plane = n * inner * bytes;
        let (all, per_task) = (x.bytes.len() / plane * bands, rows_per_chunk(n * width));
        self.pool.run(all.div_ceil(per_task), &|task| {
            let (mut best, mut lanes, mut buffers) = (Vec::new(), Vec::new(), Buffers::default());
            for band in task * per_task..all.min((task + 1) * per_task) {
                let (outer, first) = (band / bands, band % bands * BAND);
                let width = BAND.min(inner - first);
                let plane = &x.bytes[outer * plane..][..plane];
                let rows = match inner {
                    1 => plane,
                    _ => with_width!(bytes, T => {
                        copy_out::<{ size_of::<T>() }>(plane, inner, first, width, &mut lanes)
                    }),
                };
                for (column, row) in rows.chunks_exact(n * bytes).enumerate() {
                    self.pick(row, &mut best, &mut buffers);
                    for (place, i) in best.iter().copied().map(position).enumerate() {
                        let slot = (outer * k + place) * inner + first + column;
                        // SAFETY: each lane of the results belongs to one task.
                        let (value, index) = unsafe {
                            (values.part(slot * bytes..(slot + 1) * bytes), indices.part(slot..slot + 1))
                        };
                        value.copy_from_slice(&row[i * bytes..][..bytes]);
                        index[0] = i as i64;
                    }
                }
            }
        });
        Ok(())
    }
}

impl TopKKernel {
    /// Leaves the ranks of the best of a row in `best`, in order; at least one.
    fn pick(&self, row: &[u8], best: &mut Vec<Rank>, buffers: &mut Buffers) {
        match (self.way, &self.bounded) {
            (Way::Sort, _) => self.sort(row, best),
            (_, Some(bounded)) if bounded.select(row, self.op.k, best, buffers) => {}
            _ => self.select(row, best),
        }
    }

    /// Does what [`TopKKernel::pick`] does, in one pass over the row.
    fn select(&self, row: &[u8], best: &mut Vec<Rank>) {
        let (k, bytes) = (self.op.k, self.dtype.block().bytes);
        best.clear();
        let (mut bar, mut start) = (Rank::MAX, 0);
        for block in row.chunks(BLOCK * bytes) {
            if self.may_beat(block, row, bar) {
                let mut orders = [0; BLOCK];
                let orders = &mut orders[..block.len() / bytes];
                (self.order)(self.op.smallest, block, orders);
                let candidates = orders.iter().zip(start..).map(|(&order, i)| rank(order, i));
                best.extend(candidates.filter(|&candidate| candidate < bar));
                if best.len() >= 2 * k + BLOCK {
                    bar = keep(best, k);
                }
            }
            start += block.len() / bytes;
        }
        keep(best, k);
        best.sort_unstable();
    }

    /// Does what [`TopKKernel::pick`] does by sorting the whole row.
    fn sort(&self, row: &[u8], best: &mut Vec<Rank>) {
        let bytes = self.dtype.block().bytes;
        best.clear();
        for (index, block) in row.chunks(BLOCK * bytes).enumerate() {
            let mut orders = [0; BLOCK];
            let orders = &mut orders[..block.len() / bytes];
            (self.order)(self.op.smallest, block, orders);
            best.extend(orders.iter().zip(index * BLOCK..).map(|(&order, i)| rank(order, i)));
        }
        best.sort_unstable();
        best.truncate(self.op.k);
    }

    /// Whether an element of the block may beat the one of the row that is the bar.
    fn may_beat(&self, block: &[u8], row: &[u8], bar: Rank) -> bool {
        let mut any = true;
        if let (Some(variant), Some(bar)) = (self.variant, row.as_chunks::<4>().0.get(position(bar))) {
            // SAFETY: the variant was chosen because this machine has it.
            unsafe {
                (variant.run)(self.op.smallest, block.as_chunks().0, f32::from_ne_bytes(*bar), &mut any);
            }
        }
        any
    }
}

/// The columns `first..first + width` of a plane whose rows have `inner` elements of `N` bytes, each made a row.
fn copy_out<'l, const N: usize>(
    plane: &[u8],
    inner: usize,
    first: usize,
    width: usize,
    lanes: &'l mut Vec<u8>,
) -> &'l [u8] {
    let plane = plane.as_chunks::<N>().0;
    let n = plane.len() / inner;
    lanes.resize(n * width * N, 0);
    let slots = lanes.as_chunks_mut::<N>().0;
    for (i, row) in plane.chunks_exact(inner).enumerate() {
        for (column, x) in row[first..first + width].iter().enumerate() {
            slots[column * n + i] = *x;
        }
    }
    lanes
}

#[inline(always)]
fn may_beat<S: Simd>(_s: S, smallest: bool, values: &[[u8; 4]], bar: f32, any: &mut bool) {
    let value = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
    // Not `<` and `>`, so that NaN is beyond the bar.
    #[expect(clippy::neg_cmp_op_on_partial_ord, reason = "true of NaN")]
    let found = match smallest {
        true => values.iter().fold(false, |any, bytes| any | !(value(bytes) >= bar)),
        false => values.iter().fold(false, |any, bytes| any | !(value(bytes) <= bar)),
    };
    *any = found;
}

/// The orders of some elements.
fn order<T: Key>(smallest: bool, elements: &[u8], orders: &mut [u64]) {
    for (order, bytes) in orders.iter_mut().zip(elements.chunks_exact(size_of::<T>())) {
        let key = bytemuck::pod_read_unaligned::<T>(bytes).key();
        *order = if smallest { key } else { !key };
    }
}

#[cfg(test)]
mod tests {
    use tensor::{bf16, f16};

    use super::*;

    fn check<T: Key>(row: &[T]) {
        check_with(row, 1..=row.len());
    }

    fn check_with<T: Key>(row: &[T], counts: impl IntoIterator<Item = usize>) {
        let (cpu, dtype) = (Cpu::new(1), T::DTYPE);
        for (k, smallest) in counts.into_iter().flat_map(|k| [(k, false), (k, true)]) {
            let op = TopK { k, axis: 0, smallest };
            let positions = |way: Way| {
                let variant = (dtype == DType::F32).then(|| cpu.pick(MAY_BEAT));
                let bounded =
                    (way == Way::Bounded).then(|| Bounded::new(&cpu, dtype, smallest, order::<T>)).flatten();
                let pool = Arc::clone(&cpu.pool);
                let kernel = TopKKernel { op, dtype, way, order: order::<T>, variant, bounded, pool };
                let mut best = Vec::new();
                kernel.pick(bytemuck::cast_slice(row), &mut best, &mut Buffers::default());
                best.into_iter().map(position).collect::<Vec<_>>()
            };
            let selected = positions(Way::Select);
            assert_eq!(positions(Way::Sort), selected, "{op:?} of {row:?}");
            assert_eq!(positions(Way::Bounded), selected, "{op:?} of {row:?}");
            let key = |i: usize| row[i].key();
            assert_eq!(selected.len(), k);
            for pair in selected.windows(2).map(|pair| [pair[0], pair[1]]) {
                let (better, worse) = (key(pair[0]), key(pair[1]));
                let ordered = if better == worse { pair[0] < pair[1] } else { (better < worse) == smallest };
                assert!(ordered, "{op:?} of {row:?}: {selected:?}");
            }
        }
    }

    #[test]
    fn selecting_and_sorting_give_the_same() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let floats = [0.0, -0.0, nan, 1.0, -1.0, inf, -inf, 1.0, nan, 3e-40, -2.5, f32::MAX, 0.0];
        check(&floats);
        check(&floats.map(f64::from));
        check(&floats.map(bf16::from_f32));
        check(&floats.map(f16::from_f32));
        check(&[i64::MIN, -1, 0, 5, i64::MAX, 5, -1]);
        check(&[i8::MIN, -1, 0, 5, i8::MAX, 5, -1]);
        check(&[u64::MAX, 0, 7, 7, 1 << 40, 255, 256]);
        check(&floats.repeat(20));
        check(&(0..200u32).map(|i| i * 7919 % 64).collect::<Vec<_>>());
    }

    #[test]
    fn a_bound_picks_the_same_of_long_rows() {
        const N: usize = 20_007;
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let scattered = |i: usize| (i * 7919 % 10_007) as f32 - 5_000.0;
        let few = |i: usize, number: f32, others: f32| if i % 4_999 == 17 { number } else { others };
        let rows: [&dyn Fn(usize) -> f32; 14] = [
            &scattered,
            &|i| i as f32,
            &|i| -(i as f32),
            &|_| 1.5,
            &|i| (i % 5) as f32,
            &|i| if i % 2 == 0 { 0.0 } else { -0.0 },
            &|_| nan,
            &|_| -inf,
            &|_| inf,
            &|i| few(i, scattered(i), -inf),
            &|i| few(i, nan, inf),
            &|i| few(i, inf, nan),
            &|i| few(i, nan, scattered(i)),
            &|i| few(i, -nan, -inf),
        ];
        for row in rows {
            let row: Vec<f32> = (0..N).map(row).collect();
            let counts = [1, 2, 40, 50, 155, 156, 157];
            check_with(&row, counts);
            check_with(&row.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>(), counts);
            check_with(&row.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>(), counts);
        }
    }
}
