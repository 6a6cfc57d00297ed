//! From logits to weights, which are probabilities but for a factor.

/// The numbers looked at together; a multiple of any vector register's.
pub(super) const CHUNK: usize = 64;

/// From logits to weights: `exp((logit - highest) / temperature)`.
pub(super) struct Scale {
    pub(super) highest: f32,
    pub(super) inverse_temperature: f32,
}

impl Scale {
    /// The scale of a row of logits at a temperature above 0.
    pub(super) fn new(logits: &[f32], temperature: f32) -> Scale {
        // So that no distance from the highest becomes NaN, however cold.
        let inverse_temperature = (1.0 / temperature).min(f32::MAX);
        Scale { highest: finite(maximum(logits)), inverse_temperature }
    }

    /// The weights of up to [`CHUNK`] logits, computed together.
    #[inline(always)]
    pub(super) fn weights(&self, chunk: &[f32]) -> [f32; CHUNK] {
        let mut weights = [0.0; CHUNK];
        weights.iter_mut().zip(chunk).for_each(|(weight, &logit)| *weight = self.weight(logit));
        weights
    }

    /// How many nats less probable than the highest; NaN for NaN.
    #[inline(always)]
    pub(super) fn distance(&self, logit: f32) -> f32 {
        (self.highest - finite(logit)) * self.inverse_temperature
    }

    #[inline(always)]
    pub(super) fn weight(&self, logit: f32) -> f32 {
        exp_nonpositive(-self.distance(logit))
    }
}

/// The highest number; NaN counts as -inf.
pub(super) fn maximum(numbers: &[f32]) -> f32 {
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let (lanes, rest) = numbers.as_chunks::<16>();
    let mut highest = [f32::NEG_INFINITY; 16];
    for lane in lanes {
        for (highest, &number) in highest.iter_mut().zip(lane) {
            *highest = higher(*highest, number);
        }
    }
    highest.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, higher)
}

/// The sum of all weights, in an order that only the length decides: sixteen partial sums per block in single
/// precision, blocks in double.
pub(super) fn mass(logits: &[f32], scale: &Scale) -> f64 {
    let mut total = 0.0;
    for block in logits.chunks(512) {
        let (lanes, rest) = block.as_chunks::<16>();
        let mut sums = [0.0f32; 16];
        for lane in lanes {
            for (sum, &logit) in sums.iter_mut().zip(lane) {
                *sum += scale.weight(logit);
            }
        }
        total += sums.iter().map(|&sum| f64::from(sum)).sum::<f64>();
        total += rest.iter().map(|&logit| f64::from(scale.weight(logit))).sum::<f64>();
    }
    total
}

/// The logit, or the highest number in place of +inf. NaN stays.
pub(super) fn finite(logit: f32) -> f32 {
    if logit > f32::MAX { f32::MAX } else { logit }
}

/// `exp(x)` for `x <= 0`, with NaN as -inf; below `exp(-87)` it is 0. Relative error under 2e-7.
///
/// A polynomial of our own rather than the system's `exp`, which differs between systems, and so that the compiler
/// can compute many at once. Range reduction and coefficients are those of Cephes' `expf`.
#[inline(always)]
pub(super) fn exp_nonpositive(x: f32) -> f32 {
    // Adding and taking off 1.5 · 2^23 rounds to an integer, which is left in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = if x > -87.0 { x } else { -87.0 };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + coefficient;
    }
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x > -87.0 { (p * r * r + r + 1.0) * power } else { 0.0 }
}
