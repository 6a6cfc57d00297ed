//! `y = f(x)`, and nobody reads `y` → nothing, unless `f` writes a buffer.

use graph::ops::Effect;
use graph::{Graph, Node};

/// Runs backwards, so that what only dead nodes read is dead when its turn comes.
pub(super) fn run(graph: &mut Graph) {
    for id in graph.node_ids().into_iter().rev() {
        let node = graph.node(id);
        if !writes(node) && node.outputs.iter().all(|&output| graph.users(output) == 0) {
            graph.remove(id);
        }
    }
}

fn writes(node: &Node) -> bool {
    (0..node.inputs.len()).any(|position| node.op.effect(position) == Effect::Write)
}
