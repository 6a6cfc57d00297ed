//! `a = f(x); b = f(x)` → `a = f(x)`, where `f` touches no buffer.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

use graph::ops::Attribute;
use graph::{Graph, Node, NodeId};

use super::touches_buffers;
use crate::artifact::checksum;

pub(super) fn run(graph: &mut Graph) {
    merge(graph);
}

/// Gives the number of pairs of nodes that were compared.
fn merge(graph: &mut Graph) -> usize {
    let mut seen: HashMap<u64, Vec<NodeId>> = HashMap::new();
    let mut compared = 0;
    for id in graph.node_ids() {
        let node = graph.node(id);
        if !is_pure(node) {
            continue;
        }
        let alike = seen.entry(hash(node)).or_default();
        let mut is_same = |&other: &NodeId| {
            compared += 1;
            let other = graph.node(other);
            other.inputs == node.inputs && other.op == node.op
        };
        let Some(first) = alike.iter().copied().find(&mut is_same) else {
            alike.push(id);
            continue;
        };
        let (kept, doubled) = (graph.node(first).outputs.clone(), node.outputs.clone());
        for (kept, doubled) in kept.into_iter().zip(doubled) {
            graph.replace_uses(doubled, kept);
        }
        graph.remove(id);
    }
    compared
}

/// A hash of what nodes must share to be equal: op, operands and attributes. Graphs that nodes run count by name.
fn hash(node: &Node) -> u64 {
    let mut hasher = Printed(DefaultHasher::new());
    (node.op.name(), &node.inputs).hash(&mut hasher.0);
    for (name, value) in node.op.attributes().iter() {
        name.hash(&mut hasher.0);
        write!(hasher, "{value}").expect("hashing never fails");
        if let Attribute::Tensor(data) = value {
            checksum(data.0.contiguous().bytes()).hash(&mut hasher.0);
        }
    }
    hasher.0.finish()
}

/// Hashes what is written to it.
struct Printed(DefaultHasher);

impl Write for Printed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn is_pure(node: &Node) -> bool {
    !touches_buffers(node) && !node.outputs.is_empty() && !node.op.has_side_effect()
}

#[cfg(test)]
mod tests {
    use graph::ops::Slice;
    use graph::{Builder, Type};
    use tensor::{DType, Tensor};

    use super::super::{check, check_unchanged};
    use super::{merge, run};

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

    #[test]
    fn created_buffers_are_kept_apart() {
        check_unchanged(
            run,
            "graph g(%x: f32[n]) {
               %a = create_buffer() {dtype = f32, shape = [n]}
               %b = create_buffer() {dtype = f32, shape = [n]}
               store(%b, %x)
               %y = load(%a)
               %z = load(%b)
               return %y, %z
             }",
        );
    }

    #[test]
    fn nodes_that_differ_are_not_compared_one_by_one() {
        let size = 1000;
        let mut b = Builder::new("g");
        let x = b.input("x", Type::new(DType::F32, [size]));
        let mut outputs = Vec::new();
        for i in 0..size {
            let weight = b.weight(format!("w{i}"), Type::new(DType::F32, [1])).unwrap();
            let constants = [i, i].map(|i| b.constant(Tensor::from_slice([1], &[i as f32])));
            let slice = |i: usize| Slice { axis: 0, start: i as i64, stop: Some(i as i64 + 1), step: 1 };
            let parts = [i, i].map(|i| b.op(slice(i), &[x]).unwrap());
            for (part, constant) in parts.into_iter().zip(constants) {
                let scaled = b.mul(part, constant).unwrap();
                outputs.push(b.add(scaled, weight).unwrap());
            }
        }
        let mut graph = b.finish(&outputs).unwrap();
        let compared = merge(&mut graph);
        graph.verify().unwrap();
        // A weight, a constant, a slice, a product and a sum; each but the first of two equal ones is compared once.
        assert_eq!((graph.len(), compared), (5 * size, 4 * size));
    }
}
