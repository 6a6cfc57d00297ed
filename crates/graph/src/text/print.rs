//! From graphs to text.

use std::fmt;

use super::data;
use super::detached::Detached;
use crate::{Dim, Graph, Module, Node, Op, Value};

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
        self.write(f, None)
    }
}

impl Graph {
    /// Writes the text, with large constants in it or in a list of their own.
    pub(super) fn write(
        &self,
        f: &mut dyn fmt::Write,
        mut detached: Option<&mut Detached>,
    ) -> fmt::Result {
        let names = self.value_names();
        let name = |value: &Value| &names[value.index()][..];
        let list = |values: &[Value]| values.iter().map(name).collect::<Vec<_>>().join(", ");
        let inputs =
            self.inputs().iter().map(|input| format!("{}: {}", name(&input.value), self.ty(input.value)));
        writeln!(f, "graph {}({}) {{", word_or_text(self.name()), inputs.collect::<Vec<_>>().join(", "))?;
        for (_, node) in self.nodes() {
            f.write_str("  ")?;
            if !node.outputs.is_empty() {
                write!(f, "{} = ", list(&node.outputs))?;
            }
            write_op(f, node, &list(&node.inputs), detached.as_deref_mut())?;
            for (i, &output) in node.outputs.iter().enumerate() {
                write!(f, "{} {}", if i == 0 { " :" } else { "," }, self.ty(output))?;
            }
            f.write_str("\n")?;
        }
        let outputs = list(self.outputs());
        writeln!(f, "  return{}{outputs}\n}}", if outputs.is_empty() { "" } else { " " })
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

fn write_op(
    f: &mut dyn fmt::Write,
    node: &Node,
    operands: &str,
    detached: Option<&mut Detached>,
) -> fmt::Result {
    match &node.op {
        Op::Weight(weight) => return write!(f, "weight {:?}", weight.name),
        Op::Constant(constant) => {
            let value = &constant.value.0;
            return match detached.and_then(|detached| detached.index(value)) {
                Some(index) => write!(f, "constant @{index}"),
                None => write!(f, "constant {}", data::print(value)),
            };
        }
        op => write!(f, "{}({operands})", op.name())?,
    }
    let attributes = node.op.attributes();
    if !attributes.is_empty() {
        let pairs: Vec<String> = attributes.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        write!(f, " {{{}}}", pairs.join(", "))?;
    }
    Ok(())
}

fn word_or_text(name: &str) -> String {
    if Dim::is_identifier(name) { name.to_string() } else { format!("{name:?}") }
}
