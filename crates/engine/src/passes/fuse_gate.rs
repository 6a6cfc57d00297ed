//! `silu(y) · z` of `y, z = linear(x, V, W)` → `linear[silu gate](x, V, W)`; also for gelu and relu, in any order.

use graph::ops::{Binary, Linear, Unary};
use graph::{Graph, NodeId, Op, Value};

use super::replace;

pub(super) fn run(graph: &mut Graph) {
    for id in graph.node_ids() {
        if let Some((linear, inputs)) = matches(graph, id) {
            replace(graph, id, linear, &inputs);
        }
    }
}

fn matches(graph: &Graph, id: NodeId) -> Option<(Linear, Vec<Value>)> {
    let node = graph.node(id);
    let (Op::Binary(Binary::Mul), &[a, b]) = (&node.op, &node.inputs[..]) else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(gated, up)| {
        let (&Op::Unary(gate), &[y]) = graph.defined_by(gated)? else { return None };
        let known = matches!(gate, Unary::Silu | Unary::Gelu | Unary::GeluTanh | Unary::Relu);
        let products = graph.node(graph.node_of(y)?);
        let Op::Linear(linear) = products.op else { return None };
        let order = match products.outputs[..] {
            [first, second] if (first, second) == (y, up) => [0, 1],
            [first, second] if (second, first) == (y, up) => [1, 0],
            _ => return None,
        };
        let alone = [gated, y, up].iter().all(|&value| graph.users(value) == 1);
        if !known || !alone || graph.ty(y) != graph.ty(up) {
            return None;
        }
        Some((Linear { gate: Some(gate), ..linear }, ordered(linear, &products.inputs, order)))
    })
}

/// The operands with the gate's weight and bias first.
fn ordered(linear: Linear, inputs: &[Value], order: [usize; 2]) -> Vec<Value> {
    let operands = linear.operands(inputs);
    let mut ordered = vec![*operands.x];
    ordered.extend(operands.norm);
    ordered.extend(order.map(|i| operands.weights[i]));
    if linear.bias {
        ordered.extend(order.map(|i| operands.biases[i]));
    }
    ordered
}
