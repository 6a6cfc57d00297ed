//! Values without operands: constants, and weights that are bound by name later.

use tensor::{Shape, Tensor};

use super::attributes::{TensorData, required};
use super::{Attribute, Attributes, Define};
use crate::{Error, Type, TypeError};

/// A value known when the graph is built.
#[derive(Debug, Clone, PartialEq)]
pub struct Constant {
    /// The value.
    pub value: TensorData,
}

/// A value bound by name when the model is initialized.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// The name in the weights registry.
    pub name: String,
    /// What it must be.
    pub ty: Type,
}
