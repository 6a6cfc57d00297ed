//! The k largest, or smallest, of a row by a bound: the k-th best of the maxima of spans.
//!
//! 1. **Maxima** of spans, without branches. Bound by memory.
//! 2. **Bound**: at least k elements are as good as the k-th best maximum, so that the k best of the row are among those.
//! 3. **Choice** among the elements that reach the bound. For a small k these lie in few spans, and the others are not
//!    read again.
//!
//! What it costs hardly depends on the order of a row. A selection in one pass, whose bar rises as it goes, looks closely
//! at every part of a row that rises.

use tensor::{DType, bf16, f16};

use super::rank::{Rank, keep, position, rank};
use crate::Cpu;
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Scalar, Simd};

/// Elements that are looked at together; spans are multiples of it.
const BLOCK: usize = 4 * LANES;
/// The longest span, in blocks.
const MOST_BLOCKS: usize = 8;
/// Spans for each element of the result from which longer spans still tell enough elements apart.
const SPANS_EACH: usize = 8;

variants! { static F32 = find::<_, f32>, (smallest: bool, task: Task<'_>) }
variants! { static F16 = find::<_, f16>, (smallest: bool, task: Task<'_>) }
variants! { static BF16 = find::<_, bf16>, (smallest: bool, task: Task<'_>) }

type Find = unsafe fn(bool, Task<'_>);

/// What is looked for in elements. A *score* is an element as f32, negated if the smallest are wanted, so that the higher
/// one is better; NaN has the score of the infinity next to it.
enum Task<'a> {
    /// The highest score of each span of so many elements.
    Maxima { row: &'a [u8], span: usize, maxima: &'a mut [f32] },
    /// The positions of elements whose scores reach a bound.
    Reaching { span: &'a [u8], bound: f32, found: &'a mut Vec<usize> },
}

/// Selects from rows of one dtype by a bound.
pub(super) struct Bounded {
    variant: &'static Variant<Find>,
    smallest: bool,
    bytes: usize,
    /// The order of an element, as in [`super::top_k`].
    order: fn(bool, &[u8], &mut [u64]),
    score: fn(bool, &[u8]) -> f32,
}

/// Memory that is reused from row to row.
#[derive(Default)]
pub(super) struct Buffers {
    maxima: Vec<f32>,
    sorted: Vec<f32>,
    found: Vec<usize>,
}

impl Bounded {
    /// `None` for a dtype whose values f32 does not hold exactly.
    pub(super) fn new(
        cpu: &Cpu,
        dtype: DType,
        smallest: bool,
        order: fn(bool, &[u8], &mut [u64]),
    ) -> Option<Bounded> {
        let (variants, score): (_, fn(bool, &[u8]) -> f32) = match dtype {
            DType::F32 => (F32, score_of::<f32>),
            DType::F16 => (F16, score_of::<f16>),
            DType::BF16 => (BF16, score_of::<bf16>),
            _ => return None,
        };
        Some(Bounded { variant: cpu.pick(variants), smallest, bytes: dtype.block().bytes, order, score })
    }

    /// The instruction set.
    pub(super) fn variant(&self) -> &'static str {
        self.variant.name
    }

    /// Leaves the ranks of the `k` best of a row in `best`, in order. Does nothing and returns false if the row is too
    /// short for a bound to leave elements out, or lies at an odd address.
    pub(super) fn select(&self, row: &[u8], k: usize, best: &mut Vec<Rank>, buffers: &mut Buffers) -> bool {
        let n = row.len() / self.bytes;
        if n / BLOCK < 2 * k || !row.as_ptr().addr().is_multiple_of(self.bytes) {
            return false;
        }
        let blocks = (n / (BLOCK * SPANS_EACH * k)).clamp(1, MOST_BLOCKS);
        let (span, Buffers { maxima, sorted, found }) = (blocks * BLOCK, buffers);
        maxima.resize(n.div_ceil(span), 0.0);
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (self.variant.run)(self.smallest, Task::Maxima { row, span, maxima }) };
        sorted.clone_from(maxima);
        let mut bound = *sorted.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1;
        let (mut bar, mut is_raised) = (Rank::MAX, false);
        best.clear();
        let spans = row.chunks(span * self.bytes);
        for ((start, span), &maximum) in (0..n).step_by(span).zip(spans).zip(&*maxima) {
            // Once k are known, an equal one further on loses; what has the score of NaN may be another.
            let is_equal = is_raised && maximum == bound && maximum != nan_score(self.smallest);
            if maximum < bound || is_equal {
                continue;
            }
            found.clear();
            // SAFETY: as above.
            unsafe { (self.variant.run)(self.smallest, Task::Reaching { span, bound, found }) };
            for &i in &*found {
                let mut order = [0];
                (self.order)(self.smallest, &span[i * self.bytes..][..self.bytes], &mut order);
                let candidate = rank(order[0], start + i);
                if candidate < bar {
                    best.push(candidate);
                }
            }
            if best.len() >= 2 * k + BLOCK {
                (bar, is_raised) = (keep(best, k), true);
                bound = (self.score)(self.smallest, &row[position(bar) * self.bytes..][..self.bytes]);
            }
        }
        keep(best, k);
        best.sort_unstable();
        true
    }
}

/// The score of NaN, which is above all numbers.
fn nan_score(smallest: bool) -> f32 {
    if smallest { f32::NEG_INFINITY } else { f32::INFINITY }
}

fn score(smallest: bool, x: f32) -> f32 {
    match x {
        _ if x.is_nan() => nan_score(smallest),
        _ if smallest => -x,
        _ => x,
    }
}

fn score_of<T: Scalar + bytemuck::AnyBitPattern>(smallest: bool, element: &[u8]) -> f32 {
    score(smallest, bytemuck::pod_read_unaligned::<T>(element).to_f32())
}

#[inline(always)]
fn find<S: Simd, T: Scalar + bytemuck::AnyBitPattern + bytemuck::NoUninit>(
    s: S,
    smallest: bool,
    task: Task<'_>,
) {
    match (smallest, task) {
        (false, Task::Maxima { row, span, maxima }) => {
            find_maxima::<S, T, false>(s, bytemuck::cast_slice(row), span, maxima);
        }
        (true, Task::Maxima { row, span, maxima }) => {
            find_maxima::<S, T, true>(s, bytemuck::cast_slice(row), span, maxima);
        }
        (false, Task::Reaching { span, bound, found }) => {
            find_reaching::<S, T, false>(s, bytemuck::cast_slice(span), bound, found);
        }
        (true, Task::Reaching { span, bound, found }) => {
            find_reaching::<S, T, true>(s, bytemuck::cast_slice(span), bound, found);
        }
    }
}

#[inline(always)]
fn find_maxima<S: Simd, T: Scalar, const SMALLEST: bool>(s: S, row: &[T], span: usize, maxima: &mut [f32]) {
    for (span, maximum) in row.chunks(span).zip(maxima) {
        let mut highest = [s.splat(f32::NEG_INFINITY); 4];
        let (blocks, rest) = span.as_chunks::<BLOCK>();
        for block in blocks {
            let scores = block_scores::<S, T, SMALLEST>(s, block);
            for (i, highest) in highest.iter_mut().enumerate() {
                *highest = s.max(*highest, scores[i]);
            }
        }
        let rest = rest.iter().map(|x| score(SMALLEST, x.to_f32()));
        *maximum = rest.fold(highest_of(s, highest), f32::max);
    }
}

#[inline(always)]
fn find_reaching<S: Simd, T: Scalar, const SMALLEST: bool>(
    s: S,
    span: &[T],
    bound: f32,
    found: &mut Vec<usize>,
) {
    let (blocks, rest) = span.as_chunks::<BLOCK>();
    for (first, block) in (0..).step_by(BLOCK).zip(blocks) {
        let scores = block_scores::<S, T, SMALLEST>(s, block);
        if highest_of(s, scores) >= bound {
            for (i, scores) in scores.iter().enumerate() {
                let scores = (first + i * LANES..).zip(s.to_array(*scores));
                found.extend(scores.filter(|&(_, score)| score >= bound).map(|(i, _)| i));
            }
        }
    }
    let rest = (blocks.len() * BLOCK..).zip(rest.iter().map(|x| score(SMALLEST, x.to_f32())));
    found.extend(rest.filter(|&(_, score)| score >= bound).map(|(i, _)| i));
}

#[inline(always)]
fn block_scores<S: Simd, T: Scalar, const SMALLEST: bool>(s: S, block: &[T; BLOCK]) -> [S::F32; 4] {
    let nan = s.splat(nan_score(SMALLEST));
    let mut scores = [nan; 4];
    // A closure would be compiled without the instruction set, so this is a loop.
    for (i, score) in scores.iter_mut().enumerate() {
        // SAFETY: a block has four vectors.
        let x = unsafe { T::load(s, block.as_ptr().add(i * LANES)) };
        *score = if SMALLEST {
            let x = s.mul(x, s.splat(-1.0));
            s.select(s.less(nan, x), x, nan)
        } else {
            s.select(s.less(x, nan), x, nan)
        };
    }
    scores
}

#[inline(always)]
fn highest_of<S: Simd>(s: S, [a, b, c, d]: [S::F32; 4]) -> f32 {
    s.largest(s.max(s.max(a, b), s.max(c, d)))
}
