//! `iq4_nl`: 32 weights of 4 bits on uneven levels with one scale, in 18 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | `d`, f16 |
//! | 2..18 | byte `i`: weight `i` in the low nibble, weight `16 + i` in the high one |
//!
//! `weight = d · LEVELS[nibble]`

use super::block::{
    Format, Groups, Importance, Scale, field, half_at, pack_nibbles, put_half, unpack_nibbles,
};
use super::rounding::{extreme, inverse, square_sum};
use super::search::{NEGLIGIBLE, costs};
use crate::DType;

/// Bytes of a block.
pub const BYTES: usize = DType::Iq4Nl.block().bytes;
/// Weights of a block.
pub const ELEMENTS: usize = DType::Iq4Nl.block().elements;
/// The format in numbers.
pub const FORMAT: Format =
    Format { dtype: DType::Iq4Nl, group: 32, minimums: false, codes: (-127, 113), scales: &[Scale::F16(0)] };

/// What the 16 nibbles mean: finer near zero, as weights are. Part of the GGML format.
pub const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Codes among [`LEVELS`], and one scale.
#[inline]
pub fn unpack(block: &[u8; BYTES]) -> Groups<ELEMENTS, 1> {
    let mut codes = [0; ELEMENTS];
    unpack_levels(field(block, 2), &mut codes);
    Groups { codes, scales: [half_at(block, 0)], minimums: [0.0] }
}

/// The scale of least cost, and the levels nearest to it. Without importance, errors cost by the square of their value.
pub fn quantize(
    values: &[f32; ELEMENTS],
    importance: Option<Importance<'_, ELEMENTS>>,
    block: &mut [u8; BYTES],
) {
    let columns = importance.map(|importance| &importance.columns[..]);
    let scale = search_levels(values, columns, square_sum(values) * (2.0 / 32.0));
    put_half(block, 0, scale);
    pack_levels(values, scale, &mut block[2..]);
}

/// The levels of 32 nibbles.
#[inline(always)]
pub(super) fn unpack_levels(packed: &[u8; 16], codes: &mut [i8; 32]) {
    unpack_nibbles(packed, codes);
    for code in codes {
        *code = LEVELS[usize::from(*code as u8 & 15)];
    }
}

/// The nibble of the level nearest to a value; of two, the higher.
#[inline(always)]
fn nibble(value: f32) -> u8 {
    // The number of midpoints between neighbouring levels that the value has reached. Doubled, both are exact.
    LEVELS
        .windows(2)
        .filter(|pair| value + value >= f32::from(i16::from(pair[0]) + i16::from(pair[1])))
        .count() as u8
}

/// Stores the nibble of the level nearest to each of 32 values.
pub(super) fn pack_levels(values: &[f32; 32], scale: f32, packed: &mut [u8]) {
    let inverse = inverse(scale);
    pack_nibbles(&values.map(|value| nibble(value * inverse)), packed);
}

/// The scale of least cost for 32 values: the extreme one is tried near each level from −127 ± 7 on. `spread` is the
/// mean square of the surroundings, times 2.
pub(super) fn search_levels(values: &[f32; 32], columns: Option<&[f32]>, spread: f32) -> f32 {
    let costs = match columns {
        Some(columns) => costs(values, columns, spread),
        None => values.map(|value| value * value),
    };
    let extreme = extreme(values);
    if extreme.abs() < NEGLIGIBLE {
        return 0.0;
    }
    let sums = |inverse: f32| {
        let (mut products, mut squares) = (0.0, 0.0);
        for (value, cost) in values.iter().zip(&costs) {
            let level = f32::from(LEVELS[usize::from(nibble(inverse * value))]);
            products += cost * level * value;
            squares += cost * level * level;
        }
        (products, squares)
    };
    let lowest = f32::from(LEVELS[0]);
    let (products, squares) = sums(1.0 / (-extreme / lowest));
    let mut scale = if squares > 0.0 { products / squares } else { 0.0 };
    let mut best = scale * products;
    for step in -7..=7 {
        let (products, squares) = sums((step as f32 + lowest) / extreme);
        if squares > 0.0 && products * products > best * squares {
            scale = products / squares;
            best = scale * products;
        }
    }
    scale
}
