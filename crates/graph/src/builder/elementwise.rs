//! Functions of elements: of one, of pairs that broadcast, and the choice between two.

use tensor::DType;

use super::{Builder, Operand, widened};
use crate::ops::{Binary, Cast, Select, Unary};
use crate::{Error, Value};

/// Which formula [`Builder::gelu`] computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Approximation {
    /// `x · Φ(x)` with the normal distribution's own Φ.
    #[default]
    None,
    /// `x · (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2`
    Tanh,
    /// `x · sigmoid(1.702 x)`
    Quick,
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {
        /// Functions of each element: [..] → [..].
        impl Builder {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(&mut self, x: Value) -> Result<Value, Error> {
                self.unary(Unary::$function, x)
            })*
        }
    };
}

unary! {
    /// `|x|`.
    abs = Abs;
    /// `arccos x` in radians.
    acos = Acos;
    /// `artanh x`.
    atanh = Atanh;
    /// The next whole number above.
    ceil = Ceil;
    /// `cos x`, radians.
    cos = Cos;
    /// `2/√π ∫₀ˣ e^(-t²) dt`.
    erf = Erf;
    /// `e^x`.
    exp = Exp;
    /// The next whole number below.
    floor = Floor;
    /// The natural logarithm.
    log = Log;
    /// `ln(1 + x)`, which keeps its digits near 0.
    log1p = Log1p;
    /// `-x`.
    negate = Neg;
    /// `1 - x`, of truth values.
    logical_not = Not;
    /// `max(x, 0)`.
    relu = Relu;
    /// To the nearest whole number, halves to the even one.
    round = Round;
    /// `1 / √x`.
    rsqrt = Rsqrt;
    /// `1 / (1 + e^-x)`.
    sigmoid = Sigmoid;
    /// `x · sigmoid(x)`.
    silu = Silu;
    /// `sin x`, radians.
    sin = Sin;
    /// `√x`.
    sqrt = Sqrt;
    /// The hyperbolic tangent.
    tanh = Tanh;
    /// The next whole number towards 0.
    trunc = Trunc;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {
        /// Functions of each pair of elements; shapes broadcast, and dtypes go together as [`Operand`] says.
        impl Builder {
            $($(#[$doc])*
            #[track_caller]
            pub fn $name(&mut self, x: impl Into<Operand>, y: impl Into<Operand>) -> Result<Value, Error> {
                self.binary(Binary::$function, x, y)
            })*
        }
    };
}

binary! {
    /// `x + y`.
    add = Add;
    /// `x - y`.
    sub = Sub;
    /// `x · y` for each pair of elements.
    mul = Mul;
    /// `⌊x / y⌋`.
    floor_div = FloorDiv;
    /// `x - ⌊x / y⌋ · y`, of the sign of `y`: Python's `%`.
    rem = Mod;
    /// `x^y`.
    pow = Pow;
    /// The smaller of each pair; NaN if either is. [`Builder::reduce_min`] is along an axis.
    min = Min;
    /// The larger of each pair; NaN if either is. [`Builder::reduce_max`] is along an axis.
    max = Max;
    /// `x = y` → `bool`.
    equal = Equal;
    /// `x ≠ y` → `bool`; true where either is NaN.
    not_equal = NotEqual;
    /// `x < y` → `bool`; false where either is NaN, as all of these.
    less = Less;
    /// `x ≤ y` → `bool`.
    less_equal = LessEqual;
    /// `x > y` → `bool`.
    greater = Greater;
    /// `x ≥ y` → `bool`.
    greater_equal = GreaterEqual;
    /// Whether both are true.
    logical_and = And;
    /// Whether at least one is true.
    logical_or = Or;
    /// Whether exactly one is true.
    logical_xor = Xor;
}

impl Builder {
    /// A function of each element: [..] → [..]. Unsigned integers and truth values are their own magnitude and `relu`,
    /// and integers and truth values are whole numbers already.
    #[track_caller]
    pub fn unary(&mut self, function: Unary, x: Value) -> Result<Value, Error> {
        let dtype = self.operand(crate::Op::from(function).name(), x)?.dtype;
        let is_same = match function {
            Unary::Abs | Unary::Relu => dtype.is_unsigned_integer() || dtype == DType::Bool,
            Unary::Ceil | Unary::Floor | Unary::Round | Unary::Trunc => {
                dtype.is_integer() || dtype == DType::Bool
            }
            _ => false,
        };
        if is_same {
            return Ok(x);
        }
        let x = self.cast(x, widened(dtype))?;
        let y = self.op(function, &[x])?;
        self.cast(y, dtype)
    }

    /// A function of each pair of elements; shapes broadcast. Floats of 8 bits and fewer are computed in f32 and rounded
    /// once. Arithmetic of truth values is that of 0 and 1, and the result whether it is not 0.
    #[track_caller]
    pub fn binary(
        &mut self,
        function: Binary,
        x: impl Into<Operand>,
        y: impl Into<Operand>,
    ) -> Result<Value, Error> {
        let (name, operands) = (crate::Op::from(function).name(), [x.into(), y.into()]);
        let dtype = self.common_dtype(name, &operands)?;
        let computed = widened(dtype);
        let operands = self.promote_to(name, &operands, computed)?;
        if dtype == DType::Bool {
            return self.of_truth_values(function, operands[0], operands[1]);
        }
        let result = self.op(function, &operands)?;
        if computed == dtype || function.is_comparison() { Ok(result) } else { self.cast(result, dtype) }
    }

    /// `x / y`; shapes broadcast. Of two integers the quotient is in f64; [`Builder::floor_div`] keeps integers.
    #[track_caller]
    pub fn div(&mut self, x: impl Into<Operand>, y: impl Into<Operand>) -> Result<Value, Error> {
        let (x, y) = (x.into(), y.into());
        if !self.common_dtype("div", &[x.clone(), y.clone()])?.is_integer() {
            return self.binary(Binary::Div, x, y);
        }
        let operands = self.promote("div", &[x, y])?;
        let operands = [self.cast(operands[0], DType::F64)?, self.cast(operands[1], DType::F64)?];
        self.op(Binary::Div, &operands)
    }

    /// Arithmetic and comparisons of 0 and 1 as logic. What is divided by false is as in NumPy: a quotient of floats is
    /// true (infinite, or NaN), one that is rounded down false, and so is a remainder.
    #[track_caller]
    fn of_truth_values(&mut self, function: Binary, x: Value, y: Value) -> Result<Value, Error> {
        let (negated, logic) = match function {
            Binary::Add | Binary::Max => (None, Binary::Or),
            Binary::Mul | Binary::Min | Binary::FloorDiv => (None, Binary::And),
            Binary::Sub => (None, Binary::Xor),
            Binary::Div | Binary::Pow | Binary::GreaterEqual => (Some(1), Binary::Or),
            Binary::Greater => (Some(1), Binary::And),
            Binary::LessEqual => (Some(0), Binary::Or),
            Binary::Less => (Some(0), Binary::And),
            Binary::Mod => {
                let both = self.op(Binary::And, &[x, y])?;
                return self.op(Binary::Xor, &[both, both]);
            }
            Binary::Equal | Binary::NotEqual | Binary::And | Binary::Or | Binary::Xor => (None, function),
        };
        let mut operands = [x, y];
        if let Some(position) = negated {
            operands[position] = self.op(Unary::Not, &[operands[position]])?;
        }
        self.op(logic, &operands)
    }

    /// The Gaussian error linear unit, by a formula of choice: [..] → [..].
    #[track_caller]
    pub fn gelu(&mut self, x: Value, approximate: Approximation) -> Result<Value, Error> {
        let function = match approximate {
            Approximation::None => Unary::Gelu,
            Approximation::Tanh => Unary::GeluTanh,
            Approximation::Quick => Unary::GeluQuick,
        };
        self.unary(function, x)
    }

    /// Where `x`, of floats, is NaN → `bool`.
    #[track_caller]
    pub fn is_nan(&mut self, x: Value) -> Result<Value, Error> {
        self.expect_float("is_nan", x)?;
        self.op(Binary::NotEqual, &[x, x])
    }

    /// Where `x`, of floats, is infinite, of either sign → `bool`.
    #[track_caller]
    pub fn is_inf(&mut self, x: Value) -> Result<Value, Error> {
        self.expect_float("is_inf", x)?;
        let magnitude = self.abs(x)?;
        self.equal(magnitude, f64::INFINITY)
    }

    /// `a` where `condition` (bool) is true, else `b`; shapes broadcast.
    #[track_caller]
    pub fn select(
        &mut self,
        condition: Value,
        a: impl Into<Operand>,
        b: impl Into<Operand>,
    ) -> Result<Value, Error> {
        let operands = self.promote("select", &[a.into(), b.into()])?;
        self.op(Select, &[condition, operands[0], operands[1]])
    }

    /// [`Builder::select`] under its other name.
    #[track_caller]
    pub fn where_(
        &mut self,
        condition: Value,
        a: impl Into<Operand>,
        b: impl Into<Operand>,
    ) -> Result<Value, Error> {
        self.select(condition, a, b)
    }

    /// `x` in another dtype; `x` itself if it has that dtype.
    #[track_caller]
    pub fn cast(&mut self, x: Value, to: DType) -> Result<Value, Error> {
        if self.operand("cast", x)?.dtype == to { Ok(x) } else { self.op(Cast { to }, &[x]) }
    }

    #[track_caller]
    fn expect_float(&self, op: &'static str, x: Value) -> Result<(), Error> {
        let ty = self.operand(op, x)?;
        if ty.dtype.is_float() {
            Ok(())
        } else {
            Err(self.refuse(op, format!("x is {ty}, expected a float")))
        }
    }

    /// A number in the dtype of a value.
    #[track_caller]
    pub fn scalar_like(&mut self, x: Value, number: impl Into<Operand>) -> Result<Value, Error> {
        // One number fills no byte of a dtype that is smaller.
        let x = if self.ty(x).dtype.is_sub_byte() { self.cast(x, DType::F32)? } else { x };
        let values = self.promote("constant", &[x.into(), number.into()])?;
        Ok(values[1])
    }
}

#[cfg(test)]
mod tests {
    use tensor::Tensor;

    use super::*;
    use crate::{Type, dims};

    fn values(
        build: impl FnOnce(&mut Builder, Value) -> Result<Value, Error>,
        x: Tensor,
    ) -> (DType, Vec<f64>) {
        let mut b = Builder::new("g");
        let input = b.input("x", Type::new(x.dtype(), dims!["n"]));
        let y = build(&mut b, input).unwrap();
        let y = b.finish(&[y]).unwrap().evaluate(&[x], &|_| None).unwrap().outputs.swap_remove(0);
        (y.dtype(), y.to_f64_vec())
    }

    #[test]
    fn quotients_of_integers_are_f64() {
        let x = Tensor::from_slice([2], &[7i32, -7]);
        assert_eq!(values(|b, x| b.div(x, 2), x.clone()), (DType::F64, vec![3.5, -3.5]));
        assert_eq!(values(|b, x| b.floor_div(x, 2), x.clone()), (DType::I32, vec![3.0, -4.0]));
        assert_eq!(values(|b, x| b.rem(x, 2), x.clone()), (DType::I32, vec![1.0, 1.0]));
        assert_eq!(values(|b, x| b.sub(1, x), x), (DType::I32, vec![-6.0, 8.0]));
    }

    #[test]
    fn truth_values_are_0_and_1() {
        let mut b = Builder::new("g");
        let [x, y] = ["x", "y"].map(|name| b.input(name, Type::new(DType::Bool, dims!["n"])));
        let names = [
            "add",
            "sub",
            "mul",
            "max",
            "min",
            "div",
            "floor_div",
            "mod",
            "pow",
            "less",
            "less_equal",
            "greater",
            "greater_equal",
        ];
        let results: Vec<Value> = names
            .iter()
            .map(|name| {
                let function =
                    Binary::ALL.iter().find(|function| crate::Op::from(**function).name() == *name);
                b.binary(*function.unwrap(), x, y).unwrap()
            })
            .collect();
        let pairs = [[false, false, true, true], [false, true, false, true]];
        let inputs = pairs.map(|values| Tensor::from_bools([4], &values));
        let outputs = b.finish(&results).unwrap().evaluate(&inputs, &|_| None).unwrap().outputs;
        let expected = [
            [0, 1, 1, 1],
            [0, 1, 1, 0],
            [0, 0, 0, 1],
            [0, 1, 1, 1],
            [0, 0, 0, 1],
            [1, 0, 1, 1],
            [0, 0, 0, 1],
            [0, 0, 0, 0],
            [1, 0, 1, 1],
            [0, 1, 0, 0],
            [1, 1, 0, 1],
            [0, 0, 1, 0],
            [1, 0, 1, 1],
        ];
        for ((name, output), expected) in names.iter().zip(&outputs).zip(expected) {
            assert_eq!((output.dtype(), output.to_vec::<u8>()), (DType::Bool, expected.to_vec()), "{name}");
        }
    }

    #[test]
    fn small_floats_are_rounded_once() {
        let x = Tensor::from_slice([3], &[1.0f32, 3.0, -0.5]);
        let tenths = |b: &mut Builder, x: Value| {
            let small = b.cast(x, DType::F8E4M3)?;
            let y = b.mul(small, 0.1)?;
            let y = b.exp(y)?;
            b.relu(y)
        };
        let y = values(tenths, x.clone());
        // 0.1, 0.3 and -0.05 are 0.1015625, 0.3125 and -0.05078125 in this dtype, and their powers the nearest of theirs.
        assert_eq!(y, (DType::F8E4M3, vec![1.125, 1.375, 0.9375]));
        let small = |b: &mut Builder, x: Value| {
            let small = b.cast(x, DType::F8E5M2)?;
            b.less(small, 1)
        };
        assert_eq!(values(small, x).1, [0.0, 0.0, 1.0]);
    }

    #[test]
    fn comparisons_are_those_of_ieee() {
        let x = Tensor::from_slice([3], &[f32::NAN, 1.0, f32::NEG_INFINITY]);
        assert_eq!(values(|b, x| b.less(x, 2), x.clone()).1, [0.0, 1.0, 1.0]);
        assert_eq!(values(|b, x| b.less_equal(x, 1), x.clone()).1, [0.0, 1.0, 1.0]);
        assert_eq!(values(|b, x| b.is_nan(x), x.clone()), (DType::Bool, vec![1.0, 0.0, 0.0]));
        assert_eq!(values(|b, x| b.is_inf(x), x.clone()), (DType::Bool, vec![0.0, 0.0, 1.0]));
        let known = |b: &mut Builder, x: Value| {
            let unknown = b.is_nan(x)?;
            b.where_(unknown, 0, x)
        };
        assert_eq!(values(known, x).1, [0.0, 1.0, f64::NEG_INFINITY]);
    }
}
