//! `linear(x, V); linear(x, W)` → `linear[2 weights](x, V, W)`: products with one input become one node.

use std::collections::{BTreeMap, HashMap};

use graph::ops::Linear;
use graph::{Graph, NodeId, Op, Value};

pub(super) fn run(graph: &mut Graph) {
    for group in groups(graph) {
        if group.len() > 1 {
            merge(graph, &group);
        }
    }
}

/// What linear layers must share: the input, the norm and whether there are biases.
type Shared = (Value, Option<(u32, Value)>, bool);

/// The linear layers that can be computed where the first of their group stands, in program order.
fn groups(graph: &Graph) -> Vec<Vec<NodeId>> {
    let positions: HashMap<NodeId, usize> = graph.nodes().enumerate().map(|(i, (id, _))| (id, i)).collect();
    let mut groups: BTreeMap<Shared, Vec<NodeId>> = BTreeMap::new();
    for (id, node) in graph.nodes() {
        let Op::Linear(linear) = &node.op else { continue };
        if linear.gate.is_some() || linear.activation.is_some() || linear.residual {
            continue;
        }
        let operands = linear.operands(&node.inputs);
        let norm = linear.norm.map(f32::to_bits).zip(operands.norm.copied());
        let group = groups.entry((*operands.x, norm, linear.bias)).or_default();
        let first = positions[group.first().unwrap_or(&id)];
        let is_early = |&value: &Value| graph.node_of(value).is_none_or(|node| positions[&node] < first);
        if node.inputs.iter().all(is_early) {
            group.push(id);
        }
    }
    groups.into_values().collect()
}

fn merge(graph: &mut Graph, group: &[NodeId]) {
    let (mut weights, mut biases, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    let first = graph.node(group[0]);
    let Op::Linear(linear) = first.op else { unreachable!("groups hold linear layers") };
    let mut inputs = first.inputs[..1 + usize::from(linear.norm.is_some())].to_vec();
    for &id in group {
        let node = graph.node(id);
        let Op::Linear(linear) = &node.op else { unreachable!("as above") };
        let operands = linear.operands(&node.inputs);
        weights.extend_from_slice(operands.weights);
        biases.extend_from_slice(operands.biases);
        outputs.extend_from_slice(&node.outputs);
    }
    let merged = Linear { weights: weights.len(), ..linear };
    inputs.extend(weights.into_iter().chain(biases));
    let results =
        graph.insert_before(group[0], merged.into(), &inputs).expect("parts that fit, fit together");
    for (old, new) in outputs.into_iter().zip(results) {
        graph.replace_uses(old, new);
    }
    for &id in group {
        graph.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    const WEIGHTS: &str = "%v = weight \"v\" : q8_0[64, 32]
        %w = weight \"w\" : f32[8, 32]
        %c = weight \"c\" : f32[64]
        %d = weight \"d\" : f32[8]";

    fn graph(body: &str) -> String {
        format!("graph g(%x: f32[n, 32], %g: f32[32]) {{ {WEIGHTS} {body} }}")
    }

    #[test]
    fn products_with_one_input_merge_where_the_first_stands() {
        check(
            run,
            &graph(
                "%a = linear(%x, %v, %c) {bias = true}
                 %e = exp(%a)
                 %b = linear(%x, %w, %d) {bias = true}
                 return %e, %b",
            ),
            &graph(
                "%a, %b = linear(%x, %v, %w, %c, %d) {weights = 2, bias = true}
                 %e = exp(%a)
                 return %e, %b",
            ),
        );
    }

    #[test]
    fn a_norm_is_shared_or_not_merged() {
        let graph = |body: &str| {
            format!(
                "graph g(%x: f32[n, 32], %g: f32[32]) {{
                   %v = weight \"v\" : q8_0[64, 32]
                   %w = weight \"w\" : f32[8, 32]
                   {body}
                 }}"
            )
        };
        check(
            run,
            &graph(
                "%a = linear(%x, %g, %v) {norm = 0.5}
                 %b = linear(%x, %g, %w) {norm = 0.5}
                 %c = linear(%x, %g, %w) {norm = 0.25}
                 %d = linear(%x, %w)
                 return %a, %b, %c, %d",
            ),
            &graph(
                "%a, %b = linear(%x, %g, %v, %w) {weights = 2, norm = 0.5}
                 %c = linear(%x, %g, %w) {norm = 0.25}
                 %d = linear(%x, %w)
                 return %a, %b, %c, %d",
            ),
        );
    }

    /// The second weight is computed from the first product.
    #[test]
    fn what_depends_on_the_first_product_stays() {
        check_unchanged(
            run,
            "graph g(%x: f32[4, 4]) {
               %v = weight \"v\" : f32[4, 4]
               %a = linear(%x, %v)
               %b = linear(%x, %a)
               return %b
             }",
        );
    }
}
