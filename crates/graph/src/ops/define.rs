//! The trait of ops: names, attributes, type rule, effects and reference.

use std::fmt::Debug;
use std::sync::Arc;

use tensor::{Shape, Tensor};

use super::attributes::Attributes;
use crate::{Error, Graph, Type, TypeError};

/// What a node does to a buffer operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The operand is a tensor.
    None,
    /// Reads the buffer.
    Read,
    /// Changes the buffer, and may read it.
    Write,
}

/// An op: names, attributes, type rule, effects and reference.
pub trait Define: Debug + Clone + PartialEq + Sized {
    /// The names this op prints and parses under: one, or one per member of a family such as `Unary`.
    const NAMES: &[&str];

    /// The name of this very op; one of [`Define::NAMES`].
    fn name(&self) -> &'static str;

    /// The attributes, in the order they print.
    fn attributes(&self) -> Attributes {
        Attributes::default()
    }

    /// The op with a name and attributes: the inverse of the two functions above.
    ///
    /// # Errors
    /// If an attribute is missing, of the wrong kind, or unknown.
    fn parse(name: &str, attributes: &mut Attributes) -> Result<Self, TypeError>;

    /// The types of the results. Operands that are buffers have been checked to be so already, and all to be on one device,
    /// which the results get unless [`Define::places_results`].
    ///
    /// # Errors
    /// If the operands do not fit, with the two facts that disagree.
    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError>;

    /// What the op does to operand `position`, if it is a buffer.
    fn effect(&self, _position: usize) -> Effect {
        Effect::None
    }

    /// The graphs that this op runs. They take all they use as operands.
    fn regions(&self) -> Vec<&Arc<Graph>> {
        Vec::new()
    }

    /// Whether it has an effect besides its results and the buffers that it writes. If so, it runs even if its results
    /// are not read, exactly as often and in the order that the graph says.
    fn has_side_effect(&self) -> bool {
        false
    }

    /// Whether it says itself where its results are. If not, they are where its operands are.
    fn places_results(&self) -> bool {
        false
    }

    /// The symbols whose sizes this op finds in its data, such as the number of nonzero elements. Each is new in the
    /// graph.
    fn defines(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The sizes of the symbols that [`Define::defines`] lists, in that order.
    ///
    /// # Errors
    /// If the data is invalid.
    fn sizes(&self, _inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
        Ok(Vec::new())
    }

    /// The meaning: slow and obvious. `outputs` are the shapes of the results. Floating-point results are
    /// computed in f64 and rounded once. Gives the results, then the new contents of each buffer operand that
    /// the op writes, in operand order.
    ///
    /// # Errors
    /// If the data is invalid, for example an index out of range.
    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error>;
}
