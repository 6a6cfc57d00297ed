//! `y = f(x)` for each element.

use super::attributes::Attribute;
use super::field::AttributeType;
use super::prelude::*;
use super::special::{erf, erfc};

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
                let function: fn(f64) -> f64 = match self { $(Unary::$variant => $function,)* };
                function(x)
            }
        }

        const NAMES: &[&str] = &[$($name,)*];
    };
}

unary! {
    /// `|x|`
    Abs = "abs": f64::abs;
    /// `arccos x` in radians
    Acos = "acos": f64::acos;
    /// `artanh x = ln((1 + x) / (1 - x)) / 2`
    Atanh = "atanh": |x| x.abs().atanh().copysign(x);
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
    /// `x · Φ(x)` with the normal distribution's own Φ; 0, its limit, at `-inf`.
    Gelu = "gelu": |x| x.max(f64::MIN) * (0.5 * erfc(-x * std::f64::consts::FRAC_1_SQRT_2));
    /// `x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2`; 0, its limit, at `-inf`.
    GeluTanh = "gelu_tanh": |x| {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        x.max(f64::MIN) * (0.5 * (1.0 + inner.tanh()))
    };
    /// `x / (1 + e^(-1.702 x))`
    GeluQuick = "gelu_quick": |x| x / (1.0 + (-1.702 * x).exp());
    /// The natural logarithm.
    Log = "log": f64::ln;
    /// `ln(1 + x)`, which keeps its digits near 0.
    Log1p = "log1p": f64::ln_1p;
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
    declare!(NAMES[self in Unary::ALL]);

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        let (fits, expected) = match self {
            Unary::Not => (x.dtype == DType::Bool, "bool"),
            Unary::Abs | Unary::Neg | Unary::Relu => {
                (FLOATS.contains(&x.dtype) || x.dtype.is_signed_integer(), "a float or a signed integer")
            }
            _ => (FLOATS.contains(&x.dtype), "a float"),
        };
        refuse_if!(!fits, "x is {x}, expected {expected}");
        Ok(vec![x.clone()])
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
        Unary::ALL.iter().copied().find(|function| function.name() == name)
    }

    fn evaluate_integer(self, x: i128) -> i128 {
        match self {
            Unary::Abs => x.abs(),
            Unary::Neg => -x,
            Unary::Relu => x.max(0),
            Unary::Not => 1 - x,
            other => unreachable!("{} of an integer", other.name()),
        }
    }
}

/// The name of a function, which another op applies.
impl AttributeType for Unary {
    fn to_attribute(&self) -> Attribute {
        Attribute::Text(self.name().to_string())
    }

    fn take(name: &str, attributes: &mut Attributes) -> Result<Option<Unary>, TypeError> {
        let unknown = |word: &str| type_error!("{name} is {word}, which is no function of one element");
        let word = String::take(name, attributes)?;
        word.map(|word| Unary::with_name(&word).ok_or_else(|| unknown(&word))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    #[test]
    fn types() {
        check_types(
            Unary::Exp,
            &[
                (&["f16[n, 2]"], "f16[n, 2]"),
                (&["i32[3]"], "exp: x is i32[3], expected a float"),
                (&["f32[3]", "f32[3]"], "exp: takes 1 operand (x), got 2"),
                (&["mut f32[3]"], "exp: operand 0 is mut f32[3], expected a tensor (load the buffer first)"),
            ],
        );
        check_types(
            Unary::Abs,
            &[
                (&["i8[3] @gpu:1"], "i8[3] @gpu:1"),
                (&["u8[3]"], "abs: x is u8[3], expected a float or a signed integer"),
            ],
        );
        check_types(Unary::Not, &[(&["bool[]"], "bool[]"), (&["f32[]"], "not: x is f32[], expected bool")]);
    }

    #[test]
    fn values() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        let table: &[(Unary, &[(f64, f64)])] = &[
            (Unary::Abs, &[(-2.5, 2.5), (nan, nan)]),
            (Unary::Acos, &[(0.5, 1.047_197_551_196_597_7), (-1.0, std::f64::consts::PI), (2.0, nan)]),
            (Unary::Atanh, &[(0.5, 0.549_306_144_334_054_8), (1.0, infinity), (-2.0, nan)]),
            (Unary::Ceil, &[(1.2, 2.0), (-1.2, -1.0)]),
            (Unary::Cos, &[(0.0, 1.0), (1.0, 0.540_302_305_868_139_8)]),
            (Unary::Erf, &[(0.5, 0.520_499_877_813_046_5)]),
            (Unary::Exp, &[(2.0, 7.389_056_098_930_65), (-infinity, 0.0), (1000.0, infinity)]),
            (Unary::Floor, &[(1.8, 1.0), (-1.2, -2.0)]),
            (
                Unary::Gelu,
                &[(1.0, 0.841_344_746_068_542_9), (-8.0, -4.976_768_459_417_43e-15), (-infinity, 0.0)],
            ),
            (Unary::GeluTanh, &[(1.0, 0.841_191_990_608_276_8), (-infinity, 0.0), (nan, nan)]),
            (Unary::GeluQuick, &[(1.0, 0.845_795_765_932_821_2), (-1000.0, 0.0)]),
            (Unary::Log1p, &[(1e-10, 9.999_999_999_5e-11), (-1.0, -infinity), (-2.0, nan)]),
            (Unary::Log, &[(3.0, 1.098_612_288_668_109_8), (0.0, -infinity), (-1.0, nan)]),
            (Unary::Neg, &[(2.0, -2.0), (infinity, -infinity)]),
            (Unary::Reciprocal, &[(4.0, 0.25), (0.0, infinity)]),
            (Unary::Relu, &[(-1.0, 0.0), (2.0, 2.0), (nan, nan)]),
            (Unary::Round, &[(2.5, 2.0), (-1.5, -2.0), (0.4, 0.0)]),
            (Unary::Rsqrt, &[(4.0, 0.5), (0.0, infinity)]),
            (Unary::Sigmoid, &[(2.0, 0.880_797_077_977_882_3), (-infinity, 0.0)]),
            (Unary::Silu, &[(1.0, 0.731_058_578_630_004_9), (-1000.0, 0.0)]),
            (Unary::Sin, &[(1.0, 0.841_470_984_807_896_5), (infinity, nan)]),
            (Unary::Sqrt, &[(9.0, 3.0), (-1.0, nan)]),
            (Unary::Tanh, &[(0.5, 0.462_117_157_260_009_8), (infinity, 1.0)]),
            (Unary::Trunc, &[(-1.8, -1.0)]),
            (Unary::Not, &[]),
        ];
        assert!(Unary::ALL.iter().all(|function| table.iter().any(|(other, _)| other == function)));
        for &(function, cases) in table {
            let (x, expected): (Vec<f64>, Vec<f64>) = cases.iter().copied().unzip();
            if !x.is_empty() {
                assert_close(&numbers(function, &[&Tensor::from_slice([x.len()], &x)]), &expected, 1e-15);
            }
        }
        // The tail keeps its digits.
        let tail = numbers(Unary::Gelu, &[&Tensor::scalar(-8.0f64)])[0];
        assert!((tail / -4.976_768_459_417_43e-15 - 1.0).abs() < 1e-12);
    }

    #[test]
    fn every_dtype() {
        assert_eq!(numbers(Unary::Not, &[&Tensor::from_bools([2], &[true, false])]), [0.0, 1.0]);
        assert_eq!(numbers(Unary::Abs, &[&Tensor::from_slice([3], &[-128i8, -3, 3])]), [-128.0, 3.0, 3.0]);
        let large = Tensor::from_slice([1], &[-(1i64 << 60) - 1]);
        let negated = super::super::testing::run(Unary::Neg, &[&large]).unwrap();
        assert_eq!(negated[0].to_vec::<i64>(), [(1 << 60) + 1]);
        // 1/3 in f16: 0x3555.
        let third = Tensor::from_slice([1], &[tensor::f16::from_f32(3.0)]);
        assert_eq!(numbers(Unary::Reciprocal, &[&third]), [f64::from(tensor::f16::from_bits(0x3555))]);
    }
}
