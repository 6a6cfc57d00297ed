//! `z = f(x, y)` for each pair of elements, with broadcasting.

use std::cmp::Ordering;

use super::broadcast::broadcast_operands;
use super::prelude::*;

macro_rules! binary {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A function of two elements of one dtype.
        ///
        /// Arithmetic keeps the dtype, a float or an integer; integers wrap around. Comparisons give `bool`;
        /// those with NaN are false, but for [`Binary::NotEqual`]. The logical ones are of `bool`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Binary { $($(#[$doc])* $variant,)* }

        impl Binary {
            /// Every member of the family.
            pub const ALL: &[Binary] = &[$(Binary::$variant,)*];
        }

        const NAMES: &[&str] = &[$($name,)*];
    };
}

binary! {
    /// `x + y`
    Add = "add";
    /// `x - y`
    Sub = "sub";
    /// `x · y`
    Mul = "mul";
    /// `x / y`; of integers the quotient rounded towards 0, and dividing by 0 is an error.
    Div = "div";
    /// `⌊x / y⌋`; dividing an integer by 0 is an error.
    FloorDiv = "floor_div";
    /// `x - ⌊x / y⌋ · y`, of the sign of `y`; of integers, dividing by 0 is an error.
    Mod = "mod";
    /// The smaller one; NaN if either is.
    Min = "min";
    /// The larger one; NaN if either is.
    Max = "max";
    /// `x^y`; of integers it wraps around, and a negative `y` is an error.
    Pow = "pow";
    /// `x = y`
    Equal = "equal";
    /// `x ≠ y`
    NotEqual = "not_equal";
    /// `x < y`
    Less = "less";
    /// `x ≤ y`
    LessEqual = "less_equal";
    /// `x > y`
    Greater = "greater";
    /// `x ≥ y`
    GreaterEqual = "greater_equal";
    /// Whether both are true.
    And = "and";
    /// Whether at least one is true.
    Or = "or";
    /// Whether exactly one is true.
    Xor = "xor";
}

impl Binary {
    /// Whether the result is `bool` whatever the operands are.
    pub fn is_comparison(self) -> bool {
        use Binary::*;
        matches!(self, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
    }

    /// Whether this is of `bool` alone.
    pub fn is_logical(self) -> bool {
        matches!(self, Binary::And | Binary::Or | Binary::Xor)
    }

    /// Whether there are integers that this refuses.
    pub fn is_partial(self) -> bool {
        matches!(self, Binary::Div | Binary::FloorDiv | Binary::Mod | Binary::Pow)
    }

    /// What is wrong with the integers that this refuses.
    fn fault(self) -> &'static str {
        if self == Binary::Pow { "an integer has a negative power" } else { "an integer is divided by 0" }
    }

    fn compares(self, ordering: Option<Ordering>) -> bool {
        match self {
            Binary::Equal => ordering == Some(Ordering::Equal),
            Binary::NotEqual => ordering != Some(Ordering::Equal),
            Binary::Less => ordering == Some(Ordering::Less),
            Binary::LessEqual => ordering.is_some_and(Ordering::is_le),
            Binary::Greater => ordering == Some(Ordering::Greater),
            Binary::GreaterEqual => ordering.is_some_and(Ordering::is_ge),
            other => unreachable!("{} is no comparison", other.name()),
        }
    }

    /// Arithmetic on floats.
    ///
    /// # Panics
    /// For comparisons and logical functions.
    pub fn evaluate(self, x: f64, y: f64) -> f64 {
        match self {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::FloorDiv => (x / y).floor(),
            Binary::Mod => floor_mod(x, y),
            Binary::Min if x.is_nan() || y.is_nan() => f64::NAN,
            Binary::Min => x.min(y),
            Binary::Max if x.is_nan() || y.is_nan() => f64::NAN,
            Binary::Max => x.max(y),
            Binary::Pow => x.powf(y),
            other => unreachable!("{} of floats", other.name()),
        }
    }

    /// Arithmetic on integers and truth values, or `None` for a division by 0 or a negative power.
    fn evaluate_integers(self, x: i128, y: i128) -> Option<i128> {
        match self {
            Binary::Add => Some(x + y),
            Binary::Sub => Some(x - y),
            Binary::Mul => Some(x.wrapping_mul(y)),
            Binary::Div => x.checked_div(y),
            Binary::FloorDiv => {
                x.checked_rem(y).map(|_| x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0))
            }
            Binary::Mod => {
                x.checked_rem(y).map(|rest| if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest })
            }
            Binary::Pow => Some(wrapping_pow(x, u64::try_from(y).ok()?)),
            Binary::Min => Some(x.min(y)),
            Binary::Max => Some(x.max(y)),
            Binary::And => Some(x & y),
            Binary::Or => Some(x | y),
            Binary::Xor => Some(x ^ y),
            other => unreachable!("{} of integers", other.name()),
        }
    }
}

/// `x - ⌊x / y⌋ · y` without its rounding: the remainder is exact, and takes the sign of `y`.
fn floor_mod(x: f64, y: f64) -> f64 {
    let rest = x % y;
    if rest != 0.0 && (rest < 0.0) != (y < 0.0) {
        rest + y
    } else {
        rest.abs().copysign(if rest == 0.0 { y } else { rest })
    }
}

/// `x^y` in two's complement, where the low bits of products are right however many there are.
fn wrapping_pow(x: i128, mut y: u64) -> i128 {
    let (mut power, mut result) = (x, 1i128);
    while y > 0 {
        if y % 2 == 1 {
            result = result.wrapping_mul(power);
        }
        (power, y) = (power.wrapping_mul(power), y / 2);
    }
    result
}

impl Define for Binary {
    declare!(NAMES[self in Binary::ALL]);

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, y] = operands(inputs, ["x", "y"])?;
        expect_same_dtype(("x", x), ("y", y))?;
        match self {
            _ if self.is_logical() => expect_dtype("x", x, &[DType::Bool])?,
            Binary::Equal | Binary::NotEqual if x.dtype == DType::Bool => {}
            _ => expect_number("x", x)?,
        }
        let result = x.with_shape(broadcast_operands(("x", x), ("y", y))?);
        Ok(vec![if self.is_comparison() { result.with_dtype(DType::Bool) } else { result }])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (x, y, shape) = (inputs[0], inputs[1], outputs[0]);
        let pairs = broadcast_positions(x.shape(), &shape).zip(broadcast_positions(y.shape(), &shape));
        let result = match (Numbers::of(x), Numbers::of(y)) {
            (x, y) if self.is_comparison() => {
                let bools: Vec<bool> = pairs.map(|(i, j)| self.compares(x.compare(i, &y, j))).collect();
                Tensor::from_bools(shape, &bools)
            }
            (Numbers::Integers(a), Numbers::Integers(b)) => {
                let results: Option<Vec<i128>> =
                    pairs.map(|(i, j)| self.evaluate_integers(a[i], b[j])).collect();
                let results = results.ok_or_else(|| Error::evaluation(self.name(), self.fault()))?;
                from_i128(x.dtype(), shape, &results)
            }
            (Numbers::Floats(a), Numbers::Floats(b)) => {
                let results: Vec<f64> = pairs.map(|(i, j)| self.evaluate(a[i], b[j])).collect();
                from_f64(x.dtype(), shape, &results)
            }
            _ => unreachable!("operands of one dtype"),
        };
        Ok(vec![result])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers, run};
    use super::*;

    #[test]
    fn types() {
        check_types(
            Binary::Add,
            &[
                (&["f32[n, 1, 4]", "f32[3, 1]"], "f32[n, 3, 4]"),
                (&["i64[]", "i64[n]"], "i64[n]"),
                (&["f32[n]", "f32[m]"], "add: shapes do not broadcast: x f32[n], y f32[m]"),
                (&["f32[n]", "f16[n]"], "add: dtypes differ: x f32[n], y f16[n]"),
                (&["bool[n]", "bool[n]"], "add: x is bool[n], expected a float or an integer"),
                (
                    &["f32[n]", "f32[n] @gpu:0"],
                    "add: operands are not on the same device: operand 0 is f32[n], operand 1 is f32[n] @gpu:0",
                ),
            ],
        );
        check_types(Binary::Less, &[(&["u8[n]", "u8[1]"], "bool[n]")]);
        check_types(Binary::Equal, &[(&["bool[n]", "bool[n]"], "bool[n]")]);
        check_types(Binary::And, &[(&["i32[1]", "i32[1]"], "and: x is i32[1], expected bool")]);
    }

    #[test]
    fn floats() {
        let nan = f32::NAN;
        let x = Tensor::from_slice([4], &[6.0f32, -1.0, nan, f32::INFINITY]);
        let y = Tensor::from_slice([4], &[4.0f32, 0.0, 1.0, f32::INFINITY]);
        let (no, up) = (f64::NAN, f64::INFINITY);
        let table: [(Binary, [f64; 4]); 15] = [
            (Binary::Add, [10.0, -1.0, no, up]),
            (Binary::Sub, [2.0, -1.0, no, no]),
            (Binary::Mul, [24.0, 0.0, no, up]),
            (Binary::Div, [1.5, -up, no, no]),
            (Binary::FloorDiv, [1.0, -up, no, no]),
            (Binary::Mod, [2.0, no, no, no]),
            (Binary::Min, [4.0, -1.0, no, up]),
            (Binary::Max, [6.0, 0.0, no, up]),
            (Binary::Pow, [1296.0, 1.0, no, up]),
            (Binary::Equal, [0.0, 0.0, 0.0, 1.0]),
            (Binary::NotEqual, [1.0, 1.0, 1.0, 0.0]),
            (Binary::Less, [0.0, 1.0, 0.0, 0.0]),
            (Binary::LessEqual, [0.0, 1.0, 0.0, 1.0]),
            (Binary::Greater, [1.0, 0.0, 0.0, 0.0]),
            (Binary::GreaterEqual, [1.0, 0.0, 0.0, 1.0]),
        ];
        for (function, expected) in table {
            assert_close(&numbers(function, &[&x, &y]), &expected, 0.0);
        }
        let [a, b] =
            [[true, true, false, false], [true, false, true, false]].map(|x| Tensor::from_bools([4], &x));
        for (function, expected) in [
            (Binary::And, [1.0, 0.0, 0.0, 0.0]),
            (Binary::Or, [1.0, 1.0, 1.0, 0.0]),
            (Binary::Xor, [0.0, 1.0, 1.0, 0.0]),
        ] {
            assert_eq!(numbers(function, &[&a, &b]), expected);
        }
    }

    #[test]
    fn integers_wrap_and_quotients_truncate() {
        let x = Tensor::from_slice([3], &[i32::MAX, i32::MIN, -7]);
        let y = Tensor::from_slice([3], &[1i32, -1, 2]);
        let of = |function| run(function, &[&x, &y]).unwrap()[0].to_vec::<i32>();
        assert_eq!(of(Binary::Add), [i32::MIN, i32::MAX, -5]);
        assert_eq!(of(Binary::Div), [i32::MAX, i32::MIN, -3]);
        assert_eq!(of(Binary::Mul), [i32::MAX, i32::MIN, -14]);
        assert_eq!(of(Binary::FloorDiv), [i32::MAX, i32::MIN, -4]);
        assert_eq!(of(Binary::Mod), [0, 0, 1]);
        let signs = [[7i32, -7, 7, -7], [2, 2, -2, -2]].map(|x| Tensor::from_slice([4], &x));
        let of_signs = |function| run(function, &[&signs[0], &signs[1]]).unwrap()[0].to_vec::<i32>();
        assert_eq!(of_signs(Binary::FloorDiv), [3, -4, -4, 3]);
        assert_eq!(of_signs(Binary::Mod), [1, 1, -1, -1]);
        let [x8, y8] = [[3u8, 2, 0], [5, 8, 0]].map(|x| Tensor::from_slice([3], &x));
        assert_eq!(run(Binary::Pow, &[&x8, &y8]).unwrap()[0].to_vec::<u8>(), [243, 0, 1]);
        let error = run(Binary::Pow, &[&x, &Tensor::scalar(-1i32)]).unwrap_err();
        assert_eq!(error.to_string(), "pow: an integer has a negative power");
        let error = run(Binary::Div, &[&x, &Tensor::scalar(0i32)]).unwrap_err();
        assert_eq!(error.to_string(), "div: an integer is divided by 0");
        // f64 would take these for equal.
        let near = [(1i64 << 60) + 1, 1i64 << 60].map(Tensor::scalar);
        assert_eq!(numbers(Binary::Greater, &[&near[0], &near[1]]), [1.0]);
    }

    #[test]
    fn remainders_have_the_sign_of_the_divisor() {
        let x = Tensor::from_slice([4], &[5.5f32, -5.5, 5.5, -5.5]);
        let y = Tensor::from_slice([4], &[2.0f32, 2.0, -2.0, -2.0]);
        assert_eq!(numbers(Binary::Mod, &[&x, &y]), [1.5, 0.5, -0.5, -1.5]);
        assert_eq!(numbers(Binary::FloorDiv, &[&x, &y]), [2.0, -3.0, -3.0, 2.0]);
    }

    #[test]
    fn shapes_broadcast() {
        let x = Tensor::from_slice([2, 1], &[10.0f32, 20.0]);
        let y = Tensor::from_slice([3], &[1.0f32, 2.0, 3.0]);
        assert_eq!(numbers(Binary::Sub, &[&x, &y]), [9.0, 8.0, 7.0, 19.0, 18.0, 17.0]);
        let empty = Tensor::zeros(DType::F32, [0, 3]);
        assert_eq!(numbers(Binary::Sub, &[&empty, &y]), [0.0f64; 0]);
    }
}
