//! `y = f(x)` without readers of `y` → nothing, unless `f` writes a buffer, has a side effect or finds a size that
//! others have.

use std::collections::BTreeSet;

use graph::ops::Effect;
use graph::{Dim, Graph, Node};

/// Runs backwards, so that what only dead nodes read is dead when its turn comes.
pub(super) fn run(graph: &mut Graph) {
    let defined: Vec<&str> = graph.nodes().flat_map(|(_, node)| node.op.defines()).collect();
    let defined: BTreeSet<String> = defined.into_iter().map(str::to_string).collect();
    // Those of them in the types of live values so far.
    let mut symbols: BTreeSet<String> = BTreeSet::new();
    for id in graph.node_ids().into_iter().rev() {
        let node = graph.node(id);
        let read = node.outputs.iter().any(|&output| graph.users(output) > 0);
        if !read && !acts(node) && !node.op.defines().into_iter().any(|symbol| symbols.contains(symbol)) {
            graph.remove(id);
            continue;
        }
        if !defined.is_empty() {
            let dims = node.outputs.iter().flat_map(|&output| &graph.ty(output).shape);
            let live = dims.flat_map(Dim::symbols).filter(|&symbol| defined.contains(symbol));
            symbols.extend(live.map(str::to_string));
        }
    }
}

fn acts(node: &Node) -> bool {
    node.op.has_side_effect()
        || (0..node.inputs.len()).any(|position| node.op.effect(position) == Effect::Write)
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::run;

    #[test]
    fn unread_results_are_removed_and_stores_stay() {
        check(
            run,
            "graph g(%x: f32[n], %b: mut f32[n]) {
               %w = weight \"unused\" : f32[4]
               %a = neg(%x)
               %d = exp(%a)
               %old = load(%b)
               %y = abs(%x)
               store(%b, %y)
               print() {label = done, text = yes}
               return %x
             }",
            "graph g(%x: f32[n], %b: mut f32[n]) {
               %y = abs(%x)
               store(%b, %y)
               print() {label = done, text = yes}
               return %x
             }",
        );
    }
}
