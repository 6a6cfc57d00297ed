//! What graphs are made of: values, and nodes that compute them.

use crate::SourceLocation;
use crate::ops::Op;

/// A value: an input of the graph, or a result of a node. Made by one graph, and meaningful in it and in clones that were
/// made of it later; other graphs refuse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    pub(crate) index: u32,
    /// The number of the graph that made it.
    pub(crate) graph: u64,
}

impl Value {
    /// A small number that is this value's alone within its graph; for tables.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// A node of one graph. Stays valid while other nodes come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

/// One application of an op.
#[derive(Debug, Clone)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// What it is computed from.
    pub inputs: Vec<Value>,
    /// What it makes; empty for a pure store.
    pub outputs: Vec<Value>,
    /// Where the program that built the graph made it; `None` for what was read from text.
    pub location: Option<SourceLocation>,
}

/// A parameter of the graph.
#[derive(Debug, Clone)]
pub struct Input {
    /// The name callers bind.
    pub name: String,
    /// The value inside the graph.
    pub value: Value,
}
