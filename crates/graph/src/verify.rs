//! The rules that make a graph well formed. Each is checked by itself, so that one message names one fault.

use std::collections::{BTreeMap, BTreeSet};

use crate::dim::Unknown;
use crate::graph::infer;
use crate::ops::Effect;
use crate::{Dim, Error, Graph, Kind, Module, Op, Type, Value};

type Rule = fn(&Graph) -> Result<(), String>;

/// In this order, as each rule may rely on those before it.
const RULES: &[Rule] = &[
    nodes_are_listed_once,
    values_exist,
    inputs_have_unique_names,
    values_are_defined_once,
    operands_are_defined_before_use,
    user_counts_are_right,
    types_are_tractable,
    buffers_are_used_once_in_a_node,
    buffers_are_inputs_or_created,
    types_follow_from_operands,
    symbols_are_defined_once,
    symbols_are_determined,
    weights_have_one_type,
    outputs_are_tensors,
];

impl Graph {
    /// Checks every structural rule: single assignment, program order, types that follow from operands,
    /// symbols that inputs or earlier nodes determine, legal attributes, sound use of buffers.
    ///
    /// # Errors
    /// The first rule that is broken, with the facts that break it.
    pub fn verify(&self) -> Result<(), Error> {
        self.verify_part()?;
        something_results(self).map_err(|message| Error::Invalid { graph: self.name().to_string(), message })
    }

    /// [`Graph::verify`] of a graph that a node runs, which need not do anything.
    pub(crate) fn verify_part(&self) -> Result<(), Error> {
        self.verify_in(&mut BTreeSet::new())
    }

    /// Graphs within are checked first, as the rules rely on them. Those that several nodes run are checked once.
    fn verify_in(&self, checked: &mut BTreeSet<*const Graph>) -> Result<(), Error> {
        let within = self.nodes.iter().flatten().flat_map(|node| node.op.regions());
        for region in within.map(|region| &**region) {
            if checked.insert(std::ptr::from_ref(region)) {
                region.verify_in(checked)?;
            }
        }
        let invalid = |message| Error::Invalid { graph: self.name().to_string(), message };
        RULES.iter().try_for_each(|rule| rule(self)).map_err(invalid)
    }

    /// The first symbol whose size follows neither from the inputs nor from nodes before, and the dim that names it.
    pub(crate) fn undetermined_symbol(&self) -> Option<(&str, &Dim)> {
        let mut known = symbols_of_inputs(self);
        let inputs = self.inputs.iter().map(|input| input.value).collect();
        let nodes = self.nodes().map(|(_, node)| (node.op.defines(), node.outputs.clone()));
        for (defined, values) in std::iter::once((Vec::new(), inputs)).chain(nodes) {
            known.extend(defined);
            for dim in values.into_iter().flat_map(|value| &self.ty(value).shape) {
                if let Some(symbol) = dim.symbols().into_iter().find(|symbol| !known.contains(symbol)) {
                    return Some((symbol, dim));
                }
            }
        }
        None
    }

    fn label(&self, value: Value) -> String {
        match self.inputs.iter().find(|input| input.value == value) {
            Some(input) => format!("input `{}`", input.name),
            None => format!("value {}", value.index()),
        }
    }
}

impl Module {
    /// Checks that the graphs have names of their own, and every rule of [`Graph::verify`] in each.
    ///
    /// # Errors
    /// The first rule that is broken, with the facts that break it.
    pub fn verify(&self) -> Result<(), Error> {
        let mut names = BTreeSet::new();
        for graph in &self.graphs {
            let graph_name = graph.name().to_string();
            if !names.insert(graph.name()) {
                let message = "another graph of the module has this name".to_string();
                return Err(Error::Invalid { graph: graph_name, message });
            }
            graph.verify()?;
        }
        Ok(())
    }
}

fn ensure(condition: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(message()) }
}

fn nodes_are_listed_once(graph: &Graph) -> Result<(), String> {
    for id in graph.order.iter() {
        let live = graph.nodes.get(id.0 as usize).is_some_and(Option::is_some);
        ensure(live, || format!("node {} is in the order but does not exist", id.0))?;
    }
    let live = graph.nodes.iter().flatten().count();
    ensure(graph.len() == live, || format!("{} of {live} nodes are in the order", graph.len()))
}

fn values_exist(graph: &Graph) -> Result<(), String> {
    let inputs = graph.inputs.iter().map(|input| input.value);
    let nodes = graph.nodes().flat_map(|(_, node)| node.inputs.iter().chain(&node.outputs).copied());
    let mut all = inputs.chain(nodes).chain(graph.outputs.iter().copied());
    match all.find(|&value| !graph.owns(value)) {
        None => Ok(()),
        Some(value) if value.index() >= graph.values.len() => {
            Err(format!("value {} does not exist: there are {}", value.index(), graph.values.len()))
        }
        Some(value) => {
            Err(format!("value {} is {}", value.index(), graph.foreign(value).unwrap_or_default()))
        }
    }
}

fn inputs_have_unique_names(graph: &Graph) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for (index, input) in graph.inputs.iter().enumerate() {
        ensure(!input.name.is_empty(), || format!("input {index} has no name"))?;
        ensure(names.insert(&input.name), || format!("two inputs are named `{}`", input.name))?;
    }
    Ok(())
}

fn values_are_defined_once(graph: &Graph) -> Result<(), String> {
    let mut defined = BTreeSet::new();
    let inputs = graph.inputs.iter().map(|input| (input.value, None));
    let results =
        graph.nodes().flat_map(|(id, node)| node.outputs.iter().map(move |&value| (value, Some(id))));
    for (value, node) in inputs.chain(results) {
        ensure(defined.insert(value), || format!("{} is defined twice", graph.label(value)))?;
        let known = graph.node_of(value) == node;
        ensure(known, || format!("{} is not known to be made by its node", graph.label(value)))?;
    }
    Ok(())
}

fn operands_are_defined_before_use(graph: &Graph) -> Result<(), String> {
    let mut defined: BTreeSet<Value> = graph.inputs.iter().map(|input| input.value).collect();
    for (_, node) in graph.nodes() {
        for &value in &node.inputs {
            ensure(defined.contains(&value), || {
                format!("{} uses {} before it is defined", node.op.name(), graph.label(value))
            })?;
        }
        defined.extend(&node.outputs);
    }
    match graph.outputs.iter().find(|value| !defined.contains(value)) {
        None => Ok(()),
        Some(&value) => Err(format!("output {} is never defined", graph.label(value))),
    }
}

fn user_counts_are_right(graph: &Graph) -> Result<(), String> {
    let mut users = vec![0; graph.values.len()];
    let operands = graph.nodes().flat_map(|(_, node)| &node.inputs);
    operands.chain(&graph.outputs).for_each(|value| users[value.index()] += 1);
    let wrong = users.iter().zip(&graph.values).position(|(&users, value)| users != value.users);
    match wrong {
        None => Ok(()),
        Some(i) => Err(format!("value {i} has {} users, recorded are {}", users[i], graph.values[i].users)),
    }
}

fn types_are_tractable(graph: &Graph) -> Result<(), String> {
    let untractable = graph.inputs.iter().find(|input| !graph.ty(input.value).is_tractable());
    match untractable {
        None => Ok(()),
        Some(input) => {
            Err(format!("input `{}` {} has too many axes or terms", input.name, graph.ty(input.value)))
        }
    }
}

fn types_follow_from_operands(graph: &Graph) -> Result<(), String> {
    for (_, node) in graph.nodes() {
        let types: Vec<&Type> = node.inputs.iter().map(|&value| graph.ty(value)).collect();
        let inferred = infer(&node.op, &types).map_err(|error| error.to_string())?;
        let recorded: Vec<&Type> = node.outputs.iter().map(|&value| graph.ty(value)).collect();
        ensure(inferred.iter().eq(recorded.iter().copied()), || {
            let list =
                |types: Vec<&Type>| types.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", ");
            let (op, inferred) = (node.op.name(), list(inferred.iter().collect()));
            format!("{op} makes {inferred}, recorded is {}", list(recorded.clone()))
        })?;
    }
    Ok(())
}

fn symbols_are_defined_once(graph: &Graph) -> Result<(), String> {
    let mut known = symbols_of_inputs(graph);
    for (_, node) in graph.nodes() {
        for symbol in node.op.defines() {
            let (op, fresh) = (node.op.name(), known.insert(symbol));
            ensure(fresh, || format!("{op} defines the symbol `{symbol}`, which has a size already"))?;
        }
    }
    Ok(())
}

fn symbols_are_determined(graph: &Graph) -> Result<(), String> {
    match graph.undetermined_symbol() {
        None => Ok(()),
        Some((symbol, dim)) => Err(format!("no input determines the symbol `{symbol}` of the dim {dim}")),
    }
}

/// The symbols whose sizes follow from the shapes of the inputs.
fn symbols_of_inputs(graph: &Graph) -> BTreeSet<&str> {
    let mut expressions: Vec<&Dim> =
        graph.inputs.iter().flat_map(|input| &graph.ty(input.value).shape).collect();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    loop {
        let before = expressions.len();
        expressions.retain(|dim| match dim.unknown(&|symbol| known.contains(symbol)) {
            Unknown::Nothing => false,
            Unknown::Linear(symbol) => !known.insert(symbol),
            Unknown::Entangled => true,
        });
        if expressions.len() == before {
            return known;
        }
    }
}

fn weights_have_one_type(graph: &Graph) -> Result<(), String> {
    let mut types: BTreeMap<String, &Type> = BTreeMap::new();
    expect_one_type(graph, "", &mut types)
}

fn expect_one_type<'g>(
    graph: &'g Graph,
    prefix: &str,
    types: &mut BTreeMap<String, &'g Type>,
) -> Result<(), String> {
    for (_, node) in graph.nodes() {
        if let Op::Weight(weight) = &node.op {
            let name = format!("{prefix}{}", weight.name);
            let first = *types.entry(name.clone()).or_insert(&weight.ty);
            ensure(*first == weight.ty, || format!("weight `{name}` is both {first} and {}", weight.ty))?;
        }
        let own = if let Op::Call(call) = &node.op { &call.prefix[..] } else { "" };
        let prefix = format!("{prefix}{own}");
        node.op.regions().into_iter().try_for_each(|region| expect_one_type(region, &prefix, types))?;
    }
    Ok(())
}

fn buffers_are_used_once_in_a_node(graph: &Graph) -> Result<(), String> {
    for (_, node) in graph.nodes() {
        let mut buffers = BTreeSet::new();
        for &value in &node.inputs {
            let once = graph.ty(value).kind == Kind::Tensor || buffers.insert(value);
            ensure(once, || format!("{} uses the buffer {} twice", node.op.name(), graph.label(value)))?;
        }
    }
    Ok(())
}

fn buffers_are_inputs_or_created(graph: &Graph) -> Result<(), String> {
    let others = graph.nodes().filter(|(_, node)| !matches!(node.op, Op::CreateBuffer(_)));
    let mut results = others.flat_map(|(_, node)| node.outputs.iter().map(move |&value| (node, value)));
    match results.find(|&(_, value)| graph.ty(value).kind == Kind::Buffer) {
        None => Ok(()),
        Some((node, value)) => Err(format!("{} makes the buffer {}", node.op.name(), graph.label(value))),
    }
}

fn outputs_are_tensors(graph: &Graph) -> Result<(), String> {
    match graph.outputs.iter().find(|&&value| graph.ty(value).kind == Kind::Buffer) {
        None => Ok(()),
        Some(&value) => {
            let label = graph.label(value);
            Err(format!("output {label} is a buffer, expected a tensor (load the buffer first)"))
        }
    }
}

fn something_results(graph: &Graph) -> Result<(), String> {
    let acts = |(_, node): (_, &crate::Node)| {
        node.op.has_side_effect() || (0..node.inputs.len()).any(|i| node.op.effect(i) == Effect::Write)
    };
    ensure(!graph.outputs.is_empty() || graph.nodes().any(acts), || {
        "there are no outputs, and no node writes a buffer or prints".to_string()
    })
}

#[cfg(test)]
mod tests {
    use tensor::DType;

    use super::*;
    use crate::DeviceRef;
    use crate::graph::{Node, NodeId};
    use crate::ops::{CreateBuffer, Reshape, Unary, Weight};

    /// `%0 = neg(%x)`, `%1 = exp(%0)`, `store(%cache, %x)`; value 2 is `%0`, value 3 is `%1`.
    fn sound() -> Graph {
        Graph::parse(
            "graph g(%x: f32[n, 4], %cache: mut f32[n, 4]) {
               %0 = neg(%x)
               %1 = exp(%0)
               store(%cache, %x)
               return %1
             }",
        )
        .unwrap()
    }

    /// What is said of a sound graph after a change.
    fn broken(change: impl FnOnce(&mut Graph)) -> String {
        let mut graph = sound();
        graph.verify().unwrap();
        change(&mut graph);
        graph.verify().unwrap_err().to_string()
    }

    fn node(graph: &mut Graph, index: usize) -> &mut Node {
        graph.nodes[index].as_mut().unwrap()
    }

    fn value(graph: &Graph, index: u32) -> Value {
        Value { index, ..graph.inputs()[0].value }
    }

    #[test]
    fn each_rule_names_its_fault() {
        type Change = fn(&mut Graph);
        let cases: [(Change, &str); 17] = [
            (|g| g.order.push(NodeId(9)), "node 9 is in the order but does not exist"),
            (|g| g.order.remove(NodeId(2)), "2 of 3 nodes are in the order"),
            (|g| node(g, 1).inputs[0] = value(g, 9), "value 9 does not exist: there are 4"),
            (|g| g.inputs[1].name = "x".into(), "two inputs are named `x`"),
            (|g| g.inputs[1].name.clear(), "input 1 has no name"),
            (|g| node(g, 1).outputs[0] = value(g, 2), "value 2 is defined twice"),
            (|g| g.values[3].node = None, "value 3 is not known to be made by its node"),
            (
                |g| g.order = [1, 0, 2].map(NodeId).into_iter().collect(),
                "exp uses value 2 before it is defined",
            ),
            (|g| g.values[2].users = 5, "value 2 has 1 users, recorded are 5"),
            (|g| g.values[3].ty.dtype = DType::F64, "exp makes f32[n, 4], recorded is f64[n, 4]"),
            (|g| node(g, 0).op = Unary::Not.into(), "not: x is f32[n, 4], expected bool"),
            (|g| node(g, 2).inputs.swap(0, 1), "store: operand 0 is f32[n, 4], expected a buffer"),
            (
                |g| g.set_outputs(&[value(g, 1)]),
                "output input `cache` is a buffer, expected a tensor (load the buffer first)",
            ),
            (
                |g| {
                    g.set_outputs(&[]);
                    g.remove(NodeId(2));
                },
                "there are no outputs, and no node writes a buffer or prints",
            ),
            (
                |g| {
                    let pair = &Dim::from("n") + &Dim::from(1);
                    g.input("wide", Type::new(DType::F32, vec![pair; 11]));
                },
                "input `wide` f32[n + 1, n + 1, n + 1, n + 1, n + 1, n + 1, n + 1, n + 1, n + 1, n + 1, n + 1] has too \
                 many axes or terms",
            ),
            (
                |g| {
                    g.input("q", Type::new(DType::F32, [&Dim::from("a") * &Dim::from("b")]));
                },
                "no input determines the symbol `a` of the dim a*b",
            ),
            (
                |g| {
                    for dtype in [DType::F32, DType::F16] {
                        g.push(Weight { name: "w".into(), ty: Type::new(dtype, [2]) }.into(), &[]).unwrap();
                    }
                },
                "weight `w` is both f32[2] and f16[2]",
            ),
        ];
        for (change, message) in cases {
            assert_eq!(broken(change), format!("graph `g`: {message}"));
        }
    }

    #[test]
    fn graphs_of_a_module_have_names_of_their_own() {
        let mut module = Module { graphs: vec![sound()] };
        module.verify().unwrap();
        module.graphs.push(sound());
        let message = "graph `g`: another graph of the module has this name";
        assert_eq!(module.verify().unwrap_err().to_string(), message);
    }

    #[test]
    fn outputs_must_be_defined() {
        let message = broken(|g| {
            let value = g.add_orphan();
            g.set_outputs(&[value]);
        });
        assert_eq!(message, "graph `g`: output value 4 is never defined");
    }

    #[test]
    fn symbols_must_come_from_inputs() {
        let message = broken(|g| {
            g.values[0].ty = Type::new(DType::F32, [4]);
            g.values[1].ty = Type::buffer(DType::F32, [4]);
            let shape = vec![Dim::from("m"), Dim::from(0)];
            let empty = g.input("empty", Type::new(DType::F32, [0]));
            g.push(Reshape { shape }.into(), &[empty]).unwrap();
            for value in [2, 3] {
                g.values[value].ty = Type::new(DType::F32, [4]);
            }
        });
        assert_eq!(message, "graph `g`: no input determines the symbol `m` of the dim m");
    }

    #[test]
    fn buffers_are_used_once_and_made_by_one_op() {
        let twice = broken(|g| {
            node(g, 2).inputs[1] = value(g, 1);
            (g.values[0].users, g.values[1].users) = (1, 2);
        });
        assert_eq!(twice, "graph `g`: store uses the buffer input `cache` twice");
        let made = broken(|g| g.values[3].ty.kind = Kind::Buffer);
        assert_eq!(made, "graph `g`: exp makes the buffer value 3");
        let unknown = broken(|g| {
            let op = CreateBuffer { dtype: DType::F32, shape: vec![Dim::from("m")], device: DeviceRef::Cpu };
            g.push(op.into(), &[]).unwrap();
        });
        assert_eq!(unknown, "graph `g`: no input determines the symbol `m` of the dim m");
    }

    impl Graph {
        /// A value that nothing makes.
        fn add_orphan(&mut self) -> Value {
            let value = self.input("orphan", Type::new(DType::F32, [1]));
            self.inputs.pop();
            value
        }
    }
}
