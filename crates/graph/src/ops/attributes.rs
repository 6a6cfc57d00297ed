//! What an op knows besides its operands, as text can hold it.

use std::fmt;
use std::sync::Arc;

use tensor::{DType, Tensor};

use crate::{Dim, Graph, Type, TypeError};

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A finite number, printed with the fewest digits that read back to the same bits. For those of ops that are f32,
    /// see [`Attribute::f32`].
    Float(f64),
    /// A word or a quoted string.
    Text(String),
    /// A dtype.
    DType(DType),
    /// A list of whole numbers.
    Ints(Vec<i64>),
    /// A shape.
    Dims(Vec<Dim>),
    /// A type.
    Type(Type),
    /// A list of types.
    Types(Vec<Type>),
    /// Data.
    Tensor(TensorData),
    /// A graph that the op runs.
    Graph(Arc<Graph>),
}

/// A constant's data; equal when dtype, shape and bytes are.
#[derive(Debug, Clone)]
pub struct TensorData(pub Tensor);

impl From<Tensor> for TensorData {
    fn from(tensor: Tensor) -> TensorData {
        TensorData(tensor)
    }
}

impl PartialEq for TensorData {
    fn eq(&self, other: &TensorData) -> bool {
        let (a, b) = (&self.0, &other.0);
        a.dtype() == b.dtype() && a.shape() == b.shape() && a.contiguous().bytes() == b.contiguous().bytes()
    }
}

impl Attribute {
    /// A number of 32 bits: the one of 64 bits with the fewest digits that rounds to it, so that 0.1 prints as `0.1`.
    pub fn f32(value: f32) -> Attribute {
        let shortest: Option<f64> = value.to_string().parse().ok();
        Attribute::Float(shortest.filter(|&wide| wide as f32 == value).unwrap_or_else(|| value.into()))
    }

    /// A count or an index.
    ///
    /// # Panics
    /// If it is 2^63 or more, which no size of memory is.
    pub fn index(value: usize) -> Attribute {
        Attribute::Int(i64::try_from(value).expect("an index below 2^63"))
    }

    /// A list of counts or indices.
    ///
    /// # Panics
    /// If one is 2^63 or more, which no size of memory is.
    pub fn indices(values: &[usize]) -> Attribute {
        let value = |&value| i64::try_from(value).expect("an index below 2^63");
        Attribute::Ints(values.iter().map(value).collect())
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Bool(value) => write!(f, "{value}"),
            Attribute::Int(value) => write!(f, "{value}"),
            Attribute::Float(value) => write!(f, "{value:?}"),
            Attribute::Text(text) if is_word(text) => f.write_str(text),
            Attribute::Text(text) => write!(f, "{text:?}"),
            Attribute::DType(dtype) => write!(f, "{dtype}"),
            Attribute::Ints(values) => write!(f, "{values:?}"),
            Attribute::Dims(dims) => write!(f, "{dims:?}"),
            Attribute::Type(ty) => write!(f, "{ty}"),
            Attribute::Types(types) => {
                let types: Vec<String> = types.iter().map(Type::to_string).collect();
                write!(f, "[{}]", types.join(", "))
            }
            Attribute::Tensor(TensorData(tensor)) => write!(f, "{}{}", tensor.dtype(), tensor.shape()),
            Attribute::Graph(graph) => write!(f, "graph {}", graph.name()),
        }
    }
}

/// Whether a text reads back as itself without quotes.
fn is_word(text: &str) -> bool {
    Dim::is_identifier(text) && !["true", "false", "graph"].contains(&text) && text.parse::<DType>().is_err()
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

    /// Other attributes under the same names, unless one has none.
    pub(crate) fn try_map(self, mut map: impl FnMut(Attribute) -> Option<Attribute>) -> Option<Attributes> {
        let pairs = self.0.into_iter().map(|(name, attribute)| Some((name, map(attribute)?)));
        pairs.collect::<Option<_>>().map(Attributes)
    }

    /// Takes an attribute out, if it is there.
    pub fn take(&mut self, name: &str) -> Option<Attribute> {
        let position = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(position).1)
    }

    /// Refuses attributes that are left.
    ///
    /// # Errors
    /// If any are left.
    pub fn expect_empty(&self) -> Result<(), TypeError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(type_error!("unknown attribute `{name}`")),
        }
    }
}
