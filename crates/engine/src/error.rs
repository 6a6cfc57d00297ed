//! What can go wrong between a graph and its results.

use std::backtrace::Backtrace;
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use graph::{DeviceRef, Graph, NodeId, SourceLocation};

use crate::ArtifactFault;

/// A compile, an init or a call failed. The message names what, where, and the two facts that disagree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph, its text, or the inputs of a call are wrong.
    #[error(transparent)]
    Graph(#[from] graph::Error),
    /// A device or a buffer cannot be had or used as asked.
    #[error(transparent)]
    Driver(#[from] tensor::Error),
    /// A library of custom ops cannot be loaded.
    #[error(transparent)]
    Extension(#[from] extensions::Error),
    /// Two libraries of custom ops have an op of the same name.
    #[error("the op `{name}` is in two extensions: {first}, and {second}")]
    AmbiguousOp {
        /// The name.
        name: String,
        /// The library that was there first.
        first: String,
        /// The other one.
        second: String,
    },
    /// An op of a library cannot be used in graphs.
    #[error("the op `{name}` of an extension: {error}")]
    Op {
        /// The name.
        name: String,
        /// What is wrong with it.
        error: graph::TypeError,
    },
    /// A session needs a device to run on.
    #[error("an inference session needs at least one device, got none")]
    NoDevice,
    /// A setting cannot have this value.
    #[error("the {what} is `{value}`, expected {expected}")]
    Setting {
        /// The setting.
        what: String,
        /// The value given.
        value: String,
        /// What it can be.
        expected: String,
    },
    /// A model was compiled for a machine that is not this one.
    #[error(
        "the model was compiled for {found}, but this session has {available}; export it and load the file there"
    )]
    Elsewhere {
        /// Device and target that it was compiled for.
        found: String,
        /// The session's devices and their targets.
        available: String,
    },
    /// The debug option `pre_jit` is on, so compiling stopped once all passes ran.
    #[error("compiling `{graph}` stopped after its passes, because the debug option `pre_jit` is set")]
    CompilationStopped {
        /// The graph's name.
        graph: String,
    },
    /// The graph asks for something its device cannot give.
    #[error("compiling `{graph}`: {message}")]
    Compile {
        /// The graph's name.
        graph: String,
        /// What is asked for, and why it cannot be.
        message: String,
        /// Where the op was built, if a node of the graph is meant.
        location: Option<SourceLocation>,
    },
    /// The graph puts an op on a device that cannot compute it, and does not let the host do so.
    #[error(
        "compiling `{graph}`: {op} is on {device}, but {reason}; the graph's device_placement is error: \
         put the op on cpu, or choose warn or ignore"
    )]
    Placement {
        /// The graph's name.
        graph: String,
        /// The op.
        op: &'static str,
        /// Where the graph puts it.
        device: DeviceRef,
        /// Why it cannot run there.
        reason: String,
        /// Where the op was built.
        location: Option<SourceLocation>,
    },
    /// A pass to leave out does not exist.
    #[error("unknown pass `{name}`; the passes are {known}")]
    UnknownPass {
        /// The name given.
        name: String,
        /// The names of all passes.
        known: String,
    },
    /// A file that should hold a graph cannot be read.
    #[error("reading {path}: {message}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A file of compiled models is none, or none for this session.
    #[error("artifact {path}: {fault}")]
    Artifact {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: ArtifactFault,
    },
    /// A file cannot be written.
    #[error("writing {path}: {message}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// Two graphs of one module share a name.
    #[error("two models have the name `{name}`; each needs its own")]
    DuplicateModel {
        /// The name.
        name: String,
    },
    /// A call that makes one model was given several, or none.
    #[error("`{call}` makes one model, but {count} were compiled; use `{call}_all`")]
    NotOneModel {
        /// The call.
        call: &'static str,
        /// How many were compiled.
        count: usize,
    },
    /// The registry lacks a weight.
    #[error("model `{model}`: no weight `{name}` in the registry, expected {expected}")]
    MissingWeight {
        /// The model's name.
        model: String,
        /// The weight's name.
        name: String,
        /// What it must be.
        expected: String,
    },
    /// A weight is not what the graph expects.
    #[error("weight `{name}`: {message}")]
    Weight {
        /// The weight's name.
        name: String,
        /// What it is and what it must be.
        message: String,
    },
    /// The weights of a model were released, and no others bound since.
    #[error("the weights of model `{model}` were released; reload them before it is executed")]
    WeightsReleased {
        /// The model's name.
        model: String,
    },
    /// The registry holds names that no model uses, and the caller asked for none.
    #[error("weights that no model uses: {names}")]
    UnknownWeights {
        /// Their names.
        names: String,
    },
    /// The arguments of a call do not match the inputs.
    #[error("model `{model}`: {message}")]
    Arguments {
        /// The model's name.
        model: String,
        /// What does not match.
        message: String,
    },
    /// What is to be captured or replayed does not fit.
    #[error("model `{model}`, capture {keys:?}: {message}")]
    Capture {
        /// The model's name.
        model: String,
        /// The keys of the capture.
        keys: Vec<u64>,
        /// What does not fit.
        message: String,
    },
    /// An input is in use by another call.
    #[error("input {position} '{name}': {message}")]
    Input {
        /// Counted from 0.
        position: usize,
        /// Its name in the graph.
        name: String,
        /// How it is used.
        message: String,
    },
    /// A call that fills the caller's buffers was given another number of them.
    #[error("model `{model}`: got {got} buffers for outputs, expected {expected}")]
    OutputCount {
        /// The model's name.
        model: String,
        /// How many were given.
        got: usize,
        /// How many it makes.
        expected: usize,
    },
    /// A buffer for an output does not fit, or is in use.
    #[error("output {position}: {message}")]
    Output {
        /// Counted from 0.
        position: usize,
        /// What it is and what it must be.
        message: String,
    },
    /// The sizes of a call need more memory than can be counted, or bytes that are not full.
    #[error("model `{model}`: {what} with {sizes}")]
    TooLarge {
        /// The model's name.
        model: String,
        /// What does not fit, and how.
        what: String,
        /// The sizes of the symbolic dims.
        sizes: String,
    },
    /// A value has not the shape that the graph asserts.
    #[error("rebind of {value}: {message}")]
    Rebind {
        /// Its name in the graph.
        value: String,
        /// The axis, both sizes, and what the graph says about it.
        message: String,
        /// Where the program that built the graph made the node, if it is known.
        location: Option<SourceLocation>,
    },
    /// A call was cancelled.
    #[error("model `{model}`: the call was cancelled")]
    Cancelled {
        /// The model's name.
        model: String,
    },
    /// A call took longer than it was allowed to.
    #[error("model `{model}`: the deadline of the call passed {late:?} ago")]
    DeadlinePassed {
        /// The model's name.
        model: String,
        /// How long before the call noticed.
        late: Duration,
    },
    /// There is not enough memory.
    #[error("{what}: the system refused {bytes} bytes of memory")]
    OutOfMemory {
        /// What it is for.
        what: String,
        /// How many bytes were asked for.
        bytes: usize,
    },
    /// A step of a plan could not compute its results from the data given.
    #[error("step {step}, {op}: {message}")]
    Step {
        /// The number of the step, as plans print it.
        step: usize,
        /// The op's name.
        op: String,
        /// What is wrong with the data.
        message: String,
        /// Where the program that built the graph made the node, if it is known.
        location: Option<SourceLocation>,
    },
    /// An error of a call, and the stack of the caller: the debug option `stack_trace_on_error` is on.
    #[error("{error}\nstack trace:\n{stack}")]
    Traced {
        /// What went wrong.
        #[source]
        error: Box<Error>,
        /// Where the model was called.
        stack: Box<Backtrace>,
    },
}

impl Error {
    /// Whether there was not enough memory.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Error::OutOfMemory { .. } | Error::Driver(tensor::Error::OutOfMemory { .. }) => true,
            Error::Traced { error, .. } => error.is_out_of_memory(),
            _ => false,
        }
    }

    /// Whether a file that weights are mapped from has changed: a model computes nothing more with them.
    pub fn is_file_changed(&self) -> bool {
        match self {
            Error::Driver(tensor::Error::FileChanged { .. }) => true,
            Error::Traced { error, .. } => error.is_file_changed(),
            _ => false,
        }
    }

    pub(crate) fn setting(what: &str, value: &str, expected: &str) -> Error {
        Error::Setting { what: what.to_string(), value: value.to_string(), expected: expected.to_string() }
    }

    /// What a device cannot give to a graph, or to one of its nodes.
    pub(crate) fn compile(graph: &Graph, node: Option<NodeId>, message: String) -> Error {
        let location = node.and_then(|id| graph.node(id).location.clone());
        Error::Compile { graph: graph.name().to_string(), message, location }
    }

    /// This error with the place in the source in its message, if it knows one.
    pub(crate) fn located(self) -> Error {
        match self {
            Error::Compile { graph, message, location: Some(location) } => {
                let message = format!("{message} (built at {location})");
                Error::Compile { graph, message, location: Some(location) }
            }
            Error::Placement { graph, op, device, reason, location: Some(location) } => {
                let reason = format!("{reason} (built at {location})");
                Error::Placement { graph, op, device, reason, location: Some(location) }
            }
            other => other,
        }
    }
}

/// For settings given as a member, which cannot be wrong.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Error {
        match never {}
    }
}
