//! How a graph is computed: plans, and between them what finds sizes in data or decides what runs.
//!
//! A graph whose sizes follow from its inputs is one plan. Others are taken apart: a plan for each run of nodes
//! whose sizes are known by then.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};
use std::sync::Arc;

use graph::{Bindings, DeviceRef, Graph, Type};
use tensor::DeviceSpec;

use crate::block::{Block, Move, PartOperand, PartWork, SizesPart};
use crate::lower::ProgramState;
use crate::place::{Devices, Placement, device_ref, place};
use crate::plan::WeightSlot;
use crate::schedule::schedule;
use crate::split::split;
use crate::{Device, Error, KernelSettings};

/// A graph as it is computed on the host, and perhaps on devices besides. Holds no weights and no sizes of symbolic dims. Prints for people, and
/// for tests.
pub struct Program {
    pub(crate) name: String,
    pub(crate) devices: Devices,
    pub(crate) settings: KernelSettings,
    /// Of all plans; each is bound once.
    pub(crate) weights: Vec<WeightSlot>,
    pub(crate) root: Block,
    /// The number of plans in all blocks.
    pub(crate) plans: usize,
}

/// Bytes of weights in memory once a program is initialized.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WeightMemory {
    /// In layouts of the device, which are copies.
    pub packed: u64,
    /// As stored: mapped from files, which the system may give back under pressure.
    pub stored: u64,
}

/// Tells how a program is divided: the steps of a device, those that the host computes, and the bytes that move between the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceShare {
    /// The device.
    pub device: DeviceSpec,
    /// How many steps it runs.
    pub steps: usize,
    /// The ops that the host computes, why, and how often; no reason for what only concerns values of its own.
    pub on_host: BTreeMap<(&'static str, Option<String>), usize>,
    /// Bytes that a call with one of everything (a sequence of a token, say) brings to the device.
    pub bytes_there: u64,
    /// Bytes that such a call brings back.
    pub bytes_back: u64,
}

impl Program {
    /// The program of a verified graph on devices.
    pub(crate) fn new(graph: &Graph, devices: Devices, settings: &KernelSettings) -> Result<Program, Error> {
        let settings = *settings;
        let (weights, slots) = (Vec::new(), HashMap::new());
        let mut devices = devices;
        let is_used = |device| devices.placement == Placement::On(device) || names(graph, device_ref(device));
        devices.far.retain(|far| is_used(far.spec()));
        let placed =
            if devices.far.is_empty() { None } else { Some(schedule(&place(graph, &devices, &settings)?)?) };
        let mut state = ProgramState { devices, settings, weights, slots, plans: 0, steps: 0 };
        let root = split(placed.as_ref().unwrap_or(graph), &mut state)?;
        let ProgramState { devices, weights, plans, .. } = state;
        Ok(Program { name: graph.name().to_string(), devices, settings, weights, root, plans })
    }

    /// The host.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.devices.host
    }

    /// The device that reads a weight.
    pub(crate) fn device_of(&self, slot: &WeightSlot) -> &Arc<dyn Device> {
        self.devices.at(slot.ty.device).expect("placement names devices that are there")
    }

    /// The name of the graph it computes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the session was set to when it was compiled.
    pub fn settings(&self) -> &KernelSettings {
        &self.settings
    }

    /// The op of each step of all plans in order and its kernel, or `None` where the op's reference stands in.
    pub fn kernels(&self) -> impl Iterator<Item = (&'static str, Option<String>)> + '_ {
        let steps = self.root.plans().into_iter().flat_map(|plan| &plan.steps);
        steps.map(|step| (step.work.op_name(), step.work.kernel_name()))
    }

    /// The memory that the weights of the registry will take, those that are packed and those used as stored. Where
    /// the device does not know before it packs, a layout counts as much as the weight does in its file.
    pub fn weight_memory(&self) -> WeightMemory {
        let mut memory = WeightMemory::default();
        for slot in self.weights.iter().filter(|slot| slot.source.name().is_some()) {
            let stored = || {
                let elements = slot.ty.static_shape().map(|shape| shape.elements());
                elements.and_then(|elements| slot.ty.dtype.bytes_for(elements)).unwrap_or(0)
            };
            match &slot.packing {
                Some(layout) => {
                    let packed = self.device_of(slot).packed_bytes(layout, &slot.ty);
                    memory.packed += packed.unwrap_or_else(stored) as u64;
                }
                None => memory.stored += stored() as u64,
            }
        }
        memory
    }

    /// How the program is divided between its first device with memory of its own and the host; `None` without such a device.
    pub fn device_share(&self) -> Option<DeviceShare> {
        let device = self.devices.far.first()?.spec();
        let (steps, on_host, [bytes_there, bytes_back]) =
            (0, BTreeMap::new(), self.root.moved_bytes(device_ref(device)));
        let mut share = DeviceShare { device, steps, on_host, bytes_there, bytes_back };
        for plan in self.root.plans() {
            match &plan.far {
                Some(far) if far.spec() == device => share.steps += plan.steps.len(),
                Some(_) => {}
                None => plan.steps.iter().for_each(|step| {
                    let op = (step.work.op_name(), step.reason.clone());
                    *share.on_host.entry(op).or_default() += 1;
                }),
            }
        }
        Some(share)
    }

    /// Bytes of the largest arena of a plan once the symbolic dims have sizes, or `None` if a size is missing or
    /// impossible, or found in data.
    pub fn arena_bytes(&self, bindings: &Bindings) -> Option<usize> {
        let bytes = self.root.plans().into_iter().map(|plan| plan.arena_bytes(&self.weights, bindings));
        bytes.collect::<Option<Vec<usize>>>()?.into_iter().max()
    }
}

/// Whether a value of a graph is on a device.
fn names(graph: &Graph, device: DeviceRef) -> bool {
    let results = graph.nodes().flat_map(|(_, node)| node.outputs.iter().copied());
    let mut values = graph.inputs().iter().map(|input| input.value).chain(results);
    let mut regions = graph.nodes().flat_map(|(_, node)| node.op.regions());
    values.any(|value| graph.ty(value).device == device) || regions.any(|region| names(region, device))
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.root.whole();
        let form = if whole.is_some() { "plan" } else { "program" };
        write!(f, "{form} {} on {}", self.name, self.device().name())?;
        self.devices.far.iter().try_for_each(|far| write!(f, " and {}", far.spec()))?;
        match self.device().chosen_target() {
            Some(target) => writeln!(f, " for {target}")?,
            None => writeln!(f)?,
        }
        if self.settings != KernelSettings::default() {
            writeln!(f, "  with {}", self.settings)?;
        }
        for (i, input) in self.root.inputs.iter().enumerate() {
            writeln!(f, "  input {i} '{}' {}", input.name, input.ty)?;
        }
        for (i, weight) in self.weights.iter().enumerate() {
            writeln!(f, "  w{i} = {weight}")?;
        }
        match whole {
            Some(plan) => plan.fmt_steps(f)?,
            None => self.fmt_parts(f, &self.root)?,
        }
        for (i, ty) in self.root.outputs.iter().enumerate() {
            writeln!(f, "  output {i} {ty}")?;
        }
        whole.map_or(Ok(()), |plan| plan.fmt_arena(f, &self.weights))
    }
}

impl Program {
    fn fmt_parts(&self, f: &mut dyn Write, block: &Block) -> fmt::Result {
        for part in &block.parts {
            self.fmt_part(f, block, &part.work)?;
        }
        if block.whole().is_none() {
            let results: Vec<String> = block.results.iter().map(|&result| block.place(result)).collect();
            writeln!(f, "  return {}", results.join(", "))?;
        }
        Ok(())
    }

    fn fmt_part(&self, f: &mut dyn Write, block: &Block, work: &PartWork) -> fmt::Result {
        let list =
            |sources: &[PartOperand]| sources.iter().map(|&s| block.place(s)).collect::<Vec<_>>().join(", ");
        match work {
            PartWork::Plan { plan, outputs, .. } => {
                let outputs: Vec<PartOperand> =
                    outputs.iter().map(|&value| PartOperand::Value(value)).collect();
                let on = plan.far.as_ref().map_or(String::new(), |far| format!(" on {}", far.spec()));
                writeln!(f, "  plan of {}{on}", list(&outputs))?;
                let mut within = indented(f);
                plan.fmt_steps(&mut within)?;
                plan.fmt_arena(&mut within, &self.weights)
            }
            PartWork::Transfer { moves, device } => moves.iter().try_for_each(|Move { from, to, ty }| {
                let [from, to] = [from, to].map(|&value| block.place(PartOperand::Value(value)));
                let block = ty.dtype.block();
                let bytes = &ty.elements().floor_div(&block.elements.into()) * &block.bytes.into();
                writeln!(f, "  {to} = {from} to {device}, {bytes} bytes")
            }),
            PartWork::Sizes(part) => {
                let SizesPart { op, kernel, operands, at } = &**part;
                let name = kernel.as_ref().map_or(format!("{} (reference)", op.name()), |k| k.name());
                writeln!(
                    f,
                    "  {}: {} = sizes of {name}({})",
                    at.step,
                    op.defines().join(", "),
                    list(operands)
                )
            }
            PartWork::Run { control, operands, outputs, types, at } => {
                let outputs: Vec<PartOperand> =
                    outputs.iter().map(|&value| PartOperand::Value(value)).collect();
                let arrow = if outputs.is_empty() { "" } else { " = " };
                let types: Vec<String> = types.iter().map(Type::to_string).collect();
                let colon = if types.is_empty() { "" } else { ": " };
                let (name, types) = (control.op_name(), types.join(", "));
                let (outputs, operands) = (list(&outputs), list(operands));
                writeln!(f, "  {}: {outputs}{arrow}{name}({operands}){colon}{types}", at.step)?;
                for (name, block) in control.blocks() {
                    writeln!(f, "    {name}")?;
                    self.fmt_parts(&mut indented(&mut indented(f)), block)?;
                }
                Ok(())
            }
        }
    }
}

/// Puts two spaces before each line.
struct Indented<'f> {
    to: &'f mut dyn Write,
    at_start: bool,
}

impl Write for Indented<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for line in text.split_inclusive('\n') {
            self.to.write_str(if self.at_start { "  " } else { "" })?;
            self.to.write_str(line)?;
            self.at_start = line.ends_with('\n');
        }
        Ok(())
    }
}

fn indented(to: &mut dyn Write) -> Indented<'_> {
    Indented { to, at_start: true }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({})", self.name)
    }
}
