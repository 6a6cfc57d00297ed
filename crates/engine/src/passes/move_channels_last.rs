//! `conv2d[nchw](relu(conv2d[nchw](x)))` → `transpose(conv2d[nhwc](relu(conv2d[nhwc](transpose(x)))))`: chains of
//! convolutions run with channels last, for which kernels are faster.
//!
//! The pass inserts a transpose where a chain begins, where it ends, and where another op reads it. It leaves single
//! convolutions alone, because their transposes may take longer than they save.

use std::collections::{HashMap, HashSet};

use graph::ops::{Concat, Conv, ImageLayout, Pool2d, Reduce, Transpose};
use graph::{Graph, Node, NodeId, Op, Value};

use super::forward;

/// Convolutions that make a chain.
const CHAIN: usize = 2;

pub(super) fn run(graph: &mut Graph) {
    let chosen = nodes_of_chains(graph);
    // The images that nodes of chains have made or read, with channels last.
    let mut moved = HashMap::new();
    for id in graph.node_ids().into_iter().filter(|id| chosen.contains(id)) {
        let node = graph.node(id).clone();
        let rank = graph.ty(node.outputs[0]).rank();
        let op = with_channels_last(&node.op, rank).expect("a node of a chain");
        let mut inputs = node.inputs.clone();
        for input in &mut inputs[..images(&node)] {
            if graph.ty(*input).rank() == rank {
                let order = to_last(rank);
                let transposed = || insert(graph, id, Transpose { order }.into(), &[*input]);
                *input = *moved.entry(*input).or_insert_with(transposed);
            }
        }
        let last = insert(graph, id, op, &inputs);
        let first = insert(graph, id, Transpose { order: to_first(rank) }.into(), &[last]);
        moved.insert(first, last);
        forward(graph, id, first);
    }
}

fn insert(graph: &mut Graph, before: NodeId, op: Op, inputs: &[Value]) -> Value {
    graph.insert_before(before, op, inputs).expect("passes make nodes that fit")[0]
}

/// The nodes of all chains that have enough convolutions.
fn nodes_of_chains(graph: &Graph) -> HashSet<NodeId> {
    let mut chains = Chains::default();
    for (id, node) in graph.nodes() {
        if let Some(chain) = chain_of(graph, node, &mut chains) {
            chains.add(id, node.outputs[0], chain);
        }
    }
    let long = |chain: usize| chains.convolutions[chains.root(chain)] >= CHAIN;
    chains.nodes.iter().filter(|&&(_, chain)| long(chain)).map(|&(id, _)| id).collect()
}

/// The chain that a node goes on, which is a new one for some convolutions; `None` if it has to see channels first.
fn chain_of(graph: &Graph, node: &Node, chains: &mut Chains) -> Option<usize> {
    let &[output] = &node.outputs[..] else { return None };
    let rank = graph.ty(output).rank();
    with_channels_last(&node.op, rank)?;
    let operands = &node.inputs[..images(node)];
    let ranks = |value: &Value| [0, rank].contains(&graph.ty(*value).rank());
    if !operands.iter().all(ranks) {
        return None;
    }
    let mut known = operands.iter().filter_map(|value| chains.of.get(value).copied()).collect::<Vec<_>>();
    if matches!(node.op, Op::Conv(_)) {
        known.push(chains.start());
    }
    known.into_iter().reduce(|a, b| chains.join(a, b))
}

/// Values that nodes connect.
#[derive(Default)]
struct Chains {
    of: HashMap<Value, usize>,
    nodes: Vec<(NodeId, usize)>,
    /// The chain that each has become a part of, or itself.
    parents: Vec<usize>,
    /// The number of convolutions in each chain, kept up to date for those that have not joined another.
    convolutions: Vec<usize>,
}

impl Chains {
    /// A chain of one convolution.
    fn start(&mut self) -> usize {
        self.parents.push(self.parents.len());
        self.convolutions.push(1);
        self.parents.len() - 1
    }

    fn root(&self, mut chain: usize) -> usize {
        while self.parents[chain] != chain {
            chain = self.parents[chain];
        }
        chain
    }

    fn join(&mut self, a: usize, b: usize) -> usize {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.parents[b] = a;
            self.convolutions[a] += self.convolutions[b];
        }
        a
    }

    fn add(&mut self, id: NodeId, value: Value, chain: usize) {
        self.of.insert(value, chain);
        self.nodes.push((id, chain));
    }
}

/// How many operands of a node, the first ones, are images.
fn images(node: &Node) -> usize {
    if matches!(node.op, Op::Conv(_)) { 1 } else { node.inputs.len() }
}

/// The op for images whose channels lie last, if it is one that chains run.
fn with_channels_last(op: &Op, rank: usize) -> Option<Op> {
    let (first, layout) = (ImageLayout::ChannelsFirst, ImageLayout::ChannelsLast);
    match op {
        Op::Conv(conv) if conv.layout == first => Some(Conv { layout, ..conv.clone() }.into()),
        Op::Pool2d(pool) if pool.layout == first => Some(Pool2d { layout, ..pool.clone() }.into()),
        Op::Unary(_) | Op::Binary(_) | Op::Cast(_) => Some(op.clone()),
        Op::Concat(concat) => Some(Concat { axis: moved_axis(concat.axis, rank)? }.into()),
        Op::Reduce(reduce) => Some(Reduce { axis: moved_axis(reduce.axis, rank)?, ..*reduce }.into()),
        _ => None,
    }
}

/// Where an axis lies once channels lie last.
fn moved_axis(axis: usize, rank: usize) -> Option<usize> {
    to_last(rank).iter().position(|&from| from == axis)
}

/// The order of axes that brings channels to the end.
fn to_last(rank: usize) -> Vec<usize> {
    (0..1).chain(2..rank).chain((1..2).take(rank.saturating_sub(1))).collect()
}

/// The order of axes that brings channels back.
fn to_first(rank: usize) -> Vec<usize> {
    [0, rank - 1].into_iter().chain(1..rank - 1).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    fn graph(body: &str) -> String {
        format!(
            "graph g(%x: f32[n, 3, 8, 8]) {{
               %v = weight \"v\" : f32[3, 3, 3, 3]
               {body}
             }}"
        )
    }

    const NCHW: &str = "layout = nchw, filter = fcrs";

    #[test]
    fn chains_are_transposed_at_their_ends() {
        check(
            run,
            &graph(&format!(
                "%b = weight \"b\" : f32[3]
                 %a = conv2d(%x, %v, %b) {{{NCHW}, padding = [1, 1, 1, 1], activation = relu}}
                 %c = conv2d(%a, %v) {{{NCHW}, padding = [1, 1, 1, 1]}}
                 %d = add(%c, %a)
                 %e = max_pool2d(%d) {{layout = nchw, window = [2, 2], strides = [2, 2]}}
                 %f = reduce_mean(%e) {{axis = 2}}
                 return %f"
            )),
            &graph(
                "%b = weight \"b\" : f32[3]
                 %t = transpose(%x) {order = [0, 2, 3, 1]}
                 %a = conv2d(%t, %v, %b) {padding = [1, 1, 1, 1], filter = fcrs, activation = relu}
                 %c = conv2d(%a, %v) {padding = [1, 1, 1, 1], filter = fcrs}
                 %d = add(%c, %a)
                 %e = max_pool2d(%d) {window = [2, 2], strides = [2, 2]}
                 %f = reduce_mean(%e) {axis = 1}
                 %y = transpose(%f) {order = [0, 3, 1, 2]}
                 return %y",
            ),
        );
    }

    #[test]
    fn values_read_by_other_ops_are_transposed_once() {
        check(
            run,
            &graph(&format!(
                "%a = conv2d(%x, %v) {{{NCHW}}}
                 print(%a) {{label = a}}
                 %c = concat(%a, %a) {{axis = 1}}
                 %w = weight \"w\" : f32[5, 6, 1, 1]
                 %d = conv2d(%c, %w) {{{NCHW}}}
                 %y = softmax(%a) {{axis = 1}}
                 return %d, %y"
            )),
            &graph(
                "%t = transpose(%x) {order = [0, 2, 3, 1]}
                 %a = conv2d(%t, %v) {filter = fcrs}
                 %first = transpose(%a) {order = [0, 3, 1, 2]}
                 print(%first) {label = a}
                 %c = concat(%a, %a) {axis = 3}
                 %w = weight \"w\" : f32[5, 6, 1, 1]
                 %d = conv2d(%c, %w) {filter = fcrs}
                 %z = transpose(%d) {order = [0, 3, 1, 2]}
                 %y = softmax(%first) {axis = 1}
                 return %z, %y",
            ),
        );
    }

    #[test]
    fn volumes_are_moved_and_scalars_stay() {
        let volume = |text: String| {
            let leaves = "%two = constant [2.0] : f32[] %k = weight \"k\" : f32[3, 3, 1, 1, 1]";
            format!("graph g(%x: f32[n, 3, 4, 8, 8]) {{ {leaves} {text} }}")
        };
        check(
            run,
            &volume(format!(
                "%a = conv3d(%x, %k) {{{NCHW}}} %m = mul(%two, %a) %c = conv3d(%m, %k) {{{NCHW}}} return %c"
            )),
            &volume(
                "%t = transpose(%x) {order = [0, 2, 3, 4, 1]}
                 %a = conv3d(%t, %k) {filter = fcrs} %m = mul(%two, %a) %c = conv3d(%m, %k) {filter = fcrs}
                 %y = transpose(%c) {order = [0, 4, 1, 2, 3]} return %y"
                    .to_string(),
            ),
        );
    }

    #[test]
    fn single_convolutions_and_others_stay() {
        for body in [
            "%a = conv2d(%x, %v) {NCHW} %y = relu(%a) return %y",
            "%a = conv2d(%x, %v) {NCHW} %c = conv2d(%x, %v) {NCHW} return %a, %c",
            "%a = conv2d(%x, %v) {NCHW} %s = softmax(%a) {axis = 1} %c = conv2d(%s, %v) {NCHW} return %c",
            "%b = weight \"b\" : f32[3]
             %s = reshape(%b) {shape = [3, 1, 1]}
             %a = conv2d(%x, %v) {NCHW} %m = mul(%a, %s) %c = conv2d(%m, %v) {NCHW} return %c",
            "%m = max_pool2d(%x) {layout = nchw, window = [2, 2], strides = [2, 2]}
             %a = conv2d(%m, %v) {NCHW} return %a",
        ] {
            check_unchanged(run, &graph(&body.replace("NCHW", NCHW)));
        }
    }
}
