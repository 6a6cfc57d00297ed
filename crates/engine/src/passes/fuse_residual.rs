//! `linear(x, W) + r` → `linear[residual](x, W, r)`, when `r` has the product's type and nobody else reads that.

use graph::ops::{Binary, Linear};
use graph::{Graph, NodeId, Op, Value};

use super::replace;

/// The fused layer stands where the sum stood, so the residual is defined before it.
pub(super) fn run(graph: &mut Graph) {
    for id in graph.node_ids() {
        if let Some((linear, inputs)) = matches(graph, id) {
            replace(graph, id, linear, &inputs);
        }
    }
}

fn matches(graph: &Graph, id: NodeId) -> Option<(Linear, Vec<Value>)> {
    let node = graph.node(id);
    let (Op::Binary(Binary::Add), &[a, b]) = (&node.op, &node.inputs[..]) else { return None };
    // The later product first: of two, it is the one whose memory can be the residual's.
    let mut orders = [(b, a), (a, b)];
    orders.sort_by_key(|&(y, _)| std::cmp::Reverse(y));
    orders.into_iter().find_map(|(y, residual)| {
        let (Op::Linear(linear), inputs) = graph.defined_by(y)? else { return None };
        let one_result = linear.weights == 1 || linear.gate.is_some();
        if !one_result || linear.residual || graph.users(y) != 1 || graph.ty(y) != graph.ty(residual) {
            return None;
        }
        Some((Linear { residual: true, ..*linear }, [inputs, &[residual]].concat()))
    })
}
