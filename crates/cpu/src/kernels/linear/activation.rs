//! Activation functions that follow a linear layer, on 16 values at once.
//!
//! Plain arithmetic in a fixed order, which compilers vectorize: the same bits on every instruction set.

/// What is applied to the products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x / (1 + exp(−x))`
    Silu,
    /// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`
    GeluTanh,
    /// `x / 2 · (1 + erf(x / √2))`
    GeluErf,
}

impl Activation {
    /// Applies the function to each value.
    #[inline(always)]
    pub(super) fn apply(self, values: &mut [f32; 16]) {
        match self {
            Activation::Relu => each(values, |x| if x < 0.0 { 0.0 } else { x }),
            Activation::Silu => each(values, |x| x / (1.0 + exp(-x))),
            Activation::GeluTanh => each(values, gelu_tanh),
            Activation::GeluErf => each(values, gelu_erf),
        }
    }
}

#[inline(always)]
fn each(values: &mut [f32; 16], function: impl Fn(f32) -> f32) {
    for value in values {
        *value = function(*value);
    }
}

/// `(1 + tanh(y)) / 2` is the logistic function of `2 y`.
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    const TWICE_SQRT_2_OVER_PI: f32 = 1.595_769;
    let y = TWICE_SQRT_2_OVER_PI * (x + 0.044715 * x * x * x);
    x / (1.0 + exp(-y))
}

/// The upper tail of the normal distribution, from the rational-exponent fit of erfc in Numerical Recipes (section
/// 6.2 of the second edition), whose relative error is below 1.2e-7.
#[inline(always)]
fn gelu_erf(x: f32) -> f32 {
    const COEFFICIENTS: [f32; 10] = [
        0.170_872_77,
        -0.822_152_2,
        1.488_515_9,
        -1.135_204,
        0.278_868_08,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_7,
        -1.265_512_2,
    ];
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * z);
    let mut exponent = COEFFICIENTS[0];
    for coefficient in &COEFFICIENTS[1..] {
        exponent = exponent * t + coefficient;
    }
    let tail = 0.5 * t * exp(exponent - z * z);
    x * if x < 0.0 { tail } else { 1.0 - tail }
}

/// `e^x` to about 2 ulp: `2^n · e^r` with `r` in ±ln 2 / 2 and a Taylor polynomial for `e^r`. Below the smallest
/// normal number 0, above the largest infinity, NaN for NaN.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // ln 2 in two parts, the first with few enough bits that its product with n is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Added and subtracted, it rounds to an integer, which it leaves in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let clamped = x.clamp(-88.0, 88.9);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut polynomial = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        polynomial = polynomial * r + coefficient;
    }
    // Half of the exponent at a time, so that 2^128 is reached as 2^64 · 2^64.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23) as u32);
    let half = n >> 1;
    let result = polynomial * power(half) * power(n.wrapping_sub(half));
    if x < -87.3 { 0.0 } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn erf(x: f64) -> f64 {
        // The Maclaurin series below 3; the complement's continued fraction above.
        if x.abs() < 3.0 {
            let (mut term, mut sum) = (x, x);
            for n in 1..200 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return sum * std::f64::consts::FRAC_2_SQRT_PI;
        }
        let mut fraction = x.abs();
        for n in (1..200).rev() {
            fraction = x.abs() + f64::from(n) / 2.0 / fraction;
        }
        x.signum() * (1.0 - (-x * x).exp() / fraction / std::f64::consts::PI.sqrt())
    }

    #[test]
    fn activations_match_their_formulas() {
        let formula = |activation, x: f64| match activation {
            Activation::Relu => x.max(0.0),
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::GeluTanh => {
                let y = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                x / 2.0 * (1.0 + y.tanh())
            }
            Activation::GeluErf => x / 2.0 * (1.0 + erf(x / 2f64.sqrt())),
        };
        for activation in [Activation::Relu, Activation::Silu, Activation::GeluTanh, Activation::GeluErf] {
            for step in -4000..=4000i32 {
                let x = step as f32 / 100.0;
                let mut values = [x; 16];
                activation.apply(&mut values);
                let expected = formula(activation, f64::from(x));
                let error = (f64::from(values[7]) - expected).abs();
                assert!(error <= 1e-6 * expected.abs() + 1e-7, "{activation:?}({x}) = {}", values[7]);
            }
        }
    }

    #[test]
    fn activations_at_the_extremes() {
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::GeluErf, Activation::Relu] {
            let mut values = [0.0; 16];
            values[..5].copy_from_slice(&[1e30, -1e30, f32::INFINITY, f32::NAN, -0.0]);
            activation.apply(&mut values);
            assert_eq!(values[0], 1e30, "{activation:?}");
            assert_eq!(values[1].abs(), 0.0, "{activation:?}");
            assert_eq!(values[2], f32::INFINITY, "{activation:?}");
            assert!(values[3].is_nan() && values[4] == 0.0, "{activation:?}");
        }
        for x in [-87.0f32, -20.5, -1.0, 0.0, 0.3, 1.0, 45.0, 88.0, 88.7] {
            assert!((exp(x) / x.exp() - 1.0).abs() < 4e-7, "exp({x}) = {} and not {}", exp(x), x.exp());
        }
        assert_eq!((exp(-1000.0), exp(1000.0)), (0.0, f32::INFINITY));
    }
}
