//! A plan with its sizes: the shape and place of every operand and result, ready to run without further thought.

use std::sync::Arc;

use graph::{Bindings, Type};
use tensor::{DType, Shape};

use crate::Error;
use crate::memory::{self, Lifetime};
use crate::plan::{Home, Plan, PlanRebind, PlanStep, PlanValue, StepOperand, WeightSlot, Work};

/// Half of what an allocation can be, as arenas grow by more than is asked for.
const LARGEST_ARENA: usize = isize::MAX as usize / 2;

/// The steps of a plan for one size of each symbolic dim.
pub(crate) struct Frame {
    /// What the frame of a whole graph is found by.
    pub(crate) input_shapes: Vec<Shape>,
    /// What the frame of a part of one is found by.
    pub(crate) given: Bindings,
    /// Those, and what the plan gives sizes.
    pub(crate) bindings: Bindings,
    pub(crate) output_shapes: Vec<Shape>,
    pub(crate) steps: Vec<FrameStep>,
    /// Bytes of the arena.
    pub(crate) arena: usize,
}

/// One step: operands and results without their memory, and the pieces of memory to hand them.
pub(crate) struct FrameStep {
    pub(crate) operands: Box<[FrameOperand]>,
    pub(crate) results: Box<[Arc<Array>]>,
    /// Disjoint, sorted by region and start, so that one walk splits them off without overlap.
    pub(crate) pieces: Box<[Piece]>,
}

/// The form of an array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

/// An operand, and where its bytes come from.
pub(crate) struct FrameOperand {
    /// Shared by the steps that use the value.
    pub(crate) array: Arc<Array>,
    pub(crate) source: OperandSource,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum OperandSource {
    /// A piece of a region, for reading or, if a buffer, for writing.
    Piece,
    /// A part of an input that no step writes.
    Input(usize, ByteRange),
    /// A part of a weight as it is stored.
    Weight(usize, ByteRange),
    /// A packed weight.
    Packed(usize),
    /// Result 0.
    InResult,
}

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A part of a region that a step uses. Region 0 is the arena; the outputs follow, then the inputs that steps
/// write.
pub(crate) struct Piece {
    pub(crate) region: usize,
    pub(crate) part: ByteRange,
    pub(crate) role: Role,
}

/// What a piece is to its step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// An operand reads `part`, which counts from the start of the piece. Operands that read the same storage
    /// follow one another and have the same piece.
    Read { operand: usize, part: ByteRange },
    /// A result.
    Result(usize),
    /// A buffer operand that the step writes.
    Written(usize),
    /// The scratch memory of the kernel.
    Scratch,
}

impl Plan {
    /// Bytes of the arena once the symbolic dims have sizes, or `None` if a size is missing or impossible.
    pub(crate) fn arena_bytes(&self, weights: &[WeightSlot], bindings: &Bindings) -> Option<usize> {
        Some(Frame::new(self, weights, bindings).ok()?.arena)
    }
}

impl Frame {
    /// The plan with sizes for its symbols.
    pub(crate) fn new(plan: &Plan, weights: &[WeightSlot], bindings: &Bindings) -> Result<Frame, Error> {
        let given = bindings.clone();
        let bindings = rebind(plan, &given)?;
        let sizing = Sizing { plan, bindings: &bindings };
        let input_shapes = sizing.shapes(plan.inputs.iter().map(|input| &input.ty))?;
        let output_shapes = sizing.shapes(&plan.outputs)?;
        let values = plan.values.iter().map(|value| sizing.value(value)).collect::<Result<Vec<_>, _>>()?;
        let (arrays, parts): (Vec<Arc<Array>>, Vec<ByteRange>) = values.into_iter().unzip();
        let scratch: Vec<usize> =
            plan.steps.iter().map(|step| scratch_bytes(step, &arrays, weights)).collect();

        let bytes: Vec<usize> = plan.storages.iter().map(|storage| parts[storage.value].end).collect();
        let in_arena = plan.storages.iter().zip(&bytes).map(|(storage, &bytes)| Lifetime {
            bytes: if storage.output.is_some() { 0 } else { bytes },
            first: storage.first,
            last: storage.last,
        });
        let mut lifetimes: Vec<Lifetime> = in_arena.collect();
        lifetimes.extend(scratch.iter().enumerate().map(|(i, &bytes)| Lifetime { bytes, first: i, last: i }));
        let alignment =
            plan.far.as_ref().and_then(|far| far.far()).map_or(memory::ALIGNMENT, |far| far.alignment());
        let placement = memory::place(&lifetimes, alignment)
            .filter(|placement| placement.bytes <= LARGEST_ARENA)
            .ok_or_else(|| sizing.too_large("the arena"))?;

        let (storage_offsets, scratch_offsets) = placement.offsets.split_at(plan.storages.len());
        let places = Places { plan, weights, arrays: &arrays, parts: &parts, bytes: &bytes, storage_offsets };
        let steps = plan.steps.iter().enumerate().map(|(i, step)| {
            places.step(step, ByteRange { start: scratch_offsets[i], end: scratch_offsets[i] + scratch[i] })
        });
        let (steps, arena) = (steps.collect(), placement.bytes);
        Ok(Frame { steps, input_shapes, given, bindings, output_shapes, arena })
    }
}

/// Checks the shapes that are asserted, and gives the symbols that these bring their sizes.
fn rebind(plan: &Plan, given: &Bindings) -> Result<Bindings, Error> {
    let mut bindings = given.clone();
    for PlanRebind { value, name, rebind, location } in &plan.rebinds {
        let shape = plan.values[*value].ty.resolve(&bindings)?;
        rebind.bind(&shape, &mut bindings).map_err(|message| Error::Rebind {
            value: name.clone(),
            message,
            location: location.clone(),
        })?;
    }
    Ok(bindings)
}

struct Sizing<'a> {
    plan: &'a Plan,
    bindings: &'a Bindings,
}

impl Sizing<'_> {
    fn shape(&self, ty: &Type) -> Result<Shape, Error> {
        Ok(ty.resolve(self.bindings)?)
    }

    fn shapes<'t>(&self, types: impl IntoIterator<Item = &'t Type>) -> Result<Vec<Shape>, Error> {
        types.into_iter().map(|ty| self.shape(ty)).collect()
    }

    fn bytes(&self, dtype: DType, shape: &Shape) -> Result<usize, Error> {
        let elements = shape.checked_elements();
        if dtype.is_sub_byte() && elements.is_some() && dtype.bytes_for_shape(shape).is_none() {
            return Err(self.impossible(format!("{dtype}{shape} does not fill whole bytes")));
        }
        let bytes = elements.and_then(|elements| dtype.bytes_for(elements));
        bytes
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| self.too_large(&format!("{dtype}{shape}")))
    }

    /// The form of a value, and the bytes it takes in its home.
    fn value(&self, value: &PlanValue) -> Result<(Arc<Array>, ByteRange), Error> {
        let (dtype, shape) = (value.ty.dtype, self.shape(&value.ty)?);
        let offset = value.offset.resolve(self.bindings)?;
        let start = dtype.bytes_for(offset).ok_or_else(|| self.too_large("an offset"))?;
        let end = start.checked_add(self.bytes(dtype, &shape)?).ok_or_else(|| self.too_large("an offset"))?;
        Ok((Arc::new(Array { dtype, shape }), ByteRange { start, end }))
    }

    fn too_large(&self, what: &str) -> Error {
        self.impossible(format!("{what} overflows"))
    }

    fn impossible(&self, what: String) -> Error {
        let sizes: Vec<String> =
            self.bindings.iter().map(|(symbol, size)| format!("{symbol} = {size}")).collect();
        let sizes = if sizes.is_empty() { "its static shapes".to_string() } else { sizes.join(", ") };
        Error::TooLarge { model: self.plan.name.clone(), what, sizes }
    }
}

fn scratch_bytes(step: &PlanStep, arrays: &[Arc<Array>], weights: &[WeightSlot]) -> usize {
    if !matches!(step.work, Work::Kernel(..) | Work::Far(..)) {
        return 0;
    }
    let operands: Vec<Shape> =
        step.operands.iter().map(|&operand| operand_array(operand, arrays, weights).shape).collect();
    let results: Vec<Shape> = step.results.iter().map(|&result| arrays[result].shape).collect();
    match &step.work {
        Work::Kernel(_, kernel) => kernel.scratch(&operands, &results),
        Work::Far(_, kernel) => kernel.scratch(&operands, &results),
        Work::Reference(_) | Work::Copy => 0,
    }
}

fn operand_array(operand: StepOperand, arrays: &[Arc<Array>], weights: &[WeightSlot]) -> Arc<Array> {
    match operand {
        StepOperand::Value(value) | StepOperand::InPlace(value) | StepOperand::Written(value) => {
            Arc::clone(&arrays[value])
        }
        StepOperand::Packed(slot) => {
            let ty = &weights[slot].ty;
            let shape = ty.static_shape().expect("lowering admits only static weights");
            Arc::new(Array { dtype: ty.dtype, shape })
        }
    }
}

/// Where each value of a plan lies.
struct Places<'a> {
    plan: &'a Plan,
    weights: &'a [WeightSlot],
    /// Of each value.
    arrays: &'a [Arc<Array>],
    /// Of each value, in its home.
    parts: &'a [ByteRange],
    /// Of each storage.
    bytes: &'a [usize],
    storage_offsets: &'a [usize],
}

impl Places<'_> {
    fn step(&self, step: &PlanStep, scratch: ByteRange) -> FrameStep {
        let mut pieces = Vec::new();
        let operands = step.operands.iter().enumerate().map(|(position, &operand)| FrameOperand {
            array: operand_array(operand, self.arrays, self.weights),
            source: self.operand(position, operand, &mut pieces),
        });
        let operands = operands.collect();
        for (i, &result) in step.results.iter().enumerate() {
            let (region, part) = self.whole(result).expect("results live in regions");
            pieces.push(Piece { region, part, role: Role::Result(i) });
        }
        if scratch.end > scratch.start {
            pieces.push(Piece { region: 0, part: scratch, role: Role::Scratch });
        }
        pieces.sort_by_key(|piece| (piece.region, piece.part.start, piece.part.end));
        let results = step.results.iter().map(|&result| Arc::clone(&self.arrays[result])).collect();
        FrameStep { operands, results, pieces: pieces.into() }
    }

    fn operand(&self, position: usize, operand: StepOperand, pieces: &mut Vec<Piece>) -> OperandSource {
        let (value, written) = match operand {
            StepOperand::Packed(slot) => return OperandSource::Packed(slot),
            StepOperand::InPlace(_) => return OperandSource::InResult,
            StepOperand::Value(value) => (value, false),
            StepOperand::Written(value) => (value, true),
        };
        let part = self.parts[value];
        let Some((region, whole)) = self.whole(value) else {
            return match self.plan.values[value].home {
                Home::Input(input) => OperandSource::Input(input, part),
                Home::Weight(slot) => OperandSource::Weight(slot, part),
                Home::Storage(_) => unreachable!("storage has a region"),
            };
        };
        let role = if written { Role::Written(position) } else { Role::Read { operand: position, part } };
        pieces.push(Piece { region, part: whole, role });
        OperandSource::Piece
    }

    /// The region of a value's home and the part of it that the home takes, or `None` for what calls only read.
    fn whole(&self, value: usize) -> Option<(usize, ByteRange)> {
        match self.plan.values[value].home {
            Home::Weight(_) => None,
            // A buffer has no views, so its value is all of it.
            Home::Input(input) => Some((self.plan.written_region(input)?, self.parts[value])),
            Home::Storage(storage) => {
                let (region, start) = match self.plan.storages[storage].output {
                    Some(output) => (1 + output, 0),
                    None => (0, self.storage_offsets[storage]),
                };
                Some((region, ByteRange { start, end: start + self.bytes[storage] }))
            }
        }
    }
}

impl Plan {
    /// The region of an input that steps write.
    pub(crate) fn written_region(&self, input: usize) -> Option<usize> {
        let written = self.inputs[..input].iter().filter(|input| input.written).count();
        self.inputs[input].written.then_some(1 + self.outputs.len() + written)
    }
}
