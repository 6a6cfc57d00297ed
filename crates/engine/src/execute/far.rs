//! Plans of a device with memory of its own: their steps are recorded and launched; and values on their way there and back.

use std::sync::Arc;
use std::time::Instant;

use tensor::AlignedBytes;

use super::held::{Held, HeldMemory, Made, MadeMemory};
use crate::block::{Move, PartOperand};
use crate::bound_weight::BoundWeight;
use crate::device::far::{FarArray, FarBytes, FarCall, FarOperand, FarStep};
use crate::frame::{Array, ByteRange, Frame, FrameStep, OperandSource, Role};
use crate::plan::{Plan, PlanStep, Work};
use crate::profile::StepTime;
use crate::run::Hooks;
use crate::{Device, Error, Far, Program, View};

/// The memory of one plan on a device.
pub(super) struct FarRegions<'r> {
    /// The arena, the outputs, the inputs that steps write.
    pub(super) regions: Vec<FarBytes>,
    /// The inputs; none for those that steps write.
    pub(super) inputs: Vec<Option<FarBytes>>,
    pub(super) weights: &'r [BoundWeight],
}

/// Runs the steps of a plan: all at once, or one by one if they are watched.
pub(super) fn run(
    plan: &Plan,
    frame: &Frame,
    device: &dyn Device,
    memory: &FarRegions<'_>,
    hooks: &mut Hooks<'_>,
) -> Result<(), Error> {
    let far = device.far().expect("the plan is a device's");
    if let Some(stop) = &hooks.stop {
        stop.check()?;
    }
    let steps: Vec<(&PlanStep, &FrameStep)> = plan.steps.iter().zip(&frame.steps).collect();
    if hooks.watch.is_none() {
        return launch(far, &steps, memory);
    }
    for step in &steps {
        let start = Instant::now();
        launch(far, std::slice::from_ref(step), memory)?;
        device.synchronize()?;
        let time = StepTime::new(step.0, step.1, start.elapsed());
        hooks.watch.as_mut().expect("watched").steps.push((start, time));
    }
    Ok(())
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

fn launch(far: &dyn Far, steps: &[(&PlanStep, &FrameStep)], memory: &FarRegions<'_>) -> Result<(), Error> {
    // Copies of values that are outputs come last.
    let (computed, copied): (Vec<_>, Vec<_>) =
        steps.iter().partition(|(step, _)| !matches!(step.work, Work::Copy));
    let recorded: Vec<FarStep<'_>> =
        computed.into_iter().map(|(planned, step)| memory.step(planned, step)).collect();
    if !recorded.is_empty() {
        far.record(&recorded)?.launch()?;
    }
    for (_, step) in copied {
        let FarCall { inputs, outputs, .. } = memory.call(step);
        let [FarOperand::View(from)] = &inputs[..] else { unreachable!("copies read views") };
        from.bytes.copy_to(&outputs[0].bytes)?;
    }
    Ok(())
}

impl FarRegions<'_> {
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
pub(super) fn upload(far: &dyn Far, values: &[&Held<'_>]) -> Result<Vec<Made>, Error> {
    let mut starts = Vec::with_capacity(values.len());
    let mut end = 0usize;
    for value in values {
        starts.push(end);
        end = (end + value.bytes().len()).next_multiple_of(far.alignment());
    }
    let memory = FarBytes::allocate(far.allocator(), end)?.memory;
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
    let mut bytes = AlignedBytes::try_zeroed(from.len)?;
    from.memory.read(from.start, &mut bytes)?;
    Ok((array, MadeMemory::Host(bytes)))
}

/// Brings values to a device, or to the host.
pub(super) fn transfer(
    device: Option<&dyn Far>,
    moves: &[Move],
    values: &mut [Option<Held<'_>>],
) -> Result<(), Error> {
    let from = |moved: &Move| values[moved.from].as_ref().expect("made by an earlier part");
    let made = match device {
        Some(far) => upload(far, &moves.iter().map(from).collect::<Vec<_>>())?,
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
