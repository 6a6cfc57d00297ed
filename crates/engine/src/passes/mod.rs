//! Rewrites of graphs that keep their results and make them cheaper to compute.
//!
//! A pass keeps the types of values, and a second run of it changes nothing.

use graph::{Graph, NodeId, Op, Value};

mod fold_constants;
mod fuse_bias;
mod fuse_gate;
mod fuse_norm;
mod fuse_residual;
mod fuse_silu;
mod hoist_leaves;
mod merge_common_subexpressions;
mod merge_linears;
mod remove_dead;
mod simplify;

/// One rewrite of a graph.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// The name in settings and traces.
    pub name: &'static str,
    run: fn(&mut Graph),
}

macro_rules! passes {
    ($($name:ident,)*) => {
        /// Every pass, in the order they run. One round is enough: none makes what an earlier one looks for.
        pub const PASSES: &[Pass] = &[$(Pass { name: stringify!($name), run: $name::run },)*];
    };
}

passes! {
    // First, since merging moves nodes up to where their weights are defined.
    hoist_leaves,
    // Before simplify, which knows neutral constants when it sees them.
    fold_constants,
    // Before common subexpressions: two spellings of one value become equal.
    simplify,
    // Before all fusions: what is computed twice has fewer users than its patterns allow.
    merge_common_subexpressions,
    // Before fuse_gate, which looks for silu.
    fuse_silu,
    // Before merge_linears: with their biases inside, the projections of an attention share their one input.
    fuse_bias,
    // Before fuse_gate, which needs both products in one node, and before fuse_norm, so that a norm is computed
    // once for all that share it.
    merge_linears,
    fuse_gate,
    // After the merges. The norm's users are then as few as they get.
    fuse_norm,
    // Last: a residual ends a linear layer, and merged ones take none.
    fuse_residual,
}

/// Which passes run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Passes {
    /// All.
    #[default]
    All,
    /// None: the plan has a step for every node as written.
    None,
    /// All but those with these names.
    Without(Vec<String>),
}

impl Passes {
    fn contains(&self, pass: &Pass) -> bool {
        match self {
            Passes::All => true,
            Passes::None => false,
            Passes::Without(names) => !names.iter().any(|name| name == pass.name),
        }
    }
}

/// Runs the passes over a verified graph. Dead nodes go after each: a user that nobody reads hides patterns.
pub fn run(graph: &mut Graph, passes: &Passes) {
    if *passes == Passes::None {
        return;
    }
    remove_dead::run(graph);
    for pass in PASSES.iter().filter(|pass| passes.contains(pass)) {
        (pass.run)(graph);
        remove_dead::run(graph);
    }
}

/// Computes the results of a node by another op.
fn replace(graph: &mut Graph, id: NodeId, op: impl Into<Op>, inputs: &[Value]) {
    let new = graph.insert_before(id, op.into(), inputs).expect("passes make nodes that fit");
    for (old, new) in graph.node(id).outputs.clone().into_iter().zip(new) {
        graph.replace_uses(old, new);
    }
    graph.remove(id);
}

/// Makes an existing value stand for the one result of a node.
fn forward(graph: &mut Graph, id: NodeId, value: Value) {
    let old = graph.node(id).outputs[0];
    graph.replace_uses(old, value);
    graph.remove(id);
}

fn is_leaf(op: &Op) -> bool {
    matches!(op, Op::Constant(_) | Op::Weight(_))
}
/// Runs one pass on graph text and compares the text that comes out; then checks that a second run changes
/// nothing.
#[cfg(test)]
fn check(run: fn(&mut Graph), before: &str, after: &str) {
    let normal = |text: &str| Graph::parse(text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
    let mut graph = normal(before);
    graph.verify().unwrap();
    for _ in 0..2 {
        run(&mut graph);
        remove_dead::run(&mut graph);
        graph.verify().unwrap_or_else(|error| panic!("{error} after\n{graph}"));
        let printed = normal(&graph.to_string()).to_string();
        assert_eq!(printed, normal(after).to_string(), "got\n{printed}");
    }
}

/// Runs one pass on graph text that it must leave alone.
#[cfg(test)]
fn check_unchanged(run: fn(&mut Graph), text: &str) {
    check(run, text, text);
}
