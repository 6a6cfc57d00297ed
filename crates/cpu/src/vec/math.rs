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
fn polynomial<S: Simd, const N: usize>(s: S, x: S::F32, coefficients: [f32; N]) -> S::F32 {
    let mut sum = s.splat(coefficients[N - 1]);
    for i in (0..N - 1).rev() {
        sum = s.fma(sum, x, s.splat(coefficients[i]));
    }
    sum
}

#[cfg(test)]
mod tests {
    use crate::kernels::variant::{Variant, variants};
    use crate::vec::{LANES, Simd};

    type Map = unsafe fn(&mut [f32; LANES]);

    variants!(static EXP = super::tests::exp, (x: &mut [f32; LANES]));
    variants!(static TANH = super::tests::tanh, (x: &mut [f32; LANES]));
    variants!(static SIGMOID = super::tests::sigmoid, (x: &mut [f32; LANES]));

    #[inline(always)]
    fn exp<S: Simd>(s: S, x: &mut [f32; LANES]) {
        // SAFETY: the array has sixteen values.
        unsafe { s.store(x.as_mut_ptr(), super::exp(s, s.load(x.as_ptr()))) }
    }

    #[inline(always)]
    fn tanh<S: Simd>(s: S, x: &mut [f32; LANES]) {
        // SAFETY: the array has sixteen values.
        unsafe { s.store(x.as_mut_ptr(), super::tanh(s, s.load(x.as_ptr()))) }
    }

    #[inline(always)]
    fn sigmoid<S: Simd>(s: S, x: &mut [f32; LANES]) {
        // SAFETY: the array has sixteen values.
        unsafe { s.store(x.as_mut_ptr(), super::sigmoid(s, s.load(x.as_ptr()))) }
    }

    /// Floats of every size and both signs: each exponent, with mantissas from a Weyl sequence, and the special values.
    fn arguments() -> Vec<f32> {
        let mut all =
            vec![0.0, -0.0, 1e-45, -1e-45, 88.7, 88.72, 88.73, 89.0, -87.3, -87.4, -103.9, -104.0, -104.1];
        all.extend([f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.625, -0.625, 0.624_999_94]);
        let mut weyl = 1u32;
        for exponent in 0..255u32 {
            for _ in 0..if (110..136).contains(&exponent) { 4000 } else { 20 } {
                weyl = weyl.wrapping_add(0x9e37_79b9);
                all.push(f32::from_bits((exponent << 23) | (weyl & 0x807f_ffff)));
            }
        }
        all.resize(all.len().next_multiple_of(LANES), 1.0);
        all
    }

    /// Distance in units of the last place of the f32 next to `want`.
    fn ulps(got: f32, want: f64) -> f64 {
        let near = want as f32;
        if near.is_infinite() || got.is_infinite() {
            return if got == near { 0.0 } else { f64::INFINITY };
        }
        let exponent = (near.abs().max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
        (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
    }

    fn check(list: &[Variant<Map>], exact: fn(f64) -> f64, limit: f64) {
        let mut first: Option<Vec<u32>> = None;
        for variant in list.iter().filter(|variant| (variant.available)()) {
            let mut worst = (0.0, 0.0);
            let mut bits = Vec::new();
            for group in arguments().chunks_exact(LANES) {
                let mut lanes: [f32; LANES] = group.try_into().unwrap();
                // SAFETY: the variant is available.
                unsafe { (variant.run)(&mut lanes) };
                for (x, y) in group.iter().zip(lanes) {
                    let off = ulps(y, exact(f64::from(*x)));
                    worst = if off > worst.0 { (off, *x) } else { worst };
                    bits.push(y.to_bits());
                }
            }
            assert!(worst.0 <= limit, "{}: {} ulp at {}", variant.name, worst.0, worst.1);
            assert!(first.get_or_insert_with(|| bits.clone()) == &bits, "{}: other bits", variant.name);
            let mut lanes = [f32::NAN; LANES];
            // SAFETY: the variant is available.
            unsafe { (variant.run)(&mut lanes) };
            assert!(lanes.iter().all(|y| y.is_nan()), "{}: {lanes:?} of NaN", variant.name);
        }
    }

    #[test]
    fn exp_is_within_an_ulp() {
        check(EXP, f64::exp, 1.0);
    }

    #[test]
    fn tanh_is_within_two_ulp() {
        check(TANH, f64::tanh, 2.0);
    }

    #[test]
    fn sigmoid_is_within_three_ulp() {
        check(SIGMOID, |x| 1.0 / (1.0 + (-x).exp()), 3.0);
    }
}
