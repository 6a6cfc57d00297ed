//! Graphs: nodes in program order over values in single-assignment form.

mod edit;
mod equality;
mod identity;
mod node;
mod order;
mod placement;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::panic::Location;

use self::identity::Identity;
pub use self::node::{Input, Node, NodeId, Value};
use self::order::Order;
pub use self::placement::DevicePlacementPolicy;
use crate::ops::{Effect, Op};
use crate::{Dim, Error, Kind, SourceLocation, Type};

#[derive(Debug, Clone)]
pub(crate) struct ValueInfo {
    pub(crate) ty: Type,
    /// The number of the graph that made it: this one, or one that this is a clone of.
    graph: u64,
    /// The node that makes it, or `None` for an input.
    pub(crate) node: Option<NodeId>,
    /// How many operands and graph outputs are this value.
    pub(crate) users: usize,
    /// The nodes that read it, each at least once, and perhaps some that no longer do or were removed.
    readers: Vec<NodeId>,
    /// The most that a node did to it, if it is a buffer.
    pub(crate) effect: Effect,
}

/// A computation: inputs, nodes in program order, outputs.
///
/// Weights and constants are nodes without inputs. Nodes that read or write a buffer keep their order.
#[derive(Debug, Clone)]
pub struct Graph {
    identity: Identity,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Value>,
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) order: Order,
    pub(crate) values: Vec<ValueInfo>,
    /// The nodes of this graph and, for each that holds graphs, of those.
    size: usize,
    /// How deep graphs nest in nodes, this one included.
    depth: usize,
    device_placement: DevicePlacementPolicy,
}

/// Several graphs that are compiled together, each under its own name.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// The graphs, in the order they were added.
    pub graphs: Vec<Graph>,
}

impl Graph {
    /// How deep graphs may nest in the nodes of graphs.
    pub const MAX_DEPTH: usize = 32;

    /// How many nodes a graph may have, where nodes that hold graphs count with all of theirs: a short text could say
    /// a graph of any size otherwise.
    pub const MAX_SIZE: usize = 1 << 16;

    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph {
            identity: Identity::new(name.into().into()),
            inputs: Vec::new(),
            outputs: Vec::new(),
            nodes: Vec::new(),
            order: Order::default(),
            values: Vec::new(),
            size: 0,
            depth: 1,
            device_placement: DevicePlacementPolicy::default(),
        }
    }

    /// The name of the graph, and of the model made of it.
    pub fn name(&self) -> &str {
        &self.identity.name
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

    /// Appends a node, which remembers its caller's place in the source.
    ///
    /// # Errors
    /// If the operands do not fit the op.
    #[track_caller]
    pub fn push(&mut self, op: Op, inputs: &[Value]) -> Result<Vec<Value>, Error> {
        self.push_from(op, inputs, Some(Location::caller().into()))
    }

    /// [`Graph::push`] for a node that was made elsewhere.
    ///
    /// # Errors
    /// If the operands do not fit the op.
    pub fn push_from(
        &mut self,
        op: Op,
        inputs: &[Value],
        location: Option<SourceLocation>,
    ) -> Result<Vec<Value>, Error> {
        let (node, outputs) = self.add_node(op, inputs, location)?;
        self.order.push(node);
        Ok(outputs)
    }

    /// Appends a node that makes one value.
    ///
    /// # Errors
    /// If the operands do not fit the op, or it makes more or fewer values.
    #[track_caller]
    pub fn push_one(&mut self, op: Op, inputs: &[Value]) -> Result<Value, Error> {
        self.push_one_from(op, inputs, Some(Location::caller().into()))
    }

    /// [`Graph::push_one`] for a node that was made elsewhere.
    pub(crate) fn push_one_from(
        &mut self,
        op: Op,
        inputs: &[Value],
        location: Option<SourceLocation>,
    ) -> Result<Value, Error> {
        let name = op.name();
        let (node, outputs) = self.add_node(op, inputs, location.clone())?;
        self.order.push(node);
        match outputs[..] {
            [value] => Ok(value),
            _ => {
                self.remove(node);
                Err(Error::refuse(name, format!("makes {} values, expected 1", outputs.len())).at(location))
            }
        }
    }

    /// Makes values the results of the graph, in place of any earlier ones.
    ///
    /// # Panics
    /// If one is a value of another graph.
    #[track_caller]
    pub fn set_outputs(&mut self, outputs: &[Value]) {
        for value in std::mem::take(&mut self.outputs) {
            self.info_mut(value).users -= 1;
        }
        for &value in outputs {
            self.info_mut(value).users += 1;
        }
        self.outputs = outputs.to_vec();
    }

    /// The type of a value.
    ///
    /// # Panics
    /// If it is a value of another graph.
    #[track_caller]
    pub fn ty(&self, value: Value) -> &Type {
        &self.info(value).ty
    }

    /// How many operands and graph outputs are this value.
    ///
    /// # Panics
    /// If it is a value of another graph.
    #[track_caller]
    pub fn users(&self, value: Value) -> usize {
        self.info(value).users
    }

    /// The nodes that read a value, each once, in the order they were made.
    ///
    /// # Panics
    /// If it is a value of another graph.
    #[track_caller]
    pub fn readers(&self, value: Value) -> Vec<NodeId> {
        let mut readers = self.info(value).readers.clone();
        readers.sort_unstable();
        readers.dedup();
        readers.retain(|&id| self.contains(id) && self.node(id).inputs.contains(&value));
        readers
    }

    /// The node that makes a value, or `None` for an input of the graph.
    ///
    /// # Panics
    /// If it is a value of another graph.
    #[track_caller]
    pub fn node_of(&self, value: Value) -> Option<NodeId> {
        self.info(value).node
    }

    /// The op that makes a value and its operands, or `None` for an input of the graph.
    ///
    /// # Panics
    /// If it is a value of another graph.
    #[track_caller]
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
        self.order.iter().map(|id| (id, self.node(id)))
    }

    /// The nodes in program order, as a list that stays fixed while the graph is edited. Passes walk it and
    /// skip those that [`Graph::contains`] no longer.
    pub fn node_ids(&self) -> Vec<NodeId> {
        self.order.iter().collect()
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
        self.order.len() == 0
    }

    /// Every value there is room for; for tables indexed by [`Value::index`].
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    fn add_node(
        &mut self,
        op: Op,
        inputs: &[Value],
        location: Option<SourceLocation>,
    ) -> Result<(NodeId, Vec<Value>), Error> {
        let results = self.infer(&op, inputs).and_then(|types| self.grow(&op).map(|()| types));
        let results = results.map_err(|error| error.at(location.clone()))?;
        let id = NodeId(u32::try_from(self.nodes.len()).expect("fewer than 2^32 nodes"));
        for (position, &value) in inputs.iter().enumerate() {
            let value = self.info_mut(value);
            value.users += 1;
            value.readers.push(id);
            value.effect = value.effect.max(op.effect(position));
        }
        let outputs: Vec<Value> = results.into_iter().map(|ty| self.add_value(ty, Some(id))).collect();
        self.nodes.push(Some(Node { op, inputs: inputs.to_vec(), outputs: outputs.clone(), location }));
        Ok((id, outputs))
    }

    /// The types of the results of an op for these operands.
    fn infer(&self, op: &Op, inputs: &[Value]) -> Result<Vec<Type>, Error> {
        let mut types = Vec::with_capacity(inputs.len());
        for (position, &value) in inputs.iter().enumerate() {
            if let Some(foreign) = self.foreign(value) {
                return Err(Error::refuse(op.name(), format!("operand {position} is {foreign}")));
            }
            types.push(self.ty(value));
        }
        infer(op, &types)
    }

    /// Notes the size of a node that is added, if graphs in it are not too large.
    fn grow(&mut self, op: &Op) -> Result<(), Error> {
        let depth = op.regions().iter().map(|region| 1 + region.depth).max().unwrap_or(1);
        let size = self.size.saturating_add(size(op));
        let fault = match depth {
            1 => None,
            _ if depth > Graph::MAX_DEPTH => Some(format!("graphs nest deeper than {}", Graph::MAX_DEPTH)),
            _ if size > Graph::MAX_SIZE => Some(format!(
                "the graph has more than {} nodes with those of the graphs in it",
                Graph::MAX_SIZE
            )),
            _ => None,
        };
        if let Some(message) = fault {
            return Err(Error::refuse(op.name(), message));
        }
        (self.size, self.depth) = (size, self.depth.max(depth));
        Ok(())
    }

    /// This graph with a prefix before the names of its weights.
    pub fn with_prefix(&self, prefix: &str) -> Graph {
        let mut graph = self.clone();
        for node in graph.nodes.iter_mut().flatten() {
            node.op = node.op.with_prefix(prefix);
        }
        graph
    }

    /// The weights by name, with their types; those of graphs within too.
    pub fn weights(&self) -> BTreeMap<String, Type> {
        let mut weights = BTreeMap::new();
        for (_, node) in self.nodes() {
            let prefix = if let Op::Call(call) = &node.op { &call.prefix[..] } else { "" };
            if let Op::Weight(weight) = &node.op {
                weights.insert(weight.name.clone(), weight.ty.clone());
            }
            let within = node.op.regions().into_iter().flat_map(|region| region.weights());
            weights.extend(within.map(|(name, ty)| (format!("{prefix}{name}"), ty)));
        }
        weights
    }

    /// The symbols of the outputs' types whose sizes nodes find in their data.
    pub(crate) fn symbols_of_results(&self) -> Vec<&str> {
        let dims = self.outputs.iter().flat_map(|&output| &self.ty(output).shape);
        let mut symbols: Vec<&str> = dims.flat_map(Dim::symbols).collect();
        symbols.sort_unstable();
        symbols.dedup();
        let defined: Vec<&str> = self.nodes().flat_map(|(_, node)| node.op.defines()).collect();
        symbols.retain(|symbol| defined.contains(symbol));
        symbols
    }

    /// What nodes do to input `position`, if it is a buffer.
    pub fn input_effect(&self, position: usize) -> Effect {
        match self.inputs.get(position).map(|input| self.info(input.value)) {
            Some(value) if value.ty.kind == Kind::Buffer => value.effect.max(Effect::Read),
            _ => Effect::None,
        }
    }

    fn add_value(&mut self, ty: Type, node: Option<NodeId>) -> Value {
        let index = u32::try_from(self.values.len()).expect("fewer than 2^32 values");
        let graph = self.identity.number;
        self.values.push(ValueInfo { ty, graph, node, users: 0, readers: Vec::new(), effect: Effect::None });
        Value { index, graph }
    }

    /// Whether this graph, or one that it is a clone of, made a value.
    pub(crate) fn owns(&self, value: Value) -> bool {
        self.values.get(value.index()).is_some_and(|info| info.graph == value.graph)
    }

    /// What to say of a value that is not this graph's.
    pub(crate) fn foreign(&self, value: Value) -> Option<String> {
        if self.owns(value) {
            return None;
        }
        let other =
            Identity::name_of(value.graph).map_or("dropped since".to_string(), |name| format!("`{name}`"));
        Some(format!("a value of another graph, {other}; this graph is `{}`", self.name()))
    }

    #[track_caller]
    fn info(&self, value: Value) -> &ValueInfo {
        if let Some(foreign) = self.foreign(value) {
            panic!("{foreign}");
        }
        &self.values[value.index()]
    }

    #[track_caller]
    fn info_mut(&mut self, value: Value) -> &mut ValueInfo {
        if let Some(foreign) = self.foreign(value) {
            panic!("{foreign}");
        }
        &mut self.values[value.index()]
    }
}

/// The nodes that a node stands for: itself, and those of the graphs it holds.
fn size(op: &Op) -> usize {
    op.regions().iter().map(|region| region.size).fold(1, usize::saturating_add)
}

/// The types of the results of an op: its own rule, after those that hold for all.
pub(crate) fn infer(op: &Op, types: &[&Type]) -> Result<Vec<Type>, Error> {
    let refuse = |message: String| Error::refuse(op.name(), message);
    for (position, ty) in types.iter().enumerate() {
        let wants_buffer = op.effect(position) != Effect::None;
        if wants_buffer != (ty.kind == Kind::Buffer) {
            let wanted = if wants_buffer { "a buffer" } else { "a tensor (load the buffer first)" };
            return Err(refuse(format!("operand {position} is {ty}, expected {wanted}")));
        }
        if ty.device != types[0].device && op.regions().is_empty() {
            return Err(refuse(format!(
                "operands are not on the same device: operand 0 is {}, operand {position} is {ty}",
                types[0]
            )));
        }
    }
    let mut results = op.infer(types).map_err(|error| refuse(error.0))?;
    if let (Some(first), false) = (types.first(), op.places_results()) {
        results.iter_mut().for_each(|result| result.device = first.device);
    }
    match results.iter().find(|ty| !ty.is_tractable()) {
        None => Ok(results),
        Some(ty) => Err(refuse(format!("the result {ty} has too many axes or terms"))),
    }
}
