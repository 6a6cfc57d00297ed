//! How one graph is computed: plans, and between them the work that finds sizes in data or runs other graphs.

use std::sync::Arc;

use graph::{Bindings, DeviceRef, Dim, Graph, Op, SourceLocation, Type};

use crate::Kernel;
use crate::plan::{Plan, PlanInput};

/// How one graph is computed: the program's own, or one that a node runs.
pub(crate) struct Block {
    pub(crate) inputs: Vec<PlanInput>,
    pub(crate) outputs: Vec<Type>,
    /// The inputs alone, to bind the symbols of.
    pub(crate) signature: Graph,
    /// In the order they run.
    pub(crate) parts: Vec<BlockPart>,
    /// The names of the values that parts hand to one another; the inputs come first.
    pub(crate) values: Vec<String>,
    /// What each output is.
    pub(crate) results: Vec<PartOperand>,
}

/// A piece of a block.
pub(crate) struct BlockPart {
    pub(crate) work: PartWork,
    /// Values that no later part reads.
    pub(crate) last_used: Vec<usize>,
}

/// What a part does.
pub(crate) enum PartWork {
    /// Steps whose sizes are known once those of the values before are.
    Plan {
        plan: Box<Plan>,
        /// The value that each input is.
        inputs: Vec<usize>,
        /// The value that each output becomes.
        outputs: Vec<usize>,
        /// Of each input that the host checks for a device: what the host has of it. Nothing in plans of the host.
        copies: Vec<Option<PartOperand>>,
    },
    /// Values that go from the host to a device or back.
    Transfer { moves: Vec<Move>, device: DeviceRef },
    /// The sizes that a node finds in its data. The next plan computes its results.
    Sizes(Box<SizesPart>),
    /// Other blocks, as a node says.
    Run {
        control: Box<Control>,
        operands: Vec<PartOperand>,
        outputs: Vec<usize>,
        types: Vec<Type>,
        at: PartStep,
    },
}

/// A value that is transferred.
pub(crate) struct Move {
    /// The value where it was.
    pub(crate) from: usize,
    /// The value where it goes.
    pub(crate) to: usize,
    /// Its type there.
    pub(crate) ty: Type,
}

/// A node that finds sizes in its data.
pub(crate) struct SizesPart {
    pub(crate) op: Op,
    pub(crate) kernel: Option<Arc<dyn Kernel>>,
    pub(crate) operands: Vec<PartOperand>,
    pub(crate) at: PartStep,
}

/// Where a part that is no plan stands.
pub(crate) struct PartStep {
    /// Its number among the steps of the program.
    pub(crate) step: usize,
    /// Where the node was made.
    pub(crate) location: Option<SourceLocation>,
}

/// Which blocks run, and how often.
pub(crate) enum Control {
    /// One of two.
    Cond { then: Block, otherwise: Block },
    /// One again and again.
    While { predicate: Block, body: Block },
    /// One.
    Call(Block),
}

/// An operand of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartOperand {
    /// A value of the block.
    Value(usize),
    /// A weight as it is stored.
    Weight(usize),
}

impl Block {
    /// The one plan of a graph whose sizes follow from its inputs.
    pub(crate) fn whole(&self) -> Option<&Plan> {
        match &self.parts[..] {
            [BlockPart { work: PartWork::Plan { plan, .. }, .. }] if plan.far.is_none() => Some(plan),
            _ => None,
        }
    }

    /// Every plan, those of blocks within too.
    pub(crate) fn plans(&self) -> Vec<&Plan> {
        let mut plans: Vec<&Plan> = Vec::new();
        for part in &self.parts {
            match &part.work {
                PartWork::Plan { plan, .. } => plans.push(plan),
                PartWork::Sizes(_) | PartWork::Transfer { .. } => {}
                PartWork::Run { control, .. } => {
                    plans.extend(control.blocks().into_iter().flat_map(|(_, block)| block.plans()));
                }
            }
        }
        plans
    }

    /// Bytes that go to a device, and those that come back, where each symbol is 1. What blocks within move does not count.
    pub(crate) fn moved_bytes(&self, device: DeviceRef) -> [u64; 2] {
        let mut moved = [0; 2];
        for part in &self.parts {
            let PartWork::Transfer { moves, device: to } = &part.work else { continue };
            let direction = usize::from(*to != device);
            moved[direction] += moves.iter().map(|moved| bytes_of_one(&moved.ty)).sum::<u64>();
        }
        moved
    }

    /// What plans print for an operand.
    pub(crate) fn place(&self, operand: PartOperand) -> String {
        match operand {
            PartOperand::Value(value) => format!("'{}'", self.values[value]),
            PartOperand::Weight(slot) => format!("w{slot}"),
        }
    }
}

/// Bytes of a value where each symbol is 1.
fn bytes_of_one(ty: &Type) -> u64 {
    let mut bindings = Bindings::default();
    for symbol in ty.shape.iter().flat_map(Dim::symbols) {
        bindings.insert(symbol, 1);
    }
    let elements = ty.resolve(&bindings).map_or(0, |shape| shape.elements());
    ty.dtype.bytes_for(elements).unwrap_or(0) as u64
}

impl Control {
    /// The blocks by name.
    pub(crate) fn blocks(&self) -> Vec<(&'static str, &Block)> {
        match self {
            Control::Cond { then, otherwise } => vec![("then", then), ("otherwise", otherwise)],
            Control::While { predicate, body } => vec![("predicate", predicate), ("body", body)],
            Control::Call(block) => vec![("graph", block)],
        }
    }

    pub(crate) fn op_name(&self) -> &'static str {
        match self {
            Control::Cond { .. } => "cond",
            Control::While { .. } => "while",
            Control::Call(_) => "call",
        }
    }
}

impl PartOperand {
    /// The value, unless it is a weight.
    pub(crate) fn value(self) -> Option<usize> {
        match self {
            PartOperand::Value(value) => Some(value),
            PartOperand::Weight(_) => None,
        }
    }
}
