//! `y = f(x)` for each element.

use tensor::{DType, Shape, Tensor};

use super::check::{FLOATS, operands};
use super::elements::{Numbers, from_f64, from_i128};
use super::special::{erf, erfc};
use super::{Attributes, Define};
use crate::{Error, Type, TypeError};

macro_rules! unary {
    ($($(#[$doc:meta])* $variant:ident = $name:literal: $function:expr;)*) => {
        /// A function of one element. Keeps the dtype, which must be a float, or for [`Unary::Neg`],
        /// [`Unary::Abs`] and [`Unary::Relu`] a signed integer; [`Unary::Not`] is of `bool` alone.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Unary { $($(#[$doc])* $variant,)* }

        impl Unary {
            /// Every member of the family.
            pub const ALL: &[Unary] = &[$(Unary::$variant,)*];

            /// The function itself, where false is 0 and true is 1.
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
    /// `erf x = 2/√π ∫₀ˣ e^(-t²) dt`
    Erf = "erf": erf;
    /// `e^x`
    Exp = "exp": f64::exp;
    /// The next whole number below.
    Floor = "floor": f64::floor;
    /// `x · Φ(x)` with the normal distribution's own Φ.
    Gelu = "gelu": |x| 0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    /// `x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2`
    GeluTanh = "gelu_tanh": |x| {
        0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
    };
    /// The natural logarithm.
    Log = "log": f64::ln;
    /// `-x`
    Neg = "neg": |x| -x;
    /// `1 - x`, of truth values.
    Not = "not": |x| 1.0 - x;
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
    /// The next whole number towards 0.
    Trunc = "trunc": f64::trunc;
}

impl Define for Unary {
    const NAMES: &[&str] = NAMES;

    fn name(&self) -> &'static str {
        self.text()
    }

    fn parse(name: &str, _attributes: &mut Attributes) -> Result<Unary, TypeError> {
        Unary::with_name(name)
            .ok_or_else(|| TypeError::new(format!("`{name}` is no function of one element")))
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        let (fits, expected) = match self {
            Unary::Not => (x.dtype == DType::Bool, "bool"),
            Unary::Abs | Unary::Neg | Unary::Relu => {
                (FLOATS.contains(&x.dtype) || x.dtype.is_signed_integer(), "a float or a signed integer")
            }
            _ => (FLOATS.contains(&x.dtype), "a float"),
        };
        match fits {
            true => Ok(vec![x.clone()]),
            false => Err(TypeError::new(format!("x is {x}, expected {expected}"))),
        }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let dtype = inputs[0].dtype();
        let result = match Numbers::of(inputs[0]) {
            Numbers::Floats(x) => {
                from_f64(dtype, outputs[0], &x.into_iter().map(|x| self.evaluate(x)).collect::<Vec<_>>())
            }
            Numbers::Integers(x) => from_i128(
                dtype,
                outputs[0],
                &x.into_iter().map(|x| self.evaluate_integer(x)).collect::<Vec<_>>(),
            ),
        };
        Ok(vec![result])
    }
}

impl Unary {
    /// The function with a name.
    pub fn with_name(name: &str) -> Option<Unary> {
        Unary::ALL.iter().copied().find(|function| function.text() == name)
    }

    fn evaluate_integer(self, x: i128) -> i128 {
        match self {
            Unary::Abs => x.abs(),
            Unary::Neg => -x,
            Unary::Relu => x.max(0),
            Unary::Not => 1 - x,
            other => unreachable!("{} of an integer", other.text()),
        }
    }
}
