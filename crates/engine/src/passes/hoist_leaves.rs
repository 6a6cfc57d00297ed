//! `y = f(x); w = weight` → `w = weight; y = f(x)`: constants and weights come first.

use graph::Graph;

use crate::leaf::is_leaf;

pub(super) fn run(graph: &mut Graph) {
    let (leaves, others): (Vec<_>, Vec<_>) =
        graph.node_ids().into_iter().partition(|&id| is_leaf(&graph.node(id).op));
    graph.reorder([leaves, others].concat());
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::run;

    #[test]
    fn leaves_come_first_in_their_order() {
        check(
            run,
            "graph g(%x: f32[4]) {
               %a = neg(%x)
               %v = weight \"v\" : f32[4]
               %b = add(%a, %v)
               %c = constant [2.0] : f32[]
               %y = mul(%b, %c)
               return %y
             }",
            "graph g(%x: f32[4]) {
               %v = weight \"v\" : f32[4]
               %c = constant [2.0] : f32[]
               %a = neg(%x)
               %b = add(%a, %v)
               %y = mul(%b, %c)
               return %y
             }",
        );
    }
}
