//! Activation functions that follow a linear layer, in lanes.

use crate::vec::{Simd, gelu, gelu_tanh, sigmoid, tanh};

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
    /// `x / (1 + exp(−1.702 x))`
    GeluQuick,
    /// `1 / (1 + exp(−x))`
    Sigmoid,
    /// `tanh x`
    Tanh,
}

impl Activation {
    /// The function of each lane.
    #[inline(always)]
    pub(super) fn apply<S: Simd>(self, s: S, x: S::F32) -> S::F32 {
        match self {
            Activation::Relu => s.select(s.less(x, s.splat(0.0)), s.splat(0.0), x),
            Activation::Silu => s.mul(x, sigmoid(s, x)),
            Activation::GeluTanh => gelu_tanh(s, x),
            Activation::GeluErf => gelu(s, x),
            Activation::GeluQuick => s.mul(x, sigmoid(s, s.mul(x, s.splat(1.702)))),
            Activation::Sigmoid => sigmoid(s, x),
            Activation::Tanh => tanh(s, x),
        }
    }
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

    fn apply(activation: Activation, x: f32) -> f32 {
        let s = crate::vec::Portable;
        s.to_array(activation.apply(s, s.splat(x)))[7]
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
            Activation::GeluQuick => x / (1.0 + (-1.702 * x).exp()),
            Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Activation::Tanh => x.tanh(),
        };
        let gelus = [Activation::GeluTanh, Activation::GeluErf, Activation::GeluQuick];
        let others = [Activation::Relu, Activation::Silu, Activation::Sigmoid, Activation::Tanh];
        for activation in gelus.into_iter().chain(others) {
            for step in -4000..=4000i32 {
                let x = step as f32 / 100.0;
                let got = apply(activation, x);
                let expected = formula(activation, f64::from(x));
                let error = (f64::from(got) - expected).abs();
                assert!(error <= 1e-6 * expected.abs() + 1e-7, "{activation:?}({x}) = {got}");
            }
        }
    }

    #[test]
    fn activations_at_the_extremes() {
        let unbounded = [Activation::Silu, Activation::GeluTanh, Activation::GeluErf, Activation::GeluQuick];
        for activation in unbounded.into_iter().chain([Activation::Relu]) {
            let [large, small, infinite, nan, zero] =
                [1e30, -1e30, f32::INFINITY, f32::NAN, -0.0].map(|x| apply(activation, x));
            assert_eq!(
                (large, small.abs(), infinite, zero),
                (1e30, 0.0, f32::INFINITY, 0.0),
                "{activation:?}"
            );
            assert!(nan.is_nan(), "{activation:?}");
        }
    }
}
