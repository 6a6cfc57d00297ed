//! `z = f(x, y)` for each pair of elements, with broadcasting.

use std::cmp::Ordering;

use tensor::{DType, Shape, Tensor};

use super::broadcast::broadcast_operands;
use super::check::{FLOATS, expect_dtype, expect_number, expect_same_dtype, operands};
use super::elements::{Numbers, broadcast_positions, from_f64, from_i128};
use super::{Attributes, Define};
use crate::{Error, Type, TypeError};

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

            const fn text(self) -> &'static str {
                match self { $(Binary::$variant => $name,)* }
            }
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
    /// The smaller one; NaN if either is.
    Min = "min";
    /// The larger one; NaN if either is.
    Max = "max";
    /// `x^y`, of floats.
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

    fn compares(self, ordering: Option<Ordering>) -> bool {
        match self {
            Binary::Equal => ordering == Some(Ordering::Equal),
            Binary::NotEqual => ordering != Some(Ordering::Equal),
            Binary::Less => ordering == Some(Ordering::Less),
            Binary::LessEqual => ordering.is_some_and(Ordering::is_le),
            Binary::Greater => ordering == Some(Ordering::Greater),
            Binary::GreaterEqual => ordering.is_some_and(Ordering::is_ge),
            other => unreachable!("{} is no comparison", other.text()),
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
            Binary::Min if x.is_nan() || y.is_nan() => f64::NAN,
            Binary::Min => x.min(y),
            Binary::Max if x.is_nan() || y.is_nan() => f64::NAN,
            Binary::Max => x.max(y),
            Binary::Pow => x.powf(y),
            other => unreachable!("{} of floats", other.text()),
        }
    }

    /// Arithmetic on integers and truth values, or `None` for a division by 0.
    fn evaluate_integers(self, x: i128, y: i128) -> Option<i128> {
        match self {
            Binary::Add => Some(x + y),
            Binary::Sub => Some(x - y),
            Binary::Mul => Some(x.wrapping_mul(y)),
            Binary::Div => x.checked_div(y),
            Binary::Min => Some(x.min(y)),
            Binary::Max => Some(x.max(y)),
            Binary::And => Some(x & y),
            Binary::Or => Some(x | y),
            Binary::Xor => Some(x ^ y),
            other => unreachable!("{} of integers", other.text()),
        }
    }
}

impl Define for Binary {
    const NAMES: &[&str] = NAMES;

    fn name(&self) -> &'static str {
        self.text()
    }

    fn parse(name: &str, _attributes: &mut Attributes) -> Result<Binary, TypeError> {
        let unknown = || TypeError::new(format!("`{name}` is no function of two elements"));
        Binary::ALL.iter().copied().find(|function| function.text() == name).ok_or_else(unknown)
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, y] = operands(inputs, ["x", "y"])?;
        expect_same_dtype(("x", x), ("y", y))?;
        match self {
            _ if self.is_logical() => expect_dtype("x", x, &[DType::Bool])?,
            Binary::Equal | Binary::NotEqual if x.dtype == DType::Bool => {}
            Binary::Pow => expect_dtype("x", x, FLOATS)?,
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
                let results =
                    results.ok_or_else(|| Error::evaluation(self.text(), "an integer is divided by 0"))?;
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
