//! `x · sigmoid(x)` → `silu(x)`, when nobody else reads the sigmoid.

use graph::ops::{Binary, Unary};
use graph::{Graph, NodeId, Op, Value};

use super::replace;

pub(super) fn run(graph: &mut Graph) {
    for id in graph.node_ids() {
        if let Some(x) = matches(graph, id) {
            replace(graph, id, Unary::Silu, &[x]);
        }
    }
}

fn matches(graph: &Graph, id: NodeId) -> Option<Value> {
    let node = graph.node(id);
    let (Op::Binary(Binary::Mul), &[a, b]) = (&node.op, &node.inputs[..]) else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        let (Op::Unary(Unary::Sigmoid), &[gated]) = graph.defined_by(gate)? else { return None };
        (gated == x && graph.users(gate) == 1).then_some(x)
    })
}
