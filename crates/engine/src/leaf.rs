//! Leaves: the constants and weights of a graph, which are there before a call.

use graph::{Graph, Op, Value};

/// Whether an op makes one.
pub(crate) fn is_leaf(op: &Op) -> bool {
    matches!(op, Op::Constant(_) | Op::Weight(_))
}

/// The constant or weight that a value is, perhaps on another device.
pub(crate) fn leaf(graph: &Graph, value: Value) -> Option<&Op> {
    match graph.defined_by(value)? {
        (Op::Transfer(_), &[from]) => leaf(graph, from),
        (op, _) => is_leaf(op).then_some(op),
    }
}
