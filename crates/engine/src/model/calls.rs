//! One call of a model: its frame and its workspace, the steps, and what comes back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use graph::DeviceRef;
use tensor::{Allocation, Buffer, DType, FarGuard, ReadGuard, Shape};

use super::{Model, ModelState};
use crate::bound_weight::BoundWeights;
use crate::device::far::FarBytes;
use crate::execute::{Execution, Held, HeldMemory, Made, MadeMemory};
use crate::frame::{Array, Frame};
use crate::place::device_ref;
use crate::plan::Plan;
use crate::run::{self, Hooks, Memory};
use crate::stop::Stop;
use crate::watch::{self, TimedStep, Watch};
use crate::workspace::{FRAMES, Workspace, lock};
use crate::written::Written;
use crate::{Error, ExecuteOptions, LogLevel, Profiling};

enum Guard {
    Read(ReadGuard),
    Write(Written),
    Far(FarGuard),
}

impl Model {
    /// Makes a call, with what the settings ask for around it. Gives how long its steps took, if it is timed or watched.
    pub(super) fn observed<T>(
        &self,
        timed: bool,
        options: &ExecuteOptions,
        body: impl FnOnce(&mut Hooks<'_>) -> Result<T, Error>,
    ) -> Result<(T, Vec<TimedStep>), Error> {
        let (program, instruments) = (self.program(), &*self.shared.instruments);
        let settings = &program.settings;
        let sync = instruments.debug.device_sync_mode();
        let watched = timed || sync || Watch::is_needed(settings);
        instruments.traced(|| {
            let watch = watched.then(|| Watch::new(program, sync));
            let stop = Stop::new(self.name(), options);
            let mut hooks = Hooks { instruments, settings, stop, watch };
            let start = watched.then(Instant::now);
            if settings.log_level.shows(LogLevel::Debug) {
                tracing::debug!(target: "perihelion::kernel", model = self.name(), "call");
            }
            let outcome = body(&mut hooks);
            if let (Err(error), true) = (&outcome, settings.log_level.shows(LogLevel::Error)) {
                tracing::error!(target: "perihelion::kernel", model = self.name(), "{error}");
            }
            let outputs = outcome?;
            let steps = hooks.watch.map(|watch| watch.steps).unwrap_or_default();
            if let (Some(start), true) = (start, settings.profiling != Profiling::Off) {
                let detailed = settings.profiling == Profiling::Detailed;
                instruments.recorder.record(self.name(), start, &steps, detailed)?;
            }
            Ok((outputs, steps))
        })
    }

    pub(super) fn compute(&self, inputs: &[Buffer], hooks: &mut Hooks<'_>) -> Result<Vec<Buffer>, Error> {
        let Some(plan) = self.whole() else {
            return Ok(self.run_parts(inputs, hooks)?.into_iter().map(buffer).collect());
        };
        let frame = self.frame(plan, inputs)?;
        let outputs = fresh_outputs(plan, &frame)?;
        self.run(plan, &frame, inputs, &outputs, hooks)?;
        Ok(outputs)
    }

    pub(super) fn compute_into(
        &self,
        inputs: &[Buffer],
        outputs: &[Buffer],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), Error> {
        let Some(plan) = self.whole() else { return self.run_parts_into(inputs, outputs, hooks) };
        let frame = self.frame(plan, inputs)?;
        let arrays = plan.outputs.iter().zip(&frame.output_shapes);
        self.check_outputs(arrays.map(|(ty, &shape)| Array { dtype: ty.dtype, shape }), outputs)?;
        self.run(plan, &frame, inputs, outputs, hooks)
    }

    pub(super) fn weights(&self) -> Result<Arc<BoundWeights>, Error> {
        let weights = self.shared.weights.read().unwrap_or_else(PoisonError::into_inner);
        weights.clone().ok_or_else(|| Error::WeightsReleased { model: self.name().to_string() })
    }

    /// The one plan of the program, if it has no other parts.
    pub(super) fn whole(&self) -> Option<&Plan> {
        self.program().root.whole()
    }

    fn run_parts(&self, inputs: &[Buffer], hooks: &mut Hooks<'_>) -> Result<Vec<Made>, Error> {
        let ModelState { program, frames, .. } = &*self.shared;
        let weights = &*self.weights()?;
        weights.start_call()?;
        let arrays: Vec<Array> =
            inputs.iter().map(|input| Array { dtype: input.dtype(), shape: *input.shape() }).collect();
        // Also checks the number of inputs.
        let given: Vec<(DType, Shape)> = arrays.iter().map(|array| (array.dtype, array.shape)).collect();
        program.root.signature.bind_inputs(&given)?;
        let mut guards = self.lock_inputs(inputs)?;
        let held = guards.iter_mut().zip(arrays).map(|(guard, array)| match guard {
            Guard::Read(guard) => Held { array, memory: HeldMemory::Read(guard) },
            Guard::Write(written) => Held { array, memory: HeldMemory::Write(written.bytes()) },
            Guard::Far(guard) => Held { array, memory: HeldMemory::Far(far_bytes(guard)) },
        });
        let mut workspace = self.workspace(0)?;
        let mut execution = Execution { program, weights, frames, workspace: &mut workspace, hooks };
        let results = execution.block(&program.root, held.collect());
        workspace.far.end_call();
        // What was asked of a device is done before its memory is let go, also after an error.
        let ended = program.devices.far.iter().try_for_each(|device| device.synchronize());
        lock(&self.shared.workspaces).push(workspace);
        guards.into_iter().for_each(Guard::finish);
        let results = results?;
        ended?;
        weights.check_files()?;
        for (position, (array, memory)) in results.iter().enumerate() {
            if let MadeMemory::Host(bytes) = memory {
                watch::check_output(&program.settings, hooks.watch.as_ref(), position, *array, bytes)?;
            }
        }
        Ok(results)
    }

    fn run_parts_into(
        &self,
        inputs: &[Buffer],
        outputs: &[Buffer],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), Error> {
        let types = self.program().root.outputs.iter();
        let guards = outputs.iter().zip(types).enumerate().map(|(position, (buffer, ty))| {
            Guard::lock(buffer, ty.device, true).map_err(|message| Error::Output { position, message })
        });
        let guards = guards.collect::<Result<Vec<_>, _>>()?;
        let results = self.run_parts(inputs, hooks)?;
        self.check_outputs(results.iter().map(|(array, _)| *array), outputs)?;
        for (guard, (_, memory)) in guards.into_iter().zip(results) {
            match (guard, memory) {
                (Guard::Write(mut written), MadeMemory::Host(bytes)) => {
                    written.bytes().copy_from_slice(&bytes);
                    written.finish();
                }
                (Guard::Far(guard), MadeMemory::Far(from)) => {
                    let to = guard.range().start;
                    guard.memory().copy(&*from.memory, &[[from.start, to, from.len]])?;
                }
                _ => unreachable!("outputs are where their types say"),
            }
        }
        Ok(())
    }

    fn run(
        &self,
        plan: &Plan,
        frame: &Frame,
        inputs: &[Buffer],
        outputs: &[Buffer],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), Error> {
        let weights = self.weights()?;
        weights.start_call()?;
        let mut inputs = self.lock_inputs(inputs)?;
        let mut outputs = lock_outputs(outputs)?;
        let mut workspace = self.workspace(frame.arena)?;
        let mut memory = Memory {
            regions: Vec::with_capacity(1 + outputs.len() + inputs.len()),
            inputs: Vec::with_capacity(inputs.len()),
            weights: &weights,
        };
        memory.regions.push(&mut workspace.arena);
        memory.regions.extend(outputs.iter_mut().map(Written::bytes));
        for guard in &mut inputs {
            match guard {
                Guard::Read(guard) => memory.inputs.push(guard),
                Guard::Write(guard) => {
                    memory.regions.push(guard.bytes());
                    memory.inputs.push(&[]);
                }
                Guard::Far(_) => unreachable!("a plan of the host reads the host's memory"),
            }
        }
        let result = run::run(plan, frame, &mut memory, &mut workspace.lists, hooks);
        lock(&self.shared.workspaces).push(workspace);
        let result = result.and_then(|()| weights.check_files());
        let result = result.and_then(|()| {
            let forms = plan.outputs.iter().map(|ty| ty.dtype).zip(&frame.output_shapes);
            forms.zip(&mut outputs).enumerate().try_for_each(|(position, ((dtype, &shape), bytes))| {
                let (array, watch) = (Array { dtype, shape }, hooks.watch.as_ref());
                watch::check_output(hooks.settings, watch, position, array, bytes.bytes())
            })
        });
        outputs.into_iter().for_each(Written::finish);
        inputs.into_iter().for_each(Guard::finish);
        result
    }

    /// The frame for the shapes of the inputs, which are checked by making it.
    fn frame(&self, plan: &Plan, inputs: &[Buffer]) -> Result<Arc<Frame>, Error> {
        if let Some(frame) = self.known_frame(plan, inputs) {
            return Ok(frame);
        }
        let given: Vec<(DType, Shape)> = inputs.iter().map(|input| (input.dtype(), *input.shape())).collect();
        let bindings = self.program().root.signature.bind_inputs(&given)?;
        let frame = Arc::new(Frame::new(plan, &self.program().weights, &bindings)?);
        if self.program().settings.log_level.shows(LogLevel::Info) {
            let (model, arena) = (self.name(), frame.arena);
            tracing::info!(target: "perihelion::kernel", model, arena, "new sizes");
        }
        let mut frames = lock(&self.shared.frames[plan.index]);
        frames.truncate(FRAMES - 1);
        frames.insert(0, Arc::clone(&frame));
        Ok(frame)
    }

    fn known_frame(&self, plan: &Plan, inputs: &[Buffer]) -> Option<Arc<Frame>> {
        if !inputs.iter().map(Buffer::dtype).eq(plan.inputs.iter().map(|input| input.ty.dtype)) {
            return None;
        }
        let mut frames = lock(&self.shared.frames[plan.index]);
        let fits = |frame: &Arc<Frame>| inputs.iter().map(Buffer::shape).eq(&frame.input_shapes);
        let position = frames.iter().position(fits)?;
        frames[..=position].rotate_right(1);
        Some(Arc::clone(&frames[0]))
    }

    fn check_outputs(
        &self,
        expected: impl ExactSizeIterator<Item = Array>,
        outputs: &[Buffer],
    ) -> Result<(), Error> {
        if outputs.len() != expected.len() {
            let (got, expected) = (outputs.len(), expected.len());
            return Err(Error::OutputCount { model: self.name().to_string(), got, expected });
        }
        for (position, (given, Array { dtype, shape })) in outputs.iter().zip(expected).enumerate() {
            if given.dtype() != dtype || *given.shape() != shape {
                let message = format!("got {}{}, expected {dtype}{shape}", given.dtype(), given.shape());
                return Err(Error::Output { position, message });
            }
        }
        Ok(())
    }

    fn lock_inputs(&self, inputs: &[Buffer]) -> Result<Vec<Guard>, Error> {
        let inputs = inputs.iter().zip(&self.program().root.inputs).enumerate();
        let guards = inputs.map(|(position, (buffer, input))| {
            let (name, device, place) = (&input.name, input.ty.device, buffer.device());
            if device_ref(place) != device {
                let message =
                    format!("input {position} '{name}' is on {place}, expected {device}: copy it with `to`");
                return Err(Error::Arguments { model: self.name().to_string(), message });
            }
            let guard = Guard::lock(buffer, device, input.written);
            guard.map_err(|message| Error::Input { position, name: name.clone(), message })
        });
        guards.collect()
    }

    fn workspace(&self, arena: usize) -> Result<Workspace, Error> {
        let mut workspace = lock(&self.shared.workspaces).pop().unwrap_or_default();
        workspace.reserve(arena)?;
        self.shared.scratch_bytes.fetch_max(workspace.arena.len(), Ordering::Relaxed);
        Ok(workspace)
    }
}

fn fresh_outputs(plan: &Plan, frame: &Frame) -> Result<Vec<Buffer>, Error> {
    let outputs = plan.outputs.iter().zip(&frame.output_shapes);
    outputs.map(|(ty, &shape)| Ok(Buffer::try_zeros(ty.dtype, shape)?)).collect()
}

fn buffer((array, memory): Made) -> Buffer {
    let memory = match memory {
        MadeMemory::Host(bytes) => Allocation::Host(bytes),
        MadeMemory::Far(bytes) => Allocation::Far(bytes.memory),
    };
    Buffer::from_allocation(array.dtype, array.shape, memory)
}

fn far_bytes(guard: &FarGuard) -> FarBytes {
    let range = guard.range();
    FarBytes { memory: Arc::clone(guard.memory()), start: range.start, len: range.len() }
}

impl Guard {
    /// Access to a buffer that must be on a device; in words, why there is none.
    fn lock(buffer: &Buffer, device: DeviceRef, written: bool) -> Result<Guard, String> {
        let guard = match device {
            DeviceRef::Cpu if written => Written::lock(buffer).map(Guard::Write),
            DeviceRef::Cpu => buffer.read().map(Guard::Read),
            device if device_ref(buffer.device()) != device => {
                return Err(format!("the buffer is on {}, expected {device}", buffer.device()));
            }
            _ => buffer.hold_far(written).map(|guard| Guard::Far(guard.expect("it is on a device"))),
        };
        guard.map_err(|error| error.to_string())
    }

    /// Puts what steps wrote into the caller's memory.
    fn finish(self) {
        if let Guard::Write(written) = self {
            written.finish();
        }
    }
}

fn lock_outputs(outputs: &[Buffer]) -> Result<Vec<Written>, Error> {
    let outputs = outputs.iter().enumerate();
    let guards = outputs.map(|(position, buffer)| {
        Written::lock(buffer).map_err(|busy| Error::Output { position, message: busy.to_string() })
    });
    guards.collect()
}
