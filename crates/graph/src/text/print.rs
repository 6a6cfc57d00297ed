//! From graphs to text.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::data;
use super::detached::Detached;
use crate::ops::Attribute;
use crate::{DevicePlacementPolicy, Dim, Graph, Module, Node, Op, Value};

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, graph) in self.graphs.iter().enumerate() {
            write!(f, "{}{graph}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printer::default().graph(f, self, "")?;
        f.write_str("\n")
    }
}

impl Graph {
    /// Writes the text with its large constants in a list of their own.
    pub(super) fn write_detached(&self, f: &mut dyn fmt::Write, detached: &mut Detached) -> fmt::Result {
        Printer { detached: Some(detached), ..Printer::default() }.graph(f, self, "")?;
        f.write_str("\n")
    }

    /// The name of each value in text, such as `%0` or `%tokens`; empty for values that are no more.
    pub fn value_names(&self) -> Vec<String> {
        let mut names = vec![String::new(); self.value_count()];
        for input in self.inputs() {
            names[input.value.index()] = format!("%{}", word_or_text(&input.name));
        }
        let results = self.nodes().flat_map(|(_, node)| &node.outputs);
        for (number, value) in results.enumerate() {
            names[value.index()] = format!("%{number}");
        }
        names
    }
}

#[derive(Default)]
struct Printer<'d> {
    /// Where large constants go, if not into the text.
    detached: Option<&'d mut Detached>,
    /// The graphs within that were printed, by name; later ones are named.
    printed: HashMap<String, Arc<Graph>>,
}

impl Printer<'_> {
    fn graph(&mut self, f: &mut dyn fmt::Write, graph: &Graph, indent: &str) -> fmt::Result {
        let names = graph.value_names();
        let name = |value: &Value| &names[value.index()][..];
        let list = |values: &[Value]| values.iter().map(name).collect::<Vec<_>>().join(", ");
        let inputs =
            graph.inputs().iter().map(|input| format!("{}: {}", name(&input.value), graph.ty(input.value)));
        write!(f, "graph {}({}) ", word_or_text(graph.name()), inputs.collect::<Vec<_>>().join(", "))?;
        if graph.device_placement() != DevicePlacementPolicy::default() {
            write!(f, "device_placement = {} ", graph.device_placement())?;
        }
        f.write_str("{\n")?;
        for (_, node) in graph.nodes() {
            write!(f, "{indent}  ")?;
            if !node.outputs.is_empty() {
                write!(f, "{} = ", list(&node.outputs))?;
            }
            self.op(f, node, &list(&node.inputs), indent)?;
            for (i, &output) in node.outputs.iter().enumerate() {
                write!(f, "{} {}", if i == 0 { " :" } else { "," }, graph.ty(output))?;
            }
            f.write_str("\n")?;
        }
        let outputs = list(graph.outputs());
        write!(f, "{indent}  return{}{outputs}\n{indent}}}", if outputs.is_empty() { "" } else { " " })
    }

    fn op(&mut self, f: &mut dyn fmt::Write, node: &Node, operands: &str, indent: &str) -> fmt::Result {
        match &node.op {
            Op::Weight(weight) => return write!(f, "weight {:?}", weight.name),
            Op::Constant(constant) => {
                let value = &constant.value.0;
                return match self.detached.as_mut().and_then(|detached| detached.index(value)) {
                    Some(index) => write!(f, "constant @{index}"),
                    None => write!(f, "constant {}", data::print(value)),
                };
            }
            op => write!(f, "{}({operands})", op.name())?,
        }
        let attributes = node.op.attributes();
        for (i, (name, value)) in attributes.iter().enumerate() {
            write!(f, "{}{name} = ", if i == 0 { " {" } else { ", " })?;
            match value {
                Attribute::Graph(graph) => self.within(f, graph, indent)?,
                value => write!(f, "{value}")?,
            }
        }
        f.write_str(if attributes.is_empty() { "" } else { "}" })
    }

    fn within(&mut self, f: &mut dyn fmt::Write, graph: &Arc<Graph>, indent: &str) -> fmt::Result {
        let known = self.printed.get(graph.name());
        if known.is_some_and(|other| Arc::ptr_eq(other, graph) || other == graph) {
            return write!(f, "@{}", word_or_text(graph.name()));
        }
        self.graph(f, graph, &format!("{indent}  "))?;
        self.printed.insert(graph.name().to_string(), Arc::clone(graph));
        Ok(())
    }
}

fn word_or_text(name: &str) -> String {
    if Dim::is_identifier(name) { name.to_string() } else { format!("{name:?}") }
}
