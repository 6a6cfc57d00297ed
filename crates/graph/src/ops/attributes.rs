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

    /// Takes a whole number out, if it is there.
    ///
    /// # Errors
    /// If it is no whole number, or does not fit `T`.
    pub fn int<T: TryFrom<i64>>(&mut self, name: &str) -> Result<Option<T>, TypeError> {
        let value = self.typed(name, "a whole number", |attribute| match attribute {
            Attribute::Int(value) => Ok(value),
            other => Err(other.into()),
        })?;
        let out_of_range = |value| TypeError::new(format!("attribute `{name}` = {value} is out of range"));
        value.map(|value| T::try_from(value).map_err(|_| out_of_range(value))).transpose()
    }

    /// Takes a number out, if it is there.
    ///
    /// # Errors
    /// If it is no number.
    pub fn float(&mut self, name: &str) -> Result<Option<f32>, TypeError> {
        self.typed(name, "a number", |attribute| match attribute {
            Attribute::Float(value) if (value as f32).is_finite() => Ok(value as f32),
            Attribute::Int(value) => Ok(value as f32),
            other => Err(other.into()),
        })
    }

    /// Takes a truth value out; absent means false.
    ///
    /// # Errors
    /// If it is something else.
    pub fn flag(&mut self, name: &str) -> Result<bool, TypeError> {
        let value = self.typed(name, "true or false", |attribute| match attribute {
            Attribute::Bool(value) => Ok(value),
            other => Err(other.into()),
        });
        Ok(value?.unwrap_or(false))
    }

    /// Takes a word out, if it is there.
    ///
    /// # Errors
    /// If it is something else.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, TypeError> {
        self.typed(name, "a word", |attribute| match attribute {
            Attribute::Text(value) => Ok(value),
            other => Err(other.into()),
        })
    }

    /// Takes a dtype out, if it is there.
    ///
    /// # Errors
    /// If it is something else.
    pub fn dtype(&mut self, name: &str) -> Result<Option<DType>, TypeError> {
        self.typed(name, "a dtype", |attribute| match attribute {
            Attribute::DType(value) => Ok(value),
            other => Err(other.into()),
        })
    }

    /// Takes a type out, if it is there.
    ///
    /// # Errors
    /// If it is something else.
    pub fn ty(&mut self, name: &str) -> Result<Option<Type>, TypeError> {
        self.typed(name, "a type", |attribute| match attribute {
            Attribute::Type(value) => Ok(value),
            other => Err(other.into()),
        })
    }

    /// Takes a list of types out, if it is there.
    ///
    /// # Errors
    /// If it is something else.
    pub fn types(&mut self, name: &str) -> Result<Option<Vec<Type>>, TypeError> {
        self.typed(name, "a list of types", |attribute| match attribute {
            Attribute::Types(value) => Ok(value),
            Attribute::Ints(values) if values.is_empty() => Ok(Vec::new()),
            other => Err(other.into()),
        })
    }

    /// Takes data out, if it is there.
    ///
    /// # Errors
    /// If it is something else.
    pub fn tensor(&mut self, name: &str) -> Result<Option<TensorData>, TypeError> {
        self.typed(name, "data", |attribute| match attribute {
            Attribute::Tensor(value) => Ok(value),
            other => Err(other.into()),
        })
    }

    /// Takes a graph out, if it is there.
    ///
    /// # Errors
    /// If it is something else.
    pub fn graph(&mut self, name: &str) -> Result<Option<Arc<Graph>>, TypeError> {
        self.typed(name, "a graph", |attribute| match attribute {
            Attribute::Graph(value) => Ok(value),
            other => Err(other.into()),
        })
    }

    /// Takes a list of sizes or indices out, if it is there.
    ///
    /// # Errors
    /// If it is something else, or one is negative.
    pub fn sizes(&mut self, name: &str) -> Result<Option<Vec<usize>>, TypeError> {
        let values = self.typed(name, "a list of whole numbers", |attribute| match attribute {
            Attribute::Ints(values) => Ok(values),
            other => Err(other.into()),
        })?;
        values.map(|values| not_negative(name, &values)).transpose()
    }

    /// Takes a shape out, if it is there.
    ///
    /// # Errors
    /// If it is something else, or a size is negative.
    pub fn dims(&mut self, name: &str) -> Result<Option<Vec<Dim>>, TypeError> {
        let dims = self.typed(name, "a shape", |attribute| match attribute {
            Attribute::Dims(dims) => Ok(Ok(dims)),
            Attribute::Ints(sizes) => Ok(Err(sizes)),
            other => Err(other.into()),
        })?;
        let dims = dims.map(|dims| match dims {
            Ok(dims) => Ok(dims),
            Err(sizes) => Ok(not_negative(name, &sizes)?.into_iter().map(Dim::from).collect()),
        });
        dims.transpose()
    }

    /// Takes an attribute of a kind out, if it is there. `value` gives back what is of another kind.
    fn typed<T>(
        &mut self,
        name: &str,
        kind: &'static str,
        value: impl FnOnce(Attribute) -> Result<T, Box<Attribute>>,
    ) -> Result<Option<T>, TypeError> {
        #[cfg(test)]
        asked::note(name, kind);
        let attribute = self.take(name).map(value).transpose();
        attribute.map_err(|other| wrong_kind(name, kind, &other))
    }

    /// Refuses attributes that nobody took.
    ///
    /// # Errors
    /// If any are left.
    pub fn expect_empty(&self) -> Result<(), TypeError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(TypeError::new(format!("there is no attribute `{name}`"))),
        }
    }
}

/// The value of an attribute that must be there.
///
/// # Errors
/// If it is not.
pub(super) fn required<T>(name: &str, value: Option<T>) -> Result<T, TypeError> {
    value.ok_or_else(|| TypeError::new(format!("attribute `{name}` is missing")))
}

fn not_negative(name: &str, values: &[i64]) -> Result<Vec<usize>, TypeError> {
    let sizes: Option<Vec<usize>> = values.iter().map(|&value| usize::try_from(value).ok()).collect();
    sizes.ok_or_else(|| wrong_kind(name, "no negative number", &Attribute::Ints(values.to_vec())))
}

fn wrong_kind(name: &str, expected: &str, got: &Attribute) -> TypeError {
    TypeError::new(format!("attribute `{name}` is {got}, expected {expected}"))
}

/// Which attributes an op asks for when it is parsed: what a test compares the documentation with.
#[cfg(test)]
pub(crate) mod asked {
    use std::cell::RefCell;

    thread_local! {
        static ASKED: RefCell<Vec<(String, &'static str)>> = const { RefCell::new(Vec::new()) };
    }

    /// Notes an attribute that is asked for; of one that is asked for again, the kind.
    pub(crate) fn note(name: &str, kind: &'static str) {
        ASKED.with_borrow_mut(|asked| match asked.iter_mut().find(|(other, _)| other == name) {
            Some((_, known)) => *known = kind,
            None => asked.push((name.to_string(), kind)),
        });
    }

    /// The names and kinds that were asked for since the last call on this thread, in order.
    pub(crate) fn take() -> Vec<(String, &'static str)> {
        ASKED.take()
    }
}
