//! Rounding shared by the quantizers: scales from extremes, integers from scales.

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

/// The multiple of `unit` nearest to each value, within `low..=high`; halves are rounded away from zero.
pub(super) fn multiples<const N: usize>(values: &[f32; N], unit: f32, (low, high): (i8, i8)) -> [i8; N] {
    let inverse = inverse(unit);
    values.map(|value| (value * inverse).round().clamp(low.into(), high.into()) as i8)
}

/// The code of each value under the scale and minimum of its group.
pub(super) fn codes<const ELEMENTS: usize, const GROUPS: usize>(
    values: &[f32; ELEMENTS],
    scales: &[f32; GROUPS],
    minimums: &[f32; GROUPS],
    range: (i8, i8),
) -> [i8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    for (index, (code, value)) in codes.iter_mut().zip(values).enumerate() {
        let group = index / (ELEMENTS / GROUPS);
        [*code] = multiples(&[value + minimums[group]], scales[group], range);
    }
    codes
}

/// Scales and minimums of groups, so that the codes 0 to `highest` span each group's values and 0.
///
/// Minimums are stored unsigned, so a group of positive values has none.
pub(super) fn spans<const GROUPS: usize>(values: &[f32], highest: i8) -> ([f32; GROUPS], [f32; GROUPS]) {
    let (mut scales, mut minimums) = ([0.0; GROUPS], [0.0; GROUPS]);
    for (index, group) in values.chunks_exact(values.len() / GROUPS).enumerate() {
        let (low, high) = range(group);
        minimums[index] = (-low).max(0.0);
        scales[index] = (high + minimums[index]) / f32::from(highest);
    }
    (scales, minimums)
}

/// Scales of groups, so that the extreme value of each gets the code `lowest`.
pub(super) fn symmetric_scales<const GROUPS: usize>(values: &[f32], lowest: i8) -> [f32; GROUPS] {
    let mut scales = [0.0; GROUPS];
    for (scale, group) in scales.iter_mut().zip(values.chunks_exact(values.len() / GROUPS)) {
        *scale = extreme(group) / f32::from(lowest);
    }
    scales
}
