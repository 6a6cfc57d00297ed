//! How nodes are computed on one device: steps over values in memory. No weights, no sizes of symbolic dims.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use graph::ops::Rebind;
use graph::{Bindings, Dim, Op, SourceLocation, Type};
use tensor::Tensor;

use crate::{Device, FarKernel, Kernel};

/// The steps that compute a graph, or a run of its nodes, and where their values live.
pub(crate) struct Plan {
    pub(crate) name: String,
    /// Its number among the plans of the program.
    pub(crate) index: usize,
    /// The number of its first step among the steps of the program.
    pub(crate) first_step: usize,
    /// What runs it, if that is not the host.
    pub(crate) far: Option<Arc<dyn Device>>,
    pub(crate) inputs: Vec<PlanInput>,
    pub(crate) outputs: Vec<Type>,
    /// Shapes to check when sizes are known.
    pub(crate) rebinds: Vec<PlanRebind>,
    pub(crate) values: Vec<PlanValue>,
    pub(crate) storages: Vec<Storage>,
    pub(crate) steps: Vec<PlanStep>,
}

/// A parameter of a plan.
#[derive(Clone)]
pub(crate) struct PlanInput {
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// Whether steps write it.
    pub(crate) written: bool,
}

/// A value whose shape is asserted.
pub(crate) struct PlanRebind {
    /// The value, by index.
    pub(crate) value: usize,
    /// Its name in the graph, such as `%3`.
    pub(crate) name: String,
    pub(crate) rebind: Rebind,
    /// Where the node was made.
    pub(crate) location: Option<SourceLocation>,
}

/// A weight or constant in one layout. The same weight may have several slots.
pub(crate) struct WeightSlot {
    pub(crate) source: WeightSource,
    pub(crate) ty: Type,
    /// The device's layout, if not as stored.
    pub(crate) packing: Option<String>,
}

impl WeightSlot {
    /// The constant that it is. Placement leaves what counts by weights to the host.
    pub(crate) fn constant(&self) -> &Tensor {
        match &self.source {
            WeightSource::Constant(constant) => constant,
            WeightSource::Named(name) => unreachable!("{name} holds no indices"),
        }
    }
}

/// Where the contents of a weight slot come from.
pub(crate) enum WeightSource {
    /// The weights registry, by name.
    Named(String),
    /// The graph.
    Constant(Tensor),
}

impl WeightSource {
    /// The name in the registry, if it comes from there.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            WeightSource::Named(name) => Some(name),
            WeightSource::Constant(_) => None,
        }
    }
}

/// A value: a row-major array somewhere in a home.
pub(crate) struct PlanValue {
    pub(crate) ty: Type,
    pub(crate) home: Home,
    /// Where it starts in its home, in elements; not 0 for the parts of a split.
    pub(crate) offset: Dim,
}

/// What holds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// The buffer given for an input.
    Input(usize),
    /// The tensor of a weight slot that is not packed.
    Weight(usize),
    /// Memory of the call itself.
    Storage(usize),
}

/// Memory for the values of a call: one value, and those that are views of it or take it over.
pub(crate) struct Storage {
    /// The value that needs it first; the others need as many bytes.
    pub(crate) value: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// The output it is, or `None` for a place in the arena.
    pub(crate) output: Option<usize>,
}

/// One computation of a plan.
pub(crate) struct PlanStep {
    pub(crate) work: Work,
    /// What refuses a call of a device's kernel before it is made.
    pub(crate) check: Option<Arc<dyn Kernel>>,
    pub(crate) operands: Vec<StepOperand>,
    /// Values, by index.
    pub(crate) results: Vec<usize>,
    /// Where the node was made.
    pub(crate) location: Option<SourceLocation>,
    /// Why the host computes it and not the device that the program has.
    pub(crate) reason: Option<String>,
}

/// Who computes a step.
pub(crate) enum Work {
    /// The device.
    Kernel(Op, Arc<dyn Kernel>),
    /// A device with memory of its own.
    Far(Op, Arc<dyn FarKernel>),
    /// The op's own slow definition, on the host.
    Reference(Op),
    /// A copy of operand 0, for an output that is no step's own result.
    Copy,
}

/// An operand of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepOperand {
    /// A value to read, by index.
    Value(usize),
    /// A value whose memory result 0 takes over.
    InPlace(usize),
    /// A buffer that the step writes, by the index of its value.
    Written(usize),
    /// A packed weight, by slot.
    Packed(usize),
}

impl Plan {
    /// The symbolic dims of the inputs, in the order of their names.
    fn symbols(&self) -> BTreeSet<&str> {
        self.inputs.iter().flat_map(|input| &input.ty.shape).flat_map(Dim::symbols).collect()
    }
}

impl Work {
    pub(crate) fn op(&self) -> Option<&Op> {
        match self {
            Work::Kernel(op, _) | Work::Far(op, _) | Work::Reference(op) => Some(op),
            Work::Copy => None,
        }
    }

    pub(crate) fn op_name(&self) -> &'static str {
        match self {
            Work::Kernel(op, _) | Work::Far(op, _) | Work::Reference(op) => op.name(),
            Work::Copy => "copy",
        }
    }

    pub(crate) fn kernel_name(&self) -> Option<String> {
        match self {
            Work::Kernel(_, kernel) => Some(kernel.name()),
            Work::Far(_, kernel) => Some(kernel.name()),
            Work::Reference(Op::Print(_)) => Some("print".to_string()),
            Work::Reference(_) => None,
            Work::Copy => Some("copy".to_string()),
        }
    }
}

impl fmt::Display for WeightSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            WeightSource::Named(name) => write!(f, "weight {name:?} {}", self.ty)?,
            WeightSource::Constant(_) => write!(f, "constant {}", self.ty)?,
        }
        match &self.packing {
            Some(layout) => write!(f, " as {layout}"),
            None => Ok(()),
        }
    }
}

impl Plan {
    pub(crate) fn fmt_steps(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let steps = self.steps.iter().enumerate();
        steps.map(|(i, step)| (self.first_step + i, step)).try_for_each(|(i, step)| self.fmt_step(f, i, step))
    }

    fn fmt_step(&self, f: &mut dyn fmt::Write, number: usize, step: &PlanStep) -> fmt::Result {
        write!(f, "  {number}: ")?;
        for (i, &result) in step.results.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, self.place(result))?;
        }
        let arrow = if step.results.is_empty() { "" } else { " = " };
        let kernel =
            step.work.kernel_name().unwrap_or_else(|| format!("{} (reference)", step.work.op_name()));
        write!(f, "{arrow}{kernel}(")?;
        for (i, &operand) in step.operands.iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { "" })?;
            match operand {
                StepOperand::Value(value) => f.write_str(&self.place(value))?,
                StepOperand::InPlace(value) => write!(f, "{} in place", self.place(value))?,
                StepOperand::Written(value) => write!(f, "mut {}", self.place(value))?,
                StepOperand::Packed(slot) => write!(f, "w{slot}")?,
            }
        }
        f.write_str(")")?;
        for (i, &result) in step.results.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { ": " }, self.values[result].ty)?;
        }
        match &step.reason {
            Some(reason) => writeln!(f, " (host: {reason})"),
            None => writeln!(f),
        }
    }

    /// A value by where it lives: `'x'` an input, `w1` a weight, `%2` memory of the call, `output 0`; a part of
    /// one with its offset in elements, as in `%2+64`.
    fn place(&self, value: usize) -> String {
        let PlanValue { home, offset, .. } = &self.values[value];
        let home = match *home {
            Home::Input(input) => format!("'{}'", self.inputs[input].name),
            Home::Weight(slot) => format!("w{slot}"),
            Home::Storage(storage) => match self.storages[storage].output {
                Some(output) => format!("output {output}"),
                None => format!("%{storage}"),
            },
        };
        if offset.as_static() == Some(0) { home } else { format!("{home}+{offset}") }
    }

    /// The arena has no simple formula, as values are placed anew for each size; so its bytes at some sizes.
    pub(crate) fn fmt_arena(&self, f: &mut dyn fmt::Write, weights: &[WeightSlot]) -> fmt::Result {
        let symbols: Vec<&str> = self.symbols().into_iter().collect();
        let samples: &[usize] = if symbols.is_empty() { &[1] } else { &[1, 16, 256] };
        f.write_str("  arena")?;
        for (i, &size) in samples.iter().enumerate() {
            let mut bindings = Bindings::default();
            for symbol in &symbols {
                bindings.insert(symbol, size);
            }
            let bytes =
                self.arena_bytes(weights, &bindings).map_or("?".to_string(), |bytes| bytes.to_string());
            write!(f, "{} {bytes} bytes", if i > 0 { "," } else { "" })?;
            if !symbols.is_empty() {
                write!(f, " where {} = {size}", symbols.join(" = "))?;
            }
        }
        writeln!(f)
    }
}
