//! Graph → plan: a step for each node that computes, on the device's kernel where it has one; a home in memory
//! for each value.
//!
//! Nodes that only see memory under another shape become views and cost nothing. A result takes over an operand's
//! memory where its kernel allows that and no later step reads the operand.

#[cfg(test)]
mod tests;
mod views;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use graph::ops::Effect;
use graph::{Dim, Graph, Node, Op, Type, Value};

use self::views::views;
use crate::leaf::{is_leaf, leaf};
use crate::place::Devices;
use crate::plan::{
    Home, Plan, PlanInput, PlanRebind, PlanStep, PlanValue, StepOperand, Storage, WeightSlot, WeightSource,
    Work,
};
use crate::{Device, Error, FarKernel, Kernel, KernelSettings, NodeTypes};

/// The last step of what lives to the end, until the number of steps is known.
const END: usize = usize::MAX;

/// What the plans of one program share, and how far they are numbered.
pub(crate) struct ProgramState {
    pub(crate) devices: Devices,
    pub(crate) settings: KernelSettings,
    pub(crate) weights: Vec<WeightSlot>,
    /// The slots of each weight of the registry.
    pub(crate) slots: HashMap<String, Vec<usize>>,
    pub(crate) plans: usize,
    pub(crate) steps: usize,
}

/// The plan of a graph, or of a run of its nodes, that is well formed, on a device.
pub(crate) fn lower(
    graph: &Graph,
    far: Option<Arc<dyn Device>>,
    shared: &mut ProgramState,
) -> Result<Plan, Error> {
    let mut lowering = Lowering::new(graph, far, shared)?;
    for (_, node) in graph.nodes() {
        lowering.node(node)?;
    }
    lowering.outputs();
    lowering.finish()
}

struct Lowering<'g, 's> {
    graph: &'g Graph,
    shared: &'s mut ProgramState,
    plan: Plan,
    /// The constants and weights of the graph.
    leaves: HashMap<Value, &'g Op>,
    /// Each value's index in the plan.
    values: HashMap<Value, usize>,
    /// By value: the last step that reads it or a view of it; `None` if no step does.
    last_uses: Vec<Option<usize>>,
    /// By value: its name in text, for messages.
    names: OnceCell<Vec<String>>,
}

impl<'g, 's> Lowering<'g, 's> {
    fn new(
        graph: &'g Graph,
        far: Option<Arc<dyn Device>>,
        shared: &'s mut ProgramState,
    ) -> Result<Lowering<'g, 's>, Error> {
        let plan = Plan {
            name: graph.name().to_string(),
            index: shared.plans,
            first_step: shared.steps,
            far,
            inputs: Vec::new(),
            outputs: graph.outputs().iter().map(|&value| graph.ty(value).clone()).collect(),
            rebinds: Vec::new(),
            values: Vec::new(),
            storages: Vec::new(),
            steps: Vec::new(),
        };
        let last_uses = last_uses(graph);
        let (leaves, values) = (HashMap::new(), HashMap::new());
        let names = OnceCell::new();
        let mut lowering = Lowering { graph, shared, plan, leaves, values, last_uses, names };
        for (i, input) in graph.inputs().iter().enumerate() {
            let ty = graph.ty(input.value).clone();
            lowering.plan.inputs.push(PlanInput { name: input.name.clone(), ty: ty.clone(), written: false });
            lowering.add_value(input.value, PlanValue { ty, home: Home::Input(i), offset: Dim::from(0) });
        }
        Ok(lowering)
    }

    fn node(&mut self, node: &'g Node) -> Result<(), Error> {
        if is_leaf(&node.op) {
            self.leaves.insert(node.outputs[0], &node.op);
            return Ok(());
        }
        // A weight is where it is read.
        if let (Op::Transfer(_), Some(&leaf)) =
            (&node.op, node.inputs.first().and_then(|x| self.leaves.get(x)))
        {
            self.leaves.insert(node.outputs[0], leaf);
            return Ok(());
        }
        if let Some(offsets) = views(self.graph, node) {
            let source = self.value(node.inputs[0])?;
            if let Op::Rebind(rebind) = &node.op {
                let names = self.names.get_or_init(|| self.graph.value_names());
                let name = names[node.inputs[0].index()].clone();
                let (rebind, location) = (rebind.clone(), node.location.clone());
                self.plan.rebinds.push(PlanRebind { value: source, name, rebind, location });
            }
            let PlanValue { home, offset, .. } = &self.plan.values[source];
            let (home, offset) = (*home, offset.clone());
            for (&output, part) in node.outputs.iter().zip(&offsets) {
                let ty = self.graph.ty(output).clone();
                self.add_value(output, PlanValue { ty, home, offset: &offset + part });
            }
            return Ok(());
        }
        self.step(node)
    }

    fn step(&mut self, node: &Node) -> Result<(), Error> {
        let inputs: Vec<&Type> = node.inputs.iter().map(|&value| self.graph.ty(value)).collect();
        let outputs: Vec<&Type> = node.outputs.iter().map(|&value| self.graph.ty(value)).collect();
        let settings = self.shared.settings.for_device();
        let types = NodeTypes { op: &node.op, inputs: &inputs, outputs: &outputs, settings };
        let kernel = self.kernel(&types);
        let device = self.plan.far.clone().unwrap_or_else(|| Arc::clone(&self.shared.devices.host));
        let mut operands = Vec::with_capacity(node.inputs.len());
        for (position, &value) in node.inputs.iter().enumerate() {
            let packing = match kernel {
                Some(_) if self.leaves.contains_key(&value) => device.packing(&types, position),
                _ => None,
            };
            operands.push(match packing {
                Some(layout) => StepOperand::Packed(self.slot(value, Some(layout))?),
                None => self.operand(&node.op, position, value)?,
            });
        }
        let in_place = kernel.as_ref().and_then(StepKernel::in_place);
        let taken = in_place.and_then(|position| self.take_over(position, node, &mut operands));
        let results = node.outputs.iter().enumerate().map(|(i, &output)| {
            let storage = taken.filter(|_| i == 0);
            self.result(output, storage)
        });
        let results = results.collect();
        let work = match kernel {
            Some(StepKernel::Host(kernel)) => Work::Kernel(node.op.clone(), kernel),
            Some(StepKernel::Far(kernel)) => Work::Far(node.op.clone(), kernel),
            None => Work::Reference(node.op.clone()),
        };
        let (check, reason) = (self.check(&types), self.reason(node, &types));
        let location = node.location.clone();
        self.plan.steps.push(PlanStep { work, check, operands, results, location, reason });
        Ok(())
    }

    fn kernel(&self, types: &NodeTypes<'_>) -> Option<StepKernel> {
        let Some(far) = &self.plan.far else {
            return self.shared.devices.host.kernel(types).map(StepKernel::Host);
        };
        let kernel = far.far().and_then(|far| far.kernel(types));
        Some(StepKernel::Far(kernel.expect("placement put the node there")))
    }

    /// The host's kernel, if a device's one computes the node and the host's refuses calls.
    fn check(&self, types: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        let host = self.plan.far.as_ref().map(|_| &self.shared.devices.host)?;
        host.kernel(types).filter(|kernel| kernel.checked().is_some())
    }

    /// Why the host computes a node, if the program has another device.
    fn reason(&self, node: &Node, types: &NodeTypes<'_>) -> Option<String> {
        let far = self.shared.devices.far.first().filter(|_| self.plan.far.is_none())?;
        let level = self.shared.settings.assert_level;
        let leaf = |position: usize| self.leaves.get(&node.inputs[position]).copied();
        self.shared.devices.reason(&**far, types, level, &leaf)
    }

    fn operand(&mut self, op: &Op, position: usize, value: Value) -> Result<StepOperand, Error> {
        let index = self.value(value)?;
        if op.effect(position) != Effect::Write {
            return Ok(StepOperand::Value(index));
        }
        if let Home::Input(input) = self.plan.values[index].home {
            self.plan.inputs[input].written = true;
        }
        Ok(StepOperand::Written(index))
    }

    /// The storage that result 0 takes over from an operand, if it may.
    fn take_over(&mut self, position: usize, node: &Node, operands: &mut [StepOperand]) -> Option<usize> {
        let &StepOperand::Value(value) = operands.get(position)? else { return None };
        let Home::Storage(storage) = self.plan.values[value].home else { return None };
        let result = self.graph.ty(*node.outputs.first()?);
        let Storage { last, value: owner, .. } = &self.plan.storages[storage];
        let ty = &self.plan.values[*owner].ty;
        let same_bytes = ty.dtype.block() == result.dtype.block() && ty.elements() == result.elements();
        let whole = self.plan.values[value].ty.elements() == ty.elements();
        let readers = operands.iter().filter(|operand| match operand {
            StepOperand::Value(other) => self.plan.values[*other].home == Home::Storage(storage),
            _ => false,
        });
        if *last != self.plan.steps.len() || !same_bytes || !whole || readers.count() != 1 {
            return None;
        }
        operands[position] = StepOperand::InPlace(value);
        Some(storage)
    }

    /// A result in new storage, or in that of an operand.
    fn result(&mut self, output: Value, taken: Option<usize>) -> usize {
        let step = self.plan.steps.len();
        let storage = taken.unwrap_or_else(|| self.add_storage());
        self.plan.storages[storage].last = self.last_uses[output.index()].unwrap_or(step);
        let ty = self.graph.ty(output).clone();
        self.add_value(output, PlanValue { ty, home: Home::Storage(storage), offset: Dim::from(0) })
    }

    /// Makes each output the memory its value is computed in, or a copy where that is an input, a weight, a part
    /// of something or another output already.
    fn outputs(&mut self) {
        for (i, &output) in self.graph.outputs().iter().enumerate() {
            let value = self.value(output).expect("verified graphs define their outputs");
            let PlanValue { ty, home, .. } = &self.plan.values[value];
            let ty = ty.clone();
            if let Home::Storage(storage) = *home {
                let storage = &mut self.plan.storages[storage];
                let whole = self.plan.values[storage.value].ty.elements() == ty.elements();
                if storage.output.is_none() && whole {
                    storage.output = Some(i);
                    continue;
                }
            }
            let storage = self.add_storage();
            self.plan.storages[storage].output = Some(i);
            self.plan.values.push(PlanValue { ty, home: Home::Storage(storage), offset: Dim::from(0) });
            let results = vec![self.plan.values.len() - 1];
            self.plan.steps.push(PlanStep {
                work: Work::Copy,
                check: None,
                operands: vec![StepOperand::Value(value)],
                results,
                location: None,
                reason: None,
            });
        }
    }

    fn finish(mut self) -> Result<Plan, Error> {
        let end = self.plan.steps.len();
        for storage in &mut self.plan.storages {
            storage.last = storage.last.min(end);
        }
        self.shared.plans += 1;
        self.shared.steps += end;
        Ok(self.plan)
    }

    /// A value's index in the plan; leaves get theirs when first read.
    fn value(&mut self, value: Value) -> Result<usize, Error> {
        if let Some(&index) = self.values.get(&value) {
            return Ok(index);
        }
        let home = Home::Weight(self.slot(value, None)?);
        let ty = self.graph.ty(value).clone();
        Ok(self.add_value(value, PlanValue { ty, home, offset: Dim::from(0) }))
    }

    fn slot(&mut self, leaf: Value, packing: Option<String>) -> Result<usize, Error> {
        self.shared
            .slot(self.leaves[&leaf], self.graph.ty(leaf), packing)
            .map_err(|message| Error::compile(self.graph, self.graph.node_of(leaf), message))
    }

    fn add_value(&mut self, value: Value, planned: PlanValue) -> usize {
        self.plan.values.push(planned);
        self.values.insert(value, self.plan.values.len() - 1);
        self.plan.values.len() - 1
    }

    /// Storage for the value that is added next, from this step on.
    fn add_storage(&mut self) -> usize {
        let (value, step) = (self.plan.values.len(), self.plan.steps.len());
        self.plan.storages.push(Storage { value, first: step, last: step, output: None });
        self.plan.storages.len() - 1
    }
}

impl ProgramState {
    /// The slot of a leaf in a layout: one per weight and layout, however many nodes of whatever plans read it.
    pub(crate) fn slot(&mut self, op: &Op, ty: &Type, packing: Option<String>) -> Result<usize, String> {
        let source = match op {
            Op::Constant(constant) => WeightSource::Constant(constant.value.0.clone()),
            Op::Weight(weight) => WeightSource::Named(weight.name.clone()),
            _ => unreachable!("leaves are constants and weights"),
        };
        if ty.static_shape().is_none() {
            return Err(format!("a weight has no static shape: {ty}"));
        }
        if let WeightSource::Named(name) = &source {
            let slots = self.slots.entry(name.clone()).or_default();
            let is_same = |slot: &WeightSlot| slot.packing == packing && slot.ty == *ty;
            if let Some(&slot) = slots.iter().find(|&&slot| is_same(&self.weights[slot])) {
                return Ok(slot);
            }
            slots.push(self.weights.len());
        }
        self.weights.push(WeightSlot { source, ty: ty.clone(), packing });
        Ok(self.weights.len() - 1)
    }
}

/// A kernel of the host or of a device.
enum StepKernel {
    Host(Arc<dyn Kernel>),
    Far(Arc<dyn FarKernel>),
}

impl StepKernel {
    fn in_place(&self) -> Option<usize> {
        match self {
            StepKernel::Host(kernel) => kernel.in_place(),
            StepKernel::Far(kernel) => kernel.in_place(),
        }
    }
}

/// The last step that reads each value or a view of it, with the steps counted as lowering makes them.
fn last_uses(graph: &Graph) -> Vec<Option<usize>> {
    let mut last = vec![None; graph.value_count()];
    let mut viewed: Vec<Option<Value>> = vec![None; graph.value_count()];
    let root = |viewed: &[Option<Value>], value: Value| viewed[value.index()].unwrap_or(value);
    let mut step = 0;
    let is_leaf = |node: &Node| node.outputs.first().is_some_and(|&output| leaf(graph, output).is_some());
    for (_, node) in graph.nodes().filter(|(_, node)| !is_leaf(node)) {
        if views(graph, node).is_some() {
            for output in &node.outputs {
                viewed[output.index()] = Some(root(&viewed, node.inputs[0]));
            }
            continue;
        }
        for &input in &node.inputs {
            last[root(&viewed, input).index()] = Some(step);
        }
        step += 1;
    }
    for &output in graph.outputs() {
        last[root(&viewed, output).index()] = Some(END);
    }
    last
}
