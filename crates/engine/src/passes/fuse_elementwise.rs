//! `f(g(x), h(y))` → `elementwise[g, h, f](x, y)`, for functions of elements of one shape, when only `f` reads
//! `g(x)` and `h(y)`: what lies between them never goes to memory.

use std::collections::{BTreeMap, HashMap};

use graph::ops::{ElementFunction, ElementSource, ElementStep, Elementwise};
use graph::{Graph, NodeId, Op, Value};
use tensor::DType;

use super::replace;

/// Beyond this a program no longer gains from being longer, and its intermediate results leave the L1 cache.
const MOST_STEPS: usize = 32;
/// As many streams as hardware prefetchers follow with ease.
const MOST_OPERANDS: usize = 12;

/// Runs backwards, so that each group is as large as it gets.
pub(super) fn run(graph: &mut Graph) {
    let ids = graph.node_ids();
    let positions: HashMap<NodeId, usize> = ids.iter().enumerate().map(|(i, &id)| (id, i)).collect();
    for &id in ids.iter().rev() {
        if !graph.contains(id) || function(graph, id).is_none() {
            continue;
        }
        let members = group(graph, id, &positions);
        if members.len() < 2 {
            continue;
        }
        let (op, operands) = program(graph, &members);
        replace(graph, id, op, &operands);
        members.iter().rev().filter(|&&member| member != id).for_each(|&member| graph.remove(member));
    }
}

/// The nodes that become one with the node `root`, in program order.
fn group(graph: &Graph, root: NodeId, positions: &HashMap<NodeId, usize>) -> Vec<NodeId> {
    let shape = &graph.ty(graph.node(root).outputs[0]).shape;
    let mut members: BTreeMap<usize, NodeId> = BTreeMap::new();
    // How many operands of members each node's result is; the latest node is looked at when all its readers have been.
    let mut candidates: BTreeMap<usize, (NodeId, usize)> = BTreeMap::from([(positions[&root], (root, 0))]);
    // Values that are no member's result.
    let mut outside: Vec<Value> = Vec::new();
    while let Some((position, (id, reads))) = candidates.pop_last() {
        let result = graph.node(id).outputs[0];
        let inner =
            function(graph, id).is_some() && graph.users(result) == reads && graph.ty(result).shape == *shape;
        let operands = &graph.node(id).inputs;
        let new = operands.iter().filter(|operand| !outside.contains(operand)).count();
        let room = members.len() < MOST_STEPS && outside.len() + candidates.len() + new <= MOST_OPERANDS;
        if id != root && !(inner && room) {
            outside.push(result);
            continue;
        }
        members.insert(position, id);
        for &operand in operands {
            match graph.node_of(operand).and_then(|node| Some((node, *positions.get(&node)?))) {
                Some((node, position)) if graph.node(node).outputs.len() == 1 => {
                    candidates.entry(position).or_insert((node, 0)).1 += 1;
                }
                _ if !outside.contains(&operand) => outside.push(operand),
                _ => {}
            }
        }
    }
    members.into_values().collect()
}

/// What a node computes of elements, if it gives a result for all data.
fn function(graph: &Graph, id: NodeId) -> Option<ElementFunction> {
    let node = graph.node(id);
    let function = ElementFunction::of(&node.op)?;
    let dtype = graph.ty(node.inputs[0]).dtype;
    let partial = matches!(node.op, Op::Binary(function) if function.is_partial()) && dtype.is_integer();
    let plain =
        |dtype: DType| dtype.is_integer() || dtype == DType::Bool || dtype.is_float() && !dtype.is_float8();
    let types = node.inputs.iter().map(|&input| graph.ty(input).dtype);
    (!partial && types.into_iter().all(plain)).then_some(function)
}

/// The members as one op, and its operands.
fn program(graph: &Graph, members: &[NodeId]) -> (Elementwise, Vec<Value>) {
    let steps = members.iter().enumerate().map(|(i, &id)| (graph.node(id).outputs[0], i));
    let steps: HashMap<Value, usize> = steps.collect();
    let mut operands: Vec<Value> = Vec::new();
    let mut source = |value: Value| match steps.get(&value) {
        Some(&step) => ElementSource::Step(step),
        None => {
            ElementSource::Operand(operands.iter().position(|&other| other == value).unwrap_or_else(|| {
                operands.push(value);
                operands.len() - 1
            }))
        }
    };
    let program = members.iter().map(|&id| ElementStep {
        function: function(graph, id).expect("members are functions of elements"),
        operands: graph.node(id).inputs.iter().map(|&value| source(value)).collect(),
    });
    (Elementwise { program: program.collect() }, operands)
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    #[test]
    fn chains_become_programs() {
        check(
            run,
            "graph g(%x: f32[n, 4], %a: f32[], %b: f32[4]) {
               %p = mul(%x, %a)
               %q = add(%b, %p)
               %r = gelu(%q)
               %y = add(%r, %b)
               return %y
             }",
            "graph g(%x: f32[n, 4], %a: f32[], %b: f32[4]) {
               %y = elementwise(%x, %a, %b) {program = \"mul(x0, x1); add(x2, t0); gelu(t1); add(t2, x2)\"}
               return %y
             }",
        );
    }

    #[test]
    fn steps_may_be_read_twice_within() {
        check(
            run,
            "graph g(%x: f32[n], %z: f32[n]) {
               %p = exp(%x)
               %low = less(%p, %z)
               %d = sub(%p, %z)
               %s = select(%low, %d, %p)
               %y = cast(%s) {to = f16}
               return %y
             }",
            "graph g(%x: f32[n], %z: f32[n]) {
               %y = elementwise(%x, %z) {program = \"exp(x0); less(t0, x1); sub(t0, x1); select(t1, t2, t0); cast[f16](t3)\"}
               return %y
             }",
        );
    }

    /// What others read ends one program and is an operand of the next.
    #[test]
    fn what_others_read_stays() {
        check(
            run,
            "graph g(%x: f32[n]) {
               %p = exp(%x)
               %q = neg(%p)
               %r = abs(%q)
               %y = sin(%r)
               return %q, %y
             }",
            "graph g(%x: f32[n]) {
               %q = elementwise(%x) {program = \"exp(x0); neg(t0)\"}
               %y = elementwise(%q) {program = \"abs(x0); sin(t0)\"}
               return %q, %y
             }",
        );
        check_unchanged(run, "graph g(%x: f32[n]) { %p = exp(%x) %y = neg(%p) return %p, %y }");
    }

    #[test]
    fn what_is_smaller_is_computed_once() {
        check_unchanged(
            run,
            "graph g(%x: f32[n, 4], %b: f32[4]) {
               %e = exp(%b)
               %y = mul(%x, %e)
               return %y
             }",
        );
    }

    #[test]
    fn what_may_refuse_data_stays() {
        check_unchanged(
            run,
            "graph g(%x: i32[n], %z: i32[n]) {
               %q = div(%x, %z)
               %y = neg(%q)
               return %y
             }",
        );
    }

    #[test]
    fn long_chains_become_several_programs() {
        let chain: String = (0..40).map(|i| format!("%t{} = neg(%t{i}) ", i + 1)).collect();
        let mut graph =
            graph::Graph::parse(&format!("graph g(%t0: f32[n]) {{ {chain} return %t40 }}")).unwrap();
        run(&mut graph);
        graph.verify().unwrap();
        assert_eq!(graph.len(), 2);
    }
}
