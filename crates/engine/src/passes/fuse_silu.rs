//! `x · sigmoid(x)` → `silu(x)`, if the sigmoid has no other reader.

use graph::ops::{Binary, Unary};
use graph::{Graph, Op};

use super::{either_order, replace_each, sole};

pub(super) fn run(graph: &mut Graph) {
    replace_each(graph, |graph, node| {
        either_order(&node.op, &node.inputs, Binary::Mul).find_map(|(x, gate)| {
            let (Op::Unary(Unary::Sigmoid), &[gated]) = sole(graph, gate)? else { return None };
            (gated == x).then(|| (Unary::Silu, vec![x]))
        })
    });
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
