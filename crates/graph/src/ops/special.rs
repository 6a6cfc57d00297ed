//! Functions that the standard library lacks: the error function.

use std::f64::consts::PI;

/// `erf x = 2/√π ∫₀ˣ e^(-t²) dt`, to about 1e-15.
pub(super) fn erf(x: f64) -> f64 {
    if x.abs() < SERIES_BELOW { series(x) } else { (1.0 - fraction(x.abs())).copysign(x) }
}

/// `1 - erf x`, without cancellation for positive `x`.
pub(super) fn erfc(x: f64) -> f64 {
    match (x.abs() < SERIES_BELOW, x < 0.0) {
        (true, _) => 1.0 - series(x),
        (false, true) => 2.0 - fraction(-x),
        (false, false) => fraction(x),
    }
}

/// Where the continued fraction takes over: 200 steps of it are exact from here on.
const SERIES_BELOW: f64 = 1.5;

/// Abramowitz and Stegun 7.1.6: `erf x = 2/√π e^(-x²) Σ 2ⁿ x^(2n+1) / (1·3·…·(2n+1))`; no term cancels
/// another.
fn series(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

/// Abramowitz and Stegun 7.1.14: `√π e^(x²) erfc x = 1/(x + (1/2)/(x + 1/(x + (3/2)/(x + …))))`.
fn fraction(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let tail = (1..=200).rev().fold(x, |tail, n| x + f64::from(n) / 2.0 / tail);
    (-x * x).exp() / PI.sqrt() / tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // Abramowitz and Stegun, table 7.1, and the digits of DLMF 7.23 for the tail.
        let table = [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (1.5, 0.966_105_146_475_310_7),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 0.999_977_909_503_001_4),
            (f64::INFINITY, 1.0),
        ];
        for (x, expected) in table {
            assert!((erf(x) - expected).abs() < 1e-15, "erf {x} = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
            assert!((erfc(-x) - 1.0 - expected).abs() < 1e-15);
        }
        assert!((erfc(5.0) / 1.537_459_794_428_035e-12 - 1.0).abs() < 1e-14);
        assert!(erf(f64::NAN).is_nan() && erfc(f64::NAN).is_nan());
    }

    #[test]
    fn both_formulas_agree_where_they_meet() {
        for x in [1.4, 1.5, 1.6, 2.0] {
            assert!((series(x) + fraction(x) - 1.0).abs() < 1e-15, "{x}");
        }
    }
}
