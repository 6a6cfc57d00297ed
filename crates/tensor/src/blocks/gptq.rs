//! `gptq`: 32 weights of 4 bits with one scale and one zero point, in 19 bytes: what checkpoints of GPTQ
//! (Frantar et al., 2022, <https://arxiv.org/abs/2210.17323>) are repacked into, row by row. No file stores these blocks.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2 | `z`, u8 |
//! | 3..19 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · (nibble − z)`; the minimum that is subtracted is `d · z`, which has at most 19 bits. So weights are exact.

use std::ops::Range;

use half::f16;

use super::block::{
    Format, Groups, Importance, Scale, field, half_at, pack_nibbles, put_half, unpack_nibbles,
};
use super::rounding::{inverse, range};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Gptq.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Gptq.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Gptq, group: 32, minimums: true, codes: (0, 15), scales: &[Scale::F16(0)] };

/// Codes 0 to 15, one scale and one minimum.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let mut codes = [0; ELEMENTS];
    unpack_nibbles(field::<16>(block, 3), &mut codes);
    let scale = half_at(block, 0);
    Groups { codes, scales: [scale], minimums: [scale * f32::from(block[2])] }
}

/// The range of the values, widened to hold 0, is cut into 15 steps, as GPTQ does it. Both ends may be off by half a step.
/// Importance changes nothing.
pub fn quantize(
    values: &[f32; ELEMENTS],
    _importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let (low, high) = range(values);
    let scale = put_half(block, 0, (high.max(0.0) - low.min(0.0)) / 15.0);
    let inverse = inverse(scale);
    let zero = (-low.min(0.0) * inverse).round().clamp(0.0, 15.0);
    block[2] = zero as u8;
    let codes = values.map(|value| ((value * inverse).round() + zero).clamp(0.0, 15.0) as u8);
    pack_nibbles(&codes, &mut block[3..]);
}

/// A matrix of 4-bit weights as GPTQ stores it: rows lie side by side, 8 columns of each in a word.
#[derive(Clone, Copy)]
pub struct GptqMatrix<'a> {
    /// The words of `qweight: [columns / 8, rows]`: code `i`, from the lowest bits on, is that of column `8 · word + i`.
    pub codes: &'a [u8],
    /// `scales: [groups, rows]`
    pub scales: &'a [f16],
    /// Zero points `[groups, rows / 8]`, 8 rows to a word. Without them, all are 8.
    pub zeros: Option<&'a [u32]>,
    /// The number of rows.
    pub rows: usize,
    /// The group of each 32 columns.
    pub groups: &'a [u32],
    /// The stored column at each place, unless they lie in the order of their groups.
    pub order: Option<&'a [u32]>,
}

impl GptqMatrix<'_> {
    /// Rows that are worth repacking together: their blocks stay in the second-level cache.
    pub const ROWS: usize = 64;

    /// The format of the blocks that hold these weights exactly.
    pub fn dtype(&self) -> DType {
        if self.zeros.is_some() { DType::Gptq } else { DType::Q4_0 }
    }

    /// The bytes of a row of blocks.
    pub fn row_bytes(&self) -> usize {
        self.groups.len() * self.dtype().block().bytes
    }

    /// Writes the blocks of the rows from `first` on, as many as `blocks` has room for.
    ///
    /// # Panics
    /// If a row, a group or a column is not stored.
    pub fn repack(&self, first: usize, blocks: &mut [u8]) {
        let (block_bytes, row_bytes) = (self.dtype().block().bytes, self.row_bytes());
        if row_bytes == 0 {
            return;
        }
        for (tile, blocks) in blocks.chunks_mut(Self::ROWS * row_bytes).enumerate() {
            let first = first + tile * Self::ROWS;
            let rows = first..first + blocks.len() / row_bytes;
            for (index, &group) in self.groups.iter().enumerate() {
                let nibbles = self.nibbles(index, rows.clone());
                for ((row, nibbles), blocks) in
                    rows.clone().zip(nibbles).zip(blocks.chunks_exact_mut(row_bytes))
                {
                    let block = &mut blocks[index * block_bytes..][..block_bytes];
                    let (head, codes) = block.split_at_mut(block_bytes - ELEMENTS / 2);
                    head[..2].copy_from_slice(&self.scales[group as usize * self.rows + row].to_le_bytes());
                    if let Some(zeros) = self.zeros {
                        let word = zeros[group as usize * (self.rows / 8) + row / 8];
                        head[2] = (word >> (4 * (row % 8)) & 15) as u8;
                    }
                    codes.copy_from_slice(&nibbles);
                }
            }
        }
    }

    /// The codes of 32 columns of some rows, as blocks hold them: byte `i` has columns `i` and `16 + i`.
    fn nibbles(&self, block: usize, rows: Range<usize>) -> [[u8; 16]; GptqMatrix::ROWS] {
        let mut nibbles = [[0; 16]; GptqMatrix::ROWS];
        for place in 0..ELEMENTS {
            let column = ELEMENTS * block + place;
            let column = self.order.map_or(column, |order| order[column] as usize);
            let words = &self.codes[4 * (column / 8 * self.rows + rows.start)..][..4 * rows.len()];
            let (from, to) = (4 * (column as u32 % 8), 4 * (place / 16));
            for (nibbles, &word) in nibbles.iter_mut().zip(words.as_chunks().0) {
                nibbles[place % 16] |= ((u32::from_le_bytes(word) >> from & 15) as u8) << to;
            }
        }
        nibbles
    }
}
