//! Extremes, sums and nearest integers: what quantizers and searches for scales have in common.

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

/// The sum of squares.
pub(super) fn square_sum(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |sum, value| sum + value * value)
}
