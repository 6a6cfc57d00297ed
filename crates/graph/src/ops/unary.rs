//! `y = f(x)` for each element.

use tensor::{DType, Shape, Tensor};

use super::{Attributes, Define};
use crate::{Error, Type, TypeError};

macro_rules! unary {
    ($($(#[$doc:meta])* $variant:ident = $name:literal: $function:expr;)*) => {
        /// A function of one element. Keeps the dtype, which must be a float, or for [`Unary::Neg`],
        /// [`Unary::Abs`] and [`Unary::Relu`] a signed integer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Unary { $($(#[$doc])* $variant,)* }

        impl Unary {
            /// Every member of the family.
            pub const ALL: &[Unary] = &[$(Unary::$variant,)*];

            /// The function itself.
            pub fn evaluate(self, x: f64) -> f64 {
                match self { $(Unary::$variant => { let function: fn(f64) -> f64 = $function; function(x) })* }
            }

            const fn text(self) -> &'static str {
                match self { $(Unary::$variant => $name,)* }
            }
        }

        const NAMES: &[&str] = &[$($name,)*];
    };
}

unary! {
    /// `|x|`
    Abs = "abs": f64::abs;
    /// The next whole number above.
    Ceil = "ceil": f64::ceil;
    /// `cos x`, radians
    Cos = "cos": f64::cos;
    /// `e^x`
    Exp = "exp": f64::exp;
    /// The next whole number below.
    Floor = "floor": f64::floor;
    /// `x · Φ(x)` with the normal distribution's own Φ.
    Gelu = "gelu": |x| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
    /// `x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2`
    GeluTanh = "gelu_tanh": |x| {
        0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
    };
    /// The natural logarithm.
    Log = "log": f64::ln;
    /// `-x`
    Neg = "neg": |x| -x;
    /// `1 / x`
    Reciprocal = "reciprocal": |x| 1.0 / x;
    /// `max(x, 0)`; a NaN stays one.
    Relu = "relu": |x| if x < 0.0 { 0.0 } else { x };
    /// To the nearest whole number, halves to the even one.
    Round = "round": f64::round_ties_even;
    /// `1 / √x`
    Rsqrt = "rsqrt": |x| 1.0 / x.sqrt();
    /// `1 / (1 + e^-x)`
    Sigmoid = "sigmoid": |x| 1.0 / (1.0 + (-x).exp());
    /// `x / (1 + e^-x)`
    Silu = "silu": |x| x / (1.0 + (-x).exp());
    /// `sin x`, radians
    Sin = "sin": f64::sin;
    /// `√x`
    Sqrt = "sqrt": f64::sqrt;
    /// The hyperbolic tangent.
    Tanh = "tanh": f64::tanh;
}
