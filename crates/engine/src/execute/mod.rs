//! Runs the parts of a block one after another. What they hand to one another lives as long as a part needs it.

mod far;
mod held;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use graph::Bindings;
use tensor::{DType, Shape, Tensor};

use self::far::FarRegions;
use self::held::{borrow, empty, put, results, state, weight};
use crate::block::{Block, BlockPart, Control, PartOperand, PartStep, PartWork, SizesPart};
use crate::bound_weight::BoundWeights;
use crate::frame::{Array, Frame};
use crate::plan::{Plan, PlanStep};
use crate::run::{self, Hooks, Memory};
use crate::workspace::{FRAMES, Workspace, lock};
use crate::{Device, Error, Program, StepTime, View};

pub(crate) use self::held::{Held, HeldMemory, Made, MadeMemory};

/// One call of a program that is more than one plan.
pub(crate) struct Execution<'r, 'h> {
    pub(crate) program: &'r Program,
    pub(crate) weights: &'r BoundWeights,
    /// Of each plan, the most recently used first.
    pub(crate) frames: &'r [Mutex<Vec<Arc<Frame>>>],
    pub(crate) workspace: &'r mut Workspace,
    pub(crate) hooks: &'r mut Hooks<'h>,
}

impl<'r> Execution<'r, '_> {
    /// The results of a block.
    pub(crate) fn block(&mut self, block: &Block, inputs: Vec<Held<'_>>) -> Result<Vec<Made>, Error> {
        let given: Vec<(DType, Shape)> =
            inputs.iter().map(|input| (input.array.dtype, input.array.shape)).collect();
        let mut bindings = block.signature.bind_inputs(&given)?;
        let mut values: Vec<Option<Held<'_>>> = inputs.into_iter().map(Some).collect();
        values.resize_with(block.values.len(), || None);
        for BlockPart { work, last_used } in &block.parts {
            self.part(work, &mut bindings, &mut values)?;
            last_used.iter().for_each(|&value| values[value] = None);
        }
        results(&block.results, &mut values, self.program, self.weights)
    }

    fn part(
        &mut self,
        work: &PartWork,
        bindings: &mut Bindings,
        values: &mut [Option<Held<'_>>],
    ) -> Result<(), Error> {
        match work {
            PartWork::Plan { plan, inputs, outputs, copies } => {
                let frame = self.frame(plan, bindings)?;
                if plan.far.is_some() {
                    far::check(plan, &frame, copies, self.program, values)
                        .map_err(|(step, message)| self.refused(plan, step, message))?;
                }
                let made = self.plan(plan, &frame, borrow(values, inputs, |i| plan.inputs[i].written))?;
                bindings.clone_from(&frame.bindings);
                put(values, outputs, made);
            }
            PartWork::Transfer { moves, device } => {
                let device = self.program.devices.at(*device).and_then(|device| device.far());
                far::transfer(device, moves, values, &mut self.workspace.far)?;
            }
            PartWork::Sizes(part) => {
                let sizes = self.sizes(part, values)?;
                for (symbol, size) in part.op.defines().into_iter().zip(sizes) {
                    bindings.insert(symbol, size);
                }
            }
            PartWork::Run { control, operands, outputs, types, .. } => {
                let operands = self.operands(operands, values, |i| control.writes(i));
                let made = self.control(control, operands)?;
                for (ty, (array, _)) in types.iter().zip(&made) {
                    ty.bind_symbols(&array.shape, bindings);
                }
                put(values, outputs, made);
            }
        }
        Ok(())
    }

    fn frame(&self, plan: &Plan, bindings: &Bindings) -> Result<Arc<Frame>, Error> {
        let mut frames = lock(&self.frames[plan.index]);
        if let Some(position) = frames.iter().position(|frame| frame.given == *bindings) {
            frames[..=position].rotate_right(1);
            return Ok(Arc::clone(&frames[0]));
        }
        let frame = Arc::new(Frame::new(plan, &self.program.weights, bindings)?);
        frames.truncate(FRAMES - 1);
        frames.insert(0, Arc::clone(&frame));
        Ok(frame)
    }

    fn plan(&mut self, plan: &Plan, frame: &Arc<Frame>, inputs: Vec<Held<'_>>) -> Result<Vec<Made>, Error> {
        if let Some(device) = &plan.far {
            return self.far_plan(plan, frame, &**device, &inputs);
        }
        let arrays = plan.outputs.iter().zip(&frame.output_shapes);
        let mut made: Vec<Made> =
            arrays.map(|(ty, &shape)| empty(Array { dtype: ty.dtype, shape })).collect::<Result<_, _>>()?;
        self.workspace.reserve(frame.arena)?;
        let Workspace { arena, lists, .. } = &mut *self.workspace;
        let mut memory = Memory { regions: vec![arena], inputs: Vec::new(), weights: self.weights };
        memory.regions.extend(made.iter_mut().map(|(_, memory)| memory.bytes_mut()));
        for input in inputs {
            match input.memory {
                HeldMemory::Read(bytes) => memory.inputs.push(bytes),
                HeldMemory::Write(bytes) => {
                    memory.regions.push(bytes);
                    memory.inputs.push(&[]);
                }
                HeldMemory::Own(_) | HeldMemory::Far(_) => unreachable!("plans borrow what the host reads"),
            }
        }
        run::run(plan, frame, &mut memory, lists, self.hooks)?;
        Ok(made)
    }

    /// The error of a step of a plan.
    fn refused(&self, plan: &Plan, step: usize, message: String) -> Error {
        let PlanStep { work, location, .. } = &plan.steps[step];
        self.hooks.error(plan.first_step + step, work.op_name(), location.as_ref(), message)
    }

    fn far_plan(
        &mut self,
        plan: &Plan,
        frame: &Arc<Frame>,
        device: &dyn Device,
        inputs: &[Held<'_>],
    ) -> Result<Vec<Made>, Error> {
        let allocator = device.far().expect("the plan is a device's").allocator();
        let workspace = &mut self.workspace.far;
        let mut regions = vec![workspace.reserve(allocator, frame.arena)?];
        let mut made = Vec::with_capacity(plan.outputs.len());
        for (ty, &shape) in plan.outputs.iter().zip(&frame.output_shapes) {
            let bytes = ty.dtype.bytes_for(shape.elements()).expect("frames have whole blocks");
            let output = workspace.take(allocator, bytes)?;
            regions.push(output.clone());
            made.push((Array { dtype: ty.dtype, shape }, MadeMemory::Far(output)));
        }
        let written = |i: usize| plan.inputs[i].written;
        regions.extend((0..inputs.len()).filter(|&i| written(i)).map(|i| inputs[i].far().clone()));
        let inputs = inputs.iter().enumerate().map(|(i, input)| (!written(i)).then(|| input.far().clone()));
        let memory = FarRegions { regions, inputs: inputs.collect(), weights: self.weights };
        match self.hooks.watch {
            Some(_) => self.watch(plan, frame, device, &memory)?,
            None => far::run(plan, frame, device, &memory, self.hooks, workspace)?,
        }
        Ok(made)
    }

    /// Runs the steps of a plan on a device one by one.
    fn watch(
        &mut self,
        plan: &Plan,
        frame: &Frame,
        device: &dyn Device,
        memory: &FarRegions<'_>,
    ) -> Result<(), Error> {
        for (i, step) in plan.steps.iter().zip(&frame.steps).enumerate() {
            far::run_watched(plan.first_step + i, step, device, memory, self.hooks)?
                .map_err(|message| self.refused(plan, i, message))?;
        }
        Ok(())
    }

    fn sizes(&mut self, part: &SizesPart, values: &mut [Option<Held<'_>>]) -> Result<Vec<usize>, Error> {
        let SizesPart { op, kernel, operands, at: PartStep { step, location } } = part;
        let start = Instant::now();
        let operands = self.operands(operands, values, |_| false);
        let views: Vec<View<'_>> = operands.iter().map(Held::view).collect();
        let found = kernel.as_ref().map_or(Ok(None), |kernel| kernel.sizes(&views));
        let found = found.and_then(|sizes| match sizes {
            Some(sizes) => Ok(sizes),
            None => {
                let tensors = views.iter().map(|view| view.to_tensor()).collect::<Result<Vec<Tensor>, _>>();
                let tensors = tensors.map_err(|error| error.to_string())?;
                run::in_words(op.sizes(&tensors.iter().collect::<Vec<_>>()))
            }
        });
        let sizes =
            found.map_err(|message| self.hooks.error(*step, op.name(), location.as_ref(), message))?;
        assert_eq!(sizes.len(), op.defines().len(), "a size for each symbol of {}", op.name());
        if let Some(watch) = &mut self.hooks.watch {
            let shapes: Vec<String> = views.iter().map(|v| format!("{}{}", v.dtype, v.shape)).collect();
            let time = StepTime {
                op: op.name(),
                kernel: kernel.as_ref().map(|kernel| format!("sizes of {}", kernel.name())),
                shapes: format!("{} → {sizes:?}", shapes.join(", ")),
                microseconds: start.elapsed().as_secs_f64() * 1e6,
            };
            watch.steps.push((start, time));
        }
        Ok(sizes)
    }

    fn control(&mut self, control: &Control, mut operands: Vec<Held<'_>>) -> Result<Vec<Made>, Error> {
        match control {
            Control::Call(block) => self.block(block, operands),
            Control::Cond { then, otherwise } => {
                let captured = operands.split_off(1);
                self.block(if is_true(operands[0].bytes()) { then } else { otherwise }, captured)
            }
            Control::While { predicate, body } => {
                let mut captured = operands.split_off(body.outputs.len());
                let mut carried: Vec<Made> = operands.iter().map(Held::copy).collect::<Result<_, _>>()?;
                loop {
                    if let Some(stop) = &self.hooks.stop {
                        stop.check()?;
                    }
                    let condition = self.block(predicate, state(&carried, &mut captured))?;
                    if !is_true(condition[0].1.bytes()) {
                        return Ok(carried);
                    }
                    carried = self.block(body, state(&carried, &mut captured))?;
                }
            }
        }
    }

    fn operands<'v>(
        &self,
        sources: &[PartOperand],
        values: &'v mut [Option<Held<'_>>],
        written: impl Fn(usize) -> bool,
    ) -> Vec<Held<'v>>
    where
        'r: 'v,
    {
        let (program, weights) = (self.program, self.weights);
        let positions: Vec<usize> = (0..sources.len()).filter(|&i| sources[i].value().is_some()).collect();
        let wanted: Vec<usize> = sources.iter().filter_map(|source| source.value()).collect();
        let mut borrowed = borrow(values, &wanted, |i| written(positions[i])).into_iter();
        let operand = |source: &PartOperand| match source {
            PartOperand::Value(_) => borrowed.next().expect("borrowed above"),
            PartOperand::Weight(slot) => weight(program, weights, *slot),
        };
        sources.iter().map(operand).collect()
    }
}

impl Control {
    /// Whether a block writes the buffer that operand `position` is.
    fn writes(&self, position: usize) -> bool {
        let writes = |block: &Block, input: usize| block.inputs.get(input).is_some_and(|input| input.written);
        match self {
            Control::Cond { then, otherwise } => position
                .checked_sub(1)
                .is_some_and(|capture| writes(then, capture) || writes(otherwise, capture)),
            Control::While { predicate, body } => writes(predicate, position) || writes(body, position),
            Control::Call(block) => writes(block, position),
        }
    }
}

fn is_true(bytes: &[u8]) -> bool {
    bytes[0] != 0
}
