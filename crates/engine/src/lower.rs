//! Graph → plan: a step for each node that computes, on the device's kernel where it has one; a home in memory
//! for each value.
//!
//! Nodes that only see memory under another shape become views and cost nothing. A result takes over an operand's
//! memory where its kernel allows that and nobody reads the operand afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use graph::ops::Effect;
use graph::{Dim, Graph, Node, Op, Type, Value};

use crate::plan::{
    Home, Plan, PlanInput, PlanRebind, PlanValue, Step, StepOperand, Storage, WeightSlot, WeightSource, Work,
};
use crate::{Device, Error, Kernel, KernelSettings, NodeTypes};

/// The last step of what lives to the end, until the number of steps is known.
const END: usize = usize::MAX;

/// What the plans of one program share, and how far they are numbered.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) settings: KernelSettings,
    pub(crate) weights: Vec<WeightSlot>,
    pub(crate) plans: usize,
    pub(crate) steps: usize,
}

/// The plan of a graph, or of a run of its nodes, that is well formed, on a device.
pub(crate) fn lower(graph: &Graph, shared: &mut Shared) -> Result<Plan, Error> {
    let mut lowering = Lowering::new(graph, shared)?;
    for (_, node) in graph.nodes() {
        lowering.node(node)?;
    }
    lowering.outputs();
    lowering.finish()
}

struct Lowering<'g, 's> {
    graph: &'g Graph,
    shared: &'s mut Shared,
    plan: Plan,
    /// The constants and weights of the graph.
    leaves: HashMap<Value, &'g Op>,
    /// Each value's index in the plan.
    values: HashMap<Value, usize>,
    /// By value: the last step that reads it or a view of it; `None` if nobody does.
    last_uses: Vec<Option<usize>>,
}

impl<'g, 's> Lowering<'g, 's> {
    fn new(graph: &'g Graph, shared: &'s mut Shared) -> Result<Lowering<'g, 's>, Error> {
        let plan = Plan {
            name: graph.name().to_string(),
            index: shared.plans,
            first_step: shared.steps,
            inputs: Vec::new(),
            outputs: graph.outputs().iter().map(|&value| graph.ty(value).clone()).collect(),
            rebinds: Vec::new(),
            values: Vec::new(),
            storages: Vec::new(),
            steps: Vec::new(),
        };
        let last_uses = last_uses(graph);
        let (leaves, values) = (HashMap::new(), HashMap::new());
        let mut lowering = Lowering { graph, shared, plan, leaves, values, last_uses };
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
        if let Some(offsets) = views(self.graph, node) {
            let source = self.value(node.inputs[0])?;
            if let Op::Rebind(rebind) = &node.op {
                let name = self.graph.value_names().swap_remove(node.inputs[0].index());
                let (rebind, location) = (rebind.clone(), node.location);
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
        let settings = self.shared.settings;
        let types = NodeTypes { op: &node.op, inputs: &inputs, outputs: &outputs, settings: &settings };
        let kernel = self.shared.device.kernel(&types);
        let mut operands = Vec::with_capacity(node.inputs.len());
        for (position, &value) in node.inputs.iter().enumerate() {
            let packing = match kernel {
                Some(_) if self.leaves.contains_key(&value) => self.shared.device.packing(&types, position),
                _ => None,
            };
            operands.push(match packing {
                Some(layout) => StepOperand::Packed(self.slot(value, Some(layout))?),
                None => self.operand(&node.op, position, value)?,
            });
        }
        let taken = kernel.as_deref().and_then(|kernel| self.take_over(kernel, node, &mut operands));
        let results = node.outputs.iter().enumerate().map(|(i, &output)| {
            let storage = taken.filter(|_| i == 0);
            self.result(output, storage)
        });
        let results = results.collect();
        let work = match kernel {
            Some(kernel) => Work::Kernel(node.op.clone(), kernel),
            None => Work::Reference(node.op.clone()),
        };
        self.plan.steps.push(Step { work, operands, results, location: node.location });
        Ok(())
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
    fn take_over(&mut self, kernel: &dyn Kernel, node: &Node, operands: &mut [StepOperand]) -> Option<usize> {
        let position = kernel.in_place()?;
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
            self.plan.steps.push(Step {
                work: Work::Copy,
                operands: vec![StepOperand::Value(value)],
                results,
                location: None,
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

impl Shared {
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
        let same = |slot: &WeightSlot| match (&slot.source, &source) {
            (WeightSource::Named(a), WeightSource::Named(b)) => {
                a == b && slot.packing == packing && slot.ty == *ty
            }
            _ => false,
        };
        if let Some(slot) = self.weights.iter().position(same) {
            return Ok(slot);
        }
        self.weights.push(WeightSlot { source, ty: ty.clone(), packing });
        Ok(self.weights.len() - 1)
    }
}

pub(crate) fn is_leaf(op: &Op) -> bool {
    matches!(op, Op::Constant(_) | Op::Weight(_))
}

/// The last step that reads each value or a view of it, with the steps counted as lowering makes them.
fn last_uses(graph: &Graph) -> Vec<Option<usize>> {
    let mut last = vec![None; graph.value_count()];
    let mut viewed: Vec<Option<Value>> = vec![None; graph.value_count()];
    let root = |viewed: &[Option<Value>], value: Value| viewed[value.index()].unwrap_or(value);
    let mut step = 0;
    for (_, node) in graph.nodes().filter(|(_, node)| !is_leaf(&node.op)) {
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

/// For a node whose results are its operand's memory under other shapes: where each starts, in elements.
fn views(graph: &Graph, node: &Node) -> Option<Vec<Dim>> {
    let source = graph.ty(*node.inputs.first()?);
    let start = || Some(vec![Dim::from(0)]);
    match &node.op {
        Op::Reshape(_) | Op::Rebind(_) => start(),
        // Nothing is repeated, so only axes of size 1 were added.
        Op::Broadcast(_) if graph.ty(node.outputs[0]).elements() == source.elements() => start(),
        // Axes of size 1 move; the others keep their order.
        Op::Transpose(transpose) => {
            let moved: Vec<usize> =
                transpose.order.iter().copied().filter(|&axis| source.shape[axis] != Dim::from(1)).collect();
            if moved.is_sorted() { start() } else { None }
        }
        // A range that a size at run time may not hold is for a kernel to check.
        Op::Slice(slice) if slice.step == 1 && leads(source, slice.axis) => {
            let start = match source.shape[slice.axis].as_static() {
                Some(size) => slice.range(size).ok()?.0,
                None if slice.stop.is_none() => usize::try_from(slice.start).ok()?,
                None => return None,
            };
            Some(vec![&Dim::from(start) * &inner(source, slice.axis)])
        }
        Op::Split(split) if leads(source, split.axis) => {
            let inner = inner(source, split.axis);
            let starts =
                split.sizes.iter().scan(0, |start, size| Some(std::mem::replace(start, *start + size)));
            Some(starts.map(|start| &Dim::from(start) * &inner).collect())
        }
        _ => None,
    }
}

/// Whether parts along an axis are contiguous: no axis before it has more than one element.
fn leads(ty: &Type, axis: usize) -> bool {
    !ty.dtype.is_block() && ty.shape[..axis].iter().all(|dim| *dim == Dim::from(1))
}

/// The number of elements behind an axis.
fn inner(ty: &Type, axis: usize) -> Dim {
    ty.shape[axis + 1..].iter().fold(Dim::from(1), |product, dim| &product * dim)
}

#[cfg(test)]
mod tests {
    use graph::Type;
    use graph::ops::Unary;
    use tensor::DType;

    use super::*;
    use crate::Program;
    use crate::testing::{TestDevice, build, f32};

    fn check(graph: &Graph, expected: &str) {
        let printed =
            Program::new(graph, Arc::new(TestDevice), &crate::KernelSettings::default()).unwrap().to_string();
        let lines =
            |text: &str| text.lines().map(|line| line.trim().to_string()).collect::<Vec<_>>().join("\n");
        assert_eq!(lines(&printed).trim(), lines(expected).trim());
    }

    #[test]
    fn kernels_and_references_mix() {
        let graph = build("mixed", |b| {
            let x = b.input("x", f32(&["n", "4"]));
            let w = b.weight("w", f32(&["4", "4"]))?;
            let y = b.linear(x, w)?;
            let y = b.silu(y)?;
            Ok(vec![b.linear(y, w)?])
        });
        check(
            &graph,
            "plan mixed on test
             input 0 'x' f32[n, 4]
             w0 = weight \"w\" f32[4, 4] as columns
             0: %0 = linear.test('x', w0): f32[n, 4]
             1: %1 = silu (reference)(%0): f32[n, 4]
             2: output 0 = linear.test(%1, w0): f32[n, 4]
             output 0 f32[n, 4]
             arena 192 bytes where n = 1, 512 bytes where n = 16, 8192 bytes where n = 256",
        );
    }

    #[test]
    fn results_take_over_memory_that_nobody_reads_again() {
        let graph = build("chain", |b| {
            let x = b.input("x", f32(&["4"]));
            let a = b.unary(Unary::Neg, x)?;
            let kept = b.add(a, x)?; // a is read again
            let b1 = b.add(kept, a)?;
            let twice = b.add(b1, b1)?; // two operands in one memory
            let view = b.reshape(twice, [2.into(), 2.into()])?;
            let y = b.add(view, view)?;
            let z = b.input("z", f32(&["2", "2"]));
            Ok(vec![b.add(y, z)?, kept])
        });
        check(
            &graph,
            "plan chain on test
             input 0 'x' f32[4]
             input 1 'z' f32[2, 2]
             0: %0 = neg (reference)('x'): f32[4]
             1: output 1 = add.test(%0, 'x'): f32[4]
             2: %2 = add.test(output 1, %0): f32[4]
             3: %3 = add.test(%2, %2): f32[4]
             4: output 0 = add.test(%3, %3): f32[2, 2]
             5: output 0 = add.test(output 0 in place, 'z'): f32[2, 2]
             output 0 f32[2, 2]
             output 1 f32[4]
             arena 128 bytes",
        );
    }

    #[test]
    fn views_cost_nothing() {
        let graph = build("views", |b| {
            let x = b.input("x", f32(&["n", "4"]));
            let y = b.unary(Unary::Neg, x)?;
            let row = b.reshape(y, [1.into(), b.dim(y, 0), 4.into()])?;
            let turned = b.transpose(row, &[1, 0, 2])?;
            let tail = b.slice(y, 0, 2, None)?;
            let inner = b.slice(y, 1, 2, None)?;
            let parts = b.split(x, 0, &[]).map(|_| ()).is_err();
            assert!(parts, "a symbolic axis is not split");
            let turned = b.unary(Unary::Exp, turned)?;
            let tail = b.unary(Unary::Exp, tail)?;
            Ok(vec![turned, tail, inner])
        });
        check(
            &graph,
            "plan views on test
             input 0 'x' f32[n, 4]
             0: %0 = neg (reference)('x'): f32[n, 4]
             1: output 2 = slice (reference)(%0): f32[n, 2]
             2: output 0 = exp (reference)(%0): f32[n, 1, 4]
             3: output 1 = exp (reference)(%0+8): f32[n - 2, 4]
             output 0 f32[n, 1, 4]
             output 1 f32[n - 2, 4]
             output 2 f32[n, 2]
             arena ? bytes where n = 1, 256 bytes where n = 16, 4096 bytes where n = 256",
        );
    }

    #[test]
    fn parts_of_a_leading_axis_are_views() {
        let graph = build("parts", |b| {
            let x = b.input("x", f32(&["4", "3"]));
            let parts = b.split(x, 0, &[1, 3])?;
            let second = b.slice(parts[1], 0, -2, Some(-1))?;
            Ok(vec![b.unary(Unary::Neg, parts[1])?, b.unary(Unary::Neg, second)?])
        });
        check(
            &graph,
            "plan parts on test
             input 0 'x' f32[4, 3]
             0: output 0 = neg (reference)('x'+3): f32[3, 3]
             1: output 1 = neg (reference)('x'+6): f32[1, 3]
             output 0 f32[3, 3]
             output 1 f32[1, 3]
             arena 0 bytes",
        );
    }

    #[test]
    fn written_buffers_are_marked() {
        let graph = build("store", |b| {
            let cache = b.input("cache", Type::buffer(DType::F32, [2]));
            let other = b.input("other", Type::buffer(DType::F32, [2]));
            let x = b.load(other)?;
            b.store(cache, x)?;
            Ok(vec![])
        });
        check(
            &graph,
            "plan store on test
             input 0 'cache' mut f32[2]
             input 1 'other' mut f32[2]
             0: %0 = load (reference)('other'): f32[2]
             1: store (reference)(mut 'cache', %0)
             arena 64 bytes",
        );
    }
}
