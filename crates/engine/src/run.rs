//! The loop over the steps of a frame: hands each kernel its memory. Allocates nothing per step.

use std::sync::Arc;

use graph::{Op, SourceLocation};
use tensor::{Shape, Tensor};

use crate::bound_weight::BoundWeight;
use crate::clamp::clamp;
use crate::frame::{Array, ByteRange, Frame, FrameStep, OperandSource, Piece, Role};
use crate::instruments::Instruments;
use crate::plan::{Plan, PlanStep, Work};
use crate::stop::Stop;
use crate::watch::Watch;
use crate::{Error, KernelCall, KernelSettings, Operand, View, ViewMut};

/// The memory of one call.
pub(crate) struct Memory<'r> {
    /// The arena, the outputs, the inputs that steps write.
    pub(crate) regions: Vec<&'r mut [u8]>,
    /// The inputs; empty for those that steps write.
    pub(crate) inputs: Vec<&'r [u8]>,
    pub(crate) weights: &'r [BoundWeight],
}

/// Lists that steps fill, kept from call to call for their allocations.
#[derive(Default)]
pub(crate) struct Lists {
    operands: Vec<Operand<'static>>,
    results: Vec<ViewMut<'static>>,
}

/// Work around each step: checks, logs, times.
pub(crate) struct Hooks<'c> {
    /// What prints, and knows how.
    pub(crate) instruments: &'c Instruments,
    pub(crate) settings: &'c KernelSettings,
    /// What may end the call early.
    pub(crate) stop: Option<Stop<'c>>,
    /// Nothing in plain calls.
    pub(crate) watch: Option<Watch<'c>>,
}

impl Hooks<'_> {
    /// The error of a step.
    pub(crate) fn error(
        &self,
        step: usize,
        op: &str,
        location: Option<&SourceLocation>,
        message: String,
    ) -> Error {
        let message = match location.filter(|_| self.settings.source_tracebacks) {
            Some(location) => format!("{message} (built at {location})"),
            None => message,
        };
        Error::Step { step, op: op.to_string(), message, location: location.cloned() }
    }
}

/// Runs the steps.
pub(crate) fn run(
    plan: &Plan,
    frame: &Frame,
    memory: &mut Memory<'_>,
    lists: &mut Lists,
    hooks: &mut Hooks<'_>,
) -> Result<(), Error> {
    for (i, (step, sized)) in plan.steps.iter().zip(&frame.steps).enumerate() {
        if let Some(stop) = &hooks.stop {
            stop.check()?;
        }
        let number = plan.first_step + i;
        run_step(number, step, sized, memory, lists, hooks)
            .map_err(|message| hooks.error(number, step.work.op_name(), step.location.as_ref(), message))?;
    }
    Ok(())
}

fn run_step(
    number: usize,
    planned: &PlanStep,
    step: &FrameStep,
    memory: &mut Memory<'_>,
    lists: &mut Lists,
    hooks: &mut Hooks<'_>,
) -> Result<(), String> {
    let clamped;
    let mut operands: Vec<Operand<'_>> = recycle(std::mem::take(&mut lists.operands));
    let mut results: Vec<ViewMut<'_>> = recycle(std::mem::take(&mut lists.results));
    let Memory { regions, inputs, weights } = memory;
    operands.extend(step.operands.iter().map(|operand| {
        let bytes = match operand.source {
            OperandSource::Piece => &[],
            OperandSource::InResult => return Operand::InResult,
            OperandSource::Packed(slot) => return Operand::Packed(weights[slot].packed()),
            OperandSource::Input(input, part) => &inputs[input][part.range()],
            OperandSource::Weight(slot, part) => &weights[slot].raw()[part.range()],
        };
        Operand::View(View { dtype: operand.array.dtype, shape: &operand.array.shape, bytes })
    }));
    results.extend(step.results.iter().map(|array| ViewMut {
        dtype: array.dtype,
        shape: &array.shape,
        bytes: &mut [],
    }));
    let scratch = hand_out(&step.pieces, regions, &mut operands, &mut results);
    if let Some(op) = planned.work.op()
        && let Some((position, indices)) = clamp(hooks.settings.assert_level, op, &operands, &results)
    {
        clamped = indices;
        let Operand::View(view) = &mut operands[position] else { unreachable!("indices are read") };
        view.bytes = &clamped;
    }
    if let Some(watch) = &mut hooks.watch {
        watch.before(number, planned, step, &operands, &mut results, scratch)?;
    }
    let call = KernelCall { inputs: &mut operands, outputs: &mut results, scratch };
    let mut outcome = match &planned.work {
        Work::Kernel(_, kernel) => kernel.run(call),
        Work::Reference(Op::Print(print)) => {
            let Instruments { printer, .. } = hooks.instruments;
            printer.print(print, call.inputs, &hooks.instruments.print_options())
        }
        Work::Reference(op) => run_reference(op, call, &step.results),
        Work::Far(..) => unreachable!("steps of a device are recorded"),
        Work::Copy => {
            copy(call);
            Ok(())
        }
    };
    if let Some(watch) = &mut hooks.watch {
        watch.ended();
        outcome = outcome.and_then(|()| watch.after(planned, step, &results));
    }
    lists.operands = recycle(operands);
    lists.results = recycle(results);
    outcome
}

/// Splits the pieces off their regions and hands them to operands and results; what is left is the scratch.
fn hand_out<'m>(
    pieces: &[Piece],
    regions: &'m mut [&mut [u8]],
    operands: &mut [Operand<'m>],
    results: &mut [ViewMut<'m>],
) -> &'m mut [u8] {
    let mut scratch: &mut [u8] = &mut [];
    let mut regions = regions.iter_mut().enumerate();
    // What is left of the current region, and where in it that starts.
    let (mut region, mut rest, mut at) = (usize::MAX, &mut [][..], 0);
    let (mut shared, mut shared_part): (&[u8], ByteRange) = (&[], ByteRange { start: 0, end: 0 });
    for piece in pieces {
        while region != piece.region {
            let (next, bytes) = regions.next().expect("pieces lie in regions");
            (region, rest, at) = (next, &mut **bytes, 0);
            shared_part = ByteRange { start: 0, end: 0 };
        }
        if let Role::Read { operand, part } = piece.role {
            if piece.part != shared_part {
                shared = split_off(&mut rest, &mut at, piece.part);
                shared_part = piece.part;
            }
            let Operand::View(view) = &mut operands[operand] else {
                unreachable!("operands to read are views")
            };
            view.bytes = &shared[part.range()];
            continue;
        }
        let bytes = split_off(&mut rest, &mut at, piece.part);
        match piece.role {
            Role::Result(i) => results[i].bytes = bytes,
            Role::Scratch => scratch = bytes,
            Role::Written(i) => {
                let Operand::View(View { dtype, shape, .. }) = operands[i] else { unreachable!("as above") };
                operands[i] = Operand::Buffer(ViewMut { dtype, shape, bytes });
            }
            Role::Read { .. } => unreachable!("handled above"),
        }
    }
    scratch
}

fn split_off<'m>(rest: &mut &'m mut [u8], at: &mut usize, part: ByteRange) -> &'m mut [u8] {
    let (_, from_start) = std::mem::take(rest).split_at_mut(part.start - *at);
    let (bytes, after) = from_start.split_at_mut(part.end - part.start);
    (*rest, *at) = (after, part.end);
    bytes
}

/// The op's own definition, on copies.
fn run_reference(op: &graph::Op, call: KernelCall<'_, '_>, results: &[Arc<Array>]) -> Result<(), String> {
    let inputs = call.inputs.iter().map(to_tensor).collect::<Result<Vec<Tensor>, String>>()?;
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let shapes: Vec<Shape> = results.iter().map(|array| array.shape).collect();
    let computed = in_words(op.reference(&inputs, &shapes))?;
    let written = call.inputs.iter_mut().filter_map(|operand| match operand {
        Operand::Buffer(view) => Some(view),
        _ => None,
    });
    for (target, tensor) in call.outputs.iter_mut().chain(written).zip(computed) {
        let tensor = tensor.try_contiguous().map_err(|error| error.to_string())?;
        target.bytes.copy_from_slice(tensor.bytes());
    }
    Ok(())
}

/// What a reference says is wrong, without the op, which the step's error names.
pub(crate) fn in_words<T>(result: Result<T, graph::Error>) -> Result<T, String> {
    result.map_err(|error| match error {
        graph::Error::Evaluation { message, .. } => message,
        other => other.to_string(),
    })
}

fn to_tensor(operand: &Operand<'_>) -> Result<Tensor, String> {
    let view = match operand {
        Operand::View(view) => *view,
        Operand::Buffer(ViewMut { dtype, shape, bytes }) => View { dtype: *dtype, shape, bytes },
        Operand::InResult | Operand::Packed(_) => unreachable!("references get values as they are stored"),
    };
    view.to_tensor().map_err(|error| error.to_string())
}

fn copy(call: KernelCall<'_, '_>) {
    let Operand::View(from) = &call.inputs[0] else { unreachable!("copies read views") };
    call.outputs[0].bytes.copy_from_slice(from.bytes);
}

/// Empties a list and gives its items another lifetime. The standard library collects in place, so the allocation
/// stays.
fn recycle<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

impl ByteRange {
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.start..self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recycled_lists_keep_their_allocation() {
        let list: Vec<Operand<'_>> = Vec::with_capacity(7);
        let address = list.as_ptr() as usize;
        let again: Vec<Operand<'static>> = recycle(list);
        assert_eq!((again.capacity(), again.as_ptr() as usize), (7, address));
    }
}
