//! How passes change graphs: nodes inserted, removed and reordered, uses of values replaced.

use std::collections::BTreeMap;

use super::{Graph, NodeId, Value, size};
use crate::Error;
use crate::ops::{Effect, Op};

impl Graph {
    /// Inserts a node before another, from the same place in the source.
    ///
    /// # Errors
    /// If the operands do not fit the op.
    ///
    /// # Panics
    /// If `before` was removed.
    pub fn insert_before(&mut self, before: NodeId, op: Op, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        let location = self.node(before).location.clone();
        let (node, outputs) = self.add_node(op, inputs, location)?;
        self.order.insert_before(before, node);
        Ok(outputs)
    }

    /// Makes every user of `old`, graph outputs included, use `new` instead.
    ///
    /// # Panics
    /// If the types differ: a pass keeps types.
    pub fn replace_uses(&mut self, old: Value, new: Value) {
        assert_eq!(self.ty(old), self.ty(new), "the type of a replacement");
        let readers = std::mem::take(&mut self.info_mut(old).readers);
        let mut moved = 0;
        for id in readers {
            let Some(node) = &mut self.nodes[id.0 as usize] else { continue };
            let before = moved;
            for operand in node.inputs.iter_mut().filter(|operand| **operand == old) {
                *operand = new;
                moved += 1;
            }
            if moved > before {
                self.info_mut(new).readers.push(id);
            }
        }
        if moved < self.users(old) {
            for output in self.outputs.iter_mut().filter(|output| **output == old) {
                *output = new;
                moved += 1;
            }
        }
        self.info_mut(old).users -= moved;
        self.info_mut(new).users += moved;
    }

    /// Removes a node whose results are not used.
    ///
    /// # Panics
    /// If a result has users.
    pub fn remove(&mut self, id: NodeId) {
        let node = self.nodes[id.0 as usize].take().expect("a node of this graph");
        self.size -= size(&node.op);
        assert!(
            node.outputs.iter().all(|&value| self.users(value) == 0),
            "removing {:?} that has users",
            node.op.name()
        );
        for value in node.inputs {
            self.info_mut(value).users -= 1;
        }
        self.order.remove(id);
    }

    /// Puts nodes into another program order.
    ///
    /// # Panics
    /// If `order` does not hold each node once, or moves a use of a buffer across one that writes it.
    /// [`Graph::verify`] checks the rest.
    pub fn reorder(&mut self, order: Vec<NodeId>) {
        let sorted = |mut ids: Vec<NodeId>| {
            ids.sort();
            ids
        };
        assert_eq!(sorted(order.clone()), sorted(self.node_ids()), "a permutation of the nodes");
        let before = self.buffer_uses();
        self.order = order.into_iter().collect();
        assert_eq!(before, self.buffer_uses(), "the order of reads and writes of each buffer");
    }

    /// For each buffer: the groups of nodes that read it, sorted, and between them the nodes that write it.
    fn buffer_uses(&self) -> BTreeMap<Value, Vec<(Effect, Vec<NodeId>)>> {
        let mut uses: BTreeMap<Value, Vec<(Effect, Vec<NodeId>)>> = BTreeMap::new();
        for (id, node) in self.nodes() {
            for (position, &buffer) in node.inputs.iter().enumerate() {
                let groups = uses.entry(buffer).or_default();
                match (node.op.effect(position), groups.last_mut()) {
                    (Effect::None, _) => {}
                    (Effect::Read, Some((Effect::Read, readers))) => readers.push(id),
                    (effect, _) => groups.push((effect, vec![id])),
                }
            }
        }
        uses.values_mut().flatten().for_each(|(_, nodes)| nodes.sort());
        uses.retain(|_, groups| !groups.is_empty());
        uses
    }
}
