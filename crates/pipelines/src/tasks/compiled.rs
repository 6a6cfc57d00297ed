//! A plan compiled for its task, and initialized: weights packed, or read as they were saved, and a tokenizer.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    CompileOptions, CompiledModel, InferenceSession, InitOptions, Model, PackError, Placement, Progress,
    Reproducible, Target, WeightsRegistry,
};
use models::{Checkpoint, Output};
use tensor::{DType, Shape, Tensor};
use text::Tokenizer;

use crate::Error;
use crate::error::InvalidField;
use crate::plan::config::FloatType;
use crate::plan::{Identity, Plan, Task};
use crate::run::huggingface::TransformersModel;

/// A plan whose graph is compiled, if its engine has graphs. No weights are read yet.
pub struct CompiledPlan {
    plan: Plan,
    task: Task,
    graph: Option<CompiledGraph>,
}

/// A compiled graph, and what its weights are bound from.
struct CompiledGraph {
    checkpoint: Arc<Checkpoint>,
    model: CompiledModel,
    /// The identity to save the model with, if it is to be saved.
    identity: Option<Identity>,
}

/// A model with its weights and its tokenizer.
pub(crate) struct Loaded {
    pub(crate) plan: Plan,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) program: Program,
}

/// What runs a model.
pub(crate) enum Program {
    /// A graph on our devices.
    Graph(LoadedGraph),
    /// A process of its own.
    Transformers(Arc<TransformersModel>),
}

/// A graph with its weights.
pub(crate) struct LoadedGraph {
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) model: Model,
}

impl Plan {
    /// Where results have the same bits: as a saved model was compiled, as the configuration says, or as the session does.
    pub fn reproducible(&self, session: &InferenceSession) -> Reproducible {
        let saved = self.saved().map(|saved| saved.reproducible());
        let own = saved.or(self.config().reproducible);
        own.unwrap_or_else(|| session.kernel_settings().reproducible)
    }

    /// Whether quantized weights are multiplied with inputs as they are: as a saved model was compiled, or if the
    /// configuration or the session says it.
    pub fn exact_activations(&self, session: &InferenceSession) -> bool {
        let own = || self.config().exact_activations || session.kernel_settings().exact_activations;
        self.saved().map_or_else(own, |saved| saved.exact_activations())
    }

    /// Where nodes of the model's graph run.
    fn placement(&self) -> Placement {
        self.config().accelerator().map_or(Placement::AsWritten, Placement::On)
    }

    /// Compiles the model, unless another engine runs it: to classify if it has a head that scores texts; if not, to write if
    /// it makes text, and to embed if it does not. Or reads it from the file of `serialized_model_path`.
    ///
    /// # Errors
    /// If the graph cannot be compiled, or the file was made from another model or with other settings.
    pub fn compile(self, session: &InferenceSession) -> Result<CompiledPlan, Error> {
        self.compile_for(session, None)
    }

    /// [`Plan::compile`] for a kind of machine, attached or not; `None` is this one. A model for another machine can be
    /// printed, and saved with [`CompiledPlan::save`].
    ///
    /// # Errors
    /// As [`Plan::compile`], and if the session's devices do not know the target.
    pub fn compile_for(
        self,
        session: &InferenceSession,
        target: Option<&Target>,
    ) -> Result<CompiledPlan, Error> {
        let task = if self.is_classifier() {
            Task::Classify
        } else if self.makes_text() {
            Task::Write
        } else {
            Task::Embed
        };
        CompiledPlan::new(session, self, task, target)
    }
}

impl CompiledPlan {
    pub(crate) fn new(
        session: &InferenceSession,
        plan: Plan,
        task: Task,
        target: Option<&Target>,
    ) -> Result<CompiledPlan, Error> {
        if plan.runs_elsewhere() {
            if target.is_some() {
                plan.expect_graph("compiling for a target")?;
            }
            return Ok(CompiledPlan { plan, task, graph: None });
        }
        // PyTorch files have no headers that a graph could be built from.
        let plan = if plan.checkpoint().is_none() { plan.checked()?.fetch(&|_| ())? } else { plan };
        let checkpoint = plan.checkpoint().map(Arc::clone).expect("weights that are here are open");
        let (config, dtype) = (plan.config(), plan.cache_dtype());
        let output = match task {
            Task::Write => Output::Logits,
            Task::Embed => Output::Hidden,
            Task::Classify => Output::Scores,
        };
        let graph = checkpoint.graph(output, config.kv_cache_page_size, dtype)?;
        let identity = || Identity::new(config, &checkpoint).with_graph(task, &graph);
        let reproducible = plan.reproducible(session);
        let exact = plan.exact_activations(session);
        let options = CompileOptions {
            reproducible: Some(reproducible),
            exact_activations: Some(exact),
            target: target.cloned(),
            placement: plan.placement(),
            ..CompileOptions::default()
        };
        let (model, identity) = match (&config.serialized_model_path, &config.save_to_serialized_model_path) {
            (Some(path), _) => {
                let refusal =
                    plan.saved().and_then(|saved| saved.refusal(&identity(), path, checkpoint.weights()));
                if let Some(fix) = refusal {
                    let (field, value) = ("serialized_model_path", path.display().to_string());
                    return Err(Error::Config(vec![InvalidField { field, value, fix }]));
                }
                (session.compile_with(path.as_path(), &options)?, None)
            }
            (None, save) => {
                let identity = save.is_some().then(|| identity().with_kernels(reproducible, exact));
                (session.compile_with(&graph, &options)?, identity)
            }
        };
        Ok(CompiledPlan { plan, task, graph: Some(CompiledGraph { checkpoint, model, identity }) })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The checkpoint; `None` if the model does not run as a graph.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.graph.as_ref().map(|graph| &*graph.checkpoint)
    }

    /// The compiled model, for printing its execution plan; `None` if the model does not run as a graph.
    pub fn model(&self) -> Option<&CompiledModel> {
        self.graph.as_ref().map(|graph| &graph.model)
    }

    /// What it was compiled for.
    pub(crate) fn task(&self) -> Task {
        self.task
    }

    /// Fetches the weights if need be, packs them for the machine that the model was compiled for, and writes both to the file
    /// that `save_to_serialized_model_path` names. Nothing is loaded, so that the machine may be another. Calls `progress`
    /// after each weight. Gives the path; `None` if the configuration names no file to write.
    ///
    /// # Errors
    /// If the model does not run as a graph, the weights cannot be had or packed, or the file cannot be written.
    pub fn save(self, progress: &mut dyn FnMut(Progress)) -> Result<Option<PathBuf>, Error> {
        let CompiledPlan { plan, graph, .. } = self;
        let Some(graph) = graph else { return Err(Error::NoGraph { what: "saving" }) };
        let plan = plan.checked()?.fetch(&|_| ())?;
        graph.fetched(&plan)?.write(&plan, progress)
    }

    /// Fetches the weights if need be, binds and packs them or has another engine load them, and builds the tokenizer
    /// meanwhile. Calls `progress` after each weight.
    ///
    /// # Errors
    /// If the model does not fit into memory, a weight cannot be packed, the engine cannot load the model, or there is no
    /// tokenizer.
    pub(crate) fn init(
        self,
        session: &InferenceSession,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Loaded, Error> {
        let CompiledPlan { plan, task, graph } = self;
        let plan = plan.checked()?.fetch(&|_| ())?;
        let (program, tokenizer) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| plan.tokenizer());
            let program = match graph {
                Some(graph) => graph.init(&plan, session, progress).map(Program::Graph),
                None => load_elsewhere(&plan, task, session.host().threads()),
            };
            (program, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let program = program?;
        let tokenizer = Arc::new(match (tokenizer, &program) {
            // Of a kind that is not read here, or made by code of the model. Our own error says more if there is none.
            (Err(error), Program::Transformers(model)) => model.tokenizer().map_err(|_| error)?,
            (tokenizer, _) => tokenizer?,
        });
        Ok(Loaded { plan, tokenizer, program })
    }
}

/// Has Transformers load the model of a plan whose files are here, to compute with so many threads.
fn load_elsewhere(plan: &Plan, task: Task, threads: usize) -> Result<Program, Error> {
    plan.check_host_memory(plan.weight_bytes().unwrap_or(0), 0, 0)?;
    let config = plan.config();
    let model = TransformersModel::load(
        config.python.as_deref(),
        plan.folder(),
        plan.architecture(),
        task == Task::Write,
        config.weights_dtype.map(FloatType::dtype),
        config.trust_remote_code,
        threads,
    )?;
    Ok(Program::Transformers(Arc::new(model)))
}

impl CompiledGraph {
    /// The same with all weights of a plan at hand.
    fn fetched(self, plan: &Plan) -> Result<CompiledGraph, Error> {
        let checkpoint = plan.checkpoint().map_or(self.checkpoint, Arc::clone);
        plan.check_host_memory(checkpoint.bytes(), 0, 0)?;
        Ok(CompiledGraph { checkpoint, ..self })
    }

    /// Writes the model if it is to be saved; gives the path.
    fn write(&mut self, plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Option<PathBuf>, Error> {
        let path = plan.config().save_to_serialized_model_path.clone();
        let (Some(identity), Some(path)) = (self.identity.take(), path) else { return Ok(None) };
        let registry = CheckpointWeights(Arc::clone(&self.checkpoint));
        identity.save(&self.model, (&self.checkpoint, plan.folder(), &registry), &path, progress)?;
        Ok(Some(path))
    }

    fn init(
        self,
        plan: &Plan,
        session: &InferenceSession,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<LoadedGraph, Error> {
        let mut fetched = self.fetched(plan)?;
        let saved = fetched.write(plan, progress)?;
        if let Some(path) = &saved {
            let options = CompileOptions { placement: plan.placement(), ..CompileOptions::default() };
            fetched.model = session.compile_with(path.as_path(), &options)?;
        }
        let CompiledGraph { checkpoint, model: compiled, .. } = fetched;
        let is_saved = saved.is_some() || plan.config().serialized_model_path.is_some();
        let registry: Box<dyn WeightsRegistry> =
            if is_saved { Box::new(()) } else { Box::new(CheckpointWeights(Arc::clone(&checkpoint))) };
        let options = InitOptions { progress: Some(progress), ..InitOptions::default() };
        let model = session.init_with(&compiled, &*registry, options)?;
        Ok(LoadedGraph { checkpoint, model })
    }
}

impl Loaded {
    /// The checkpoint of a graph.
    pub(crate) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.graph().map(|graph| &*graph.checkpoint)
    }

    /// The executable of a graph.
    pub(crate) fn model(&self) -> Option<&Model> {
        self.graph().map(|graph| &graph.model)
    }

    /// Rows of the embedding: one more than the highest token.
    pub(crate) fn vocab(&self) -> usize {
        match &self.program {
            Program::Graph(graph) => graph.checkpoint.model.vocab,
            Program::Transformers(model) => {
                let stated = || self.plan.transformers().and_then(|facts| facts.vocab);
                model.vocab().or_else(stated).unwrap_or_else(|| self.tokenizer.vocab_size())
            }
        }
    }

    fn graph(&self) -> Option<&LoadedGraph> {
        match &self.program {
            Program::Graph(graph) => Some(graph),
            Program::Transformers(_) => None,
        }
    }

    /// Checks that it can run.
    ///
    /// # Errors
    /// If a file of the weights has changed, or the process that runs the model has ended.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.program {
            Program::Graph(graph) => Ok(graph.model.check_files()?),
            Program::Transformers(model) => model.check_alive(),
        }
    }
}

/// A checkpoint as the engine asks for weights.
pub(crate) struct CheckpointWeights<C>(pub(crate) C);

impl<C: Deref<Target = Checkpoint> + Send + Sync> WeightsRegistry for CheckpointWeights<C> {
    fn get(&self, name: &str) -> Result<Option<Tensor>, PackError> {
        self.0.tensor(name).map_err(|error| match error {
            models::Error::Memory(error) => (*error).into(),
            // The engine adds the name.
            models::Error::Weight { message, .. } => PackError::Unfit(message),
            other => PackError::Unfit(other.to_string()),
        })
    }

    fn describe(&self, name: &str) -> Result<Option<(DType, Shape)>, String> {
        Ok(self.0.describe(name))
    }

    fn release(&self, name: &str) {
        self.0.release(name);
    }
}
