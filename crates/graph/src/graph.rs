//! Graphs: nodes in program order over values in single-assignment form.

use std::collections::BTreeMap;

use crate::ops::{Effect, Op};
use crate::{Error, Kind, Type, TypeError};

/// A value: an input of the graph, or a result of a node. Made by one graph and meaningful in it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub(crate) u32);

/// A node of one graph. Stays valid while other nodes come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

/// One application of an op.
#[derive(Debug, Clone)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// What it is computed from.
    pub inputs: Vec<Value>,
    /// What it makes; empty for a pure store.
    pub outputs: Vec<Value>,
}

/// A parameter of the graph.
#[derive(Debug, Clone)]
pub struct Input {
    /// The name callers bind.
    pub name: String,
    /// The value inside the graph.
    pub value: Value,
}

#[derive(Debug, Clone)]
pub(crate) struct ValueInfo {
    pub(crate) ty: Type,
    /// The node that makes it, or `None` for an input.
    pub(crate) node: Option<NodeId>,
    /// How many operands and graph outputs are this value.
    pub(crate) users: usize,
}

/// A computation: inputs, nodes in program order, outputs.
///
/// Weights and constants are nodes without inputs. Nodes that read or write a buffer keep their order.
#[derive(Debug, Clone)]
pub struct Graph {
    name: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Value>,
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) order: Vec<NodeId>,
    pub(crate) values: Vec<ValueInfo>,
}

/// Several graphs that are compiled together, each under its own name.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// The graphs, in the order they were added.
    pub graphs: Vec<Graph>,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph {
            name: name.into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            nodes: Vec::new(),
            order: Vec::new(),
            values: Vec::new(),
        }
    }

    /// The name of the graph, and of the model made of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters, in the order callers give them.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The results, in the order callers get them.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// Adds a parameter.
    pub fn input(&mut self, name: impl Into<String>, ty: Type) -> Value {
        let value = self.add_value(ty, None);
        self.inputs.push(Input { name: name.into(), value });
        value
    }

    /// Appends a node.
    ///
    /// # Errors
    /// If the operands do not fit the op.
    pub fn push(&mut self, op: Op, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        let (node, outputs) = self.add_node(op, inputs)?;
        self.order.push(node);
        Ok(outputs)
    }

    /// Appends a node that makes one value.
    ///
    /// # Errors
    /// If the operands do not fit the op.
    ///
    /// # Panics
    /// If the op makes more or fewer values.
    pub fn push_one(&mut self, op: Op, inputs: &[Value]) -> Result<Value, Error> {
        let outputs = self.push(op, inputs)?;
        assert_eq!(outputs.len(), 1, "the number of results");
        Ok(outputs[0])
    }

    /// Makes values the results of the graph, in place of any earlier ones.
    pub fn set_outputs(&mut self, outputs: &[Value]) {
        for value in std::mem::replace(&mut self.outputs, outputs.to_vec()) {
            self.values[value.0 as usize].users -= 1;
        }
        for value in outputs {
            self.values[value.0 as usize].users += 1;
        }
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value.0 as usize].ty
    }

    /// How many operands and graph outputs are this value.
    pub fn users(&self, value: Value) -> usize {
        self.values[value.0 as usize].users
    }

    /// The node that makes a value, or `None` for an input of the graph.
    pub fn node_of(&self, value: Value) -> Option<NodeId> {
        self.values[value.0 as usize].node
    }

    /// The op that makes a value and its operands, or `None` for an input of the graph.
    pub fn defined_by(&self, value: Value) -> Option<(&Op, &[Value])> {
        let node = self.node(self.node_of(value)?);
        Some((&node.op, &node.inputs))
    }

    /// A node.
    ///
    /// # Panics
    /// If it was removed.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes[id.0 as usize].as_ref().expect("a node of this graph that was not removed")
    }

    /// The nodes in program order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> + '_ {
        self.order.iter().map(|&id| (id, self.node(id)))
    }

    /// The nodes in program order, as a list that stays fixed while the graph is edited. Passes walk it and
    /// skip those that [`Graph::contains`] no longer.
    pub fn node_ids(&self) -> Vec<NodeId> {
        self.order.clone()
    }

    /// Whether a node has not been removed.
    pub fn contains(&self, id: NodeId) -> bool {
        self.nodes[id.0 as usize].is_some()
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Every value there is room for; for tables indexed by [`Value::index`].
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Inserts a node before another.
    ///
    /// # Errors
    /// If the operands do not fit the op.
    ///
    /// # Panics
    /// If `before` was removed.
    pub fn insert_before(&mut self, before: NodeId, op: Op, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        let position = self.order.iter().position(|&id| id == before).expect("a node of this graph");
        let (node, outputs) = self.add_node(op, inputs)?;
        self.order.insert(position, node);
        Ok(outputs)
    }

    /// Makes every user of `old`, graph outputs included, use `new` instead.
    ///
    /// # Panics
    /// If the types differ: a pass keeps types.
    pub fn replace_uses(&mut self, old: Value, new: Value) {
        assert_eq!(self.ty(old), self.ty(new), "the type of a replacement");
        let mut moved = 0;
        let operands = self.nodes.iter_mut().flatten().flat_map(|node| &mut node.inputs);
        for operand in operands.chain(&mut self.outputs).filter(|operand| **operand == old) {
            *operand = new;
            moved += 1;
        }
        self.values[old.0 as usize].users -= moved;
        self.values[new.0 as usize].users += moved;
    }

    /// Removes a node whose results nobody uses.
    ///
    /// # Panics
    /// If a result has users.
    pub fn remove(&mut self, id: NodeId) {
        let node = self.nodes[id.0 as usize].take().expect("a node of this graph");
        assert!(
            node.outputs.iter().all(|&value| self.users(value) == 0),
            "removing {:?} that has users",
            node.op.name()
        );
        for value in node.inputs {
            self.values[value.0 as usize].users -= 1;
        }
        self.order.retain(|&other| other != id);
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
        assert_eq!(sorted(order.clone()), sorted(self.order.clone()), "a permutation of the nodes");
        let before = self.buffer_uses();
        self.order = order;
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

    fn add_node(&mut self, op: Op, inputs: &[Value]) -> Result<(NodeId, Vec<Value>), Error> {
        let types: Vec<&Type> = inputs.iter().map(|&value| self.ty(value)).collect();
        let results = infer(&op, &types)?;
        let id = NodeId(u32::try_from(self.nodes.len()).expect("fewer than 2^32 nodes"));
        for value in inputs {
            self.values[value.0 as usize].users += 1;
        }
        let outputs: Vec<Value> = results.into_iter().map(|ty| self.add_value(ty, Some(id))).collect();
        self.nodes.push(Some(Node { op, inputs: inputs.to_vec(), outputs: outputs.clone() }));
        Ok((id, outputs))
    }

    fn add_value(&mut self, ty: Type, node: Option<NodeId>) -> Value {
        let value = Value(u32::try_from(self.values.len()).expect("fewer than 2^32 values"));
        self.values.push(ValueInfo { ty, node, users: 0 });
        value
    }
}

/// The types of the results of an op: its own rule, after those that hold for all.
pub(crate) fn infer(op: &Op, types: &[&Type]) -> Result<Vec<Type>, Error> {
    let refuse = |message: String| Error::Type { op: op.name(), error: TypeError::new(message) };
    for (position, ty) in types.iter().enumerate() {
        let wants_buffer = op.effect(position) != Effect::None;
        if wants_buffer != (ty.kind == Kind::Buffer) {
            let wanted = if wants_buffer { "a buffer" } else { "a tensor (load the buffer first)" };
            return Err(refuse(format!("operand {position} is {ty}, expected {wanted}")));
        }
        if ty.device != types[0].device {
            return Err(refuse(format!("devices differ: operand 0 {}, operand {position} {ty}", types[0])));
        }
    }
    let results = op.infer(types).map_err(|error| Error::Type { op: op.name(), error })?;
    match results.iter().find(|ty| !ty.is_tractable()) {
        None => Ok(results),
        Some(ty) => Err(refuse(format!("the result {ty} has too many axes or terms"))),
    }
}

impl Value {
    /// A small number that is this value's alone within its graph; for tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Binary, Unary};

    fn sample() -> Graph {
        let text = "graph g(%x: f32[n], %b: mut f32[n]) {
                      %0 = load(%b)
                      %1 = neg(%x)
                      %2 = load(%b)
                      store(%b, %1)
                      %3 = add(%0, %2)
                      return %3
                    }";
        Graph::parse(text).unwrap()
    }

    #[test]
    fn edits_keep_the_books() {
        let mut graph = sample();
        let (x, ids) = (graph.inputs()[0].value, graph.node_ids());
        let [zero, two] = [0, 2].map(|i| graph.node(ids[i]).outputs[0]);
        let twice = graph.insert_before(ids[4], Binary::Mul.into(), &[zero, zero]).unwrap()[0];
        assert_eq!((graph.users(zero), graph.users(two)), (3, 1));
        graph.replace_uses(two, twice);
        assert_eq!((graph.users(two), graph.users(twice)), (0, 1));
        graph.remove(ids[2]);
        assert!(!graph.contains(ids[2]) && graph.len() == 5);
        graph.verify().unwrap();
        let (op, operands) = graph.defined_by(graph.outputs()[0]).unwrap();
        assert_eq!((op, operands), (&Op::Binary(Binary::Add), &[zero, twice][..]));
        assert!(graph.defined_by(x).is_none());
        assert_eq!(
            graph.push(Unary::Not.into(), &[x]).unwrap_err().to_string(),
            "not: x is f32[n], expected bool"
        );
        graph.verify().unwrap();
    }

    #[test]
    fn reads_may_change_places() {
        let mut graph = sample();
        let ids = graph.node_ids();
        graph.reorder(vec![ids[1], ids[2], ids[0], ids[3], ids[4]]);
        graph.verify().unwrap();
    }

    #[test]
    #[should_panic(expected = "the order of reads and writes of each buffer")]
    fn a_read_may_not_pass_a_write() {
        let mut graph = sample();
        let ids = graph.node_ids();
        graph.reorder(vec![ids[0], ids[1], ids[3], ids[2], ids[4]]);
    }
}
