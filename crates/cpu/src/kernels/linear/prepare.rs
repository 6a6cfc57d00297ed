//! The prologue: input rows, normalized and converted to what the panels multiply.
//!
//! Tokens come in tiles. A tile interleaves its tokens, so that a panel kernel reads it front to back:
//!
//! | form | for each | bytes per token |
//! |---|---|---|
//! | int8 | 32 columns: codes `[8, T, 4]`, f32 scales `[T]`, corrections `[groups, T]` | 36 + 4 · groups |
//! | f32 | column: `[T]` | 4 |
//! | bf16 | two columns: pairs `[T]`; zeros complete the pairs of an odd last column | 4 |
//!
//! The corrections of int8 say what a group's codes sum to: as `−zero_point · Σ codes` (i32) for weights with a zero
//! point, which starts the integer sum, or as `scale · Σ codes` (f32) for weights with minimums.

use std::ops::Range;

use half::bf16;

use super::simd::{Floats, Isa};
use crate::vec::{LANES, Simd, interleave};

/// How a kernel reads the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InputFormat {
    /// Codes per 32 columns, with corrections for 1 or 2 groups of weights; none means minimums.
    Int8 { groups: usize, zero_point: Option<i32> },
    /// As it is.
    F32,
    /// Rounded to bf16.
    Bf16,
}

impl InputFormat {
    /// The bytes that one token takes.
    pub(super) const fn token_bytes(self, columns: usize) -> usize {
        match self {
            InputFormat::Int8 { groups, .. } => columns / 32 * (36 + 4 * groups),
            InputFormat::F32 => 4 * columns,
            InputFormat::Bf16 => 4 * columns.div_ceil(2),
        }
    }
}

/// The input, and where its conversions go.
pub(super) struct Rows<'a> {
    /// [tokens, columns]
    pub input: &'a [f32],
    pub columns: usize,
    /// Which row of the input each token is; none if they are in order.
    pub sources: Option<&'a [usize]>,
    /// Weight and epsilon of an RMS norm that each row gets first.
    pub norm: Option<(&'a [f32], f32)>,
    /// The forms wanted, each with the start of its first tile.
    pub forms: &'a [(InputFormat, *mut u8)],
}

// SAFETY: each thread that writes through the pointers keeps to a tile and blocks of its own.
unsafe impl Sync for Rows<'_> {}

/// A part of the work: some blocks of 32 columns of the tokens of one tile.
pub(super) struct Tile {
    pub tokens: Range<usize>,
    pub blocks: Range<usize>,
}

/// Converts the rows of a tile.
///
/// # Safety
/// As [`Isa`]; each form has room for all tokens, and no other thread touches this tile's blocks.
#[inline(always)]
pub(super) unsafe fn prepare<I: Isa>(rows: &Rows, tile: &Tile) {
    let (columns, width) = (rows.columns, tile.tokens.len());
    // SAFETY: the caller vouches for the instruction set.
    let s = unsafe { I::lanes() };
    for &(form, start) in rows.forms {
        // SAFETY: the tile starts after its predecessors' tokens; tokens and blocks lie within it.
        unsafe {
            let start = start.add(tile.tokens.start * form.token_bytes(columns));
            match form {
                InputFormat::Int8 { groups, zero_point } => {
                    each_block(s, rows, tile, |lane, block, low, high| {
                        let record = start.add(block * width * (36 + 4 * groups));
                        put_codes::<I>(low, high, groups, zero_point, record.add(4 * lane), width);
                    })
                }
                InputFormat::F32 => put_floats::<_, false>(s, rows, tile, start.cast()),
                InputFormat::Bf16 => put_floats::<_, true>(s, rows, tile, start.cast()),
            }
        }
    }
}

/// Calls `put` with the place in the tile, the block and the normalized values (zeros beyond the row).
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn each_block<S: Simd>(s: S, rows: &Rows, tile: &Tile, put: impl Fn(usize, usize, S::F32, S::F32)) {
    for (lane, token) in tile.tokens.clone().enumerate() {
        let row = Row::of(s, rows, token);
        for block in tile.blocks.clone() {
            // SAFETY: passed on to the caller.
            let (low, high) = unsafe { row.block(s, block) };
            put(lane, block, low, high);
        }
    }
}

/// A row of the input, and the weight and the factor of its norm.
#[derive(Clone, Copy)]
struct Row<'a, F> {
    values: &'a [f32],
    norm: Option<(&'a [f32], F)>,
}

impl<'a, F: Copy> Row<'a, F> {
    #[inline(always)]
    fn of<S: Simd<F32 = F>>(s: S, rows: &Rows<'a>, token: usize) -> Row<'a, F> {
        let source = rows.sources.map_or(token, |sources| sources[token]);
        let values = &rows.input[source * rows.columns..][..rows.columns];
        let factor = |eps: f32| s.splat(1.0 / (mean_square(s, values) + eps).sqrt());
        Row { values, norm: rows.norm.map(|(weight, eps)| (weight, factor(eps))) }
    }

    /// 32 normalized values, zeros beyond the row.
    ///
    /// # Safety
    /// As [`Isa`].
    #[inline(always)]
    unsafe fn block<S: Simd<F32 = F>>(&self, s: S, block: usize) -> (F, F) {
        let range = 32 * block..self.values.len().min(32 * (block + 1));
        // SAFETY: a block begins within the row; `load` reads only what is left of it.
        unsafe {
            let values = &self.values[range.clone()];
            let (mut low, mut high) = (load(s, values, 0), load(s, values, LANES));
            if let Some((weight, factor)) = self.norm {
                low = s.mul(s.mul(low, factor), load(s, &weight[range.clone()], 0));
                high = s.mul(s.mul(high, factor), load(s, &weight[range], LANES));
            }
            (low, high)
        }
    }
}

/// 16 of up to 32 values, from `first` on; zeros where there are fewer.
///
/// # Safety
/// As [`Isa`].
#[inline(always)]
unsafe fn load<S: Simd>(s: S, values: &[f32], first: usize) -> S::F32 {
    // SAFETY: as many values are read as there are.
    unsafe {
        match values.len() {
            32 => s.load(values.as_ptr().add(first)),
            len => s.load_partial(values.as_ptr().add(first.min(len)), len.saturating_sub(first).min(16)),
        }
    }
}

/// The mean of the squares, summed in the order of [`norm`](crate::kernels::norm): a layer gives the same bits with its
/// norm fused as with the norm before it.
#[inline(always)]
pub(super) fn mean_square<S: Simd>(s: S, row: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    let mut groups = row.chunks_exact(64);
    for group in &mut groups {
        for (index, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a group has four times sixteen values.
            let value = unsafe { s.load(group.as_ptr().add(16 * index)) };
            *sum = s.fma(value, value, *sum);
        }
    }
    for (chunk, sum) in groups.remainder().chunks(16).zip(&mut sums) {
        let value = s.load_slice(chunk);
        *sum = s.fma(value, value, *sum);
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))) / row.len() as f32
}

/// Stores 32 values as codes, from one token's place in the first register of a record of `width` tokens on.
#[inline(always)]
unsafe fn put_codes<I: Isa>(
    low: Floats<I>,
    high: Floats<I>,
    groups: usize,
    zero_point: Option<i32>,
    to: *mut u8,
    width: usize,
) {
    // SAFETY: the record has room for `width` tokens.
    unsafe {
        let quantized = I::quantize(low, high);
        for (step, codes) in quantized.codes.as_chunks::<4>().0.iter().enumerate() {
            to.add(4 * step * width).cast::<[u8; 4]>().write_unaligned(*codes);
        }
        let factors = to.add(32 * width);
        factors.cast::<f32>().write_unaligned(quantized.scale);
        let [first, last] = quantized.sums;
        let sums = if groups == 1 { [first + last, 0] } else { [first, last] };
        for (group, &sum) in sums[..groups].iter().enumerate() {
            let correction = factors.add(4 * width * (1 + group));
            match zero_point {
                Some(zero_point) => correction.cast::<i32>().write_unaligned(-zero_point * sum),
                None => correction.cast::<f32>().write_unaligned(quantized.scale * sum as f32),
            }
        }
    }
}

/// Interleaves the blocks of a tile, whose first value is at `to`, four tokens at a time: the last four take the place of
/// fewer. With `PAIRS`, a value is the bits of two neighbours in bf16.
///
/// # Safety
/// As [`prepare`].
#[inline(always)]
unsafe fn put_floats<S: Simd, const PAIRS: bool>(s: S, rows: &Rows, tile: &Tile, to: *mut f32) {
    let (width, neighbours) = (tile.tokens.len(), if PAIRS { 2 } else { 1 });
    for first in (0..width).step_by(4) {
        let first = first.min(width.saturating_sub(4));
        let count = width.min(4);
        let mut group = [Row::of(s, rows, tile.tokens.start + first); 4];
        for (lane, row) in group.iter_mut().enumerate().take(count).skip(1) {
            *row = Row::of(s, rows, tile.tokens.start + first + lane);
        }
        for block in tile.blocks.clone() {
            let mut values = [[0f32; 32]; 4];
            for (row, values) in group.iter().zip(&mut values).take(count) {
                // SAFETY: the caller vouches for the instruction set, and there is room for two vectors.
                unsafe {
                    let (low, high) = row.block(s, block);
                    s.store(values.as_mut_ptr(), low);
                    s.store(values.as_mut_ptr().add(LANES), high);
                }
                if PAIRS {
                    join_neighbours(values);
                }
            }
            let columns = 32.min(rows.columns - 32 * block).div_ceil(neighbours);
            // SAFETY: these columns of these tokens lie in the tile, and are this thread's.
            let to = unsafe {
                let start = to.add(32 / neighbours * block * width + first);
                std::slice::from_raw_parts_mut(start, (columns - 1) * width + count)
            };
            put_columns(&values, columns, to, width);
        }
    }
}

/// Writes some columns of up to four tokens of a tile of `width`.
#[inline(always)]
fn put_columns(values: &[[f32; 32]; 4], columns: usize, to: &mut [f32], width: usize) {
    if width >= 4 {
        return interleave(values.each_ref().map(|values| &values[..columns]), to, width);
    }
    for (column, to) in to.chunks_mut(width).enumerate() {
        for (to, values) in to.iter_mut().zip(values) {
            *to = values[column];
        }
    }
}

/// Rounds 32 values to bf16, and stores each pair of neighbours in the bits of one of the first 16.
#[inline(always)]
fn join_neighbours(values: &mut [f32; 32]) {
    for index in 0..16 {
        let pair = [values[2 * index], values[2 * index + 1]].map(bf16::from_f32);
        values[index] = bytemuck::cast(pair);
    }
}
