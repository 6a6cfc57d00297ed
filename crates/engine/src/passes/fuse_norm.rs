//! `linear(rms_norm(x, g), W)` → `linear[norm](x, g, W)`, when only linear layers read the norm.

use graph::ops::{Linear, RmsNorm};
use graph::{Graph, NodeId, Op, Value};

use super::replace;

pub(super) fn run(graph: &mut Graph) {
    for id in graph.node_ids() {
        if !graph.contains(id) {
            continue;
        }
        let Some((norm, readers)) = matches(graph, id) else { continue };
        let &[x, weight] = &graph.node(id).inputs[..] else { unreachable!("rms_norm has two operands") };
        for reader in readers {
            let node = graph.node(reader);
            let Op::Linear(linear) = node.op else { unreachable!("matched above") };
            let inputs = [&[x, weight], &node.inputs[1..]].concat();
            replace(graph, reader, Linear { norm: Some(norm.eps), ..linear }, &inputs);
        }
        graph.remove(id);
    }
}

/// The norm and the linear layers that read it, if nobody else does.
fn matches(graph: &Graph, id: NodeId) -> Option<(RmsNorm, Vec<NodeId>)> {
    let node = graph.node(id);
    let Op::RmsNorm(norm) = node.op else { return None };
    let normed = node.outputs[0];
    let readers = graph.nodes().filter(|(_, node)| reads_as_input(&node.op, &node.inputs, normed));
    let readers: Vec<NodeId> = readers.map(|(reader, _)| reader).collect();
    (!readers.is_empty() && readers.len() == graph.users(normed)).then_some((norm, readers))
}

fn reads_as_input(op: &Op, inputs: &[Value], value: Value) -> bool {
    let Op::Linear(linear) = op else { return false };
    linear.norm.is_none() && inputs[0] == value
}
