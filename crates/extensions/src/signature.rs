//! What an op takes and gives, as libraries declare it and manifests repeat it.

use serde::{Deserialize, Serialize};

/// What an op takes and gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// The name of the op.
    pub name: String,
    /// The operands, in order.
    pub operands: Vec<OperandDeclaration>,
    /// Whether the last operand, a tensor, may come any number of times, also none.
    #[serde(default)]
    pub variadic: bool,
    /// The fewest results.
    pub min_results: usize,
    /// The most results.
    pub max_results: usize,
    /// The parameters.
    #[serde(default)]
    pub parameters: Vec<ParameterDeclaration>,
}

/// What an op takes at one position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperandDeclaration {
    /// For messages.
    pub name: String,
    /// What the op does to it.
    #[serde(default)]
    pub access: Access,
}

/// What an op does to an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// It is a tensor, and read.
    #[default]
    Tensor,
    /// It is a buffer, and read.
    Read,
    /// It is a buffer, and changed.
    Write,
}

/// What an op is told besides its operands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterDeclaration {
    /// The name.
    pub name: String,
    /// What it can be.
    pub kind: ParameterKind,
    /// Whether it must be given.
    #[serde(default)]
    pub required: bool,
}

/// What a parameter can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParameterKind {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// Text.
    Text,
    /// A dtype.
    DType,
    /// Whole numbers.
    Ints,
}
