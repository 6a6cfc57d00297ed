//! Random blocks for tests and benches: every code and every group scale occurs, and weights stay small.

use super::block::Format;
use super::{dequantize, format, unpack};
use crate::DType;

/// `count` random blocks, the same for the same arguments. For tests and benches.
///
/// All packed integers are uniformly random. Scales, some of them negative, are such that a block's products
/// `scale · code` and its minimums reach between 0.25 and 0.75 in magnitude.
///
/// # Panics
/// If `dtype` is no block format.
pub fn random_blocks(dtype: DType, count: usize, seed: u64) -> Vec<u8> {
    let format = format(dtype).unwrap_or_else(|| panic!("{dtype} is no block format"));
    let mut state = seed;
    let mut bytes: Vec<u8> = (0..count * dtype.block().bytes).map(|_| random(&mut state) as u8).collect();
    for block in bytes.chunks_exact_mut(dtype.block().bytes) {
        format.scales.iter().for_each(|scale| scale.put(block, 1.0));
        let largest = largest_term(format, block);
        for scale in format.scales {
            let sign = if random(&mut state).is_multiple_of(8) { -1.0 } else { 1.0 };
            let reach = 0.25 + random(&mut state) as f32 / u32::MAX as f32 / 2.0;
            scale.put(block, sign * reach / largest);
        }
    }
    bytes
}

/// The largest magnitude among products and minimums, at least 1.
fn largest_term(format: Format, block: &[u8]) -> f32 {
    let elements = format.dtype.block().elements;
    if !format.has_integers() {
        let mut weights = vec![0.0; elements];
        dequantize(format.dtype, block, &mut weights);
        return weights.iter().fold(1.0, |largest: f32, weight| largest.max(weight.abs()));
    }
    let groups = elements / format.group;
    let (mut codes, mut scales, mut minimums) = (vec![0; elements], vec![0.0; groups], vec![0.0; groups]);
    unpack(format.dtype, block, &mut codes, &mut scales, &mut minimums);
    let products = codes.iter().enumerate().map(|(i, &code)| scales[i / format.group] * f32::from(code));
    products.chain(minimums.iter().copied()).fold(1.0, |largest: f32, term| largest.max(term.abs()))
}

/// The upper half of the next number of SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 32) as u32
}
