//! `linear(rms_norm(x, g), W)` → `linear[norm](x, g, W)`, when only linear layers read the norm.

use graph::ops::{Linear, RmsNorm};
use graph::{Graph, Node, NodeId, Op, Value};

use super::replace;

pub(super) fn run(graph: &mut Graph) {
    for id in graph.node_ids() {
        if !graph.contains(id) {
            continue;
        }
        let Some((norm, readers)) = matches(graph, id) else { continue };
        let &[x, weight] = &graph.node(id).inputs[..] else { unreachable!("rms_norm has two operands") };
        for reader in readers {
            let node = graph.node(reader);
            let Op::Linear(linear) = node.op else { unreachable!("matched above") };
            let inputs = [&[x, weight], &node.inputs[1..]].concat();
            replace(graph, reader, Linear { norm: Some(norm.eps), ..linear }, &inputs);
        }
        graph.remove(id);
    }
}

/// The norm and the linear layers that read it, if they are its only readers.
fn matches(graph: &Graph, id: NodeId) -> Option<(RmsNorm, Vec<NodeId>)> {
    let node = graph.node(id);
    let Op::RmsNorm(norm) = node.op else { return None };
    let normed = node.outputs[0];
    let mut readers = graph.readers(normed);
    readers.retain(|&reader| reads_as_input(graph.node(reader), normed));
    (!readers.is_empty() && readers.len() == graph.users(normed)).then_some((norm, readers))
}

fn reads_as_input(node: &Node, value: Value) -> bool {
    let Op::Linear(linear) = node.op else { return false };
    linear.norm.is_none() && node.inputs[0] == value
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    fn graph(body: &str) -> String {
        format!(
            "graph g(%x: f32[n, 4]) {{
               %g = weight \"g\" : f32[4]
               %v = weight \"v\" : f32[8, 4]
               %w = weight \"w\" : f32[4, 4]
               {body}
             }}"
        )
    }

    #[test]
    fn a_norm_goes_into_each_layer_that_reads_it() {
        check(
            run,
            &graph(
                "%h = rms_norm(%x, %g) {eps = 0.5}
                 %a = linear(%h, %v)
                 %b = linear(%h, %w, %x) {residual = true}
                 return %a, %b",
            ),
            &graph(
                "%a = linear(%x, %g, %v) {norm = 0.5}
                 %b = linear(%x, %g, %w, %x) {norm = 0.5, residual = true}
                 return %a, %b",
            ),
        );
    }

    #[test]
    fn a_norm_with_other_readers_stays() {
        let norm = "%h = rms_norm(%x, %g) {eps = 0.5} %a = linear(%h, %v)";
        for body in [
            "%b = linear(%h, %w) return %a, %b, %h",
            "%b = linear(%h, %w, %h) {residual = true} return %a, %b",
            "%b = linear(%h, %g, %w) {norm = 0.5} return %a, %b",
        ] {
            check_unchanged(run, &graph(&format!("{norm} {body}")));
        }
    }
}
