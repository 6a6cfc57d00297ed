//! What a builder takes where a value may be a number too, and the dtype that operands have in common.

use tensor::{DType, Tensor};

use super::Builder;
use crate::ops::{Cast, Define};
use crate::{DeviceRef, Error, Type, TypeError, Value};

/// An operand of a function of elements: a value of the graph, a number, or data.
///
/// Among values of the graph, the highest category (bool, unsigned, signed, float) and the widest width must be those
/// of one of them; the others are cast. Numbers and data take the dtype of the values: whole numbers must be exact in
/// it, and a float goes into no integer.
#[derive(Debug, Clone)]
pub enum Operand {
    /// A value of the graph.
    Value(Value),
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Data.
    Tensor(Tensor),
}

macro_rules! from {
    ($($T:ty => $variant:ident,)*) => { $(
        impl From<$T> for Operand {
            fn from(value: $T) -> Operand {
                Operand::$variant(value.into())
            }
        }
    )* };
}

from! {
    Value => Value,
    bool => Bool,
    i32 => Int,
    i64 => Int,
    u8 => Int,
    u32 => Int,
    f32 => Float,
    f64 => Float,
    Tensor => Tensor,
}

impl From<usize> for Operand {
    /// # Panics
    /// If the number is 2^63 or more.
    fn from(value: usize) -> Operand {
        Operand::Int(i64::try_from(value).expect("a number below 2^63"))
    }
}

impl Operand {
    /// The number, if this is one.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Operand::Bool(value) => Some(f64::from(u8::from(*value))),
            Operand::Int(value) => Some(*value as f64),
            Operand::Float(value) => Some(*value),
            Operand::Tensor(tensor) if tensor.shape().rank() == 0 => tensor.to_f64_vec().first().copied(),
            Operand::Value(_) | Operand::Tensor(_) => None,
        }
    }
}

impl Builder {
    /// The operands as values of the dtype that they have in common; `op` is what errors name. Numbers and data become
    /// constants on the device of the first value.
    ///
    /// # Errors
    /// If there is no such dtype, or no operand is a value of the graph.
    #[track_caller]
    pub fn promote(&mut self, op: &'static str, operands: &[Operand]) -> Result<Vec<Value>, Error> {
        let dtype = self.common_dtype(op, operands)?;
        self.promote_to(op, operands, dtype)
    }

    /// The operands as values of a dtype.
    #[track_caller]
    pub(super) fn promote_to(
        &mut self,
        op: &'static str,
        operands: &[Operand],
        dtype: DType,
    ) -> Result<Vec<Value>, Error> {
        let mut device = DeviceRef::Cpu;
        for operand in operands.iter().rev() {
            if let Operand::Value(value) = operand {
                device = self.operand(op, *value)?.device;
            }
        }
        let mut values = Vec::with_capacity(operands.len());
        for operand in operands {
            values.push(match operand {
                Operand::Value(value) => self.cast(*value, dtype)?,
                literal => match literal_tensor(literal, dtype) {
                    Ok(tensor) => {
                        let constant = self.constant(tensor);
                        self.transfer_to(constant, device)?
                    }
                    Err(error) => return Err(self.refuse(op, error.0)),
                },
            });
        }
        Ok(values)
    }

    /// A number or data in a dtype, under the rules of [`Operand`].
    ///
    /// # Errors
    /// If the dtype cannot hold it, or it is a value of the graph.
    #[track_caller]
    pub fn constant_of(&mut self, literal: impl Into<Operand>, dtype: DType) -> Result<Value, Error> {
        match literal.into() {
            Operand::Value(value) => {
                let message =
                    format!("got the value {}, expected a number or data", self.operand("constant", value)?);
                Err(self.refuse("constant", message))
            }
            literal => match literal_tensor(&literal, dtype) {
                Ok(tensor) => Ok(self.constant(tensor)),
                Err(error) => Err(self.refuse("constant", error.0)),
            },
        }
    }

    /// The one of the values' dtypes that holds them all.
    #[track_caller]
    pub(super) fn common_dtype(&self, op: &'static str, operands: &[Operand]) -> Result<DType, Error> {
        let mut types: Vec<&Type> = Vec::with_capacity(operands.len());
        for operand in operands {
            if let Operand::Value(value) = operand {
                types.push(self.operand(op, *value)?);
            }
        }
        let mut dtypes: Vec<DType> = types.iter().map(|ty| ty.dtype).collect();
        dtypes.dedup();
        match dtypes[..] {
            [] => return Err(self.refuse(op, "no operand is a value of the graph")),
            [dtype] => return Ok(dtype),
            _ => {}
        }
        let highest = dtypes.iter().map(|dtype| category(*dtype)).max().flatten();
        // Signed numbers need a bit more than unsigned ones.
        let width = |dtype: &DType| match (highest, category(*dtype)) {
            (Some(SIGNED), Some(UNSIGNED)) => 2 * dtype.size_in_bits(),
            _ => dtype.size_in_bits(),
        };
        let widest = dtypes.iter().map(width).max();
        let all_known = dtypes.iter().all(|dtype| category(*dtype).is_some());
        let fits = |dtype: &&DType| all_known && category(**dtype) == highest && Some(width(dtype)) == widest;
        match dtypes.iter().filter(fits).collect::<Vec<_>>()[..] {
            [first, ref others @ ..] if others.iter().all(|other| *other == first) => Ok(*first),
            _ => {
                let list: Vec<String> = types.iter().map(|ty| ty.to_string()).collect();
                let list = list.join(", ");
                Err(self.refuse(op, format!("no dtype of the operands holds them all, cast some: {list}")))
            }
        }
    }
}

const UNSIGNED: u8 = 1;
const SIGNED: u8 = 2;
const FLOAT: u8 = 3;

/// Bool, unsigned, signed, float, in this order; none for blocks.
fn category(dtype: DType) -> Option<u8> {
    match dtype {
        DType::Bool => Some(0),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => Some(UNSIGNED),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => Some(SIGNED),
        dtype if dtype.is_float() => Some(FLOAT),
        _ => None,
    }
}

/// A number or data in a dtype.
pub(super) fn literal_tensor(literal: &Operand, dtype: DType) -> Result<Tensor, TypeError> {
    refuse_if!(
        dtype.is_sub_byte() && literal.number().is_some(),
        "one number does not fill a byte of {dtype}"
    );
    match literal {
        Operand::Value(_) => unreachable!("a value is no literal"),
        Operand::Bool(value) => cast(&Tensor::from_bools([], &[*value]), dtype),
        Operand::Int(value) => {
            expect_exact(*value, dtype)?;
            cast(&Tensor::scalar(*value), dtype)
        }
        Operand::Float(value) => {
            let tensor = cast_float(&Tensor::scalar(*value), dtype)?;
            refuse_if!(
                value.is_finite() && !tensor.to_f64_vec()[0].is_finite(),
                "the number {value} is beyond {dtype}"
            );
            Ok(tensor)
        }
        Operand::Tensor(tensor) if tensor.dtype() == dtype => Ok(tensor.clone()),
        Operand::Tensor(tensor) if tensor.dtype().is_float() => cast_float(tensor, dtype),
        Operand::Tensor(tensor) if tensor.dtype() == DType::U64 => {
            let large = tensor.to_vec::<u64>().into_iter().find(|&value| i64::try_from(value).is_err());
            match large {
                Some(value) if dtype.is_integer() => {
                    Err(type_error!("the whole number {value} is not exact in {dtype}"))
                }
                _ => exact_tensor(tensor, dtype),
            }
        }
        Operand::Tensor(tensor) => exact_tensor(tensor, dtype),
    }
}

/// Whole numbers or truth values, each of which must be exact.
fn exact_tensor(tensor: &Tensor, dtype: DType) -> Result<Tensor, TypeError> {
    if tensor.dtype().is_integer() {
        let integers = cast(tensor, DType::I64)?;
        integers.to_vec::<i64>().into_iter().try_for_each(|value| expect_exact(value, dtype))?;
    }
    cast(tensor, dtype)
}

fn cast_float(tensor: &Tensor, dtype: DType) -> Result<Tensor, TypeError> {
    match category(dtype) {
        Some(FLOAT) => cast(tensor, dtype),
        _ => Err(type_error!("a float does not go into {dtype}")),
    }
}

fn cast(tensor: &Tensor, to: DType) -> Result<Tensor, TypeError> {
    let shape = tensor.shape();
    refuse_if!(to.bytes_for_shape(shape).is_none(), "{shape} of {to} fill no whole bytes");
    let ty = Type::new(tensor.dtype(), tensor.shape().iter().copied());
    Cast { to }.infer(&[&ty])?;
    let results = Cast { to }.reference(&[tensor], &[*tensor.shape()]);
    let mut results = results.map_err(|error| TypeError::new(error.to_string()))?;
    Ok(results.swap_remove(0))
}

/// Refuses a whole number that a dtype cannot tell from its neighbors.
fn expect_exact(value: i64, dtype: DType) -> Result<(), TypeError> {
    let limits = match dtype {
        DType::Bool => Some((0, 1)),
        DType::U8 => Some((0, i128::from(u8::MAX))),
        DType::I8 => Some((i128::from(i8::MIN), i128::from(i8::MAX))),
        DType::U16 => Some((0, i128::from(u16::MAX))),
        DType::I16 => Some((i128::from(i16::MIN), i128::from(i16::MAX))),
        DType::U32 => Some((0, i128::from(u32::MAX))),
        DType::I32 => Some((i128::from(i32::MIN), i128::from(i32::MAX))),
        DType::U64 => Some((0, i128::from(u64::MAX))),
        DType::I64 => Some((i128::from(i64::MIN), i128::from(i64::MAX))),
        DType::F16 => Some((-(1 << 11), 1 << 11)),
        DType::BF16 => Some((-(1 << 8), 1 << 8)),
        DType::F32 => Some((-(1 << 24), 1 << 24)),
        DType::F64 => Some((-(1 << 53), 1 << 53)),
        // As far as the bits of the mantissa reach.
        DType::F8E4M3 | DType::F8E4M3Fnuz => Some((-(1 << 4), 1 << 4)),
        DType::F8E5M2 | DType::F8E5M2Fnuz => Some((-(1 << 3), 1 << 3)),
        DType::F8E8M0 => Some((1, 2)),
        DType::F6E2M3 => Some((-7, 7)),
        DType::F6E3M2 => Some((-(1 << 3), 1 << 3)),
        DType::F4E2M1 => Some((-4, 4)),
        _ => None,
    };
    refuse_if!(
        !limits.is_some_and(|(least, most)| (least..=most).contains(&i128::from(value))),
        "the whole number {value} is not exact in {dtype}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims;

    /// The type of the sum of inputs of two dtypes, or the error.
    fn sum(a: DType, b: DType) -> String {
        let mut builder = Builder::new("g");
        let x = builder.input("x", Type::new(a, dims!["n"]));
        let y = builder.input("y", Type::new(b, dims!["n"]));
        match builder.add(x, y) {
            Ok(z) => builder.ty(z).to_string(),
            Err(error) => error.without_location().to_string(),
        }
    }

    #[test]
    fn one_of_the_dtypes_holds_both() {
        use DType::*;
        assert_eq!(sum(F32, F32), "f32[n]");
        assert_eq!(sum(F32, I32), "f32[n]");
        assert_eq!(sum(U8, F16), "f16[n]");
        assert_eq!(sum(I64, U32), "i64[n]");
        assert_eq!(sum(Bool, I8), "i8[n]");
        assert_eq!(sum(F16, F64), "f64[n]");
        assert_eq!(sum(F8E4M3, F8E4M3), "f8e4m3fn[n]");
        assert_eq!(sum(F4E2M1, F8E5M2), "f8e5m2[n]");
        assert_eq!(sum(F8E5M2, BF16), "bf16[n]");
        let refusal = "add: no dtype of the operands holds them all, cast some: ";
        for (a, b) in [(U8, I8), (I32, F16), (F16, BF16), (F8E4M3, F8E5M2), (U64, I32), (Q8_0, F32)] {
            assert_eq!(sum(a, b), format!("{refusal}{a}[n], {b}[n]"));
        }
    }

    #[test]
    fn numbers_take_the_dtype_of_the_values() {
        let with = |dtype: DType, literal: Operand| {
            let mut b = Builder::new("g");
            let x = b.input("x", Type::new(dtype, dims!["n"]));
            b.mul(x, literal)
                .map(|y| b.ty(y).to_string())
                .unwrap_or_else(|error| error.without_location().to_string())
        };
        assert_eq!(with(DType::F16, 2048.into()), "f16[n]");
        assert_eq!(with(DType::F16, 2049.into()), "mul: the whole number 2049 is not exact in f16");
        assert_eq!(with(DType::BF16, 257.into()), "mul: the whole number 257 is not exact in bf16");
        assert_eq!(with(DType::F32, (1 << 24).into()), "f32[n]");
        assert_eq!(with(DType::U8, (-1).into()), "mul: the whole number -1 is not exact in u8");
        assert_eq!(with(DType::I32, 0.5.into()), "mul: a float does not go into i32");
        assert_eq!(with(DType::F16, 0.1.into()), "f16[n]");
        assert_eq!(with(DType::F16, 1e9.into()), "mul: the number 1000000000 is beyond f16");
        assert_eq!(with(DType::I64, true.into()), "i64[n]");
        assert_eq!(with(DType::Bool, 1.into()), "bool[n]");
        assert_eq!(with(DType::Bool, 2.into()), "mul: the whole number 2 is not exact in bool");
        assert_eq!(with(DType::F8E4M3, 0.1.into()), "f8e4m3fn[n]");
        let integers = Tensor::from_slice([1], &[300i64]);
        assert_eq!(with(DType::BF16, integers.into()), "mul: the whole number 300 is not exact in bf16");
        let huge = Tensor::from_slice([1], &[u64::MAX]);
        let message = "mul: the whole number 18446744073709551615 is not exact in i64";
        assert_eq!(with(DType::I64, huge.into()), message);
        let floats = Tensor::from_slice([1], &[0.1f64]);
        assert_eq!(with(DType::F16, floats.clone().into()), "f16[n]");
        assert_eq!(with(DType::I16, floats.into()), "mul: a float does not go into i16");
        let mut b = Builder::new("g");
        let one = b.constant_of(1, DType::F16).unwrap();
        assert_eq!(b.ty(one).to_string(), "f16[]");
        let error = b.constant_of(256, DType::U8).unwrap_err().without_location().to_string();
        assert_eq!(error, "constant: the whole number 256 is not exact in u8");
        assert_eq!(
            b.add(1, 2.0).unwrap_err().without_location().to_string(),
            "add: no operand is a value of the graph"
        );
    }
}
