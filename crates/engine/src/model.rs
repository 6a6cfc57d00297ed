//! A compiled graph with its weights: what callers execute.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph::Type;
use tensor::{AlignedBytes, Buffer, ReadGuard, Shape, WriteGuard};

use crate::Error;
use crate::bind::BoundWeight;
use crate::frame::Frame;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::run::{self, Lists, Memory};

/// Frames kept for sizes seen before: a server's decode batches come in this many sizes or so.
const FRAMES: usize = 64;

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
    plan: Arc<Plan>,
    weights: Vec<BoundWeight>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    /// The most recently used first.
    frames: Mutex<Vec<Arc<Frame>>>,
    /// One for each call that ever ran beside others.
    workspaces: Mutex<Vec<Workspace>>,
}

/// What a call needs to itself and hands on to later calls, so that these allocate nothing large.
struct Workspace {
    arena: AlignedBytes,
    lists: Lists,
}

enum Guard {
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Model {
    pub(crate) fn new(plan: Arc<Plan>, weights: Vec<BoundWeight>) -> Model {
        let inputs =
            plan.inputs.iter().map(|input| TensorSpec { name: input.name.clone(), ty: input.ty.clone() });
        let outputs = plan.outputs.iter().enumerate();
        let outputs = outputs.map(|(i, ty)| TensorSpec { name: format!("output{i}"), ty: ty.clone() });
        let (inputs, outputs) = (inputs.collect(), outputs.collect());
        let (frames, workspaces) = (Mutex::default(), Mutex::default());
        Model { shared: Arc::new(Shared { plan, weights, inputs, outputs, frames, workspaces }) }
    }

    /// The name of the graph it was compiled from.
    pub fn name(&self) -> &str {
        &self.shared.plan.name
    }

    /// The plan it executes.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// What [`Model::execute`] takes, in order.
    pub fn input_metadata(&self) -> &[TensorSpec] {
        &self.shared.inputs
    }

    /// What [`Model::execute`] gives, in order.
    pub fn output_metadata(&self) -> &[TensorSpec] {
        &self.shared.outputs
    }

    /// Computes the outputs, each in a fresh buffer.
    ///
    /// Inputs are read, and those of [`graph::Kind::Buffer`] that the graph writes are written; all are held for the
    /// length of the call, so a call that would write what another one uses fails.
    ///
    /// # Errors
    /// If an input is not what the model expects or is in use, or the data (an index, say) makes no sense.
    pub fn execute(&self, inputs: &[Buffer]) -> Result<Vec<Buffer>, Error> {
        let frame = self.frame(inputs)?;
        let outputs = self.fresh_outputs(&frame);
        self.run(&frame, inputs, &outputs, None)?;
        Ok(outputs)
    }

    /// Computes the outputs into buffers of the caller's, which saves large ones from being allocated each time.
    ///
    /// # Errors
    /// As [`Model::execute`], and if a buffer does not fit its output or is in use. After an error of a step,
    /// the contents of the outputs are undefined.
    pub fn execute_into(&self, inputs: &[Buffer], outputs: &[Buffer]) -> Result<(), Error> {
        let frame = self.frame(inputs)?;
        self.check_outputs(&frame, outputs)?;
        self.run(&frame, inputs, outputs, None)
    }

    /// Executes, and tells how long each step took.
    ///
    /// # Errors
    /// As [`Model::execute`].
    pub fn profile(&self, inputs: &[Buffer]) -> Result<(Vec<Buffer>, Profile), Error> {
        let frame = self.frame(inputs)?;
        let outputs = self.fresh_outputs(&frame);
        let mut seconds = Vec::with_capacity(frame.steps.len());
        self.run(&frame, inputs, &outputs, Some(&mut seconds))?;
        Ok((outputs, Profile::new(self.plan(), &frame, &seconds)))
    }

    fn fresh_outputs(&self, frame: &Frame) -> Vec<Buffer> {
        let outputs = self.plan().outputs.iter().zip(&frame.output_shapes);
        outputs.map(|(ty, &shape)| Buffer::zeros(ty.dtype, shape)).collect()
    }

    fn run(
        &self,
        frame: &Frame,
        inputs: &[Buffer],
        outputs: &[Buffer],
        seconds: Option<&mut Vec<f64>>,
    ) -> Result<(), Error> {
        let mut inputs = self.lock_inputs(inputs)?;
        let mut outputs = lock_outputs(outputs)?;
        let mut workspace = self.workspace(frame.arena);
        let mut memory = Memory {
            regions: Vec::with_capacity(1 + outputs.len() + inputs.len()),
            inputs: Vec::with_capacity(inputs.len()),
            weights: &self.shared.weights,
        };
        memory.regions.push(&mut workspace.arena);
        memory.regions.extend(outputs.iter_mut().map(|guard| &mut guard[..]));
        for guard in &mut inputs {
            match guard {
                Guard::Read(guard) => memory.inputs.push(guard),
                Guard::Write(guard) => {
                    memory.regions.push(guard);
                    memory.inputs.push(&[]);
                }
            }
        }
        let result = run::run(self.plan(), frame, &mut memory, &mut workspace.lists, seconds);
        lock(&self.shared.workspaces).push(workspace);
        result
    }

    /// The frame for the shapes of the inputs, which it checks.
    fn frame(&self, inputs: &[Buffer]) -> Result<Arc<Frame>, Error> {
        let shapes = self.check_inputs(inputs)?;
        let plan = &self.shared.plan;
        let sizes = plan.sizes.sizes(|input| &plan.inputs[input].name, &shapes)?;
        let frame = match self.known_frame(&sizes) {
            Some(frame) => frame,
            None => self.new_frame(sizes)?,
        };
        match frame.input_shapes.iter().zip(&shapes).position(|(expected, got)| expected != got) {
            None => Ok(frame),
            Some(position) => {
                let (dtype, shape) = (plan.inputs[position].ty.dtype, frame.input_shapes[position]);
                Err(self.wrong_input(position, &inputs[position], &format!("{dtype}{shape}")))
            }
        }
    }

    fn known_frame(&self, sizes: &[usize]) -> Option<Arc<Frame>> {
        let mut frames = lock(&self.shared.frames);
        let position = frames.iter().position(|frame| frame.sizes == sizes)?;
        frames[..=position].rotate_right(1);
        Some(Arc::clone(&frames[0]))
    }

    fn new_frame(&self, sizes: Vec<usize>) -> Result<Arc<Frame>, Error> {
        let frame = Arc::new(Frame::new(&self.shared.plan, sizes)?);
        let mut frames = lock(&self.shared.frames);
        frames.truncate(FRAMES - 1);
        frames.insert(0, Arc::clone(&frame));
        Ok(frame)
    }

    /// Checks what does not depend on symbolic dims, and gives the shapes.
    fn check_inputs(&self, inputs: &[Buffer]) -> Result<Vec<Shape>, Error> {
        let plan = &self.shared.plan;
        if inputs.len() != plan.inputs.len() {
            let (got, expected) = (inputs.len(), plan.inputs.len());
            return Err(Error::InputCount { model: plan.name.clone(), got, expected });
        }
        for (position, (given, input)) in inputs.iter().zip(&plan.inputs).enumerate() {
            let ty = &input.ty;
            let fits =
                |(&size, dim): (&usize, &graph::Dim)| dim.as_static().is_none_or(|expected| expected == size);
            let same_rank = given.shape().rank() == ty.rank();
            if given.dtype() != ty.dtype || !same_rank || !given.shape().iter().zip(&ty.shape).all(fits) {
                return Err(self.wrong_input(position, given, &ty.to_string()));
            }
        }
        Ok(inputs.iter().map(|input| *input.shape()).collect())
    }

    fn wrong_input(&self, position: usize, given: &Buffer, expected: &str) -> Error {
        let message = format!("got {}{}, expected {expected}", given.dtype(), given.shape());
        self.input_error(position, message)
    }

    fn input_error(&self, position: usize, message: String) -> Error {
        Error::Input { position, name: self.shared.plan.inputs[position].name.clone(), message }
    }

    fn check_outputs(&self, frame: &Frame, outputs: &[Buffer]) -> Result<(), Error> {
        let plan = &self.shared.plan;
        if outputs.len() != plan.outputs.len() {
            let (got, expected) = (outputs.len(), plan.outputs.len());
            return Err(Error::OutputCount { model: plan.name.clone(), got, expected });
        }
        let expected = plan.outputs.iter().zip(&frame.output_shapes);
        for (position, (given, (ty, shape))) in outputs.iter().zip(expected).enumerate() {
            if given.dtype() != ty.dtype || given.shape() != shape {
                let message = format!("got {}{}, expected {}{shape}", given.dtype(), given.shape(), ty.dtype);
                return Err(Error::Output { position, message });
            }
        }
        Ok(())
    }

    fn lock_inputs(&self, inputs: &[Buffer]) -> Result<Vec<Guard>, Error> {
        let inputs = inputs.iter().zip(&self.shared.plan.inputs).enumerate();
        let guards = inputs.map(|(position, (buffer, input))| {
            let guard = match input.written {
                true => buffer.write().map(Guard::Write),
                false => buffer.read().map(Guard::Read),
            };
            guard.map_err(|busy| self.input_error(position, busy.to_string()))
        });
        guards.collect()
    }

    fn workspace(&self, arena: usize) -> Workspace {
        let mut workspace = lock(&self.shared.workspaces)
            .pop()
            .unwrap_or_else(|| Workspace { arena: AlignedBytes::zeroed(0), lists: Lists::default() });
        if workspace.arena.len() < arena {
            // A half more than asked for: sizes that grow call by call then allocate but a few times.
            workspace.arena = AlignedBytes::zeroed(arena.saturating_add(arena / 2));
        }
        workspace
    }
}

fn lock_outputs(outputs: &[Buffer]) -> Result<Vec<WriteGuard>, Error> {
    let outputs = outputs.iter().enumerate();
    let guards = outputs.map(|(position, buffer)| {
        buffer.write().map_err(|busy| Error::Output { position, message: busy.to_string() })
    });
    guards.collect()
}

/// Nothing here can be left half changed, so what a panicking thread held is good still.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
