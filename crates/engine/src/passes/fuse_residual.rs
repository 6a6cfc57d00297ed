//! `linear(x, W) + r` → `linear[residual](x, W, r)`, if `r` has the product's type and the product has no other reader.

use graph::ops::{Binary, Linear};
use graph::{Graph, Node, Op, Value};

use super::{either_order, replace_each, sole};

/// The fused layer stands where the sum stood, so the residual is defined before it.
pub(super) fn run(graph: &mut Graph) {
    replace_each(graph, matches);
}

fn matches(graph: &Graph, node: &Node) -> Option<(Linear, Vec<Value>)> {
    let fused = |(y, residual): (Value, Value)| {
        let (Op::Linear(linear), inputs) = sole(graph, y)? else { return None };
        let one_result = linear.weights == 1 || linear.gate.is_some();
        let fits = one_result && !linear.residual && graph.ty(y) == graph.ty(residual);
        fits.then(|| (y, Linear { residual: true, ..*linear }, [inputs, &[residual]].concat()))
    };
    // Of two products the one made later, so that the other stays where its input lives.
    let (_, linear, inputs) =
        either_order(&node.op, &node.inputs, Binary::Add).filter_map(fused).max_by_key(|&(y, ..)| y)?;
    Some((linear, inputs))
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    fn graph(body: &str) -> String {
        format!(
            "graph g(%x: f32[n, 4], %r: f32[n, 4]) {{
               %w = weight \"w\" : f32[4, 4]
               {body}
             }}"
        )
    }

    #[test]
    fn the_layer_moves_to_the_sum() {
        check(
            run,
            &graph(
                "%y = linear(%x, %w)
                 %later = exp(%r)
                 %z = add(%later, %y)
                 return %z",
            ),
            &graph(
                "%later = exp(%r)
                 %z = linear(%x, %w, %later) {residual = true}
                 return %z",
            ),
        );
    }

    #[test]
    fn of_two_products_the_later_takes_the_sum() {
        check(
            run,
            &graph("%a = linear(%x, %w) %b = linear(%r, %w) %z = add(%a, %b) return %z"),
            &graph("%a = linear(%x, %w) %z = linear(%r, %w, %a) {residual = true} return %z"),
        );
    }

    #[test]
    fn a_gated_layer_has_one_result_too() {
        check(
            run,
            &graph("%y = linear(%x, %w, %w) {weights = 2, gate = silu} %z = add(%y, %r) return %z"),
            &graph("%z = linear(%x, %w, %w, %r) {weights = 2, gate = silu, residual = true} return %z"),
        );
    }

    #[test]
    fn what_is_read_twice_or_broadcast_or_merged_stays() {
        for body in [
            "%y = linear(%x, %w) %z = add(%y, %r) return %z, %y",
            "%y = linear(%x, %w) %z = add(%y, %y) return %z",
            "%y = linear(%x, %w) %one = constant [1.0] : f32[] %z = add(%y, %one) return %z",
            "%a, %b = linear(%x, %w, %w) {weights = 2} %z = add(%a, %r) return %z, %b",
            "%y = linear(%x, %w, %r) {residual = true} %z = add(%y, %r) return %z",
        ] {
            check_unchanged(run, &graph(body));
        }
    }
}
