//! The order of the nodes of a placed graph: as few changes between host and devices as the data allow.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use graph::ops::Effect;
use graph::{DeviceRef, Graph, Kind, Node, NodeId, Op, Value};

use crate::Error;

/// What runs a node: those of one turn run one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Turn {
    /// The host.
    Host,
    /// A transfer to a device.
    Upload,
    /// A device.
    Far(DeviceRef),
    /// A transfer to the host.
    Download,
}

/// The graph with its nodes in an order of few turns. Nodes that find sizes in data, or run graphs, keep their place, and
/// so do others before and behind them.
pub(crate) fn schedule(graph: &Graph) -> Result<Graph, Error> {
    let mut copying = Copying { graph, copy: Graph::new(graph.name()), values: HashMap::new() };
    for input in graph.inputs() {
        let value = copying.copy.input(&input.name, graph.ty(input.value).clone());
        copying.values.insert(input.value, value);
    }
    let mut stretch = Vec::new();
    for (id, node) in graph.nodes() {
        if node.op.regions().is_empty() && node.op.defines().is_empty() {
            stretch.push(id);
            continue;
        }
        copying.nodes(&in_turns(graph, &std::mem::take(&mut stretch)))?;
        copying.nodes(&[id])?;
    }
    copying.nodes(&in_turns(graph, &stretch))?;
    let outputs: Vec<Value> = graph.outputs().iter().map(|output| copying.values[output]).collect();
    copying.copy.set_outputs(&outputs);
    Ok(copying.copy)
}

struct Copying<'g> {
    graph: &'g Graph,
    copy: Graph,
    values: HashMap<Value, Value>,
}

impl Copying<'_> {
    fn nodes(&mut self, nodes: &[NodeId]) -> Result<(), Error> {
        for &id in nodes {
            let node = self.graph.node(id);
            let inputs: Vec<Value> = node.inputs.iter().map(|input| self.values[input]).collect();
            let outputs = self.copy.push_from(node.op.clone(), &inputs, node.location.clone())?;
            self.values.extend(node.outputs.iter().copied().zip(outputs));
        }
        Ok(())
    }
}

/// Nodes in an order of few turns: what is ready runs, until a turn has no more of it.
fn in_turns(graph: &Graph, nodes: &[NodeId]) -> Vec<NodeId> {
    let (mut waits, users) = dependencies(graph, nodes);
    let mut ready: HashMap<Turn, BinaryHeap<Reverse<usize>>> = HashMap::new();
    let mut turns: Vec<Turn> = nodes.iter().map(|&id| turn(graph, graph.node(id))).collect();
    let each = turns.clone();
    turns.sort_unstable();
    turns.dedup();
    for (position, _) in waits.iter().enumerate().filter(|(_, waits)| **waits == 0) {
        ready.entry(each[position]).or_default().push(Reverse(position));
    }
    let mut order = Vec::with_capacity(nodes.len());
    while order.len() < nodes.len() {
        for turn in &turns {
            while let Some(Reverse(position)) = ready.get_mut(turn).and_then(BinaryHeap::pop) {
                order.push(nodes[position]);
                for &user in &users[position] {
                    waits[user] -= 1;
                    if waits[user] == 0 {
                        ready.entry(each[user]).or_default().push(Reverse(user));
                    }
                }
            }
        }
    }
    order
}

fn turn(graph: &Graph, node: &Node) -> Turn {
    let device =
        node.outputs.first().or(node.inputs.first()).map_or(DeviceRef::Cpu, |&value| graph.ty(value).device);
    match (&node.op, device) {
        (Op::Transfer(_), DeviceRef::Cpu) => Turn::Download,
        (Op::Transfer(_), _) => Turn::Upload,
        (_, DeviceRef::Cpu) => Turn::Host,
        (_, device) => Turn::Far(device),
    }
}

/// For each node how many others it waits for, and which wait for it: those that read its results, and those that use a
/// buffer which either of both writes. What has side effects keeps its order.
fn dependencies(graph: &Graph, nodes: &[NodeId]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let (mut waits, mut users) = (vec![0; nodes.len()], vec![Vec::new(); nodes.len()]);
    let mut makers: HashMap<Value, usize> = HashMap::new();
    // Of each buffer: the last that wrote it, and those that read it since.
    let mut writers: HashMap<Value, (Option<usize>, Vec<usize>)> = HashMap::new();
    let mut last_effect = None;
    for (position, &id) in nodes.iter().enumerate() {
        let node = graph.node(id);
        let mut before: Vec<usize> =
            node.inputs.iter().filter_map(|input| makers.get(input).copied()).collect();
        for (operand, &value) in
            node.inputs.iter().enumerate().filter(|(_, value)| graph.ty(**value).kind == Kind::Buffer)
        {
            let (writer, readers) = writers.entry(value).or_default();
            before.extend(*writer);
            if node.op.effect(operand) == Effect::Write {
                before.append(readers);
                *writer = Some(position);
            } else {
                readers.push(position);
            }
        }
        if node.op.has_side_effect() {
            before.extend(last_effect.replace(position));
        }
        before.retain(|&other| other != position);
        before.sort_unstable();
        before.dedup();
        waits[position] = before.len();
        before.into_iter().for_each(|other| users[other].push(position));
        makers.extend(node.outputs.iter().map(|&output| (output, position)));
    }
    (waits, users)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &str, after: &str) {
        let scheduled = schedule(&Graph::parse(before).unwrap()).unwrap();
        scheduled.verify().unwrap();
        assert_eq!(scheduled.to_string(), Graph::parse(after).unwrap().to_string(), "got\n{scheduled}");
    }

    #[test]
    fn what_the_host_computes_alone_comes_first() {
        check(
            "graph g(%x: f32[n], %y: f32[n]) {
               %a = transfer_to(%x) {device = \"gpu:0\"}
               %b = neg(%a)
               %c = exp(%y)
               %d = transfer_to(%c) {device = \"gpu:0\"}
               %e = add(%b, %d)
               %f = transfer_to(%e) {device = cpu}
               return %f
             }",
            "graph g(%x: f32[n], %y: f32[n]) {
               %c = exp(%y)
               %a = transfer_to(%x) {device = \"gpu:0\"}
               %d = transfer_to(%c) {device = \"gpu:0\"}
               %b = neg(%a)
               %e = add(%b, %d)
               %f = transfer_to(%e) {device = cpu}
               return %f
             }",
        );
    }

    #[test]
    fn buffers_are_read_and_written_in_their_order() {
        let text = "graph g(%m: mut f32[n], %x: f32[n] @gpu:0) {
               %h = transfer_to(%x) {device = cpu}
               store(%m, %h)
               %a = load(%m)
               %b = neg(%a)
               store(%m, %b)
               return %a
             }";
        check(text, text);
    }
}
