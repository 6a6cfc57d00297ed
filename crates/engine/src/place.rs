//! Placement: on which device each node runs, and the transfers between them.
//!
//! Types say where values are. A node runs where its graph puts its results if the device has a kernel for it, and else
//! on the host, with transfers around it. Each value crosses to a device at most once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use graph::ops::{CreateBuffer, Custom, Transfer, Weight};
use graph::{DevicePlacementPolicy, DeviceRef, Graph, Kind, Node, NodeId, Op, Type, Value};
use tensor::DeviceSpec;

use crate::leaf::{is_leaf, leaf};
use crate::{AssertLevel, Device, Error, KernelSettings, NodeTypes};

/// Where nodes run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Placement {
    /// Where the types of their results are.
    #[default]
    AsWritten,
    /// On a device, if it has kernels for them. Inputs and outputs stay where they are, but buffers that it can use
    /// throughout are there.
    On(DeviceSpec),
}

/// The devices of a program.
#[derive(Clone)]
pub(crate) struct Devices {
    /// What computes whatever no other device does.
    pub(crate) host: Arc<dyn Device>,
    /// Those with memory of their own.
    pub(crate) far: Vec<Arc<dyn Device>>,
    /// Which of them nodes run on.
    pub(crate) placement: Placement,
}

impl Devices {
    /// The device that all nodes are to run on.
    fn all_on(&self) -> Option<DeviceRef> {
        match self.placement {
            Placement::AsWritten => None,
            Placement::On(spec) => Some(device_ref(spec)).filter(|device| *device != DeviceRef::Cpu),
        }
    }

    /// The device that a type names; the host for what it computes itself.
    pub(crate) fn at(&self, device: DeviceRef) -> Option<&Arc<dyn Device>> {
        match device {
            DeviceRef::Cpu => Some(&self.host),
            device => self.far.iter().find(|far| device_ref(far.spec()) == device),
        }
    }

    /// Why the host computes a node, of which `leaf` gives the operands that are weights or constants; `None` if a device does.
    pub(crate) fn reason<'g>(
        &self,
        device: &dyn Device,
        types: &NodeTypes<'_>,
        level: AssertLevel,
        leaf: &dyn Fn(usize) -> Option<&'g Op>,
    ) -> Option<String> {
        // A view, wherever its operand is; a weight, wherever it is read.
        if matches!(types.op, Op::Rebind(_)) || is_leaf(types.op) {
            return None;
        }
        if is_hosts(types) {
            return Some("only the host does it".to_string());
        }
        let (far, spec) = (device.far()?, device.spec());
        if far.kernel(types).is_none() {
            return Some(format!("{spec} has no kernel for it"));
        }
        // What is no weight is not packed, and so must be read as it is.
        let unread = types.inputs.iter().enumerate().find(|&(position, ty)| {
            !far.reads(ty.dtype) && leaf(position).is_none() && device.packing(types, position).is_some()
        });
        if let Some((_, ty)) = unread {
            return Some(format!("{spec} reads no computed weight of {}", ty.dtype));
        }
        let indices = self.indices(types);
        if !indices.is_empty() && is_clamped(types.op) && level < AssertLevel::Safe {
            return Some("only the host clamps indices".to_string());
        }
        let is_weight = |&index: &usize| matches!(leaf(index), Some(Op::Weight(_)));
        indices.iter().any(is_weight).then(|| "its indices are weights".to_string())
    }

    /// The operands of a node that the host checks before a device reads them.
    fn indices(&self, types: &NodeTypes<'_>) -> &'static [usize] {
        self.host.kernel(types).and_then(|kernel| kernel.checked()).unwrap_or_default()
    }
}

/// A device as types name it.
pub(crate) fn device_ref(spec: DeviceSpec) -> DeviceRef {
    match u32::try_from(spec.id()) {
        Ok(id) if !spec.is_host() => DeviceRef::Gpu(id),
        _ => DeviceRef::Cpu,
    }
}

/// The graph with every value where it is computed or read, and transfers between.
pub(crate) fn place(graph: &Graph, devices: &Devices, settings: &KernelSettings) -> Result<Graph, Error> {
    let (placed, homes) = (Graph::new(graph.name()), HashMap::new());
    let (buffers, by_host) = (BTreeSet::new(), BTreeMap::new());
    let mut placing = Placing { graph, devices, settings, placed, homes, buffers, by_host };
    if let Some(device) = devices.all_on() {
        placing.buffers = placing.buffers_on(device);
    }
    for input in graph.inputs() {
        let device = placing.buffer_device(input.value);
        let ty = Type { device, ..graph.ty(input.value).clone() };
        let value = placing.placed.input(&input.name, ty);
        placing.put(input.value, value);
    }
    for (id, node) in graph.nodes() {
        placing.node(id, node)?;
    }
    let outputs = graph.outputs().iter().map(|&output| placing.get(output, graph.ty(output).device));
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    placing.placed.set_outputs(&outputs);
    placing.warn();
    Ok(placing.placed)
}

/// Whether only the host does it: what sizes, other graphs and people depend on, libraries, and ops that refuse data which
/// [`Kernel::check`](crate::Kernel::check) does not see.
fn is_hosts(types: &NodeTypes<'_>) -> bool {
    let op = types.op;
    let shows = op.has_side_effect() || !op.regions().is_empty() || !op.defines().is_empty();
    let divides = matches!(op, Op::Binary(_)) && !types.inputs[0].dtype.is_float();
    let chooses =
        matches!(op, Op::PagedAttention(attention) if attention.values.is_some() && types.inputs.len() > 5);
    shows
        || divides
        || chooses
        || matches!(
            op,
            Op::Custom(_)
                | Op::ShapeToTensor(_)
                | Op::GatherNd(_)
                | Op::Embedding(_)
                | Op::Scatter(_)
                | Op::ScatterNd(_)
                | Op::MaskedScatter(_)
                | Op::DynamicSlice(_)
                | Op::LoadSlice(_)
                | Op::StoreSlice(_)
                | Op::Range(_)
                | Op::RaggedPositions(_)
                | Op::RopeTable(_)
                | Op::RoiAlign(_)
                | Op::NonMaximumSuppression(_)
                | Op::RepeatInterleave(_)
                | Op::GptqMatMul(_)
                | Op::Resize(_)
        )
}

/// Whether indices of an op are brought into range at low assert levels.
fn is_clamped(op: &Op) -> bool {
    matches!(op, Op::Gather(_))
}

struct Placing<'g> {
    graph: &'g Graph,
    devices: &'g Devices,
    settings: &'g KernelSettings,
    placed: Graph,
    /// Where each value of the graph is, and what it is there.
    homes: HashMap<Value, Vec<(DeviceRef, Value)>>,
    /// The buffers that live on the device that all is to run on.
    buffers: BTreeSet<usize>,
    /// The ops that the graph puts on a device and the host computes, why, and how often.
    by_host: BTreeMap<(&'static str, String), usize>,
}

impl Placing<'_> {
    fn node(&mut self, id: NodeId, node: &Node) -> Result<(), Error> {
        if let Op::Transfer(_) = node.op {
            let homes = self.homes[&node.inputs[0]].clone();
            self.homes.insert(node.outputs[0], homes);
            return Ok(());
        }
        let device = self.device_of(id, node)?;
        let indices = if device == DeviceRef::Cpu { &[] } else { self.indices(node) };
        for &index in indices {
            if !self.is_good(node, index) {
                self.bring_here(node.inputs[index])?;
            }
        }
        let inputs = node.inputs.iter().map(|&input| self.operand(input, device));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let op = self.on(&node.op, device)?;
        let outputs = self.placed.push_from(op, &inputs, node.location.clone())?;
        node.outputs.iter().zip(outputs).for_each(|(&output, value)| self.put(output, value));
        Ok(())
    }

    /// Where a node runs.
    fn device_of(&mut self, id: NodeId, node: &Node) -> Result<DeviceRef, Error> {
        let buffer = self.buffer_of(node);
        let wanted = match (self.devices.all_on(), buffer) {
            (Some(_), None) if self.counts(node) => DeviceRef::Cpu,
            (Some(device), None) => device,
            (Some(_), Some(buffer)) => self.buffer_device(buffer),
            (None, _) => {
                let first = node.outputs.first().or(node.inputs.first());
                first.map_or(DeviceRef::Cpu, |&value| self.graph.ty(value).device)
            }
        };
        match (self.reason(node, wanted), buffer) {
            (None, _) => Ok(wanted),
            (Some(reason), Some(buffer)) if self.buffer_device(buffer) != DeviceRef::Cpu => {
                let message = format!("{} uses {}, but {reason}", node.op.name(), self.graph.ty(buffer));
                Err(Error::compile(self.graph, Some(id), message))
            }
            (Some(_), _) if self.devices.all_on().is_some() => Ok(DeviceRef::Cpu),
            (Some(reason), _) => self.replace(node, wanted, reason),
        }
    }

    /// Gives a node that the graph puts on a device to the host, if the graph's policy allows that.
    fn replace(&mut self, node: &Node, device: DeviceRef, reason: String) -> Result<DeviceRef, Error> {
        let op = node.op.name();
        if self.graph.device_placement() == DevicePlacementPolicy::Error {
            let (graph, location) = (self.graph.name().to_string(), node.location.clone());
            return Err(Error::Placement { graph, op, device, reason, location });
        }
        *self.by_host.entry((op, reason)).or_default() += 1;
        Ok(DeviceRef::Cpu)
    }

    /// Logs the ops that the graph puts on a device and the host computes, if the graph's policy is to warn.
    fn warn(&self) {
        if self.graph.device_placement() != DevicePlacementPolicy::Warn {
            return;
        }
        for ((op, reason), count) in &self.by_host {
            let graph = self.graph.name();
            tracing::warn!(target: "perihelion::placement", graph, op, count, "the host computes {op}: {reason}");
        }
    }

    /// What a device is asked about a node.
    fn ask<T>(&self, node: &Node, question: impl FnOnce(&NodeTypes<'_>) -> T) -> T {
        let types = |values: &[Value]| values.iter().map(|&value| self.graph.ty(value)).collect::<Vec<_>>();
        let (inputs, outputs) = (types(&node.inputs), types(&node.outputs));
        let settings = self.settings.for_device();
        question(&NodeTypes { op: &node.op, inputs: &inputs, outputs: &outputs, settings })
    }

    /// Why a node cannot run on a device; the host runs all.
    fn reason(&self, node: &Node, device: DeviceRef) -> Option<String> {
        let device = self.devices.at(device).filter(|device| device.far().is_some())?;
        let leaf = |position: usize| leaf(self.graph, node.inputs[position]);
        let level = self.settings.assert_level;
        self.ask(node, |types| self.devices.reason(&**device, types, level, &leaf))
    }

    /// The operands of a node that the host checks before a device reads them.
    fn indices(&self, node: &Node) -> &'static [usize] {
        self.ask(node, |types| self.devices.indices(types))
    }

    /// Whether indices are known to be in range: those of the largest along an axis no longer than what they count.
    fn is_good(&self, node: &Node, index: usize) -> bool {
        let counted = match &node.op {
            Op::ExpertLinear(_) => &self.graph.ty(node.inputs[2]).shape[0],
            Op::Gather(gather) => &self.graph.ty(node.inputs[0]).shape[gather.axis],
            _ => return false,
        };
        let Some((Op::TopK(top), &[x])) = self.graph.defined_by(node.inputs[index]) else { return false };
        let along = &self.graph.ty(x).shape[top.axis];
        matches!((along.as_static(), counted.as_static()), (Some(along), Some(counted)) if along <= counted)
    }

    /// Whether a node makes numbers to count with of such numbers that the host has.
    fn counts(&self, node: &Node) -> bool {
        let is_here = |value: &Value| self.homes[value][0].0 == DeviceRef::Cpu;
        let is_float = |value: &Value| self.graph.ty(*value).dtype.is_float();
        let mut values = node.inputs.iter().chain(&node.outputs);
        node.inputs.iter().all(is_here) && !values.any(is_float)
    }

    /// Makes the host a home of a value from here on, whose copies elsewhere are of that.
    fn bring_here(&mut self, value: Value) -> Result<(), Error> {
        if self.homes[&value][0].0 != DeviceRef::Cpu {
            let here = self.get(value, DeviceRef::Cpu)?;
            self.homes.insert(value, vec![(DeviceRef::Cpu, here)]);
        }
        Ok(())
    }

    /// A buffer that a node uses or makes.
    fn buffer_of(&self, node: &Node) -> Option<Value> {
        let mut values = node.inputs.iter().chain(&node.outputs).copied();
        values.find(|&value| self.graph.ty(value).kind == Kind::Buffer)
    }

    fn buffer_device(&self, value: Value) -> DeviceRef {
        let on = self.devices.all_on().filter(|_| self.buffers.contains(&value.index()));
        on.unwrap_or(self.graph.ty(value).device)
    }

    /// The buffers that every node which uses them can use on a device. Nodes that use several do so on one device.
    fn buffers_on(&self, device: DeviceRef) -> BTreeSet<usize> {
        let is_buffer = |value: &Value| self.graph.ty(*value).kind == Kind::Buffer;
        let users: Vec<(bool, Vec<usize>)> = self
            .graph
            .nodes()
            .map(|(_, node)| {
                let used = node.inputs.iter().chain(&node.outputs).filter(|value| is_buffer(value));
                (self.reason(node, device).is_none(), used.map(|value| value.index()).collect())
            })
            .collect();
        let mut fit: BTreeSet<usize> = users.iter().flat_map(|(_, used)| used.iter().copied()).collect();
        loop {
            let before = fit.len();
            for (runs, used) in &users {
                if !runs || !used.iter().all(|value| fit.contains(value)) {
                    used.iter().for_each(|value| {
                        fit.remove(value);
                    });
                }
            }
            if fit.len() == before {
                return fit;
            }
        }
    }

    /// An op for a device: what names one in its attributes names that.
    fn on(&self, op: &Op, device: DeviceRef) -> Result<Op, Error> {
        Ok(match op {
            Op::CreateBuffer(create) => CreateBuffer { device, ..create.clone() }.into(),
            Op::Custom(custom) => {
                let results = custom.results.iter().map(|ty| Type { device, ..ty.clone() }).collect();
                Custom { results, ..custom.clone() }.into()
            }
            op if op.regions().is_empty() => op.clone(),
            op => {
                let regions = op.regions().into_iter().map(|region| self.here(region).map(Arc::new));
                op.with_regions(regions.collect::<Result<Vec<_>, _>>()?)
            }
        })
    }

    /// A graph that a node runs, all of it on the host.
    fn here(&self, region: &Graph) -> Result<Graph, Error> {
        let mut here = Graph::new(region.name());
        let mut values: HashMap<Value, Value> = HashMap::new();
        for input in region.inputs() {
            values.insert(input.value, here.input(&input.name, region.ty(input.value).here()));
        }
        for (_, node) in region.nodes() {
            let inputs: Vec<Value> = node.inputs.iter().map(|input| values[input]).collect();
            if let Op::Transfer(_) = node.op {
                values.insert(node.outputs[0], inputs[0]);
                continue;
            }
            let op = match &node.op {
                Op::Weight(weight) => Weight { ty: weight.ty.here(), ..weight.clone() }.into(),
                op => self.on(op, DeviceRef::Cpu)?,
            };
            let outputs = here.push_from(op, &inputs, node.location.clone())?;
            values.extend(node.outputs.iter().copied().zip(outputs));
        }
        let outputs: Vec<Value> = region.outputs().iter().map(|output| values[output]).collect();
        here.set_outputs(&outputs);
        Ok(here)
    }

    fn put(&mut self, value: Value, placed: Value) {
        let device = self.placed.ty(placed).device;
        self.homes.insert(value, vec![(device, placed)]);
    }

    /// An operand on a device. Buffers stay where they are.
    fn operand(&mut self, value: Value, device: DeviceRef) -> Result<Value, Error> {
        match self.graph.ty(value).kind {
            Kind::Buffer => Ok(self.homes[&value][0].1),
            Kind::Tensor => self.get(value, device),
        }
    }

    /// A value on a device, transferred if it is not there yet. Between devices it goes by the host.
    fn get(&mut self, value: Value, device: DeviceRef) -> Result<Value, Error> {
        let homes = &self.homes[&value];
        if let Some(&(_, there)) = homes.iter().find(|(home, _)| *home == device) {
            return Ok(there);
        }
        let (home, first) = homes[0];
        let from = match (home, device) {
            (DeviceRef::Cpu, _) | (_, DeviceRef::Cpu) => first,
            _ => self.get(value, DeviceRef::Cpu)?,
        };
        let there = self.placed.push_one(Transfer { device }.into(), &[from])?;
        self.homes.get_mut(&value).expect("found above").push((device, there));
        Ok(there)
    }
}
