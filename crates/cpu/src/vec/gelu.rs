//! The Gaussian error linear unit in lanes, in both its forms.
//!
//! Both are `max(x, 0) - |x|·tail(|x|)`, with a tail of the distribution that shrinks to nothing. It is computed 2⁶⁴ times
//! too large, so that only results can be subnormal: numbers in between would cost more than the rest of the function.

use super::Simd;
use super::math::polynomial;

/// What tails are multiplied by.
pub const TAIL_SCALE: f32 = (1u128 << 64) as f32;

/// `2⁶⁴·Φ(-x)` of the normal distribution, for `x` in 0..=14.5: `e^(-x²/2)·p(x)/q(x)`, where the quotient is a minimax fit
/// with a relative error of 1.4e-8.
#[inline(always)]
pub fn normal_tail<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let p = polynomial(s, x, [0.5, 0.426_832_1, 0.174_482_22, 0.037_610_155, 0.003_648_886_3]);
    let q = polynomial(s, x, [1.0, 1.651_548_7, 1.166_709_5, 0.446_309_36, 0.094_283_715, 0.009_146_225]);
    let square = s.mul(x, x);
    let rest = s.fma(x, x, s.sub(s.splat(0.0), square));
    s.div(s.mul(p, shrunk(s, square, rest)), q)
}

/// `2⁶⁴·e^(-(x + rest)/2)` for `x` in 0..=214 and a rest of its last place: `x + rest = -n·2·ln 2 + r`, `|r| <= ln 2`.
#[inline(always)]
fn shrunk<S: Simd>(s: S, x: S::F32, rest: S::F32) -> S::F32 {
    // `2·ln 2` as a sum: products of the first part and any exponent are exact.
    const HIGH: f32 = 2.0 * 0.693_359_4;
    const LOW: f32 = 2.0 * -2.121_944_4e-4;
    let n = s.round(s.mul(x, s.splat(-0.5 * std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(LOW), s.add(s.fma(n, s.splat(HIGH), x), rest));
    // e^(-r/2) on ±ln 2, 2⁶⁴ times.
    let c = [1.0, -0.5, 0.125_000_01, -0.020_832_952, 2.604_047e-3, -2.618_531e-4, 2.197_239_3e-5];
    s.scale_exactly(polynomial(s, r, c.map(|c| TAIL_SCALE * c)), n)
}

/// `max(x, 0) - size·tail / 2⁶⁴`.
#[inline(always)]
fn without_tail<S: Simd>(s: S, x: S::F32, size: S::F32, tail: S::F32) -> S::F32 {
    s.fma(s.mul(size, tail), s.splat(-1.0 / TAIL_SCALE), s.max(s.splat(0.0), x))
}

/// `x · Φ(x)`, within 6 ulp.
#[inline(always)]
pub fn gelu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.call(
        x,
        #[inline(always)]
        |s: S, x: S::F32| {
            // Beyond it, `|x|·Φ(-|x|)` rounds to 0.
            const END: f32 = 14.36;
            let size = s.abs(x);
            let size = s.select(s.less(size, s.splat(END)), size, s.splat(0.0));
            without_tail(s, x, size, normal_tail(s, size))
        },
    )
}

/// `x · (1 + tanh u) / 2 = x · sigmoid(2u)` with `u = √(2/π)·(x + 0.044715·x³)`, within 200 ulp: the roundings of `u`, up to
/// 107, are part of an exponent.
#[inline(always)]
pub fn gelu_tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.call(
        x,
        #[inline(always)]
        |s: S, x: S::F32| {
            // 4·√(2/π), and that times 0.044715.
            const A: f32 = 3.191_538_3;
            const B: f32 = 0.142_709_63;
            // Beyond it, `|x|·sigmoid(-2u)` rounds to 0.
            const END: f32 = 10.78;
            let size = s.abs(x);
            let size = s.select(s.less(size, s.splat(END)), size, s.splat(0.0));
            let slope = s.fma(s.mul(size, size), s.splat(B), s.splat(A));
            let fourfold = s.mul(size, slope);
            let rest = s.fma(size, slope, s.sub(s.splat(0.0), fourfold));
            let shrunk = shrunk(s, fourfold, rest);
            let tail = s.div(shrunk, s.fma(shrunk, s.splat(1.0 / TAIL_SCALE), s.splat(1.0)));
            without_tail(s, x, size, tail)
        },
    )
}

#[cfg(test)]
mod tests {
    use graph::ops::Unary;

    use crate::vec::LANES;
    use crate::vec::accuracy::{all_floats, check, in_lanes, samples};

    in_lanes! { GELU = gelu, GELU_TANH = gelu_tanh }

    fn exact(x: f64) -> f64 {
        Unary::Gelu.evaluate(x)
    }

    /// Floats close to each other where the functions change.
    fn dense() -> impl Iterator<Item = f32> {
        (0x3c00_0000..0x4170_0000u32)
            .step_by(1021)
            .flat_map(|bits| [1.0, -1.0].map(|s| s * f32::from_bits(bits)))
    }

    #[test]
    fn gelu_is_within_six_ulp() {
        check(GELU, samples().chain(dense()), exact, 6.0);
    }

    #[test]
    fn gelu_tanh_is_within_two_hundred_ulp() {
        // As a logistic function: `1 + tanh` cancels.
        let exact = |x: f64| {
            let twice = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            if x == f64::NEG_INFINITY { -0.0 } else { x / (1.0 + (-twice).exp()) }
        };
        check(GELU_TANH, samples().chain(dense()), exact, 200.0);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn gelu_is_within_six_ulp_of_every_float() {
        check(GELU, all_floats(), exact, 6.0);
    }
}
