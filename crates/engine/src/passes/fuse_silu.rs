//! `x · sigmoid(x)` → `silu(x)`, if the sigmoid has no other reader.

use graph::ops::{Binary, Unary};
use graph::{Graph, NodeId, Op, Value};

use super::replace_each;

pub(super) fn run(graph: &mut Graph) {
    replace_each(graph, |graph, id| Some((Unary::Silu, vec![matches(graph, id)?])));
}

fn matches(graph: &Graph, id: NodeId) -> Option<Value> {
    let node = graph.node(id);
    let (Op::Binary(Binary::Mul), &[a, b]) = (&node.op, &node.inputs[..]) else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        let (Op::Unary(Unary::Sigmoid), &[gated]) = graph.defined_by(gate)? else { return None };
        (gated == x && graph.users(gate) == 1).then_some(x)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    #[test]
    fn both_orders_fuse() {
        let body = |product: &str| {
            format!("graph g(%x: f32[n]) {{ %gate = sigmoid(%x) %y = mul({product}) return %y }}")
        };
        let fused = "graph g(%x: f32[n]) { %y = silu(%x) return %y }";
        check(run, &body("%x, %gate"), fused);
        check(run, &body("%gate, %x"), fused);
        check_unchanged(run, &body("%gate, %gate"));
    }

    #[test]
    fn a_sigmoid_with_other_readers_stays() {
        check_unchanged(run, "graph g(%x: f32[n]) { %s = sigmoid(%x) %y = mul(%x, %s) return %y, %s }");
        check_unchanged(
            run,
            "graph g(%x: f32[n], %z: f32[n]) { %s = sigmoid(%z) %y = mul(%x, %s) return %y }",
        );
    }
}
