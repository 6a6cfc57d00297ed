//! A compiled graph with its weights: what callers execute.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use graph::{DeviceRef, Graph, Type};
use tensor::{AlignedBytes, Buffer, DType, ReadGuard, Shape};

use crate::artifact;
use crate::bind::{self, BoundWeight, Sources};
use crate::capture::Captured;
use crate::execute::{Execution, Held, HeldMemory, Made};
use crate::frame::{Array, Frame};
use crate::instruments::Instruments;
use crate::plan::Plan;
use crate::run::{self, Hooks, Lists, Memory};
use crate::watch::{self, TimedStep, Watch};
use crate::written::Written;
use crate::{Device, Error, LogLevel, Profile, Profiling, Program, WeightsRegistry};

/// Frames of a plan kept for sizes seen before: a server's decode batches come in this many sizes or so.
pub(crate) const FRAMES: usize = 64;

/// The name and type of an input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorSpec {
    /// The name of the input in the graph; outputs are `output0`, `output1`, ….
    pub name: String,
    /// Its type; a buffer's is `mut`.
    pub ty: Type,
}

/// A compiled graph with its weights bound. Clones share everything.
///
/// Any number of threads may execute it at once, with results independent of each other.
#[derive(Clone)]
pub struct Model {
    shared: Arc<Shared>,
}

struct Shared {
    /// What the program was made from; artifacts hold it.
    graph: Arc<Graph>,
    program: Arc<Program>,
    /// `None` once released. Calls hold on to those they started with.
    weights: RwLock<Option<Arc<[BoundWeight]>>>,
    instruments: Arc<Instruments>,
    captures: Mutex<BTreeMap<Vec<u64>, Captured>>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    /// Of each plan, the most recently used first.
    frames: Vec<Mutex<Vec<Arc<Frame>>>>,
    /// One for each call that ever ran beside others.
    workspaces: Mutex<Vec<Workspace>>,
}

/// What a call needs to itself and hands on to later calls, so that these allocate nothing large.
pub(crate) struct Workspace {
    pub(crate) arena: AlignedBytes,
    pub(crate) lists: Lists,
}

enum Guard {
    Read(ReadGuard),
    Write(Written),
}

impl Model {
    pub(crate) fn new(
        graph: Arc<Graph>,
        program: Arc<Program>,
        weights: Vec<BoundWeight>,
        instruments: Arc<Instruments>,
    ) -> Model {
        let inputs = program.root.inputs.iter();
        let inputs =
            inputs.map(|input| TensorSpec { name: input.name.clone(), ty: input.ty.clone() }).collect();
        let outputs = program.root.outputs.iter().enumerate();
        let outputs =
            outputs.map(|(i, ty)| TensorSpec { name: format!("output{i}"), ty: ty.clone() }).collect();
        let frames = (0..program.plans).map(|_| Mutex::default()).collect();
        let weights = RwLock::new(Some(weights.into()));
        let (captures, workspaces) = (Mutex::default(), Mutex::default());
        let shared =
            Shared { graph, program, weights, instruments, captures, inputs, outputs, frames, workspaces };
        Model { shared: Arc::new(shared) }
    }

    /// The name of the graph it was compiled from.
    pub fn name(&self) -> &str {
        self.program().name()
    }

    /// The program it executes.
    pub fn program(&self) -> &Program {
        &self.shared.program
    }

    /// What [`Model::execute`] takes, in order.
    pub fn input_metadata(&self) -> &[TensorSpec] {
        &self.shared.inputs
    }

    /// What [`Model::execute`] gives, in order.
    pub fn output_metadata(&self) -> &[TensorSpec] {
        &self.shared.outputs
    }

    /// Writes an artifact of the model with its weights, in the layouts they are packed in: it loads without a
    /// registry. See [`crate::Artifact`].
    ///
    /// # Errors
    /// If the file cannot be written, or the device stores no packed weights.
    pub fn export_mef(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let Shared { graph, program, .. } = &*self.shared;
        let weights = self.weights()?;
        let path = path.as_ref();
        let models = vec![(&**graph, &**program)];
        let contents = artifact::Contents { device: &*program.device, key: "", models };
        let file = artifact::write(path, &contents, |writer| {
            let mut missing = writer.missing(program).into_iter();
            missing.try_for_each(|slot| writer.weight(program, slot, &weights[slot]))
        })?;
        file.commit().map_err(artifact::failed(path))
    }

    /// Computes the outputs, each in a fresh buffer.
    ///
    /// Inputs are read, and those of [`graph::Kind::Buffer`] that the graph writes are written; all are held for the
    /// length of the call, so a call that would write what another one uses fails.
    ///
    /// # Errors
    /// If an input is not what the model expects or is in use, or the data (an index, say) makes no sense.
    pub fn execute(&self, inputs: &[Buffer]) -> Result<Vec<Buffer>, Error> {
        self.observed(false, |hooks| self.compute(inputs, hooks)).map(|(outputs, _)| outputs)
    }

    /// Computes the outputs into buffers of the caller's, which saves large ones from being allocated each time.
    ///
    /// # Errors
    /// As [`Model::execute`], and if a buffer does not fit its output or is in use. After an error of a step,
    /// the contents of the outputs are undefined.
    pub fn execute_into(&self, inputs: &[Buffer], outputs: &[Buffer]) -> Result<(), Error> {
        self.observed(false, |hooks| self.compute_into(inputs, outputs, hooks)).map(|_| ())
    }

    /// Executes, and tells how long each step took.
    ///
    /// # Errors
    /// As [`Model::execute`].
    pub fn profile(&self, inputs: &[Buffer]) -> Result<(Vec<Buffer>, Profile), Error> {
        let (outputs, steps) = self.observed(true, |hooks| self.compute(inputs, hooks))?;
        Ok((outputs, Profile { steps: steps.into_iter().map(|(_, time)| time).collect() }))
    }

    /// What it takes and gives, as in `mlp(x: f32[n, 64]) -> (output0: f32[n, 64])`.
    pub fn signature(&self) -> String {
        let list = |specs: &[TensorSpec]| {
            specs.iter().map(|spec| format!("{}: {}", spec.name, spec.ty)).collect::<Vec<_>>().join(", ")
        };
        format!("{}({}) -> ({})", self.name(), list(self.input_metadata()), list(self.output_metadata()))
    }

    /// The devices it runs on.
    pub fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::clone(&self.program().device)]
    }

    /// Where each input must lie.
    pub fn input_devices(&self) -> Vec<DeviceRef> {
        self.input_metadata().iter().map(|spec| spec.ty.device).collect()
    }

    /// Where each output lies.
    pub fn output_devices(&self) -> Vec<DeviceRef> {
        self.output_metadata().iter().map(|spec| spec.ty.device).collect()
    }

    /// The kernels it runs on, each with the number of its steps, in the order of their names. Where an op's reference
    /// stands in, the name says so.
    pub fn kernel_summaries(&self) -> Vec<(String, usize)> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (op, kernel) in self.program().kernels() {
            *counts.entry(kernel.unwrap_or_else(|| format!("{op} (reference)"))).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    /// Binds other weights, of the same names and types. Calls that run keep those they started with.
    ///
    /// # Errors
    /// As [`crate::InferenceSession::init`]; the weights are then those from before.
    pub fn reload(&self, weights: &dyn WeightsRegistry) -> Result<(), Error> {
        let sources = Sources { registry: weights, stored: None };
        let bound = bind::bind(self.program(), sources, &mut |_| ())?;
        *self.shared.weights.write().unwrap_or_else(PoisonError::into_inner) = Some(bound.into());
        Ok(())
    }

    /// Lets go of the weights once no call uses them. Calls fail until others are bound with [`Model::reload`].
    pub fn release_weights(&self) {
        *self.shared.weights.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn captures(&self) -> MutexGuard<'_, BTreeMap<Vec<u64>, Captured>> {
        lock(&self.shared.captures)
    }

    /// Makes a call, with what the settings ask for around it. Gives how long its steps took, if it is timed or watched.
    fn observed<T>(
        &self,
        timed: bool,
        body: impl FnOnce(&mut Hooks<'_>) -> Result<T, Error>,
    ) -> Result<(T, Vec<TimedStep>), Error> {
        let (program, instruments) = (self.program(), &*self.shared.instruments);
        let settings = &program.settings;
        let sync = instruments.debug.device_sync_mode();
        let watched = timed || sync || Watch::is_needed(settings);
        instruments.traced(|| {
            let watch = watched.then(|| Watch::new(program, sync));
            let mut hooks = Hooks { instruments, settings, watch };
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

    fn compute(&self, inputs: &[Buffer], hooks: &mut Hooks<'_>) -> Result<Vec<Buffer>, Error> {
        let Some(plan) = self.whole() else {
            return Ok(self.run_parts(inputs, hooks)?.into_iter().map(buffer).collect());
        };
        let frame = self.frame(plan, inputs)?;
        let outputs = fresh_outputs(plan, &frame);
        self.run(plan, &frame, inputs, &outputs, hooks)?;
        Ok(outputs)
    }

    fn compute_into(
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

    fn weights(&self) -> Result<Arc<[BoundWeight]>, Error> {
        let weights = self.shared.weights.read().unwrap_or_else(PoisonError::into_inner);
        weights.clone().ok_or_else(|| Error::WeightsReleased { model: self.name().to_string() })
    }

    /// The one plan of the program, if it has no other parts.
    fn whole(&self) -> Option<&Plan> {
        self.program().root.whole()
    }

    fn run_parts(&self, inputs: &[Buffer], hooks: &mut Hooks<'_>) -> Result<Vec<Made>, Error> {
        let Shared { program, frames, .. } = &*self.shared;
        let weights = &*self.weights()?;
        let arrays: Vec<Array> =
            inputs.iter().map(|input| Array { dtype: input.dtype(), shape: *input.shape() }).collect();
        // Also checks the number of inputs.
        let given: Vec<(DType, Shape)> = arrays.iter().map(|array| (array.dtype, array.shape)).collect();
        program.root.signature.bind_inputs(&given)?;
        let mut guards = self.lock_inputs(inputs)?;
        let held = guards.iter_mut().zip(arrays).map(|(guard, array)| match guard {
            Guard::Read(guard) => Held { array, memory: HeldMemory::Read(guard) },
            Guard::Write(written) => Held { array, memory: HeldMemory::Write(written.bytes()) },
        });
        let mut workspace = self.workspace(0);
        let mut execution = Execution { program, weights, frames, workspace: &mut workspace, hooks };
        let results = execution.block(&program.root, held.collect());
        lock(&self.shared.workspaces).push(workspace);
        guards.into_iter().for_each(Guard::finish);
        let results = results?;
        for (position, (array, bytes)) in results.iter().enumerate() {
            watch::check_output(&program.settings, hooks.watch.as_ref(), position, *array, bytes)?;
        }
        Ok(results)
    }

    fn run_parts_into(
        &self,
        inputs: &[Buffer],
        outputs: &[Buffer],
        hooks: &mut Hooks<'_>,
    ) -> Result<(), Error> {
        let guards = lock_outputs(outputs)?;
        let results = self.run_parts(inputs, hooks)?;
        self.check_outputs(results.iter().map(|(array, _)| *array), outputs)?;
        for (mut written, (_, bytes)) in guards.into_iter().zip(results) {
            written.bytes().copy_from_slice(&bytes);
            written.finish();
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
        let mut inputs = self.lock_inputs(inputs)?;
        let mut outputs = lock_outputs(outputs)?;
        let mut workspace = self.workspace(frame.arena);
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
            }
        }
        let result = run::run(plan, frame, &mut memory, &mut workspace.lists, hooks);
        lock(&self.shared.workspaces).push(workspace);
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
            let guard = match input.written {
                true => Written::lock(buffer).map(Guard::Write),
                false => buffer.read().map(Guard::Read),
            };
            guard.map_err(|busy| Error::Input {
                position,
                name: input.name.clone(),
                message: busy.to_string(),
            })
        });
        guards.collect()
    }

    fn workspace(&self, arena: usize) -> Workspace {
        let mut workspace = lock(&self.shared.workspaces)
            .pop()
            .unwrap_or_else(|| Workspace { arena: AlignedBytes::zeroed(0), lists: Lists::default() });
        workspace.reserve(arena);
        workspace
    }
}

impl Workspace {
    pub(crate) fn reserve(&mut self, arena: usize) {
        if self.arena.len() < arena {
            // A half more than asked for: sizes that grow call by call then allocate but a few times.
            self.arena = AlignedBytes::zeroed(arena.saturating_add(arena / 2));
        }
    }
}

fn fresh_outputs(plan: &Plan, frame: &Frame) -> Vec<Buffer> {
    let outputs = plan.outputs.iter().zip(&frame.output_shapes);
    outputs.map(|(ty, &shape)| Buffer::zeros(ty.dtype, shape)).collect()
}

fn buffer((array, bytes): Made) -> Buffer {
    Buffer::from_bytes(array.dtype, array.shape, bytes)
}

impl Guard {
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

/// Nothing here can be left half changed, so what a panicking thread held is good still.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.ty)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use graph::ops::{Binary, ReduceKind, Unary};
    use graph::{Builder, Error as GraphError, Graph, Value};
    use proptest::prelude::*;
    use tensor::{Index, Tensor};

    use super::*;
    use crate::testing::{buffers, build, f32, noise, reference_session, session};
    use crate::{CompileOptions, Passes};

    /// `y = x + x · 2`, with x f32[n, 2].
    fn triple() -> Graph {
        build("triple", |b| {
            let x = b.input("x", f32(&["n", "2"]));
            let two = b.constant(Tensor::scalar(2f32));
            let double = b.mul(x, two)?;
            Ok(vec![b.add(double, x)?])
        })
    }

    #[test]
    fn one_model_serves_every_size() {
        let model = session().load(&triple(), &()).unwrap();
        for n in [1usize, 3, 0, 100, 3] {
            let x = noise([n, 2], n);
            let y = model.execute(&[Buffer::from_tensor(&x)]).unwrap();
            assert_eq!(y[0].shape(), &Shape::new(&[n, 2]));
            let expected: Vec<f32> = x.to_vec::<f32>().into_iter().map(|x| x * 2.0 + x).collect();
            assert_eq!(y[0].to_vec::<f32>(), expected);
        }
        assert_eq!(model.input_metadata()[0].to_string(), "x f32[n, 2]");
        assert_eq!(model.output_metadata()[0].to_string(), "output0 f32[n, 2]");
    }

    #[test]
    fn weights_are_exchanged_and_let_go() {
        let graph = build("shift", |b| {
            let x = b.input("x", f32(&["n", "2"]));
            let (w, bias) = (b.weight("w", f32(&["2", "2"]))?, b.weight("bias", f32(&["2"]))?);
            let y = b.linear(x, w)?;
            Ok(vec![b.add(y, bias)?])
        });
        // A multiple of the identity, which the device packs, and a bias, which it does not.
        let weights = |scale: f32| {
            move |name: &str| match name {
                "w" => Some(Tensor::from_slice([2, 2], &[scale, 0.0, 0.0, scale])),
                _ => Some(Tensor::from_slice([2], &[scale; 2])),
            }
        };
        let model = session().load(&graph, &weights(2.0)).unwrap();
        let other = model.clone();
        let run = |model: &Model| Ok(model.execute(&[Buffer::from_slice([1, 2], &[1f32, 3.0])])?[0].to_vec());
        let check = |expected: [f32; 2]| {
            for model in [&model, &other] {
                assert_eq!(run(model).map_err(|error: Error| error.to_string()), Ok(expected.to_vec()));
            }
        };
        check([4.0, 8.0]);
        model.reload(&weights(10.0)).unwrap();
        check([20.0, 40.0]);
        let wrong = |_: &str| Some(Tensor::zeros(DType::F32, [3]));
        let error = model.reload(&wrong).unwrap_err().to_string();
        assert_eq!(error, "weight `w`: got f32[3], expected f32[2, 2]");
        check([20.0, 40.0]);
        other.release_weights();
        let released = "the weights of model `shift` were released; reload them before it is executed";
        for model in [&model, &other] {
            assert_eq!(run(model).unwrap_err().to_string(), released);
        }
        other.reload(&weights(1.0)).unwrap();
        check([2.0, 4.0]);
    }

    #[test]
    fn wrong_inputs_are_named() {
        let graph = build("sum", |b| {
            let (x, y) = (b.input("x", f32(&["n", "5"])), b.input("y", f32(&["n", "5"])));
            Ok(vec![b.add(x, y)?])
        });
        let model = session().load(&graph, &()).unwrap();
        let zeros = |dtype, shape: &[usize]| Buffer::zeros(dtype, shape);
        let check = |inputs: &[Buffer], message: &str| {
            assert_eq!(model.execute(inputs).unwrap_err().to_string(), message);
        };
        let x = zeros(DType::F32, &[2, 5]);
        check(&[x.clone(), zeros(DType::F32, &[2, 6])], "input 1 'y': got f32[2, 6], expected f32[n, 5]");
        check(&[x.clone(), zeros(DType::F16, &[2, 5])], "input 1 'y': got f16[2, 5], expected f32[n, 5]");
        check(&[x.clone(), zeros(DType::F32, &[2])], "input 1 'y': got f32[2], expected f32[n, 5]");
        check(&[x.clone(), zeros(DType::F32, &[3, 5])], "the dim `n` is 2 in input 0 'x', 3 in input 1 'y'");
        check(&[x], "`sum` takes 2 inputs (x, y), got 1");
    }

    #[test]
    fn buffers_in_use_are_named() {
        let graph = build("store", |b| {
            let cache = b.input("cache", Type::buffer(DType::F32, [2]));
            let x = b.input("x", f32(&["2"]));
            let old = b.load(cache)?;
            b.store(cache, x)?;
            let new = b.load(cache)?;
            Ok(vec![b.sub(new, old)?])
        });
        let model = session().load(&graph, &()).unwrap();
        let (cache, x) = (Buffer::from_slice([2], &[1f32, 2.0]), Buffer::from_slice([2], &[10f32, 20.0]));
        let y = model.execute(&[cache.clone(), x.clone()]).unwrap();
        assert_eq!(y[0].to_vec::<f32>(), [9.0, 18.0]);
        assert_eq!(cache.to_vec::<f32>(), [10.0, 20.0]);
        assert_eq!(x.to_vec::<f32>(), [10.0, 20.0]);
        let busy = "input 0 'cache': the buffer is being read by another call";
        let guard = cache.read().unwrap();
        assert_eq!(model.execute(&[cache.clone(), x.clone()]).unwrap_err().to_string(), busy);
        drop(guard);
        let same = model.execute(&[cache.clone(), cache.clone()]).unwrap_err().to_string();
        assert_eq!(same, "input 1 'x': the buffer is being written by another call");
        assert!(model.execute(&[cache, x]).is_ok());
    }

    #[test]
    fn parts_of_buffers_are_inputs_and_outputs() {
        let model = session().load(&triple(), &()).unwrap();
        let all = Buffer::from_slice([5, 2], &[0f32, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
        let x = all.slice(&[(1..3).into()]).unwrap();
        let results = Buffer::zeros(DType::F32, [4, 2]);
        let y = results.slice(&[(1..3).into()]).unwrap();
        model.execute_into(std::slice::from_ref(&x), std::slice::from_ref(&y)).unwrap();
        assert_eq!(results.to_vec::<f32>(), [0.0, 0.0, 3.0, 6.0, 9.0, 12.0, 0.0, 0.0]);
        assert_eq!(model.execute(&[x]).unwrap()[0].to_vec::<f32>(), [3.0, 6.0, 9.0, 12.0]);

        let gaps = Buffer::zeros(DType::F32, [2, 4]).slice(&[Index::ALL, Index::ALL.step(2)]).unwrap();
        let error = model.execute(std::slice::from_ref(&gaps)).unwrap_err().to_string();
        assert_eq!(error, "input 0 'x': got strides [4, 2], expected a row-major buffer");
        let x = Buffer::zeros(DType::F32, [2, 2]);
        let error = model.execute_into(std::slice::from_ref(&x), &[gaps]).unwrap_err().to_string();
        assert_eq!(error, "output 0: got strides [4, 2], expected a row-major buffer");
        let error = model.execute_into(&[x], &[Buffer::zeros(DType::F32, [2, 2]).read_only()]).unwrap_err();
        assert_eq!(error.to_string(), "output 0: the buffer is read-only");
    }

    #[test]
    fn parts_of_buffers_are_written_where_they_lie() {
        let graph = build("store", |b| {
            let cache = b.input("cache", Type::buffer(DType::F32, [2]));
            let x = b.input("x", f32(&["2"]));
            b.store(cache, x)?;
            Ok(vec![b.load(cache)?])
        });
        let all = Buffer::zeros(DType::F32, [4]);
        let cache = all.slice(&[(1..3).into()]).unwrap();
        let model = session().load(&graph, &()).unwrap();
        model.execute(&[cache, Buffer::from_slice([2], &[1f32, 2.0])]).unwrap();
        assert_eq!(all.to_vec::<f32>(), [0.0, 1.0, 2.0, 0.0]);
    }

    #[test]
    fn outputs_can_be_the_callers() {
        let model = session().load(&triple(), &()).unwrap();
        let (x, y) = (Buffer::from_slice([1, 2], &[1f32, 2.0]), Buffer::zeros(DType::F32, [1, 2]));
        model.execute_into(std::slice::from_ref(&x), std::slice::from_ref(&y)).unwrap();
        assert_eq!(y.to_vec::<f32>(), [3.0, 6.0]);
        let check = |outputs: &[Buffer], message: &str| {
            assert_eq!(
                model.execute_into(std::slice::from_ref(&x), outputs).unwrap_err().to_string(),
                message
            );
        };
        check(&[], "model `triple`: got 0 buffers for outputs, expected 1");
        check(&[Buffer::zeros(DType::F32, [2, 2])], "output 0: got f32[2, 2], expected f32[1, 2]");
        check(std::slice::from_ref(&x), "output 0: the buffer is being read by another call");
    }

    /// An input, a weight, the same value twice, a view of it, and a part of something.
    #[test]
    fn any_value_can_be_an_output() {
        let graph = build("outputs", |b| {
            let x = b.input("x", f32(&["n", "2"]));
            let w = b.weight("w", f32(&["2"]))?;
            let y = b.unary(Unary::Neg, x)?;
            let view = b.reshape(y, [b.dim(x, 0), 1.into(), 2.into()])?;
            let last = b.slice(y, 0, 1, None)?;
            Ok(vec![x, w, y, y, view, last])
        });
        let w = |_: &str| Some(Tensor::from_slice([2], &[5f32, 6.0]));
        for model in [session().load(&graph, &w).unwrap(), reference_session().load(&graph, &w).unwrap()] {
            let x = Buffer::from_slice([2, 2], &[1f32, 2.0, 3.0, 4.0]);
            let outputs = model.execute(std::slice::from_ref(&x)).unwrap();
            let values: Vec<Vec<f32>> = outputs.iter().map(Buffer::to_vec).collect();
            let negative = vec![-1.0, -2.0, -3.0, -4.0];
            let last = vec![-3.0, -4.0];
            let x_values = vec![1.0, 2.0, 3.0, 4.0];
            assert_eq!(
                values,
                [x_values, vec![5.0, 6.0], negative.clone(), negative.clone(), negative, last]
            );
            assert!(!outputs[0].shares_memory_with(&x) && !outputs[2].shares_memory_with(&outputs[3]));
            let error = model.execute(&[Buffer::zeros(DType::F32, [0, 2])]).unwrap_err();
            assert_eq!(error.to_string(), "the dim n - 1 is -1");
        }
    }

    #[test]
    fn data_that_makes_no_sense_names_the_step() {
        let graph = build("lookup", |b| {
            let table = b.weight("table", f32(&["3", "2"]))?;
            let ids = b.input("ids", Type::new(DType::U32, ["n"]));
            Ok(vec![b.embedding(table, ids)?])
        });
        let model = session().load(&graph, &|_: &str| Some(noise([3, 2], 1))).unwrap();
        let error = model.execute(&[Buffer::from_slice([2], &[1u32, 7])]).unwrap_err().to_string();
        assert!(error.starts_with("step 0, embedding: ") && error.contains('7'), "{error}");
    }

    #[test]
    fn threads_do_not_disturb_each_other() {
        let model = session().load(&triple(), &()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let model = model.clone();
                scope.spawn(move || {
                    for n in 1..50 {
                        let x = noise([n, 2], n + thread);
                        let y = model.execute(&[Buffer::from_tensor(&x)]).unwrap();
                        let expected: Vec<f32> = x.to_vec::<f32>().into_iter().map(|x| x * 2.0 + x).collect();
                        assert_eq!(y[0].to_vec::<f32>(), expected);
                    }
                });
            }
        });
    }

    #[test]
    fn a_profile_tells_each_step() {
        let options = CompileOptions { passes: Passes::None, ..CompileOptions::default() };
        let model = session().init(&session().compile_with(&triple(), &options).unwrap(), &()).unwrap();
        let (outputs, profile) = model.profile(&[Buffer::from_slice([1, 2], &[1f32, 2.0])]).unwrap();
        assert_eq!(outputs[0].to_vec::<f32>(), [3.0, 6.0]);
        let steps: Vec<(&str, Option<&str>, &str)> =
            profile.steps.iter().map(|step| (step.op, step.kernel.as_deref(), &step.shapes[..])).collect();
        let mul = ("mul", None, "f32[1, 2], f32[] → f32[1, 2]");
        assert_eq!(steps, [mul, ("add", Some("add.test"), "f32[1, 2], f32[1, 2] → f32[1, 2]")]);
        assert!(profile.to_string().contains("1 x mul (reference)"), "{profile}");
    }

    /// A prefill of two sequences and a decode step of both, with the cache kept from call to call.
    #[test]
    fn a_cache_is_kept_from_call_to_call() {
        let graph = Graph::parse(
            "graph attend(%x: f32[tokens, 2, 4], %cache: mut f32[pages, 1, 2, 2, 64], %offsets: u32[batch + 1],
                          %lengths: u32[batch], %pages: u32[batch, width]) {
               kv_store(%cache, %x, %x, %offsets, %lengths, %pages) {layer = 0}
               %y = paged_attention(%x, %cache, %offsets, %lengths, %pages) {layer = 0, scale = 0.5}
               return %y
             }",
        )
        .unwrap();
        let model = session().load(&graph, &()).unwrap();
        let cache = Buffer::zeros(DType::F32, [4, 1, 2, 2, 64]);
        let mut expected_cache = cache.to_tensor().unwrap();
        let pages = Tensor::from_slice([2, 1], &[2u32, 0]);
        for (tokens, offsets, lengths) in [(5, [0u32, 3, 5], [0u32, 0]), (2, [0, 1, 2], [3, 2])] {
            let (offsets, lengths) = (Tensor::from_slice([3], &offsets), Tensor::from_slice([2], &lengths));
            let x = noise([tokens, 2, 4], tokens);
            let tensors = [x, expected_cache, offsets, lengths, pages.clone()];
            let expected = graph.evaluate(&tensors, &|_| None).unwrap();
            let mut inputs = buffers(&tensors);
            inputs[1] = cache.clone();
            let y = model.execute(&inputs).unwrap();
            assert_eq!(y[0].to_vec::<f32>(), expected.outputs[0].to_vec::<f32>());
            expected_cache = expected.buffers[0].clone();
            assert_eq!(cache.to_vec::<f32>(), expected_cache.to_vec::<f32>());
        }
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let graph = Graph::parse(
            "graph vast(%x: u8[n, 0]) {
               %one = constant [1] : u8[1, 1]
               %y = broadcast(%one) {shape = [n, 8]}
               %z = add(%y, %y)
               return %z
             }",
        )
        .unwrap();
        let model = session().load(&graph, &()).unwrap();
        let error = model.execute(&[Buffer::zeros(DType::U8, [usize::MAX / 16, 0])]).unwrap_err().to_string();
        assert!(error.starts_with("model `vast`: the arena overflows with n = "), "{error}");
        let error = model.execute(&[Buffer::zeros(DType::U8, [1 << 62, 0])]).unwrap_err().to_string();
        assert!(error.starts_with("model `vast`: u8[4611686018427387904, 8] overflows with n = "), "{error}");
    }

    /// Appends a node that the numbers choose, if it fits the operands they choose.
    fn random_node(b: &mut Builder, pool: &mut Vec<Value>, [op, i, j]: [usize; 3]) -> Result<(), GraphError> {
        let (x, y) = (pool[i % pool.len()], pool[j % pool.len()]);
        let columns = b.dim(x, -1).as_static().unwrap_or(0);
        match op {
            0 => pool.push(b.unary(Unary::Sigmoid, x)?),
            1 => pool.push(b.silu(x)?),
            2 => pool.push(b.unary(Unary::Neg, x)?),
            3..6 => pool.push(b.add(x, y)?),
            6 | 7 => pool.push(b.mul(x, y)?),
            8..12 => {
                let rows = if op == 11 { 8 } else { 4 };
                let w =
                    b.weight(format!("w{rows}.{columns}.{}", j % 2), Type::new(DType::F32, [rows, columns]))?;
                pool.push(b.linear(x, w)?);
            }
            12 | 13 => {
                let w = b.weight(format!("norm{columns}"), Type::new(DType::F32, [columns]))?;
                pool.push(b.rms_norm(x, w, 1e-3)?);
            }
            14 => {
                let w = b.weight(format!("bias{columns}"), Type::new(DType::F32, [columns]))?;
                pool.push(b.add(x, w)?);
            }
            15 => pool.push(b.reshape(x, [b.dim(x, 0), 2.into(), (columns / 2).into()])?),
            16 => pool.push(b.reshape(x, [b.dim(x, 0), (columns * 2).into()])?),
            17 => pool.push(b.transpose(x, &[0, 2, 1])?),
            18 => {
                let parts = b.split(x, -1, &[columns / 2, columns - columns / 2])?;
                pool.extend(parts);
            }
            19 => pool.push(b.slice(x, 0, 1, None)?),
            20 => pool.push(b.concat(&[x, y], -1)?),
            21 => pool.push(b.binary(Binary::Max, x, y)?),
            22 => {
                let one = b.constant(Tensor::scalar(1f32));
                pool.push(b.mul(x, one)?);
            }
            23 => b.store(pool_buffer(b), x)?,
            24 => {
                let (p, buffer) = (is_negative(b, x)?, pool_buffer(b));
                let then = |b: &mut Builder, v: &[Value]| {
                    b.store(v[1], v[0])?;
                    Ok(vec![b.silu(v[0])?, v[0]])
                };
                pool.extend(
                    b.cond(p, &[x, buffer], then, |b, v| Ok(vec![v[0], b.unary(Unary::Neg, v[0])?]))?,
                );
            }
            25 => {
                let body = |b: &mut Builder, v: &[Value]| {
                    let w = b.weight(
                        format!("w{columns}.{columns}.0"),
                        Type::new(DType::F32, [columns, columns]),
                    )?;
                    Ok(vec![b.linear(v[0], w)?])
                };
                let inputs = [("rows", Type::new(DType::F32, [graph::Dim::symbol("rows"), columns.into()]))];
                let layer = Builder::subgraph("layer", &inputs, body)?;
                pool.extend(b.call(&layer, &[x], "layer.")?);
            }
            26 => {
                let zero = b.constant(Tensor::scalar(0i64));
                let next = |b: &mut Builder, carried: &[Value], captured: &[Value]| {
                    let one = b.constant(Tensor::scalar(1i64));
                    let old = b.load(captured[1])?;
                    b.store(captured[1], old)?;
                    Ok(vec![b.add(carried[0], one)?, b.add(carried[1], captured[0])?])
                };
                let few = |b: &mut Builder, carried: &[Value], _: &[Value]| {
                    let end = b.constant(Tensor::scalar((j % 3) as i64));
                    b.binary(Binary::Less, carried[0], end)
                };
                pool.push(b.while_loop(&[zero, x], &[x, pool_buffer(b)], few, next)?[1]);
            }
            _ => pool.push(b.load(pool_buffer(b))?),
        }
        Ok(())
    }

    /// Whether the sum of all elements is negative: `bool[]`.
    fn is_negative(b: &mut Builder, x: Value) -> Result<Value, GraphError> {
        let flat = b.reshape(x, [b.ty(x).elements()])?;
        let sum = b.reduce(ReduceKind::Sum, flat, 0)?;
        let sum = b.reshape(sum, [])?;
        let zero = b.constant(Tensor::scalar(0f32));
        b.binary(Binary::Less, sum, zero)
    }

    fn pool_buffer(b: &Builder) -> Value {
        b.graph().inputs()[1].value
    }

    fn random_graph(choices: &[[usize; 3]]) -> Graph {
        build("random", |b| {
            let x = b.input("x", f32(&["n", "4"]));
            b.input("buffer", Type::buffer(DType::F32, [graph::Dim::symbol("n"), 4.into()]));
            let mut pool = vec![x];
            for &choice in choices {
                // What does not fit is left out.
                let _ = random_node(b, &mut pool, choice);
            }
            let from = pool.len().saturating_sub(3);
            Ok(pool.split_off(from))
        })
    }

    fn close(a: f32, b: f32) -> bool {
        (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= 1e-3 * (1.0 + a.abs().max(b.abs()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn models_compute_what_graphs_mean(
            choices in prop::collection::vec(prop::array::uniform3(0usize..28), 1..24),
            n in 1usize..4,
        ) {
            let graph = random_graph(&choices);
            let tensors = [noise([n, 4], 1), noise([n, 4], 2)];
            let weight = |name: &str| {
                Some(noise(graph.weights().get(name)?.static_shape()?, name.len()))
            };
            let Ok(expected) = graph.evaluate(&tensors, &weight) else { return Ok(()) };
            for session in [session(), reference_session()] {
                for passes in [Passes::All, Passes::None] {
                    let exact = passes == Passes::None;
                    let compiled = session.compile_with(&graph, &CompileOptions { passes, ..CompileOptions::default() }).unwrap();
                    let model = session.init(&compiled, &weight).unwrap();
                    let inputs = buffers(&tensors);
                    for _ in 0..2 {
                        let outputs = model.execute(&inputs).unwrap();
                        let contents: Vec<Tensor> =
                            outputs.iter().chain(&inputs[1..]).map(|b| b.to_tensor().unwrap()).collect();
                        for (got, expected) in contents.iter().zip(expected.outputs.iter().chain(&expected.buffers)) {
                            prop_assert_eq!(got.shape(), expected.shape());
                            let pairs = got.to_vec::<f32>().into_iter().zip(expected.to_vec::<f32>());
                            for (got, expected) in pairs {
                                let same = if exact { got == expected || got.is_nan() } else { close(got, expected) };
                                prop_assert!(same, "{got} is not {expected}\n{}", model.program());
                            }
                        }
                        let old = Buffer::from_tensor(&tensors[1]);
                        inputs[1].write().unwrap().copy_from_slice(&old.read().unwrap());
                    }
                }
            }
        }
    }
}
