//! Graphs with ops of libraries: built-in ops that they shadow are replaced, and all are checked.

use std::collections::BTreeSet;
use std::sync::Arc;

use extensions::Library;
use graph::ops::{Custom, CustomOps, Effect};
use graph::{Bindings, Dim, Graph, Node, NodeId, Op, Type};
use tensor::{DType, Shape};

use super::{Extensions, kernel};
use crate::Error;

impl Extensions {
    /// Puts ops of libraries in the place of built-in ops of their names, and checks all ops of libraries, also in the
    /// graphs that nodes run.
    ///
    /// # Errors
    /// If no library has an op, or it does not fit where it stands.
    pub(crate) fn adopt(&self, graph: &mut Graph) -> Result<(), Error> {
        if !self.libraries.is_empty() {
            self.shadow_all(graph)?;
        }
        self.check_all(graph)
    }

    /// The libraries that have an op of these graphs.
    pub(crate) fn used_by(&self, graphs: &[Graph]) -> Extensions {
        let mut names = BTreeSet::new();
        if !self.libraries.is_empty() {
            graphs.iter().for_each(|graph| op_names(graph, &mut names));
        }
        let has =
            |library: &&Library| library.ops().iter().any(|op| names.contains(&op.signature().name[..]));
        Extensions { libraries: self.libraries.iter().filter(has).cloned().collect() }
    }

    /// Checks all ops of libraries, also in the graphs that nodes run.
    ///
    /// # Errors
    /// If no library has an op, or it does not fit where it stands.
    pub(crate) fn check_all(&self, graph: &Graph) -> Result<(), Error> {
        for (id, node) in graph.nodes() {
            if let Op::Custom(custom) = &node.op {
                let fail = |message| Error::compile(graph, Some(id), message);
                self.check(custom, &types(graph, id)).map_err(fail)?;
            }
            node.op.regions().into_iter().try_for_each(|region| self.check_all(region))?;
        }
        Ok(())
    }

    fn shadow_all(&self, graph: &mut Graph) -> Result<(), Error> {
        for id in graph.node_ids() {
            let node = graph.node(id);
            let replacement = match &node.op {
                op if !op.regions().is_empty() => Some(self.shadow_regions(op)?),
                _ => {
                    let fail = |message| Error::compile(graph, Some(id), message);
                    self.shadow(node, &types(graph, id)).map_err(fail)?.map(Op::from)
                }
            };
            if let Some(op) = replacement {
                replace(graph, id, op)?;
            }
        }
        Ok(())
    }

    fn shadow_regions(&self, op: &Op) -> Result<Op, Error> {
        let shadowed = op.regions().into_iter().map(|region| {
            let mut region = Graph::clone(region);
            self.shadow_all(&mut region)?;
            Ok(Arc::new(region))
        });
        Ok(op.with_regions(shadowed.collect::<Result<Vec<_>, Error>>()?))
    }

    /// The op of a library that stands for a built-in one, if there is one of its name.
    fn shadow(&self, node: &Node, types: &NodeTypes) -> Result<Option<Custom>, String> {
        let op = &node.op;
        let cannot_be_shadowed = matches!(op, Op::Constant(_) | Op::Weight(_) | Op::Custom(_));
        let Some(found) = self.op(op.name()).filter(|_| !cannot_be_shadowed) else { return Ok(None) };
        let refuse = |why: String| {
            let library = found.library();
            format!("`{}` of {library} shadows the built-in op, but cannot stand for it: {why}", op.name())
        };
        if !op.defines().is_empty() {
            return Err(refuse("the sizes of its results follow from data".to_string()));
        }
        let positions = |effect: Effect| -> Vec<usize> {
            (0..node.inputs.len()).filter(|&position| op.effect(position) == effect).collect()
        };
        let custom = Custom {
            op: op.name().to_string(),
            results: types.results.clone(),
            reads: positions(Effect::Read),
            writes: positions(Effect::Write),
            parameters: op.attributes(),
        };
        self.check(&custom, types).map_err(refuse)?;
        Ok(Some(custom))
    }

    /// Checks an op of a library: its signature, and its type rule; where sizes are not known, with some that could be.
    fn check(&self, custom: &Custom, types: &NodeTypes) -> Result<(), String> {
        let inputs: Vec<&Type> = types.inputs.iter().collect();
        let signature = self.find(&custom.op).map_err(|error| error.to_string())?;
        signature.check(custom, &inputs).map_err(|error| error.to_string())?;
        let op = self.op(&custom.op).expect("it has a signature");
        let arguments = kernel::arguments(op, &custom.parameters);
        if let (Some(inputs), Some(results)) = (static_types(&types.inputs), static_types(&types.results)) {
            return op.check_types(&arguments, &inputs, &results);
        }
        // A rule may refuse sizes that never come.
        for size in [64, 1, 3] {
            let sample = |types: &[Type]| sample(types, size);
            if let (Some(inputs), Some(results)) = (sample(&types.inputs), sample(&types.results)) {
                op.check_forms(&arguments, &inputs, &results)?;
            }
        }
        Ok(())
    }
}

/// The names that the ops of a graph, and of those in it, may have in libraries.
fn op_names<'g>(graph: &'g Graph, names: &mut BTreeSet<&'g str>) {
    for (_, node) in graph.nodes() {
        names.insert(match &node.op {
            Op::Custom(custom) => &custom.op,
            op => op.name(),
        });
        node.op.regions().into_iter().for_each(|region| op_names(region, names));
    }
}

struct NodeTypes {
    inputs: Vec<Type>,
    results: Vec<Type>,
}

fn types(graph: &Graph, id: NodeId) -> NodeTypes {
    let Node { inputs, outputs, .. } = graph.node(id);
    let types = |values: &[graph::Value]| values.iter().map(|&value| graph.ty(value).clone()).collect();
    NodeTypes { inputs: types(inputs), results: types(outputs) }
}

/// The types in numbers, if all sizes are known.
fn static_types(types: &[Type]) -> Option<Vec<(DType, Shape)>> {
    types.iter().map(|ty| Some((ty.dtype, ty.static_shape()?))).collect()
}

/// The types with one size for all symbols, if that is possible.
fn sample(types: &[Type], size: usize) -> Option<Vec<(DType, Shape)>> {
    let mut bindings = Bindings::default();
    for symbol in types.iter().flat_map(|ty| &ty.shape).flat_map(Dim::symbols) {
        bindings.insert(symbol, size);
    }
    types.iter().map(|ty| Some((ty.dtype, ty.resolve(&bindings).ok()?))).collect()
}

/// Puts an op with the same results in the place of another.
fn replace(graph: &mut Graph, id: NodeId, op: Op) -> Result<(), Error> {
    let Node { inputs, outputs, .. } = graph.node(id).clone();
    let results = graph.insert_before(id, op, &inputs)?;
    outputs.iter().zip(results).for_each(|(&old, new)| graph.replace_uses(old, new));
    graph.remove(id);
    Ok(())
}
