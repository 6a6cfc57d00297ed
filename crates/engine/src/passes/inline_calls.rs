//! `y = call(x) {graph = f}` → the nodes of `f`, unless `f` finds sizes in its data.

use std::collections::HashMap;

use graph::{Graph, NodeId, Op, Substitution, Value};

/// What is called may call in turn, so the new nodes are looked at too.
pub(super) fn run(graph: &mut Graph) {
    let mut waiting = graph.node_ids();
    while let Some(id) = waiting.pop() {
        if let Some(inlined) = matches(graph, id) {
            waiting.extend(replace(graph, id, inlined));
        }
    }
}

/// The called graph's nodes, said in the terms of the caller.
struct Inlined {
    callee: std::sync::Arc<Graph>,
    /// For each node of the callee in order.
    ops: Vec<Op>,
}

fn matches(graph: &Graph, id: NodeId) -> Option<Inlined> {
    let node = graph.node(id);
    let Op::Call(call) = &node.op else { return None };
    let defines = |(_, node): (NodeId, &graph::Node)| !node.op.defines().is_empty();
    if call.graph.nodes().any(defines) {
        return None;
    }
    let types: Vec<_> = node.inputs.iter().map(|&input| graph.ty(input)).collect();
    let symbols: Substitution = call.graph.substitution(&types).ok()?;
    let ops = call.graph.nodes().map(|(_, node)| node.op.with_prefix(&call.prefix).substitute(&symbols));
    Some(Inlined { callee: call.graph.clone(), ops: ops.collect::<Option<_>>()? })
}

/// Gives the new nodes.
fn replace(graph: &mut Graph, id: NodeId, Inlined { callee, ops }: Inlined) -> Vec<NodeId> {
    let operands = graph.node(id).inputs.clone();
    let mut values: HashMap<Value, Value> =
        callee.inputs().iter().zip(operands).map(|(input, operand)| (input.value, operand)).collect();
    let mut added = Vec::new();
    for ((_, node), op) in callee.nodes().zip(ops) {
        let inputs: Vec<Value> = node.inputs.iter().map(|input| values[input]).collect();
        let results = graph.insert_before(id, op, &inputs).expect("what is called fits its operands");
        added.extend(results.first().and_then(|&result| graph.node_of(result)));
        values.extend(node.outputs.iter().copied().zip(results));
    }
    for (old, &new) in graph.node(id).outputs.clone().into_iter().zip(callee.outputs()) {
        graph.replace_uses(old, values[&new]);
    }
    graph.remove(id);
    added
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    #[test]
    fn layers_become_nodes_with_weights_of_their_own() {
        check(
            run,
            "graph g(%x: f32[tokens, 4]) {
               %a = call(%x) {prefix = \"layers.0.\", graph = graph layer(%x: f32[n, 4]) {
                 %w = weight \"w\" : f32[4, 4]
                 %y = linear(%x, %w)
                 %z = call(%y) {prefix = \"inner.\", graph = graph inner(%x: f32[k, 2*m]) {
                   %b = weight \"b\" : f32[2, 1]
                   %t = reshape(%x) {shape = [k, 2, m]}
                   %y = add(%t, %b)
                   %z = reshape(%y) {shape = [k, 2*m]}
                   return %z
                 }}
                 return %z
               }}
               %b = call(%a) {prefix = \"layers.1.\", graph = @layer}
               return %a, %b
             }",
            "graph g(%x: f32[tokens, 4]) {
               %w0 = weight \"layers.0.w\" : f32[4, 4]
               %y0 = linear(%x, %w0)
               %b0 = weight \"layers.0.inner.b\" : f32[2, 1]
               %t0 = reshape(%y0) {shape = [tokens, 2, 2]}
               %s0 = add(%t0, %b0)
               %z0 = reshape(%s0) {shape = [tokens, 4]}
               %w1 = weight \"layers.1.w\" : f32[4, 4]
               %y1 = linear(%z0, %w1)
               %b1 = weight \"layers.1.inner.b\" : f32[2, 1]
               %t1 = reshape(%y1) {shape = [tokens, 2, 2]}
               %s1 = add(%t1, %b1)
               %z1 = reshape(%s1) {shape = [tokens, 4]}
               return %z0, %z1
             }",
        );
    }

    #[test]
    fn what_is_called_may_store_and_give_back_its_operands() {
        check(
            run,
            "graph g(%x: f32[2], %b: mut f32[2]) {
               %y, %z = call(%x, %b) {graph = graph put(%x: f32[n], %b: mut f32[n]) {
                 %old = load(%b)
                 store(%b, %x)
                 return %x, %old
               }}
               %new = load(%b)
               return %y, %z, %new
             }",
            "graph g(%x: f32[2], %b: mut f32[2]) {
               %old = load(%b)
               store(%b, %x)
               %new = load(%b)
               return %x, %old, %new
             }",
        );
    }

    #[test]
    fn other_graphs_within_stay() {
        check_unchanged(
            run,
            "graph g(%p: bool[], %x: f32[2]) {
               %y = cond(%p, %x) {then = graph a(%x: f32[2]) { return %x }, otherwise = @a}
               return %y
             }",
        );
    }
}
