//! `linear(x, W) + b` → `linear[bias](x, W, b)`, if `b` is f32[rows] and the product has no other reader.

use graph::ops::{Binary, Linear};
use graph::{Graph, NodeId, Op, Value};

use super::{is_leaf, replace_each};

pub(super) fn run(graph: &mut Graph) {
    replace_each(graph, matches);
}

fn matches(graph: &Graph, id: NodeId) -> Option<(Linear, Vec<Value>)> {
    let node = graph.node(id);
    let (Op::Binary(Binary::Add), &[a, b]) = (&node.op, &node.inputs[..]) else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(y, bias)| {
        let (Op::Linear(linear), inputs) = graph.defined_by(y)? else { return None };
        let plain = linear.weights == 1 && !linear.bias && linear.activation.is_none() && !linear.residual;
        let per_row = graph.ty(bias).shape[..] == graph.ty(y).shape[graph.ty(y).rank() - 1..];
        let leaf = graph.defined_by(bias).is_some_and(|(op, _)| is_leaf(op));
        if !plain || !per_row || !leaf || graph.users(y) != 1 {
            return None;
        }
        Some((Linear { bias: true, ..*linear }, [inputs, &[bias]].concat()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    fn graph(body: &str) -> String {
        format!(
            "graph g(%x: f32[n, 4], %r: f32[n, 2], %b: f32[2]) {{
               %v = weight \"v\" : f32[2, 4]
               %bias = weight \"bias\" : f32[2]
               {body}
             }}"
        )
    }

    #[test]
    fn both_orders_fuse() {
        let fused = graph("%z = linear(%x, %v, %bias) {bias = true} return %z");
        check(run, &graph("%y = linear(%x, %v) %z = add(%y, %bias) return %z"), &fused);
        check(run, &graph("%y = linear(%x, %v) %z = add(%bias, %y) return %z"), &fused);
    }

    #[test]
    fn only_the_bias_of_a_plain_layer_fuses() {
        for body in [
            "%y = linear(%x, %v) %z = add(%y, %bias) return %z, %y",
            "%y = linear(%x, %v) %z = add(%y, %b) return %z",
            "%y = linear(%x, %v) %z = mul(%y, %bias) return %z",
            "%y = linear(%x, %v, %bias) {bias = true} %z = add(%y, %bias) return %z",
            "%y = linear(%x, %v, %r) {residual = true} %z = add(%y, %bias) return %z",
        ] {
            let text = if body.contains("%bias") {
                graph(body)
            } else {
                graph(body).replace("%bias = weight \"bias\" : f32[2]", "")
            };
            check_unchanged(run, &text);
        }
    }
}
