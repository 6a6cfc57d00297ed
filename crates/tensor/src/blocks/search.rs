//! Scales of least weighted error, as GGML's quantizers search for them.
//!
//! Formulas, constants and the order of every sum are those of `ggml-quants.c` (MIT,
//! <https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-quants.c>), which names the functions
//! `make_qx_quants`, `make_q3_quants`, `make_qkx3_quants` and `make_qp_quants`. Blocks therefore equal those of
//! llama.cpp to the bit, which tests check. Sums run in f32 from the first value to the last.

use super::rounding::{extreme, nearest, range};

/// Groups whose values are all smaller than this are taken for zeros.
pub(super) const NEGLIGIBLE: f32 = 1e-15;
/// How often codes are adjusted one by one, at most.
const ROUNDS: usize = 5;

/// The scales that [`affine`] tries: the codes `0..=highest` are stretched over `highest + from + by · i`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    pub(super) from: f32,
    pub(super) by: f32,
    pub(super) count: i32,
    /// Whether errors count by their magnitude rather than by their square.
    pub(super) absolute: bool,
}

impl Steps {
    /// What every format tries where the importance of columns is known.
    pub(super) const FINE: Steps = Steps { from: -0.9, by: 0.05, count: 36, absolute: false };
}

/// What an error in each value costs: more in important columns, and more where the value is large compared with `spread`,
/// the mean square of its surroundings.
pub(super) fn costs<const N: usize>(values: &[f32], columns: &[f32], spread: f32) -> [f32; N] {
    std::array::from_fn(|i| columns[i] * (spread + values[i] * values[i]).sqrt())
}

/// The scale and the codes, each more by `limit`, of least cost among codes from `-limit` to `limit - 1`.
pub(super) fn symmetric(values: &[f32], costs: &[f32], limit: i32, codes: &mut [u8]) -> f32 {
    let extreme = extreme(values);
    if extreme.abs() < NEGLIGIBLE {
        codes.fill(0);
        return 0.0;
    }
    let code = |value: f32, inverse: f32| nearest(inverse * value).clamp(-limit, limit - 1);
    let sums = |inverse: f32| {
        let (mut products, mut squares) = (0.0, 0.0);
        for (value, cost) in values.iter().zip(costs) {
            let code = code(*value, inverse) as f32;
            products += cost * value * code;
            squares += cost * code * code;
        }
        (products, squares)
    };
    let mut inverse = -(limit as f32) / extreme;
    let (products, squares) = sums(inverse);
    let mut scale = if squares == 0.0 { 0.0 } else { products / squares };
    let mut best = scale * products;
    for step in (-9..=9).filter(|&step| step != 0) {
        let tried = -(limit as f32 + 0.1 * step as f32) / extreme;
        let (products, squares) = sums(tried);
        if squares > 0.0 && products * products > best * squares {
            inverse = tried;
            scale = products / squares;
            best = scale * products;
        }
    }
    for (slot, value) in codes.iter_mut().zip(values) {
        *slot = (code(*value, inverse) + limit) as u8;
    }
    scale
}

/// The sums that a scale follows from, `Σ cost · value · code / Σ cost · code²`, and the adjustment of single codes.
struct Fit {
    products: f32,
    squares: f32,
}

impl Fit {
    fn new(values: &[f32], costs: &[f32], codes: &[i32]) -> Fit {
        let mut fit = Fit { products: 0.0, squares: 0.0 };
        for ((value, cost), code) in values.iter().zip(costs).zip(codes) {
            let code = *code as f32;
            fit.products += cost * value * code;
            fit.squares += cost * code * code;
        }
        fit
    }

    /// Gives each value the code that is best for the scale that all others want, as long as that lowers the cost.
    fn adjust(&mut self, values: &[f32], costs: &[f32], (low, high): (i32, i32), codes: &mut [i32]) {
        for _ in 0..ROUNDS {
            let mut changed = false;
            for ((value, cost), code) in values.iter().zip(costs).zip(&mut *codes) {
                let old = *code as f32;
                let mut products = self.products - cost * value * old;
                let mut squares = self.squares - cost * old * old;
                if products <= 0.0 || squares <= 0.0 {
                    continue;
                }
                let new = nearest(value * squares / products).clamp(low, high);
                if new == *code {
                    continue;
                }
                products += cost * value * new as f32;
                squares += cost * new as f32 * new as f32;
                let better = products * products * self.squares > self.products * self.products * squares;
                if better {
                    (*code, changed) = (new, true);
                    (self.products, self.squares) = (products, squares);
                }
            }
            if !changed {
                break;
            }
        }
    }

    fn scale(&self) -> f32 {
        if self.squares > 0.0 { self.products / self.squares } else { 0.0 }
    }
}

/// The scale and the codes, each more by `limit`, from `-limit` to `limit - 1`: the extreme value gets the lowest code
/// at first, then codes are adjusted one by one.
pub(super) fn adjusted<const N: usize>(values: &[f32; N], limit: i32, slots: &mut [u8]) -> f32 {
    let extreme = extreme(values);
    if extreme.abs() < NEGLIGIBLE {
        slots.fill(0);
        return 0.0;
    }
    let inverse = -(limit as f32) / extreme;
    let costs = values.map(|value| value * value);
    let mut codes = values.map(|value| nearest(inverse * value).clamp(-limit, limit - 1));
    let mut fit = Fit::new(values, &costs, &codes);
    fit.adjust(values, &costs, (-limit, limit - 1), &mut codes);
    for (slot, code) in slots.iter_mut().zip(codes) {
        *slot = (code + limit) as u8;
    }
    fit.scale()
}

/// The scale, the minimum that is subtracted, at least 0, and the codes `0..=highest` of least cost.
pub(super) fn affine(
    values: &[f32],
    costs: &[f32],
    highest: i32,
    steps: Steps,
    codes: &mut [u8],
) -> (f32, f32) {
    let (low, high) = range(values);
    let mut low = low.min(0.0);
    if high <= low {
        codes.fill(0);
        return (0.0, -low);
    }
    let top = highest as f32;
    // Capped before it is rounded: where `low` has come near `high`, the quotient is huge.
    let code = |value: f32, inverse: f32, low: f32| {
        let position = inverse * (value - low);
        if position > 0.0 { nearest(position.min(top)) as u8 } else { 0 }
    };
    let cost_of = |scale: f32, low: f32, codes: &[u8]| {
        values.iter().zip(costs).zip(codes).fold(0.0, |sum, ((value, cost), &code)| {
            let error = scale * f32::from(code) + low - value;
            sum + cost * if steps.absolute { error.abs() } else { error * error }
        })
    };
    let cost_sum = costs.iter().fold(0.0, |sum, cost| sum + cost);
    let value_sum = costs.iter().zip(values).fold(0.0, |sum, (cost, value)| sum + cost * value);
    let inverse = top / (high - low);
    let mut scale = 1.0 / inverse;
    for (slot, value) in codes.iter_mut().zip(values) {
        *slot = code(*value, inverse, low);
    }
    let mut best = cost_of(scale, low, codes);
    let mut tried = [0; 32];
    let tried = &mut tried[..values.len()];
    for step in 0..=steps.count {
        let inverse = (steps.from + steps.by * step as f32 + top) / (high - low);
        let (mut sum, mut squares, mut products) = (0.0, 0.0, 0.0);
        for ((value, cost), slot) in values.iter().zip(costs).zip(&mut *tried) {
            *slot = code(*value, inverse, low);
            let code = f32::from(*slot);
            sum += cost * code;
            squares += cost * code * code;
            products += cost * code * value;
        }
        // The weighted least squares of a line through codes and values.
        let determinant = cost_sum * squares - sum * sum;
        if determinant <= 0.0 || determinant.is_nan() {
            continue;
        }
        let mut slope = (cost_sum * products - value_sum * sum) / determinant;
        let mut start = (squares * value_sum - sum * products) / determinant;
        if start > 0.0 {
            start = 0.0;
            slope = products / squares;
        }
        let cost = cost_of(slope, start, tried);
        if cost < best {
            codes.copy_from_slice(tried);
            (best, scale, low) = (cost, slope, start);
        }
    }
    (scale, -low)
}

/// The unit of which values that are at least 0 become multiples `0..=highest`, at the least cost.
pub(super) fn multiples<const N: usize>(values: &[f32; N], costs: &[f32; N], highest: i32) -> (f32, [u8; N]) {
    let largest = values.iter().fold(0.0, |largest: f32, &value| largest.max(value));
    if largest < NEGLIGIBLE {
        return (0.0, [0; N]);
    }
    let top = highest as f32;
    let error = |inverse: f32| {
        let unit = 1.0 / inverse;
        values.iter().zip(costs).fold(0.0, |sum, (value, cost)| {
            let multiple = nearest(inverse * value).min(highest);
            let error = value - unit * multiple as f32;
            sum + cost * error * error
        })
    };
    let mut inverse = top / largest;
    let mut best = error(inverse);
    for step in (-4..=4).filter(|&step| step != 0) {
        let tried = (0.1 * step as f32 + top) / largest;
        let error = error(tried);
        if error < best {
            (best, inverse) = (error, tried);
        }
    }
    let mut multiples = values.map(|value| nearest(inverse * value).clamp(0, highest));
    let mut fit = Fit::new(values, costs, &multiples);
    fit.adjust(values, costs, (0, highest), &mut multiples);
    (fit.scale(), multiples.map(|multiple| multiple as u8))
}
