//! Weights of GPTQ: as blocks of `q4_0` where those hold them, and the product with those that no blocks hold.
//!
//! A permutation of columns, and zero points, are operands of their own, which the packing of a weight does not see. Such
//! weights are read where they lie: a word has 8 columns of one row, and the words of neighbouring rows are neighbours,
//! so a register holds a column of 16 rows. Its codes become weights in f32, which multiply the tokens of a tile. One
//! token is bound by unpacking.
//!
//! A result is one sum over the columns in the order of their storage. Tokens, tiles and threads change no bit.

use std::ops::Range;

use tensor::{AlignedBytes, Bytes, DType, Tensor, f16};

use super::disjoint::Disjoint;
use super::variant::{Variant, variants};
use crate::Pool;
use crate::vec::{LANES, Simd, prefetch, with_scratch};

/// Rows of a panel: neighbours in memory that one chunk of work computes.
const ROWS: usize = 4 * LANES;
/// Tokens of a chunk of work.
const TOKENS: usize = 64;
/// How many words of a row ahead of their use weights are asked for.
const AHEAD: usize = 8;

/// Codes and scales as GPTQ packs them.
#[derive(Clone, Copy)]
pub(crate) struct Weight<'a> {
    /// Words of 8 codes, `[columns / 8, rows]`, then f16 scales, `[groups, rows]`.
    pub(crate) bytes: &'a [u8],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Columns that share a scale.
    pub(crate) group_size: usize,
}

impl Weight<'_> {
    fn groups(&self) -> usize {
        self.columns / self.group_size
    }

    /// The bytes of a word of 8 columns and of those of the rows that follow.
    fn words(&self, word: usize, rows: Range<usize>) -> &[u8] {
        &self.bytes[4 * (word * self.rows + rows.start)..][..4 * rows.len()]
    }

    fn scale(&self, group: usize, row: usize) -> [u8; 2] {
        let start = self.columns / 2 * self.rows + 2 * (group * self.rows + row);
        [self.bytes[start], self.bytes[start + 1]]
    }

    fn check(&self) {
        assert!(self.group_size > 0 && self.columns.is_multiple_of(self.group_size), "gptq: whole groups");
        assert!(self.columns.is_multiple_of(32), "gptq: whole words");
        let expected = (self.columns / 2 + 2 * self.groups()) * self.rows;
        assert_eq!(self.bytes.len(), expected, "gptq: bytes of a weight");
    }
}

/// The weights `[rows, columns]` as `q4_0`, exactly. Groups are multiples of 32 columns.
///
/// # Errors
/// If there is not enough memory.
///
/// # Panics
/// If the bytes are not those of the sizes.
pub(crate) fn to_q4_0(pool: &Pool, weight: Weight<'_>) -> Result<Tensor, tensor::Error> {
    weight.check();
    let block = DType::Q4_0.block().bytes;
    let row_bytes = weight.columns / 32 * block;
    let mut blocks = AlignedBytes::try_zeroed(weight.rows * row_bytes)?;
    if !blocks.is_empty() {
        pool.run_on_pieces(&mut blocks, LANES * row_bytes, &|index, piece| {
            let first = LANES * index;
            let rows = first..first + piece.len() / row_bytes;
            for word in 0..weight.columns / 8 {
                let (group, place) = (8 * word / weight.group_size, word % 4);
                let words = weight.words(word, rows.clone()).as_chunks().0;
                for (row, &codes) in words.iter().enumerate() {
                    let to = &mut piece[row * row_bytes + word / 4 * block..][..block];
                    to[..2].copy_from_slice(&weight.scale(group, first + row));
                    put_codes(u32::from_le_bytes(codes), place, &mut to[2..]);
                }
            }
        });
    }
    Tensor::from_bytes(DType::Q4_0, [weight.rows, weight.columns], Bytes::new(blocks))
}

/// Puts the codes of columns `8 · place..` of a block in its nibbles, which are zero before.
fn put_codes(codes: u32, place: usize, nibbles: &mut [u8]) {
    for (i, to) in nibbles[8 * (place % 2)..][..8].iter_mut().enumerate() {
        *to |= ((codes >> (4 * i) & 15) as u8) << (4 * (place / 2));
    }
}

/// One call with weights that are no blocks.
pub(crate) struct Product<'a> {
    pub(crate) weight: Weight<'a>,
    /// Zero points of 8 rows a word, each less 1: `[groups, rows / 8]`. Without, all are 8.
    pub(crate) zeros: Option<&'a [i32]>,
    /// The group of each stored column.
    pub(crate) group_of: &'a [u32],
    /// [tokens, columns], with columns in the order of their storage
    pub(crate) x: &'a [f32],
}

/// What the threads need.
pub(crate) struct Job<'a> {
    product: &'a Product<'a>,
    /// `[tokens, rows]`
    out: Disjoint<'a, f32>,
}

/// A panel of rows times some tokens. The memory is for its factors. (It comes from outside: code of an instruction set is
/// inlined into its variant, but not into a closure there.)
pub(crate) type Kernel = unsafe fn(&Job<'_>, usize, Range<usize>, &mut [f32]);

variants! {
    /// The instruction sets, fastest first.
    pub(crate) static VARIANTS = panel, (job: &Job<'_>, index: usize, tokens: Range<usize>, memory: &mut [f32])
}

/// Computes `[tokens, rows]`.
///
/// # Panics
/// If sizes do not belong together, or this machine cannot run the variant.
pub(crate) fn multiply(variant: &Variant<Kernel>, pool: &Pool, product: &Product<'_>, out: &mut [f32]) {
    assert!((variant.available)(), "gptq: this machine cannot run {}", variant.name);
    let Weight { rows, columns, .. } = product.weight;
    product.weight.check();
    let groups = product.weight.groups();
    assert_eq!(product.group_of.len(), columns, "gptq: a group for each column");
    assert!(product.group_of.iter().all(|&group| (group as usize) < groups), "gptq: groups");
    assert!(product.zeros.is_none_or(|zeros| zeros.len() * 8 == groups * rows), "gptq: zero points");
    let tokens = out.len().checked_div(rows).unwrap_or(0);
    assert!(out.len() == tokens * rows && product.x.len() == tokens * columns, "gptq: sizes");
    let (panels, blocks) = (rows.div_ceil(ROWS), tokens.div_ceil(TOKENS));
    let job = Job { product, out: Disjoint::new(out) };
    pool.run(panels * blocks, &|chunk| {
        let (panel, block) = (chunk % panels, chunk / panels);
        let tokens = block * TOKENS..tokens.min((block + 1) * TOKENS);
        // SAFETY: the variant is available, and sizes are checked.
        with_scratch(2 * groups * ROWS, |memory| unsafe { (variant.run)(&job, panel, tokens, memory) });
    });
}

/// What the rows of a panel have for each group: scales, then zero points, `[groups, ROWS]` each.
struct Factors<'a> {
    scales: &'a [f32],
    zeros: &'a [f32],
}

#[inline(always)]
fn panel<S: Simd>(s: S, job: &Job<'_>, index: usize, tokens: Range<usize>, memory: &mut [f32]) {
    let weight = job.product.weight;
    let rows = index * ROWS..weight.rows.min((index + 1) * ROWS);
    let (scales, zeros) = memory.split_at_mut(weight.groups() * ROWS);
    fill_factors(job.product, rows.clone(), scales, zeros);
    let factors = Factors { scales, zeros };
    if tokens.len() == 1 && rows.len() == ROWS {
        return tile::<S, { ROWS / LANES }, 1>(s, job, &factors, 0, rows, tokens.start);
    }
    let mut token = tokens.start;
    macro_rules! tiles {
        ($($count:literal),*) => {
            $(while tokens.end - token >= $count && $count * 2 <= S::REGISTERS {
                for lane in (0..rows.len()).step_by(LANES) {
                    let rows = rows.start + lane..rows.end.min(rows.start + lane + LANES);
                    tile::<S, 1, $count>(s, job, &factors, lane, rows, token);
                }
                token += $count;
            })*
        };
    }
    tiles!(8, 4, 2, 1);
}

/// Writes the factors of a panel; zeros beyond the last row.
fn fill_factors(product: &Product<'_>, rows: Range<usize>, scales: &mut [f32], zeros: &mut [f32]) {
    let words = product.weight.rows / 8;
    let groups = scales.chunks_exact_mut(ROWS).zip(zeros.chunks_exact_mut(ROWS));
    for (group, (scales, zeros)) in groups.enumerate() {
        scales.fill(0.0);
        zeros.fill(0.0);
        for (place, row) in rows.clone().enumerate() {
            scales[place] = f16::from_le_bytes(product.weight.scale(group, row)).to_f32();
            zeros[place] = match product.zeros {
                Some(zeros) => (((zeros[group * words + row / 8] >> (4 * (row % 8))) + 1) & 15) as f32,
                None => 8.0,
            };
        }
    }
}

/// `R · 16` rows of a panel, from its row `lane` on, times `T` tokens. A single register may have fewer rows.
#[inline(always)]
fn tile<S: Simd, const R: usize, const T: usize>(
    s: S,
    job: &Job<'_>,
    factors: &Factors<'_>,
    lane: usize,
    rows: Range<usize>,
    token: usize,
) {
    let Product { weight, group_of, x, .. } = *job.product;
    let columns = weight.columns;
    let x: [&[f32]; T] = std::array::from_fn(|t| &x[(token + t) * columns..][..columns]);
    let mut sums = [[s.splat(0.0); R]; T];
    let mut padded = [0u8; 4 * LANES];
    for (word, groups) in group_of.as_chunks::<8>().0.iter().enumerate() {
        let mut words = weight.words(word, rows.clone());
        if R > 1 && word + AHEAD < columns / 8 {
            prefetch(weight.words(word + AHEAD, rows.clone()));
        }
        if words.len() < 4 * LANES {
            padded[..words.len()].copy_from_slice(words);
            words = &padded;
        }
        for (i, &group) in groups.iter().enumerate() {
            for r in 0..R {
                let at = group as usize * ROWS + lane + r * LANES;
                let (scales, zeros) = (&factors.scales[at..][..LANES], &factors.zeros[at..][..LANES]);
                let words = &words[4 * LANES * r..][..4 * LANES];
                // SAFETY: all have sixteen items.
                let (codes, scale, zero) = unsafe {
                    let codes = s.load_nibbles(words.as_ptr(), i as u32);
                    (codes, s.load(scales.as_ptr()), s.load(zeros.as_ptr()))
                };
                let value = s.mul(s.sub(codes, zero), scale);
                for (sums, x) in sums.iter_mut().zip(x) {
                    sums[r] = s.fma(value, s.splat(x[8 * word + i]), sums[r]);
                }
            }
        }
    }
    for (t, sums) in sums.iter().enumerate() {
        for (r, &sum) in sums.iter().enumerate() {
            let first = rows.start + r * LANES;
            let start = (token + t) * weight.rows + first;
            let count = (rows.end - first).min(LANES);
            // SAFETY: chunks of work have rows or tokens of their own, and the part is as long as it says.
            unsafe { s.store_partial(job.out.part(start..start + count).as_mut_ptr(), sum, count) };
        }
    }
}
