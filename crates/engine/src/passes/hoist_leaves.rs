//! `y = f(x); w = weight` → `w = weight; y = f(x)`: constants and weights come first.

use graph::Graph;

use super::is_leaf;

pub(super) fn run(graph: &mut Graph) {
    let (leaves, others): (Vec<_>, Vec<_>) =
        graph.node_ids().into_iter().partition(|&id| is_leaf(&graph.node(id).op));
    graph.reorder([leaves, others].concat());
}
