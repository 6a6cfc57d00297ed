//! Graph → block: nodes whose sizes are known before anything runs make one plan; a node that finds sizes in its
//! data, or runs graphs, ends a plan and another begins behind it. So does a border between devices, where values are
//! transferred.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use graph::ops::{Effect, Transfer};
use graph::{DeviceRef, Graph, Node, NodeId, Op, Type, Value};

use crate::block::{Block, BlockPart, Control, Move, PartOperand, PartStep, PartWork, SizesPart};
use crate::leaf::leaf;
use crate::lower::{ProgramState, lower};
use crate::plan::{Home, Plan, PlanInput, StepOperand};
use crate::{Error, NodeTypes};

/// The block of a graph that is well formed. Blocks of graphs within are made on the way.
pub(crate) fn split(graph: &Graph, shared: &mut ProgramState) -> Result<Block, Error> {
    let mut splitting = Splitting::new(graph, shared);
    let segments = segments(graph);
    let are_here = graph.inputs().iter().all(|input| graph.ty(input.value).device == DeviceRef::Cpu);
    if let ([] | [Segment::Static(_, DeviceRef::Cpu)], true) = (&segments[..], are_here) {
        splitting.whole()?;
        return Ok(splitting.block);
    }
    splitting.note_last_uses(&segments);
    for (i, segment) in segments.iter().enumerate() {
        match segment {
            Segment::Static(nodes, device) => splitting.plan(i, nodes, *device)?,
            Segment::Transfer(nodes, device) => splitting.transfer(nodes, *device),
            Segment::Sizes(node) => splitting.sizes(graph.node(*node))?,
            Segment::Run(node) => splitting.run(graph.node(*node))?,
        }
    }
    splitting.block.results =
        graph.outputs().iter().map(|&output| splitting.source(output)).collect::<Result<_, _>>()?;
    splitting.release();
    Ok(splitting.block)
}

/// Nodes that become one part.
enum Segment {
    /// On one device.
    Static(Vec<NodeId>, DeviceRef),
    /// Values that go to a device.
    Transfer(Vec<NodeId>, DeviceRef),
    /// The sizes of a node, which is the first of the segment behind this.
    Sizes(NodeId),
    /// A node that runs graphs.
    Run(NodeId),
}

fn segments(graph: &Graph) -> Vec<Segment> {
    let mut segments = Vec::new();
    for (id, node) in graph.nodes().filter(|(_, node)| !makes_leaf(graph, node)) {
        let device = device_of(graph, node);
        let last = segments.last_mut();
        if !node.op.regions().is_empty() {
            segments.push(Segment::Run(id));
        } else if finds_sizes(&node.op) {
            segments.extend([Segment::Sizes(id), Segment::Static(vec![id], device)]);
        } else if crosses(graph, node) {
            match last {
                Some(Segment::Transfer(nodes, to)) if *to == device => nodes.push(id),
                _ => segments.push(Segment::Transfer(vec![id], device)),
            }
        } else {
            match last {
                Some(Segment::Static(nodes, on)) if *on == device => nodes.push(id),
                _ => segments.push(Segment::Static(vec![id], device)),
            }
        }
    }
    segments
}

/// Where a node of a placed graph runs.
fn device_of(graph: &Graph, node: &Node) -> DeviceRef {
    let value = node.outputs.first().or(node.inputs.first());
    value.map_or(DeviceRef::Cpu, |&value| graph.ty(value).device)
}

/// Whether a node brings a value to another device.
fn crosses(graph: &Graph, node: &Node) -> bool {
    matches!(node.op, Op::Transfer(_)) && graph.ty(node.inputs[0]).device != graph.ty(node.outputs[0]).device
}

fn makes_leaf(graph: &Graph, node: &Node) -> bool {
    node.outputs.first().is_some_and(|&output| leaf(graph, output).is_some())
}

/// Whether sizes of an op's results are known only when its operands are; those of a rebind are when their sizes are.
fn finds_sizes(op: &Op) -> bool {
    !op.defines().is_empty() && !matches!(op, Op::Rebind(_))
}

struct Splitting<'g, 's> {
    graph: &'g Graph,
    shared: &'s mut ProgramState,
    block: Block,
    /// The number in the block of each value that parts hand to one another.
    numbers: HashMap<Value, usize>,
    /// By value: its name in text.
    names: Rc<[String]>,
    /// By value: the last segment that reads it; beyond all for outputs.
    last_uses: HashMap<Value, usize>,
}

impl<'g, 's> Splitting<'g, 's> {
    fn new(graph: &'g Graph, shared: &'s mut ProgramState) -> Splitting<'g, 's> {
        let mut signature = Graph::new(graph.name());
        let mut inputs = Vec::new();
        for (i, input) in graph.inputs().iter().enumerate() {
            let ty = graph.ty(input.value).clone();
            signature.input(&input.name, ty.clone());
            let written = graph.input_effect(i) == Effect::Write;
            inputs.push(PlanInput { name: input.name.clone(), ty, written });
        }
        let outputs = graph.outputs().iter().map(|&output| graph.ty(output).clone()).collect();
        let (parts, values, results) = (Vec::new(), Vec::new(), Vec::new());
        let block = Block { inputs, outputs, signature, parts, values, results };
        let names = graph.value_names().into_iter().map(|name| name.trim_start_matches('%').to_string());
        let names: Rc<[String]> = names.collect();
        let (numbers, last_uses) = (HashMap::new(), HashMap::new());
        let mut splitting = Splitting { graph, shared, block, numbers, names, last_uses };
        for input in graph.inputs() {
            splitting.number(input.value);
        }
        splitting
    }

    /// One plan for everything.
    fn whole(&mut self) -> Result<(), Error> {
        let plan = lower(self.graph, None, self.shared)?;
        let inputs: Vec<usize> = (0..plan.inputs.len()).collect();
        let outputs: Vec<usize> = (0..plan.outputs.len()).map(|i| inputs.len() + i).collect();
        self.block.inputs.clone_from(&plan.inputs);
        self.block.values.extend((0..outputs.len()).map(|i| format!("output{i}")));
        self.block.results = outputs.iter().map(|&value| PartOperand::Value(value)).collect();
        self.block.parts = vec![BlockPart {
            work: PartWork::Plan { plan: Box::new(plan), inputs, outputs, copies: Vec::new() },
            last_used: Vec::new(),
        }];
        Ok(())
    }

    fn note_last_uses(&mut self, segments: &[Segment]) {
        for (i, segment) in segments.iter().enumerate() {
            let nodes = match segment {
                Segment::Static(nodes, _) | Segment::Transfer(nodes, _) => &nodes[..],
                Segment::Sizes(node) | Segment::Run(node) => std::slice::from_ref(node),
            };
            let read = nodes.iter().flat_map(|&node| self.graph.node(node).inputs.iter().copied());
            self.last_uses.extend(read.map(|value| (value, i)));
        }
        self.last_uses.extend(self.graph.outputs().iter().map(|&output| (output, segments.len())));
    }

    /// A plan of some nodes: a graph of their own, whose inputs are what they read, and whose outputs are what is
    /// read after them.
    fn plan(&mut self, segment: usize, nodes: &[NodeId], device: DeviceRef) -> Result<(), Error> {
        let mut part = PartGraph::new(self.graph, Rc::clone(&self.names));
        for &id in nodes {
            part.node(self.graph.node(id))?;
        }
        let made = nodes.iter().flat_map(|&id| self.graph.node(id).outputs.iter().copied());
        let kept: Vec<Value> =
            made.filter(|value| self.last_uses.get(value).is_some_and(|&last| last > segment)).collect();
        let values = part.inputs.clone();
        let inputs = values.iter().map(|&value| self.number(value)).collect();
        let outputs = kept.iter().map(|&value| self.number(value)).collect();
        let far = self.shared.devices.at(device).filter(|device| device.far().is_some()).cloned();
        let plan = lower(&part.finish(&kept), far, self.shared)?;
        let copies = if plan.far.is_some() { self.copies(&plan, &values)? } else { Vec::new() };
        self.push(PartWork::Plan { plan: Box::new(plan), inputs, outputs, copies });
        Ok(())
    }

    /// What the host has of the inputs of a device's plan that steps want checked.
    fn copies(&mut self, plan: &Plan, inputs: &[Value]) -> Result<Vec<Option<PartOperand>>, Error> {
        let mut copies = vec![None; inputs.len()];
        for step in &plan.steps {
            let checked = step.check.as_ref().and_then(|kernel| kernel.checked()).unwrap_or_default();
            for &position in checked {
                let StepOperand::Value(value) = step.operands[position] else { continue };
                let Home::Input(input) = plan.values[value].home else { continue };
                if let Some((Op::Transfer(_), &[here])) = self.graph.defined_by(inputs[input]) {
                    copies[input] = Some(self.source(here)?);
                }
            }
        }
        Ok(copies)
    }

    fn transfer(&mut self, nodes: &[NodeId], device: DeviceRef) {
        let nodes = nodes.iter().map(|&id| self.graph.node(id));
        let moves = nodes.map(|node| Move {
            from: self.number(node.inputs[0]),
            to: self.number(node.outputs[0]),
            ty: self.graph.ty(node.outputs[0]).clone(),
        });
        let moves = moves.collect();
        self.push(PartWork::Transfer { moves, device });
    }

    fn sizes(&mut self, node: &'g Node) -> Result<(), Error> {
        let inputs: Vec<&Type> = node.inputs.iter().map(|&value| self.graph.ty(value)).collect();
        let outputs: Vec<&Type> = node.outputs.iter().map(|&value| self.graph.ty(value)).collect();
        let settings = self.shared.settings.for_device();
        let types = NodeTypes { op: &node.op, inputs: &inputs, outputs: &outputs, settings };
        let kernel = self.shared.devices.host.kernel(&types);
        let operands = node.inputs.iter().map(|&input| self.source(input)).collect::<Result<_, _>>()?;
        let at = self.step(node);
        let part = SizesPart { op: node.op.clone(), kernel, operands, at };
        self.push(PartWork::Sizes(Box::new(part)));
        Ok(())
    }

    fn run(&mut self, node: &'g Node) -> Result<(), Error> {
        let operands = node.inputs.iter().map(|&input| self.source(input)).collect::<Result<_, _>>()?;
        let at = self.step(node);
        let control = match &node.op {
            Op::Cond(cond) => Control::Cond {
                then: split(&cond.then, self.shared)?,
                otherwise: split(&cond.otherwise, self.shared)?,
            },
            Op::While(op) => Control::While {
                predicate: split(&op.predicate, self.shared)?,
                body: split(&op.body, self.shared)?,
            },
            Op::Call(call) => Control::Call(split(&call.graph.with_prefix(&call.prefix), self.shared)?),
            op => unreachable!("{} runs no graphs", op.name()),
        };
        let outputs = node.outputs.iter().map(|&value| self.number(value)).collect();
        let types = node.outputs.iter().map(|&value| self.graph.ty(value).clone()).collect();
        self.push(PartWork::Run { control: Box::new(control), operands, outputs, types, at });
        Ok(())
    }

    fn push(&mut self, work: PartWork) {
        self.block.parts.push(BlockPart { work, last_used: Vec::new() });
    }

    /// Notes for each part the values that no later one reads, as their memory can go.
    fn release(&mut self) {
        let mut needed: BTreeSet<usize> = (0..self.block.inputs.len()).collect();
        needed.extend(self.block.results.iter().filter_map(|source| source.value()));
        for part in self.block.parts.iter_mut().rev() {
            let values: BTreeSet<usize> = match &part.work {
                PartWork::Plan { inputs, outputs, copies, .. } => {
                    let copies = copies.iter().flatten().filter_map(|copy| copy.value());
                    inputs.iter().chain(outputs).copied().chain(copies).collect()
                }
                PartWork::Transfer { moves, .. } => {
                    moves.iter().flat_map(|moved| [moved.from, moved.to]).collect()
                }
                PartWork::Sizes(part) => part.operands.iter().filter_map(|s| s.value()).collect(),
                PartWork::Run { operands, outputs, .. } => {
                    operands.iter().filter_map(|s| s.value()).chain(outputs.iter().copied()).collect()
                }
            };
            part.last_used = values.iter().copied().filter(|&value| needed.insert(value)).collect();
        }
    }

    fn step(&mut self, node: &Node) -> PartStep {
        self.shared.steps += 1;
        PartStep { step: self.shared.steps - 1, location: node.location.clone() }
    }

    fn source(&mut self, value: Value) -> Result<PartOperand, Error> {
        match leaf(self.graph, value) {
            Some(op) => {
                let slot = self.shared.slot(op, self.graph.ty(value), None);
                let fail = |message| Error::compile(self.graph, self.graph.node_of(value), message);
                slot.map(PartOperand::Weight).map_err(fail)
            }
            _ => Ok(PartOperand::Value(self.number(value))),
        }
    }

    fn number(&mut self, value: Value) -> usize {
        *self.numbers.entry(value).or_insert_with(|| {
            self.block.values.push(self.names[value.index()].clone());
            self.block.values.len() - 1
        })
    }
}

/// Some nodes of a graph as a graph.
struct PartGraph<'g> {
    whole: &'g Graph,
    graph: Graph,
    /// The values of the part by those of the whole.
    values: HashMap<Value, Value>,
    /// What the nodes read of the rest.
    inputs: Vec<Value>,
    /// By value of the whole: its name in text.
    names: Rc<[String]>,
}

impl<'g> PartGraph<'g> {
    fn new(whole: &'g Graph, names: Rc<[String]>) -> PartGraph<'g> {
        let graph = Graph::new(whole.name());
        PartGraph { whole, graph, values: HashMap::new(), inputs: Vec::new(), names }
    }

    fn node(&mut self, node: &Node) -> Result<(), Error> {
        let inputs = node.inputs.iter().map(|&input| self.value(input)).collect::<Result<Vec<_>, _>>()?;
        let outputs = self.graph.push_from(node.op.clone(), &inputs, node.location.clone())?;
        self.values.extend(node.outputs.iter().copied().zip(outputs));
        Ok(())
    }

    fn value(&mut self, value: Value) -> Result<Value, Error> {
        if let Some(&known) = self.values.get(&value) {
            return Ok(known);
        }
        let ty = self.whole.ty(value);
        let here = match leaf(self.whole, value) {
            Some(op) => {
                let own = self.graph.push_from(op.clone(), &[], None)?[0];
                match self.graph.ty(own).device == ty.device {
                    true => own,
                    false => self.graph.push_one(Transfer { device: ty.device }.into(), &[own])?,
                }
            }
            _ => {
                self.inputs.push(value);
                self.graph.input(&self.names[value.index()], ty.clone())
            }
        };
        self.values.insert(value, here);
        Ok(here)
    }

    fn finish(mut self, outputs: &[Value]) -> Graph {
        let outputs: Vec<Value> = outputs.iter().map(|output| self.values[output]).collect();
        self.graph.set_outputs(&outputs);
        self.graph
    }
}
