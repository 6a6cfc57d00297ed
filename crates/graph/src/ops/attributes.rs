//! What an op knows besides its operands, as text can hold it.

use tensor::{DType, Tensor};

use crate::{Dim, TypeError};

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction, printed with the digits that read back to the same bits.
    Float(f64),
    /// A word or a quoted string.
    Text(String),
    /// A dtype.
    DType(DType),
    /// A list of whole numbers.
    Ints(Vec<i64>),
    /// A shape.
    Dims(Vec<Dim>),
    /// Data.
    Tensor(TensorData),
}

/// A constant's data; equal when dtype, shape and bytes are.
#[derive(Debug, Clone)]
pub struct TensorData(pub Tensor);

impl PartialEq for TensorData {
    fn eq(&self, other: &TensorData) -> bool {
        let (a, b) = (&self.0, &other.0);
        a.dtype() == b.dtype() && a.shape() == b.shape() && a.contiguous().bytes() == b.contiguous().bytes()
    }
}

/// Named attributes in the order they print.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attributes(Vec<(String, Attribute)>);

impl Attributes {
    /// Adds an attribute; for chains in `Define::attributes`.
    pub fn with(mut self, name: &str, value: Attribute) -> Attributes {
        self.0.push((name.to_string(), value));
        self
    }

    /// Adds an attribute where there is one.
    pub fn with_some(self, name: &str, value: Option<Attribute>) -> Attributes {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attribute)> {
        self.0.iter().map(|(name, value)| (&name[..], value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes an attribute out, if it is there.
    pub fn take(&mut self, name: &str) -> Option<Attribute> {
        let position = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(position).1)
    }

    /// Takes a whole number out, if it is there.
    ///
    /// # Errors
    /// If it is no whole number, or does not fit `T`.
    pub fn int<T: TryFrom<i64>>(&mut self, name: &str) -> Result<Option<T>, TypeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Int(value)) => T::try_from(value)
                .map(Some)
                .map_err(|_| TypeError::new(format!("attribute `{name}` = {value} is out of range"))),
            Some(other) => Err(wrong_kind(name, "a whole number", &other)),
        }
    }

    /// Takes a number out, if it is there.
    ///
    /// # Errors
    /// If it is no number.
    pub fn float(&mut self, name: &str) -> Result<Option<f64>, TypeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Float(value)) => Ok(Some(value)),
            Some(Attribute::Int(value)) => Ok(Some(value as f64)),
            Some(other) => Err(wrong_kind(name, "a number", &other)),
        }
    }

    /// Takes a truth value out; absent means false.
    ///
    /// # Errors
    /// If it is something else.
    pub fn flag(&mut self, name: &str) -> Result<bool, TypeError> {
        match self.take(name) {
            None => Ok(false),
            Some(Attribute::Bool(value)) => Ok(value),
            Some(other) => Err(wrong_kind(name, "true or false", &other)),
        }
    }

    /// Takes a word out, if it is there.
    ///
    /// # Errors
    /// If it is something else.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, TypeError> {
        match self.take(name) {
            None => Ok(None),
            Some(Attribute::Text(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_kind(name, "a word", &other)),
        }
    }

    /// Refuses attributes that nobody took.
    ///
    /// # Errors
    /// If any are left.
    pub fn expect_empty(&self, op: &str) -> Result<(), TypeError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(TypeError::new(format!("`{op}` has no attribute `{name}`"))),
        }
    }
}

/// The value of an attribute that must be there.
///
/// # Errors
/// If it is not.
pub fn required<T>(name: &str, value: Option<T>) -> Result<T, TypeError> {
    value.ok_or_else(|| TypeError::new(format!("attribute `{name}` is missing")))
}

fn wrong_kind(name: &str, expected: &str, got: &Attribute) -> TypeError {
    TypeError::new(format!("attribute `{name}` is {got:?}, expected {expected}"))
}
