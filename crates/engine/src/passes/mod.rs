//! Rewrites of graphs that keep their results and make them cheaper to compute; and those that round as settings ask.
//!
//! A pass keeps the types of values, and a second run of it changes nothing.

use std::convert::Infallible;
use std::sync::Arc;

use graph::ops::{Binary, Effect};
use graph::{Graph, Node, NodeId, Op, Value};

use crate::{KernelSettings, SplitKReductionPrecision};

mod fold_constants;
mod fuse_activation;
mod fuse_attention;
mod fuse_bias;
mod fuse_elementwise;
mod fuse_gate;
mod fuse_norm;
mod fuse_residual;
mod fuse_silu;
mod hoist_leaves;
mod inline_calls;
mod merge_common_subexpressions;
mod merge_linears;
mod move_channels_last;
mod quantize_fp8;
mod remove_dead;
mod simplify;
mod split_products;

/// One rewrite of a graph.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// The name in settings and traces.
    pub name: &'static str,
    run: fn(&mut Graph),
    /// Whether a session's settings ask for it, where it changes results; `None` where it changes none.
    asked: Option<fn(&KernelSettings) -> bool>,
}

macro_rules! passes {
    ($($name:ident $(if $asked:expr)?,)*) => {
        /// Every pass, in the order they run. One round is enough: none makes what an earlier one looks for.
        pub const PASSES: &[Pass] = &[
            $(Pass { name: stringify!($name), run: $name::run, asked: [$(asked($asked),)? None][0] },)*
        ];
    };
}

/// For `passes!`: gives closures their type.
const fn asked(by: fn(&KernelSettings) -> bool) -> Option<fn(&KernelSettings) -> bool> {
    Some(by)
}

passes! {
    // Before all others, which then see nodes where calls were.
    inline_calls,
    // Before all fusions, which make other nodes of products and casts; and before constants are folded, so that those
    // of the graph are rounded as its weights are.
    quantize_fp8 if |settings| settings.per_tensor_fp8_quantize,
    // Behind quantize_fp8, whose products are not split.
    split_products if |settings| settings.split_k_reduction_precision == SplitKReductionPrecision::Output,
    // Early, since merging moves nodes up to where their weights are defined.
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
    // After fuse_gate, which wants the activation of one product next to another; before fuse_residual, since residuals
    // come last.
    fuse_activation,
    // After the merges. The norm's users are then as few as they get.
    fuse_norm,
    // After the other layers' fusions: a residual ends a linear layer, and merged ones take none.
    fuse_residual,
    // After simplify, which makes one transpose of two; before fuse_elementwise, which would take scale and mask.
    fuse_attention,
    // After fuse_activation, so that chains are short; before fuse_elementwise, whose nodes chains do not run.
    move_channels_last,
    // Last: it takes whatever functions of elements the patterns above have left.
    fuse_elementwise,
}

/// Which passes run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Passes {
    /// All.
    #[default]
    All,
    /// None but those that the session's settings ask for: the plan has a step for every node as written.
    None,
    /// All but those with these names.
    Without(Vec<String>),
}

impl Passes {
    /// The first name that is no pass's.
    pub(crate) fn unknown(&self) -> Option<&str> {
        let Passes::Without(names) = self else { return None };
        names.iter().find(|name| PASSES.iter().all(|pass| pass.name != **name)).map(|name| &name[..])
    }

    fn contains(&self, pass: &Pass, settings: &KernelSettings) -> bool {
        match (self, pass.asked) {
            (_, Some(asked)) if !asked(settings) => false,
            (Passes::All, _) | (Passes::None, Some(_)) => true,
            (Passes::None, None) => false,
            (Passes::Without(names), _) => !names.iter().any(|name| name == pass.name),
        }
    }
}

/// Runs the passes over a verified graph, and calls `after` with the name of each and what became of the graph. Dead
/// nodes go after each: a dead user hides patterns.
pub(crate) fn run<E>(
    graph: &mut Graph,
    passes: &Passes,
    settings: &KernelSettings,
    after: &mut dyn FnMut(&str, &Graph) -> Result<(), E>,
) -> Result<(), E> {
    let mut chosen = PASSES.iter().filter(|pass| passes.contains(pass, settings)).peekable();
    if chosen.peek().is_none() {
        return Ok(());
    }
    remove_dead::run(graph);
    for pass in chosen {
        (pass.run)(graph);
        remove_dead::run(graph);
        after(pass.name, graph)?;
    }
    let mut quiet = |_: &str, _: &Graph| Ok::<(), Infallible>(());
    run_within(graph, &mut |region| {
        run(region, passes, settings, &mut quiet).unwrap_or_else(|never| match never {});
    });
    Ok(())
}

/// Runs something over the graphs that nodes run.
fn run_within(graph: &mut Graph, pass: &mut dyn FnMut(&mut Graph)) {
    for id in graph.node_ids() {
        let node = graph.node(id);
        if node.op.regions().is_empty() {
            continue;
        }
        let regions = node.op.regions().into_iter().map(|region| {
            let mut region = Graph::clone(region);
            pass(&mut region);
            Arc::new(region)
        });
        let (op, inputs) = (node.op.with_regions(regions), node.inputs.clone());
        replace(graph, id, op, &inputs);
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

/// Computes the results of each node that `matches` accepts by another op, with its operands.
fn replace_each<O: Into<Op>>(graph: &mut Graph, matches: impl Fn(&Graph, &Node) -> Option<(O, Vec<Value>)>) {
    for id in graph.node_ids() {
        if let Some((op, inputs)) = matches(graph, graph.node(id)) {
            replace(graph, id, op, &inputs);
        }
    }
}

/// The op that makes a value, and its operands, if the value is read once.
fn sole(graph: &Graph, value: Value) -> Option<(&Op, &[Value])> {
    graph.defined_by(value).filter(|_| graph.users(value) == 1)
}

/// The operands of a function of two values in both orders; none of other ops.
fn either_order(op: &Op, inputs: &[Value], function: Binary) -> impl Iterator<Item = (Value, Value)> {
    let orders = match *inputs {
        [a, b] if *op == function.into() => Some([(a, b), (b, a)]),
        _ => None,
    };
    orders.into_iter().flatten()
}

/// Makes an existing value stand for the one result of a node.
fn forward(graph: &mut Graph, id: NodeId, value: Value) {
    let old = graph.node(id).outputs[0];
    graph.replace_uses(old, value);
    graph.remove(id);
}

/// Whether a node creates, reads or writes a buffer.
fn touches_buffers(node: &Node) -> bool {
    let creates = matches!(node.op, Op::CreateBuffer(_));
    creates || (0..node.inputs.len()).any(|position| node.op.effect(position) != Effect::None)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(graph: &mut Graph, passes: &Passes, settings: &KernelSettings) {
        super::run(graph, passes, settings, &mut |_, _| Ok::<(), Infallible>(())).unwrap();
    }

    fn run_all(graph: &mut Graph, passes: &Passes) {
        run_with(graph, passes, &KernelSettings::default());
    }

    /// The layers of a decoder without its attention: two biases, a shared norm, a gate, two residuals.
    const LAYER: &str = "graph layer(%x: f32[n, 32]) {
        %g = weight \"norm\" : f32[32]
        %h = rms_norm(%x, %g) {eps = 0.5}
        %q = weight \"q\" : q8_0[32, 32]
        %q0 = linear(%h, %q)
        %qb = weight \"q.bias\" : f32[32]
        %q1 = add(%q0, %qb)
        %k = weight \"k\" : q8_0[32, 32]
        %k0 = linear(%h, %k)
        %kb = weight \"k.bias\" : f32[32]
        %k1 = add(%k0, %kb)
        %mixed = mul(%q1, %k1)
        %o = weight \"o\" : f16[32, 32]
        %o0 = linear(%mixed, %o)
        %x1 = add(%x, %o0)
        %g1 = weight \"norm\" : f32[32]
        %h1 = rms_norm(%x1, %g1) {eps = 0.5}
        %gate = weight \"gate\" : f32[64, 32]
        %up = weight \"up\" : f32[64, 32]
        %down = weight \"down\" : f32[32, 64]
        %up0 = linear(%h1, %up)
        %gate0 = linear(%h1, %gate)
        %s = sigmoid(%gate0)
        %gated = mul(%gate0, %s)
        %m = mul(%gated, %up0)
        %m0 = linear(%m, %down)
        %y = add(%m0, %x1)
        return %y
      }";

    #[test]
    fn the_passes_together_leave_four_nodes_of_a_layer() {
        let all = |graph: &mut Graph| run_all(graph, &Passes::All);
        check(
            all,
            LAYER,
            "graph layer(%x: f32[n, 32]) {
               %g = weight \"norm\" : f32[32]
               %q = weight \"q\" : q8_0[32, 32]
               %qb = weight \"q.bias\" : f32[32]
               %k = weight \"k\" : q8_0[32, 32]
               %kb = weight \"k.bias\" : f32[32]
               %o = weight \"o\" : f16[32, 32]
               %gate = weight \"gate\" : f32[64, 32]
               %up = weight \"up\" : f32[64, 32]
               %down = weight \"down\" : f32[32, 64]
               %q1, %k1 = linear(%x, %g, %q, %k, %qb, %kb) {weights = 2, norm = 0.5, bias = true}
               %mixed = mul(%q1, %k1)
               %x1 = linear(%mixed, %o, %x) {residual = true}
               %m = linear(%x1, %g, %gate, %up) {weights = 2, norm = 0.5, gate = silu}
               %y = linear(%m, %down, %x1) {residual = true}
               return %y
             }",
        );
    }

    #[test]
    fn graphs_within_are_rewritten_too() {
        let all = |graph: &mut Graph| run_all(graph, &Passes::All);
        check(
            all,
            "graph g(%p: bool[], %x: f32[n]) {
               %y = cond(%p, %x) {then = graph a(%x: f32[n]) {
                 %s = sigmoid(%x)
                 %y = mul(%x, %s)
                 return %y
               }, otherwise = graph b(%x: f32[n]) { %y = neg(%x) %z = neg(%y) return %z }}
               return %y
             }",
            "graph g(%p: bool[], %x: f32[n]) {
               %y = cond(%p, %x) {then = graph a(%x: f32[n]) {
                 %y = silu(%x)
                 return %y
               }, otherwise = graph b(%x: f32[n]) { return %x }}
               return %y
             }",
        );
    }

    #[test]
    fn passes_can_be_left_out() {
        let names = |passes: Passes| {
            let mut graph = Graph::parse(LAYER).unwrap();
            run_all(&mut graph, &passes);
            graph.nodes().map(|(_, node)| node.op.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(Passes::None).len(), Graph::parse(LAYER).unwrap().len());
        let left_out = ["fuse_norm", "fuse_silu", "fuse_elementwise"].map(str::to_string);
        let without = names(Passes::Without(left_out.to_vec()));
        assert!(without.contains(&"rms_norm") && without.contains(&"sigmoid"), "{without:?}");
        let misspelled = Passes::Without(vec!["fuse_norm".to_string(), "fuse_nrom".to_string()]);
        assert_eq!(misspelled.unknown(), Some("fuse_nrom"));
        let every = Passes::Without(PASSES.iter().map(|pass| pass.name.to_string()).collect());
        assert_eq!(names(every).len(), Graph::parse(LAYER).unwrap().len());
    }

    #[test]
    fn settings_ask_for_passes_that_round() {
        let text = "graph g(%x: bf16[n, 4], %y: bf16[n, 4]) {
            %w = weight \"w\" : bf16[4, 4]
            %a = call(%x) {graph = graph within(%x: bf16[m, 4]) {
              %v = weight \"v\" : bf16[4, 4]
              %p = matmul(%x, %v)
              %y = cast(%p) {to = bf16}
              return %y
            }}
            %p = matmul(%a, %w)
            %z = cast(%p) {to = bf16}
            return %z
          }";
        let count = |passes: &Passes, settings: &KernelSettings, op: &str| {
            let mut graph = Graph::parse(text).unwrap();
            run_with(&mut graph, passes, settings);
            graph.verify().unwrap();
            graph.to_string().matches(&format!("= {op}(")).count()
        };
        let rounded = KernelSettings { per_tensor_fp8_quantize: true, ..KernelSettings::default() };
        let precision = SplitKReductionPrecision::Output;
        let split = KernelSettings { split_k_reduction_precision: precision, ..KernelSettings::default() };
        let both = KernelSettings { split_k_reduction_precision: precision, ..rounded };
        let without = Passes::Without(vec!["quantize_fp8".to_string()]);
        for passes in [Passes::All, Passes::None] {
            assert_eq!(count(&passes, &KernelSettings::default(), "matmul"), 2, "{passes:?}");
            assert_eq!(count(&passes, &rounded, "fp8_matmul"), 2, "{passes:?}");
            assert_eq!(count(&passes, &split, "split_matmul"), 2, "{passes:?}");
            assert_eq!(count(&passes, &both, "fp8_matmul"), 2, "{passes:?}");
        }
        assert_eq!((count(&without, &both, "fp8_matmul"), count(&without, &both, "split_matmul")), (0, 2));
        let place = |name: &str| PASSES.iter().position(|pass| pass.name == name).unwrap();
        assert!(
            place("inline_calls") < place("quantize_fp8") && place("split_products") < place("fuse_bias")
        );
    }
}
