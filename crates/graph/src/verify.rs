//! The rules that make a graph well formed. Each is checked by itself, so that one message names one fault.

use std::collections::{BTreeMap, BTreeSet};

use crate::bind::Unknown;
use crate::graph::infer;
use crate::ops::Effect;
use crate::{Dim, Error, Graph, Kind, Op, Type, Value};

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
    types_follow_from_operands,
    symbols_are_determined_by_inputs,
    weights_have_one_type,
    buffers_are_used_once_in_a_node,
    buffers_are_inputs,
    outputs_are_tensors,
    something_results,
];

impl Graph {
    /// Checks every structural rule: single assignment, program order, types that follow from operands, symbols
    /// that inputs determine, legal attributes, sound use of buffers.
    ///
    /// # Errors
    /// The first rule that is broken, with the facts that break it.
    pub fn verify(&self) -> Result<(), Error> {
        let invalid = |message| Error::Invalid { graph: self.name().to_string(), message };
        RULES.iter().try_for_each(|rule| rule(self)).map_err(invalid)
    }

    fn label(&self, value: Value) -> String {
        match self.inputs.iter().find(|input| input.value == value) {
            Some(input) => format!("input `{}`", input.name),
            None => format!("value {}", value.index()),
        }
    }
}

fn ensure(condition: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(message()) }
}

fn nodes_are_listed_once(graph: &Graph) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for id in &graph.order {
        let live = graph.nodes.get(id.0 as usize).is_some_and(Option::is_some);
        ensure(live, || format!("node {} is in the order but does not exist", id.0))?;
        ensure(seen.insert(id), || format!("node {} is in the order twice", id.0))?;
    }
    let live = graph.nodes.iter().flatten().count();
    ensure(seen.len() == live, || format!("{} of {live} nodes are in the order", seen.len()))
}

fn values_exist(graph: &Graph) -> Result<(), String> {
    let inputs = graph.inputs.iter().map(|input| input.value);
    let nodes = graph.nodes().flat_map(|(_, node)| node.inputs.iter().chain(&node.outputs).copied());
    let mut all = inputs.chain(nodes).chain(graph.outputs.iter().copied());
    match all.find(|value| value.index() >= graph.values.len()) {
        None => Ok(()),
        Some(value) => {
            Err(format!("value {} does not exist: there are {}", value.index(), graph.values.len()))
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
            let (op, label) = (node.op.name(), graph.label(value));
            ensure(defined.contains(&value), || format!("{op} uses {label} before it is defined"))?;
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

fn symbols_are_determined_by_inputs(graph: &Graph) -> Result<(), String> {
    let shapes = graph.inputs.iter().flat_map(|input| &graph.ty(input.value).shape);
    let mut expressions: Vec<&Dim> = shapes.filter(|dim| dim.as_static().is_none()).collect();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    loop {
        let before = expressions.len();
        expressions.retain(|dim| match dim.unknown(&|symbol| known.contains(symbol)) {
            Unknown::Nothing => false,
            Unknown::Linear(symbol) => !known.insert(symbol),
            Unknown::Entangled => true,
        });
        if expressions.len() == before {
            break;
        }
    }
    let results = graph.nodes().flat_map(|(_, node)| node.outputs.iter().flat_map(|&v| &graph.ty(v).shape));
    for dim in expressions.into_iter().chain(results) {
        if let Some(symbol) = dim.symbols().into_iter().find(|symbol| !known.contains(symbol)) {
            return Err(format!("no input determines the symbol `{symbol}` of the dim {dim}"));
        }
    }
    Ok(())
}

fn weights_have_one_type(graph: &Graph) -> Result<(), String> {
    let mut types: BTreeMap<&str, &Type> = BTreeMap::new();
    for (_, node) in graph.nodes() {
        let Op::Weight(weight) = &node.op else { continue };
        let first = *types.entry(&weight.name).or_insert(&weight.ty);
        ensure(*first == weight.ty, || {
            format!("weight `{}` is both {first} and {}", weight.name, weight.ty)
        })?;
    }
    Ok(())
}

fn buffers_are_used_once_in_a_node(graph: &Graph) -> Result<(), String> {
    for (_, node) in graph.nodes() {
        let mut buffers = BTreeSet::new();
        for (position, &value) in node.inputs.iter().enumerate() {
            let once = node.op.effect(position) == Effect::None || buffers.insert(value);
            ensure(once, || format!("{} uses the buffer {} twice", node.op.name(), graph.label(value)))?;
        }
    }
    Ok(())
}

fn buffers_are_inputs(graph: &Graph) -> Result<(), String> {
    let mut results =
        graph.nodes().flat_map(|(_, node)| node.outputs.iter().map(move |&value| (node, value)));
    match results.find(|&(_, value)| graph.ty(value).kind == Kind::Buffer) {
        None => Ok(()),
        Some((node, value)) => Err(format!("{} makes the buffer {}", node.op.name(), graph.label(value))),
    }
}

fn outputs_are_tensors(graph: &Graph) -> Result<(), String> {
    match graph.outputs.iter().find(|&&value| graph.ty(value).kind == Kind::Buffer) {
        None => Ok(()),
        Some(&value) => Err(format!("output {} is a buffer: callers have it already", graph.label(value))),
    }
}

fn something_results(graph: &Graph) -> Result<(), String> {
    let writes =
        |(_, node): (_, &crate::Node)| (0..node.inputs.len()).any(|i| node.op.effect(i) == Effect::Write);
    ensure(!graph.outputs.is_empty() || graph.nodes().any(writes), || {
        "there are no outputs, and no node writes a buffer".to_string()
    })
}
