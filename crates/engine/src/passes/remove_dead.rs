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

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::run;

    #[test]
    fn what_nobody_reads_goes_and_stores_stay() {
        check(
            run,
            "graph g(%x: f32[n], %b: mut f32[n]) {
               %w = weight \"unused\" : f32[4]
               %a = neg(%x)
               %d = exp(%a)
               %old = load(%b)
               %y = abs(%x)
               store(%b, %y)
               return %x
             }",
            "graph g(%x: f32[n], %b: mut f32[n]) {
               %y = abs(%x)
               store(%b, %y)
               return %x
             }",
        );
    }
}
