//! `silu(y) · z` of `y, z = linear(x, V, W)` → `linear[silu gate](x, V, W)`; also for gelu and relu, in any order.

use graph::ops::{Binary, Linear, Unary};
use graph::{Graph, Node, Op, Value};

use super::{either_order, replace_each, sole};

pub(super) fn run(graph: &mut Graph) {
    replace_each(graph, matches);
}

fn matches(graph: &Graph, node: &Node) -> Option<(Linear, Vec<Value>)> {
    either_order(&node.op, &node.inputs, Binary::Mul).find_map(|(gated, up)| {
        let (&Op::Unary(gate), &[y]) = sole(graph, gated)? else { return None };
        let known = matches!(gate, Unary::Silu | Unary::Gelu | Unary::GeluTanh | Unary::Relu);
        let products = graph.node(graph.node_of(y)?);
        let Op::Linear(linear) = products.op else { return None };
        let order = match products.outputs[..] {
            [first, second] if (first, second) == (y, up) => [0, 1],
            [first, second] if (second, first) == (y, up) => [1, 0],
            _ => return None,
        };
        let alone = [y, up].iter().all(|&value| graph.users(value) == 1);
        let plain = linear.activation.is_none();
        if !known || !alone || !plain || graph.ty(y) != graph.ty(up) {
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

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    fn graph(body: &str) -> String {
        format!(
            "graph g(%x: f32[n, 4]) {{
               %v = weight \"v\" : f32[8, 4]
               %w = weight \"w\" : f32[8, 4]
               {body}
             }}"
        )
    }

    #[test]
    fn either_product_can_be_gated() {
        let products = "%a, %b = linear(%x, %v, %w) {weights = 2}";
        let first = graph("%y = linear(%x, %v, %w) {weights = 2, gate = silu} return %y");
        check(run, &graph(&format!("{products} %s = silu(%a) %y = mul(%s, %b) return %y")), &first);
        check(run, &graph(&format!("{products} %s = silu(%a) %y = mul(%b, %s) return %y")), &first);
        let second = graph("%y = linear(%x, %w, %v) {weights = 2, gate = gelu_tanh} return %y");
        check(run, &graph(&format!("{products} %s = gelu_tanh(%b) %y = mul(%a, %s) return %y")), &second);
    }

    #[test]
    fn biases_follow_their_weights() {
        let graph = |body: &str| {
            format!(
                "graph g(%x: f32[n, 4], %c: f32[8], %d: f32[8]) {{
                   %v = weight \"v\" : f32[8, 4]
                   %w = weight \"w\" : f32[8, 4]
                   {body}
                 }}"
            )
        };
        check(
            run,
            &graph(
                "%a, %b = linear(%x, %v, %w, %c, %d) {weights = 2, bias = true}
                 %s = gelu(%b)
                 %y = mul(%s, %a)
                 return %y",
            ),
            &graph("%y = linear(%x, %w, %v, %d, %c) {weights = 2, bias = true, gate = gelu} return %y"),
        );
    }

    #[test]
    fn what_others_read_stays() {
        let products = "%a, %b = linear(%x, %v, %w) {weights = 2}";
        for body in [
            "%s = silu(%a) %y = mul(%s, %b) return %y, %b",
            "%s = silu(%a) %y = mul(%s, %b) return %y, %s",
            "%s = silu(%a) %y = mul(%s, %a) return %y, %b",
            "%s = tanh(%a) %y = mul(%s, %b) return %y",
        ] {
            check_unchanged(run, &graph(&format!("{products} {body}")));
        }
    }
}
