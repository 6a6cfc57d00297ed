//! Rounding shared by the quantizers: extremes, integers from scales, codes from scales and minimums.

/// The value of the largest magnitude, with its sign; the first of several.
pub(super) fn extreme(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |extreme: f32, &value| if value.abs() > extreme.abs() { value } else { extreme })
}

/// The lowest and the highest value.
pub(super) fn range(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
}

/// `1 / x`, or 0 for 0.
pub(super) fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// The integer nearest to a value of at most 2²² in magnitude, halves to even; some integer for others.
///
/// Adding 1.5 · 2²³ leaves no bits for a fraction, so the sum is rounded to an integer, which is its lower bits. This
/// takes one addition on every CPU, where `round_ties_even` takes a call on those without SSE 4.1.
#[inline(always)]
pub(super) fn nearest(value: f32) -> i32 {
    (((value + 12_582_912.0).to_bits() & 0x007f_ffff) as i32) - 0x0040_0000
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
