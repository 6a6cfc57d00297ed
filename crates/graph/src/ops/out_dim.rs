//! The size of a result that follows from data: a new symbol, or a size that is known and must be met.

use super::attributes::Attributes;
use super::field::{AttributeType, Field};
use crate::{Dim, TypeError};

/// What a size that follows from data is called. Prints as `out_dim = n`, or as `size = [n]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OutDim {
    /// A new symbol, which the op defines.
    New(String),
    /// A size that has been determined already; other data is an error of the call.
    Known(Dim),
}

impl From<&str> for OutDim {
    fn from(symbol: &str) -> OutDim {
        OutDim::New(symbol.to_string())
    }
}

impl OutDim {
    /// The size.
    pub(super) fn dim(&self) -> Result<Dim, TypeError> {
        match self {
            OutDim::Known(dim) => Ok(dim.clone()),
            OutDim::New(symbol) if Dim::is_identifier(symbol) => Ok(Dim::symbol(symbol)),
            OutDim::New(symbol) => Err(type_error!("out_dim `{symbol}` is no identifier")),
        }
    }

    /// The symbol it defines.
    pub(super) fn defines(&self) -> Vec<&str> {
        match self {
            OutDim::New(symbol) => vec![symbol],
            OutDim::Known(_) => vec![],
        }
    }

    /// The sizes of what it defines, where the data says `size`.
    pub(super) fn sizes(&self, size: usize) -> Vec<usize> {
        self.defines().iter().map(|_| size).collect()
    }

    /// Refuses data of another size than the result has.
    ///
    /// # Errors
    /// In words, with both sizes.
    pub fn expect(&self, data: usize, result: usize) -> Result<(), String> {
        match (data == result, self) {
            (true, _) => Ok(()),
            (false, OutDim::Known(dim)) if dim.as_static().is_none() => {
                Err(format!("the data gives a size of {data}, expected {dim} = {result}"))
            }
            (false, _) => Err(format!("the data gives a size of {data}, expected {result}")),
        }
    }
}

/// `out_dim` for a new symbol, `size` for a known dim.
impl Field for OutDim {
    fn write(&self, _name: &str, attributes: Attributes) -> Attributes {
        match self {
            OutDim::New(symbol) => symbol.write("out_dim", attributes),
            OutDim::Known(dim) => dim.write("size", attributes),
        }
    }

    fn read(_op: &str, _name: &str, attributes: &mut Attributes) -> Result<OutDim, TypeError> {
        match (String::take("out_dim", attributes)?, Vec::<Dim>::take("size", attributes)?) {
            (Some(symbol), None) => Ok(OutDim::New(symbol)),
            (None, Some(dims)) => match <[Dim; 1]>::try_from(dims) {
                Ok([dim]) => Ok(OutDim::Known(dim)),
                Err(dims) => Err(type_error!("attribute `size` is {dims:?}, expected one size")),
            },
            (None, None) => Err(TypeError::new("attribute `out_dim` is missing")),
            (Some(_), Some(_)) => Err(TypeError::new("both `out_dim` and `size` are given")),
        }
    }
}
