//! The exponential function and its relatives, in lanes.
//!
//! All are polynomials of this file's own, so every kernel, every tail and every machine agrees on each bit. The coefficients are minimax fits (Remez) on the interval named next to them.

use super::Simd;

/// `eˣ`, within 1 ulp: 0 below -103.98, infinity above 88.73, subnormal results rounded once.
///
/// `x = n·ln 2 + r`, `|r| <= ln 2 / 2`, and `eʳ = 1 + (r + r²·q(r))` (Cody and Waite's reduction).
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.call(
        x,
        #[inline(always)]
        |s: S, x: S::F32| {
            // `ln 2` as a sum: products of the first part and any exponent are exact.
            const LN_2_HIGH: f32 = 0.693_359_4;
            const LN_2_LOW: f32 = -2.121_944_4e-4;
            // Where the result is surely infinity or 0. NaN is the second operand, which `min` and `max` keep.
            let x = s.max(s.splat(-104.0), s.min(s.splat(89.0), x));
            let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
            let r = s.fma(n, s.splat(-LN_2_HIGH), x);
            let r = s.fma(n, s.splat(-LN_2_LOW), r);
            // (eʳ - 1 - r) / r² on ±ln 2 / 2.
            let q = polynomial(s, r, [0.5, 0.166_665_45, 4.166_629e-2, 8.366_374e-3, 1.394_604_2e-3]);
            let tail = s.fma(s.mul(r, r), q, r);
            s.scale_by_power(s.add(s.splat(1.0), tail), n)
        },
    )
}

/// `1 / (1 + e⁻ˣ)`, within 3 ulp; where `x` is negative as `eˣ / (1 + eˣ)`, which does not overflow.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let one = s.splat(1.0);
    let shrunk = exp(s, s.sub(s.splat(0.0), s.abs(x)));
    let above = s.select(s.less(x, s.splat(0.0)), shrunk, one);
    s.div(above, s.add(one, shrunk))
}

/// `tanh x`, within 2 ulp: an odd polynomial where `|x| < 0.625`, beyond it `1 - 2 / (e²ˣ + 1)`.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.call(
        x,
        #[inline(always)]
        |s: S, x: S::F32| {
            let size = s.abs(x);
            let one = s.splat(1.0);
            let grown = exp(s, s.add(size, size));
            let large = s.sub(one, s.div(s.splat(2.0), s.add(grown, one)));
            // (tanh x - x) / x³ in x², on 0..0.64².
            let square = s.mul(size, size);
            let p = [-0.333_332_85, 0.133_314_17, -5.373_168e-2, 2.059_926_7e-2, -5.649_087e-3];
            let small = s.fma(s.mul(size, square), polynomial(s, square, p), size);
            s.copy_sign(s.select(s.less(size, s.splat(0.625)), small, large), x)
        },
    )
}

/// `c₀ + c₁x + c₂x² + …`, by Horner's rule.
#[inline(always)]
pub(super) fn polynomial<S: Simd, const N: usize>(s: S, x: S::F32, coefficients: [f32; N]) -> S::F32 {
    let mut sum = s.splat(coefficients[N - 1]);
    for i in (0..N - 1).rev() {
        sum = s.fma(sum, x, s.splat(coefficients[i]));
    }
    sum
}

#[cfg(test)]
mod tests {
    use crate::vec::LANES;
    use crate::vec::accuracy::{check, in_lanes, samples};

    in_lanes! { EXP = exp, TANH = tanh, SIGMOID = sigmoid }

    #[test]
    fn exp_is_within_an_ulp() {
        check(EXP, samples(), f64::exp, 1.0);
    }

    #[test]
    fn tanh_is_within_two_ulp() {
        check(TANH, samples(), f64::tanh, 2.0);
    }

    #[test]
    fn sigmoid_is_within_three_ulp() {
        check(SIGMOID, samples(), |x| 1.0 / (1.0 + (-x).exp()), 3.0);
    }
}
