//! The natural logarithm of f32, the same on every system: C libraries differ in the last bit.
//!
//! It is computed in f64 and rounded once, in plain loops that compilers vectorize.

/// `ln x`, within 0.51 ulp.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    let x = f64::from(x);
    logarithm(x, x - 1.0)
}

/// `ln (1 + x)`, within 0.51 ulp.
#[inline(always)]
pub fn ln_1p(x: f32) -> f32 {
    let x = f64::from(x);
    logarithm(1.0 + x, x)
}

/// The logarithm of `x`, of which `excess` is `x - 1`, where `x` is near 1 with more digits than `x` has.
#[inline(always)]
fn logarithm(x: f64, excess: f64) -> f32 {
    // x = 2ⁿ·m, and m is in √½..√2.
    let above = x.to_bits().wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()) as i64 >> 52;
    let m = f64::from_bits(x.to_bits().wrapping_sub((above << 52) as u64));
    let below = if above == 0 { excess } else { m - 1.0 };
    // ln m = 2·artanh s = 2·(s + s³/3 + s⁵/5 + …), with s² below 0.0295.
    let s = below / (2.0 + below);
    let square = s * s;
    let mut sum = 0.0;
    for i in (0..10).rev() {
        sum = sum * square + 1.0 / f64::from(2 * i + 1);
    }
    let rest = 2.0 * s * sum;
    let finite = if above == 0 { rest } else { above as f64 * std::f64::consts::LN_2 + rest };
    // Zeros, negative numbers, infinity and NaN.
    let special = if x == 0.0 {
        f64::NEG_INFINITY
    } else if x < 0.0 {
        f64::NAN
    } else {
        x
    };
    (if x > 0.0 && x < f64::INFINITY { finite } else { special }) as f32
}

#[cfg(test)]
mod tests {
    /// Every 1009th float.
    fn check(function: fn(f32) -> f32, exact: fn(f64) -> f64) {
        for bits in (0..=u32::MAX).step_by(1009) {
            let x = f32::from_bits(bits);
            let (got, want) = (function(x), exact(f64::from(x)));
            let ulp =
                f64::from(f32::from_bits((want as f32).abs().to_bits() + 1)) - f64::from((want as f32).abs());
            let near = (f64::from(got) - want).abs() <= 0.51 * ulp;
            assert!(
                near || got == want as f32 || got.is_nan() && want.is_nan(),
                "{x:e}: {got:e} for {want:e}"
            );
        }
    }

    #[test]
    fn logarithms_are_rounded_once() {
        check(super::ln, f64::ln);
        check(super::ln_1p, f64::ln_1p);
    }

    #[test]
    fn specials() {
        assert_eq!(
            [0.0, -0.0, 1.0, f32::INFINITY].map(super::ln),
            [f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, f32::INFINITY]
        );
        assert_eq!([-1.0, 0.0, f32::INFINITY].map(super::ln_1p), [f32::NEG_INFINITY, 0.0, f32::INFINITY]);
        assert!([-1.0, f32::NAN, f32::NEG_INFINITY].iter().all(|&x| super::ln(x).is_nan()));
        assert!([-1.5, f32::NAN, f32::NEG_INFINITY].iter().all(|&x| super::ln_1p(x).is_nan()));
        assert!(super::ln_1p(-0.0).is_sign_negative());
    }
}
