//! A compiled graph with its weights: what callers execute.

mod calls;
mod capture;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use graph::{DeviceRef, Graph, Type};
use tensor::{Allocator, Buffer};

use crate::bind::{self, Sources};
use crate::bound_weight::{BoundWeight, BoundWeights};
use crate::export;
use crate::frame::Frame;
use crate::instruments::Instruments;
use crate::place::Devices;
use crate::workspace::{Workspace, lock};
use crate::{Device, Error, ExecuteOptions, Profile, Program, WeightsRegistry};

/// The name and type of an input or output.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
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
    shared: Arc<ModelState>,
}

struct ModelState {
    /// What the program was made from; artifacts hold it.
    graph: Arc<Graph>,
    program: Arc<Program>,
    /// `None` once released. Calls hold on to those they started with.
    weights: RwLock<Option<Arc<BoundWeights>>>,
    instruments: Arc<Instruments>,
    captures: Mutex<BTreeMap<Vec<u64>, Captured>>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    /// Of each plan, the most recently used first.
    frames: Vec<Mutex<Vec<Arc<Frame>>>>,
    /// One for each call that ever ran while others did.
    workspaces: Mutex<Vec<Workspace>>,
    /// Bytes of the largest of them.
    scratch_bytes: AtomicUsize,
}

/// The buffers of a captured call.
#[derive(Clone)]
struct Captured {
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
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
        let weights = BoundWeights::new(weights, Arc::clone(program.device()));
        let weights = RwLock::new(Some(Arc::new(weights)));
        let (captures, workspaces) = (Mutex::default(), Mutex::default());
        let shared = ModelState {
            graph,
            program,
            weights,
            instruments,
            captures,
            inputs,
            outputs,
            frames,
            workspaces,
            scratch_bytes: AtomicUsize::new(0),
        };
        Model { shared: Arc::new(shared) }
    }

    /// Bytes that a call of the model has needed at most for values between its inputs and its outputs.
    pub fn scratch_bytes(&self) -> usize {
        self.shared.scratch_bytes.load(Ordering::Relaxed)
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
        let ModelState { graph, program, .. } = &*self.shared;
        let weights = self.weights()?;
        let path = path.as_ref();
        let models = vec![(&**graph, &**program)];
        let contents = export::Contents { device: &**program.device(), key: "", models };
        let file = export::write(path, &contents, |writer| {
            let mut missing = writer.missing(program).into_iter();
            missing.try_for_each(|slot| writer.weight(program, slot, &weights[slot]))
        })?;
        file.commit().map_err(export::failed(path))
    }

    /// Computes the outputs, each in a fresh buffer.
    ///
    /// Inputs are read, and those of [`graph::Kind::Buffer`] that the graph writes are written; all are held for the
    /// length of the call, so a call that would write what another one uses fails.
    ///
    /// # Errors
    /// If an input is not what the model expects or is in use, or the data (an index, say) makes no sense; and if a file
    /// that weights are mapped from has changed ([`tensor::Error::FileChanged`]).
    pub fn execute(&self, inputs: &[Buffer]) -> Result<Vec<Buffer>, Error> {
        self.execute_with(inputs, &ExecuteOptions::default())
    }

    /// [`Model::execute`] with options: a handle that cancels the call, and a deadline. Both are checked before each
    /// step and at each turn of a loop; a step that runs is not interrupted.
    ///
    /// # Errors
    /// As [`Model::execute`], and if the call is cancelled or its deadline passes. Steps may have written inputs by
    /// then.
    pub fn execute_with(&self, inputs: &[Buffer], options: &ExecuteOptions) -> Result<Vec<Buffer>, Error> {
        self.observed(false, options, |hooks| self.compute(inputs, hooks)).map(|(outputs, _)| outputs)
    }

    /// [`Model::execute_with`] into buffers of the caller, so that large outputs are not allocated for each call.
    ///
    /// # Errors
    /// As [`Model::execute_with`], and if a buffer does not fit its output or is in use. After an error of a step,
    /// the contents of the outputs are undefined.
    pub fn execute_into(
        &self,
        inputs: &[Buffer],
        outputs: &[Buffer],
        options: &ExecuteOptions,
    ) -> Result<(), Error> {
        self.observed(false, options, |hooks| self.compute_into(inputs, outputs, hooks)).map(|_| ())
    }

    /// Executes, and tells how long each step took.
    ///
    /// # Errors
    /// As [`Model::execute`].
    pub fn profile(&self, inputs: &[Buffer]) -> Result<(Vec<Buffer>, Profile), Error> {
        let plain = ExecuteOptions::default();
        let (outputs, steps) = self.observed(true, &plain, |hooks| self.compute(inputs, hooks))?;
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
        let Devices { host, far, .. } = &self.program().devices;
        far.iter().chain([host]).cloned().collect()
    }

    /// Where each input must lie.
    pub fn input_devices(&self) -> Vec<DeviceRef> {
        self.input_metadata().iter().map(|spec| spec.ty.device).collect()
    }

    /// Gives memory of one of its devices, as [`Model::input_devices`] names them.
    ///
    /// # Panics
    /// If the model does not run on it.
    pub fn allocator(&self, device: DeviceRef) -> &dyn Allocator {
        self.program().devices.at(device).expect("a device of the model").allocator()
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
        let bound = Arc::new(BoundWeights::new(bound, Arc::clone(self.program().device())));
        *self.shared.weights.write().unwrap_or_else(PoisonError::into_inner) = Some(bound);
        Ok(())
    }

    /// Packs the weights that [`crate::InferenceSession::init`] did not pack, as they are mapped from a file. The second call of
    /// [`Model::execute`] would; the first one packs them for itself, since that takes less time.
    ///
    /// # Errors
    /// If a file that weights are mapped from has changed, or the weights are released.
    pub fn pack_weights(&self) -> Result<(), Error> {
        let weights = self.weights()?;
        weights.pack();
        weights.check_files()
    }

    /// How long it took to pack the weights that were not packed by [`crate::InferenceSession::init`]; `None` if they are not
    /// packed yet, or there are none.
    pub fn packing_time(&self) -> Option<Duration> {
        self.weights().ok()?.packing_time()
    }

    /// Checks that the files which weights are mapped from are what they were when the weights were bound, as calls do.
    ///
    /// # Errors
    /// If one has changed.
    pub fn check_files(&self) -> Result<(), Error> {
        let weights = self.shared.weights.read().unwrap_or_else(PoisonError::into_inner).clone();
        weights.map_or(Ok(()), |weights| weights.check_files())
    }

    /// Lets go of the weights once no call uses them. Calls fail until others are bound with [`Model::reload`].
    pub fn release_weights(&self) {
        *self.shared.weights.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn captures(&self) -> MutexGuard<'_, BTreeMap<Vec<u64>, Captured>> {
        lock(&self.shared.captures)
    }
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
