//! The operands and parameters that an op declares.

use crate::abi;

/// What an op takes at one position.
#[derive(Debug)]
#[repr(transparent)]
pub struct Operand(pub(crate) abi::Operand);

impl Operand {
    /// A tensor.
    pub const fn tensor(name: &'static str) -> Operand {
        Operand::new(name, abi::ACCESS_TENSOR)
    }

    /// A buffer that is only read.
    pub const fn buffer(name: &'static str) -> Operand {
        Operand::new(name, abi::ACCESS_READ)
    }

    /// A buffer that the op changes, and may read.
    pub const fn written(name: &'static str) -> Operand {
        Operand::new(name, abi::ACCESS_WRITE)
    }

    const fn new(name: &'static str, access: u32) -> Operand {
        Operand(abi::Operand { name: abi::Text::new(name), access, reserved: 0 })
    }
}

/// What an op is told besides its operands.
#[derive(Debug)]
#[repr(transparent)]
pub struct Parameter(pub(crate) abi::Parameter);

/// What a parameter can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ParameterKind {
    /// `true` or `false`.
    Bool = abi::KIND_BOOL,
    /// A whole number.
    Int = abi::KIND_INT,
    /// A number.
    Float = abi::KIND_FLOAT,
    /// Text.
    Text = abi::KIND_TEXT,
    /// A dtype.
    DType = abi::KIND_DTYPE,
    /// Whole numbers.
    Ints = abi::KIND_INTS,
}

impl Parameter {
    /// One that must be given.
    pub const fn required(name: &'static str, kind: ParameterKind) -> Parameter {
        Parameter(abi::Parameter { name: abi::Text::new(name), kind: kind as u32, required: 1 })
    }

    /// One that may be left out.
    pub const fn optional(name: &'static str, kind: ParameterKind) -> Parameter {
        Parameter(abi::Parameter { name: abi::Text::new(name), kind: kind as u32, required: 0 })
    }
}
