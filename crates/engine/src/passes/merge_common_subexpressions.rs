//! `a = f(x); b = f(x)` → `a = f(x)`, where `f` touches no buffer.

use std::collections::HashMap;

use graph::ops::Effect;
use graph::{Graph, Node, NodeId, Value};

pub(super) fn run(graph: &mut Graph) {
    // Ops cannot be hashed, so the nodes of one name and operands are compared one by one.
    let mut seen: HashMap<(&'static str, Vec<Value>), Vec<NodeId>> = HashMap::new();
    for id in graph.node_ids() {
        let node = graph.node(id);
        if !is_pure(node) {
            continue;
        }
        let alike = seen.entry((node.op.name(), node.inputs.clone())).or_default();
        let Some(&first) = alike.iter().find(|&&other| graph.node(other).op == node.op) else {
            alike.push(id);
            continue;
        };
        let (kept, doubled) = (graph.node(first).outputs.clone(), node.outputs.clone());
        for (kept, doubled) in kept.into_iter().zip(doubled) {
            graph.replace_uses(doubled, kept);
        }
        graph.remove(id);
    }
}

fn is_pure(node: &Node) -> bool {
    (0..node.inputs.len()).all(|position| node.op.effect(position) == Effect::None)
        && !node.outputs.is_empty()
        && !node.op.has_side_effect()
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    #[test]
    fn equal_nodes_are_computed_once() {
        check(
            run,
            "graph g(%x: f32[n, 4]) {
               %v = weight \"w\" : f32[4]
               %w = weight \"w\" : f32[4]
               %a = rms_norm(%x, %v) {eps = 1e-5}
               %b = rms_norm(%x, %w) {eps = 1e-5}
               %c = rms_norm(%x, %w) {eps = 1e-6}
               %d = exp(%a)
               %e = exp(%b)
               return %d, %e, %c
             }",
            "graph g(%x: f32[n, 4]) {
               %v = weight \"w\" : f32[4]
               %a = rms_norm(%x, %v) {eps = 1e-5}
               %c = rms_norm(%x, %v) {eps = 1e-6}
               %d = exp(%a)
               return %d, %d, %c
             }",
        );
    }

    #[test]
    fn buffers_change_between_loads() {
        check_unchanged(
            run,
            "graph g(%x: f32[n], %b: mut f32[n]) {
               %old = load(%b)
               store(%b, %x)
               %new = load(%b)
               store(%b, %x)
               return %old, %new
             }",
        );
    }
}
