//! Helpers of all quantizers: round scales to integers, and compute codes from scales and minimums.

use super::block::{Importance, put_half};
use super::rounding::{extreme, inverse, nearest, range};
use super::search::{Steps, affine, costs, multiples, symmetric};

/// Codes of 32 values from 0 to `2 · limit - 1`, which stand for `-limit..limit`; the scale goes to the start of the block.
/// The extreme value gets the lowest code, halves are rounded up; or, where importance is known, the scale of least cost
/// is searched.
#[inline(always)]
pub(super) fn symmetric_codes(
    values: &[f32; 32],
    importance: Option<Importance<'_, 32>>,
    limit: i32,
    block: &mut [u8],
) -> [u8; 32] {
    if let Some(Importance { columns, row }) = importance {
        let mut codes = [0; 32];
        let scale = symmetric(values, &costs::<32>(values, columns, row), limit, &mut codes);
        put_half(block, 0, scale);
        return codes;
    }
    let limit = limit as f32;
    let scale = extreme(values) / -limit;
    let inverse = inverse(scale);
    put_half(block, 0, scale);
    values.map(|value| (value * inverse + (limit + 0.5)).min(2.0 * limit - 1.0) as u8)
}

/// Codes of 32 values from 0 to `highest`; scale and offset go to the start of the block. The lowest value gets the code 0
/// and the highest `highest`, halves are rounded up; or, where importance is known, scale and offset of least cost are
/// searched.
#[inline(always)]
pub(super) fn affine_codes(
    values: &[f32; 32],
    importance: Option<Importance<'_, 32>>,
    highest: i32,
    block: &mut [u8],
) -> [u8; 32] {
    if let Some(Importance { columns, row }) = importance {
        let mut codes = [0; 32];
        let costs = costs::<32>(values, columns, row);
        let (scale, minimum) = affine(values, &costs, highest, Steps::FINE, &mut codes);
        put_half(block, 0, scale);
        put_half(block, 2, -minimum);
        return codes;
    }
    let (low, high) = range(values);
    let scale = (high - low) / highest as f32;
    let inverse = inverse(scale);
    put_half(block, 0, scale);
    put_half(block, 2, low);
    values.map(|value| ((value - low) * inverse + 0.5).min(highest as f32) as u8)
}

/// Codes, and the scales and minimums of groups as multiples of the block's two f16.
pub(super) struct Affine<const ELEMENTS: usize, const GROUPS: usize> {
    pub(super) codes: [u8; ELEMENTS],
    pub(super) scales: [u8; GROUPS],
    pub(super) minimums: [u8; GROUPS],
}

/// Scales and minimums of least cost of groups of `SIZE` values, rounded to multiples up to `largest` of two f16, which go
/// to `halves` of the block, and the codes nearest to those. `spread` is the mean square that [`costs`] asks for;
/// `cost` gives the costs of a group without importance.
#[inline(always)]
pub(super) fn affine_groups<const SIZE: usize, const GROUPS: usize>(
    values: &[f32; 256],
    (importance, spread): (Option<Importance<'_, 256>>, f32),
    (cost, steps): (impl Fn(&[f32; SIZE]) -> [f32; SIZE], Steps),
    (range, largest): ((i8, i8), i32),
    (block, halves): (&mut [u8], usize),
) -> Affine<256, GROUPS> {
    let mut codes = [0; 256];
    let (mut scales, mut minimums, mut weights) = ([0.0; GROUPS], [0.0; GROUPS], [0.0; GROUPS]);
    let groups = values.as_chunks::<SIZE>().0.iter().zip(codes.as_chunks_mut::<SIZE>().0);
    for (group, (values, codes)) in groups.enumerate() {
        let (costs, steps) = match importance {
            None => (cost(values), steps),
            Some(Importance { columns, .. }) => {
                (costs(values, &columns[SIZE * group..], spread), Steps::FINE)
            }
        };
        (scales[group], minimums[group]) = affine(values, &costs, range.1.into(), steps, codes);
        weights[group] = costs.iter().fold(0.0, |sum, cost| sum + cost);
    }
    let [(d, scales), (dmin, minimums)] = match importance {
        None => [whole_multiples(&scales, largest), whole_multiples(&minimums, largest)],
        Some(_) => [multiples(&scales, &weights, largest), multiples(&minimums, &weights, largest)],
    };
    let (d, dmin) = (put_half(block, halves, d), put_half(block, halves + 2, dmin));
    let rounded = |multiples: [u8; GROUPS], unit: f32| multiples.map(|multiple| unit * f32::from(multiple));
    recode(values, &rounded(scales, d), &rounded(minimums, dmin), range, &mut codes);
    Affine { codes, scales, minimums }
}

/// The unit of which the largest value is `highest` times, and the multiples of it nearest to all values. Values of 0 and
/// less become 0.
pub(super) fn whole_multiples<const N: usize>(values: &[f32; N], highest: i32) -> (f32, [u8; N]) {
    let largest = values.iter().fold(0.0, |largest: f32, &value| largest.max(value));
    if largest == 0.0 {
        return (0.0, [0; N]);
    }
    let inverse = highest as f32 / largest;
    (largest / highest as f32, values.map(|value| nearest(inverse * value).clamp(0, highest) as u8))
}

/// The unit of which the extreme value is `-limit` times, and the multiples of it nearest to all values, each more by
/// `limit`.
pub(super) fn extreme_multiples<const N: usize>(
    values: &[f32; N],
    limit: i32,
    multiples: &mut [u8; N],
) -> f32 {
    let extreme = extreme(values);
    if extreme == 0.0 {
        return 0.0;
    }
    let inverse = -(limit as f32) / extreme;
    *multiples = values.map(|value| (nearest(inverse * value).clamp(-limit, limit - 1) + limit) as u8);
    1.0 / inverse
}

/// The code of each value under the scale and minimum of its group, less the lowest code. In groups whose scale is 0
/// codes stay as they are.
pub(super) fn recode<const ELEMENTS: usize, const GROUPS: usize>(
    values: &[f32; ELEMENTS],
    scales: &[f32; GROUPS],
    minimums: &[f32; GROUPS],
    (low, high): (i8, i8),
    codes: &mut [u8; ELEMENTS],
) {
    let (low, high) = (i32::from(low), i32::from(high));
    let size = const { ELEMENTS / GROUPS };
    let groups = values.chunks_exact(size).zip(codes.chunks_exact_mut(size));
    for ((values, codes), (&scale, minimum)) in groups.zip(scales.iter().zip(minimums)) {
        if scale == 0.0 {
            continue;
        }
        for (code, value) in codes.iter_mut().zip(values) {
            *code = (nearest((value + minimum) / scale).clamp(low, high) - low) as u8;
        }
    }
}
