//! Plans of a device with memory of its own: their steps are recorded and launched; and values on their way there and back.

use std::sync::Arc;

use tensor::AlignedBytes;

use super::held::{Held, HeldMemory, Made, MadeMemory};
use crate::block::{Move, PartOperand};
use crate::bound_weight::BoundWeights;
use crate::device::far::{FarArray, FarBytes, FarCall, FarOperand, FarStep};
use crate::frame::{Array, ByteRange, Frame, FrameStep, OperandSource, Role};
use crate::plan::{Plan, PlanStep, Work};
use crate::run::Hooks;
use crate::workspace::{FarPlace, FarWorkspace, RecordingKey};
use crate::{Device, Error, Far, Operand, Program, View, ViewMut};

/// The memory of one plan on a device.
pub(super) struct FarRegions<'r> {
    /// The arena, the outputs, the inputs that steps write.
    pub(super) regions: Vec<FarBytes>,
    /// The inputs; none for those that steps write.
    pub(super) inputs: Vec<Option<FarBytes>>,
    pub(super) weights: &'r BoundWeights,
}

/// Runs the steps of a plan at once, as they were recorded or are now.
pub(super) fn run(
    plan: &Plan,
    frame: &Arc<Frame>,
    device: &dyn Device,
    memory: &FarRegions<'_>,
    hooks: &Hooks<'_>,
    workspace: &mut FarWorkspace,
) -> Result<(), Error> {
    if let Some(stop) = &hooks.stop {
        stop.check()?;
    }
    let far = device.far().expect("the plan is a device's");
    let steps = || plan.steps.iter().zip(&frame.steps);
    // Copies of values that are outputs come last.
    let is_copy = |(step, _): &(&PlanStep, &FrameStep)| matches!(step.work, Work::Copy);
    if steps().any(|step| !is_copy(&step)) {
        let parts = memory.regions.iter().chain(memory.inputs.iter().flatten());
        let places = parts.map(FarPlace::of).collect();
        let key = RecordingKey { frame: Arc::clone(frame), weights: memory.weights.number, places };
        let record = || {
            let computed = steps().filter(|step| !is_copy(step));
            let recorded: Vec<FarStep<'_>> = computed.map(|(step, sized)| memory.step(step, sized)).collect();
            far.record(&recorded)
        };
        workspace.recorded(plan.index, key, record)?.launch()?;
    }
    steps().filter(is_copy).try_for_each(|(_, step)| memory.copy(step))
}

/// Runs one step of a plan, and lets the call's watch look at it as at steps of the host: on copies. The inner error is what
/// the watch found.
pub(super) fn run_watched(
    number: usize,
    (planned, step): (&PlanStep, &FrameStep),
    device: &dyn Device,
    memory: &FarRegions<'_>,
    hooks: &mut Hooks<'_>,
) -> Result<Result<(), String>, Error> {
    if let Some(stop) = &hooks.stop {
        stop.check()?;
    }
    let settings = hooks.settings;
    let watch = hooks.watch.as_mut().expect("the call is watched");
    let (is_read, is_marked) = (settings.nan_check, settings.uninitialized_read_check.is_some());
    let call = memory.call(step);
    let mut copies = Copies::new(&call, is_read || is_marked)?;
    let (operands, mut results) = copies.views(&call);
    if let Err(message) = watch.before(number, planned, step, &operands, &mut results, &mut []) {
        return Ok(Err(message));
    }
    if is_marked {
        call.outputs.iter().zip(&results).try_for_each(|(there, here)| there.bytes.write(here.bytes))?;
    }
    match planned.work {
        Work::Copy => memory.copy(step)?,
        _ => {
            let far = device.far().expect("the plan is a device's");
            far.record(&[memory.step(planned, step)])?.launch()?;
        }
    }
    device.synchronize()?;
    watch.ended();
    if is_read {
        call.outputs.iter().zip(&mut results).try_for_each(|(there, here)| there.bytes.read(here.bytes))?;
    }
    Ok(watch.after(planned, step, &results))
}

/// Copies, in the host's memory, of what a step on a device reads and of the memory that it writes.
struct Copies {
    operands: Vec<AlignedBytes>,
    results: Vec<AlignedBytes>,
}

impl Copies {
    /// The copies; none of any byte unless somebody looks at them.
    fn new(call: &FarCall<'_>, are_read: bool) -> Result<Copies, Error> {
        let copy = |array: Option<&FarArray<'_>>| {
            array
                .filter(|_| are_read)
                .map_or_else(|| Ok(AlignedBytes::zeroed(0)), |array| array.bytes.copied_here())
        };
        let operands = call.inputs.iter().map(|operand| match operand {
            FarOperand::View(array) => copy(Some(array)),
            FarOperand::InResult | FarOperand::Buffer(_) | FarOperand::Packed(_) => copy(None),
        });
        Ok(Copies {
            operands: operands.collect::<Result<_, Error>>()?,
            results: call.outputs.iter().map(|array| copy(Some(array))).collect::<Result<_, Error>>()?,
        })
    }

    /// The call as the host sees it.
    fn views<'c>(&'c mut self, call: &'c FarCall<'_>) -> (Vec<Operand<'c>>, Vec<ViewMut<'c>>) {
        let operands = call.inputs.iter().zip(&self.operands).map(|(operand, bytes)| match operand {
            FarOperand::View(FarArray { dtype, shape, .. }) => {
                Operand::View(View { dtype: *dtype, shape, bytes })
            }
            FarOperand::InResult => Operand::InResult,
            FarOperand::Buffer(FarArray { dtype, shape, .. }) => {
                Operand::Buffer(ViewMut { dtype: *dtype, shape, bytes: &mut [] })
            }
            FarOperand::Packed(weight) => Operand::Packed(weight),
        });
        let results = call.outputs.iter().zip(&mut self.results);
        let results =
            results.map(|(FarArray { dtype, shape, .. }, bytes)| ViewMut { dtype: *dtype, shape, bytes });
        (operands.collect(), results.collect())
    }
}

/// Checks the data of a device's steps by the host's kernels, which read the host's copies of the inputs. Fails with the first
/// step that is refused, and why.
pub(super) fn check(
    plan: &Plan,
    frame: &Frame,
    copies: &[Option<PartOperand>],
    program: &Program,
    values: &[Option<Held<'_>>],
) -> Result<(), (usize, String)> {
    let bytes = |copy: PartOperand, part: ByteRange| match copy {
        PartOperand::Value(value) => {
            &values[value].as_ref().expect("made by an earlier part").bytes()[part.range()]
        }
        PartOperand::Weight(slot) => &program.weights[slot].constant().bytes()[part.range()],
    };
    for (i, (step, sized)) in plan.steps.iter().zip(&frame.steps).enumerate() {
        let Some(kernel) = &step.check else { continue };
        let checked = kernel.checked().unwrap_or_default();
        let views = sized.operands.iter().enumerate().map(|(position, operand)| {
            let known = match operand.source {
                _ if !checked.contains(&position) => None,
                OperandSource::Input(input, part) => copies[input].map(|copy| bytes(copy, part)),
                OperandSource::Weight(slot, part) => Some(bytes(PartOperand::Weight(slot), part)),
                OperandSource::Piece | OperandSource::InResult | OperandSource::Packed(_) => None,
            };
            let bytes = known.unwrap_or_default();
            View { dtype: operand.array.dtype, shape: &operand.array.shape, bytes }
        });
        kernel.check(&views.collect::<Vec<View<'_>>>()).map_err(|message| (i, message))?;
    }
    Ok(())
}

impl FarRegions<'_> {
    /// Copies the operand of a step that does nothing else.
    fn copy(&self, step: &FrameStep) -> Result<(), Error> {
        let FarCall { inputs, outputs, .. } = self.call(step);
        let [FarOperand::View(from)] = &inputs[..] else { unreachable!("copies read views") };
        from.bytes.copy_to(&outputs[0].bytes)
    }

    fn step<'a>(&'a self, planned: &'a PlanStep, step: &'a FrameStep) -> FarStep<'a> {
        let Work::Far(_, kernel) = &planned.work else { unreachable!("a device has kernels for its steps") };
        FarStep { kernel: &**kernel, call: self.call(step) }
    }

    /// The operands and results of a step with their places.
    fn call<'a>(&'a self, step: &'a FrameStep) -> FarCall<'a> {
        let mut inputs: Vec<FarOperand<'a>> = Vec::with_capacity(step.operands.len());
        for (position, operand) in step.operands.iter().enumerate() {
            let view =
                |bytes: FarBytes| FarArray { dtype: operand.array.dtype, shape: &operand.array.shape, bytes };
            let within = |whole: &FarBytes, part: ByteRange| view(whole.part(part.start, part.end));
            inputs.push(match operand.source {
                OperandSource::InResult => FarOperand::InResult,
                OperandSource::Packed(slot) => FarOperand::Packed(self.weights[slot].packed()),
                OperandSource::Weight(slot, part) => FarOperand::View(within(self.weights[slot].far(), part)),
                OperandSource::Input(input, part) => {
                    let bytes = self.inputs[input].as_ref().expect("no step writes it");
                    FarOperand::View(within(bytes, part))
                }
                OperandSource::Piece => {
                    let piece = step.pieces.iter().find(|piece| match piece.role {
                        Role::Read { operand, .. } | Role::Written(operand) => operand == position,
                        Role::Result(_) | Role::Scratch => false,
                    });
                    let piece = piece.expect("each operand in a region has a piece");
                    let whole = self.regions[piece.region].part(piece.part.start, piece.part.end);
                    match piece.role {
                        Role::Read { part, .. } => FarOperand::View(within(&whole, part)),
                        _ => FarOperand::Buffer(view(whole)),
                    }
                }
            });
        }
        let mut outputs: Vec<Option<FarBytes>> = vec![None; step.results.len()];
        let mut scratch = None;
        for piece in &step.pieces {
            let bytes = || Some(self.regions[piece.region].part(piece.part.start, piece.part.end));
            match piece.role {
                Role::Result(i) => outputs[i] = bytes(),
                Role::Scratch => scratch = bytes(),
                Role::Read { .. } | Role::Written(_) => {}
            }
        }
        let arrays = step.results.iter().zip(outputs).map(|(array, bytes)| FarArray {
            dtype: array.dtype,
            shape: &array.shape,
            bytes: bytes.expect("each result has a piece"),
        });
        FarCall { inputs, outputs: arrays.collect(), scratch }
    }
}

/// Values of the host in the memory of a device, all written at once.
pub(super) fn upload(
    far: &dyn Far,
    values: &[&Held<'_>],
    workspace: &mut FarWorkspace,
) -> Result<Vec<Made>, Error> {
    let mut starts = Vec::with_capacity(values.len());
    let mut end = 0usize;
    for value in values {
        starts.push(end);
        end = (end + value.bytes().len()).next_multiple_of(far.alignment());
    }
    let memory = workspace.take(far.allocator(), end)?.memory;
    let parts: Vec<(usize, &[u8])> =
        starts.iter().copied().zip(values.iter().map(|value| value.bytes())).collect();
    memory.write(&parts)?;
    let made = parts.iter().zip(values).map(|(&(start, bytes), value)| {
        let bytes = FarBytes { memory: Arc::clone(&memory), start, len: bytes.len() };
        (value.array, MadeMemory::Far(bytes))
    });
    Ok(made.collect())
}

/// A value of a device in the host's memory.
pub(super) fn download(array: Array, from: &FarBytes) -> Result<Made, Error> {
    Ok((array, MadeMemory::Host(from.copied_here()?)))
}

/// Brings values to a device, or to the host.
pub(super) fn transfer(
    device: Option<&dyn Far>,
    moves: &[Move],
    values: &mut [Option<Held<'_>>],
    workspace: &mut FarWorkspace,
) -> Result<(), Error> {
    let from = |moved: &Move| values[moved.from].as_ref().expect("made by an earlier part");
    let made = match device {
        Some(far) => upload(far, &moves.iter().map(from).collect::<Vec<_>>(), workspace)?,
        None => {
            let downloads = moves.iter().map(|moved| {
                let held = from(moved);
                download(held.array, held.far())
            });
            downloads.collect::<Result<_, _>>()?
        }
    };
    for (moved, (array, memory)) in moves.iter().zip(made) {
        values[moved.to] = Some(Held { array, memory: HeldMemory::Own(memory) });
    }
    Ok(())
}
