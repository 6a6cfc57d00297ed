//! Which model, on which device: the arguments that several commands share, and loading with progress.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use cpu::Cpu;
use engine::{CompileCache, InferenceSession};
use perihelion::driver::PLATFORM;
use pipelines::config::{HuggingFaceRepo, Layers, Origin, PipelineConfig};
use pipelines::{ClassificationModel, CompiledPlan, EmbeddingModel, Machine, Plan, TextModel, Tokenizer};
use tensor::Bytes;
use weights::Weights;

use crate::exit;
use crate::parse;
use crate::progress::Progress;
use crate::transfer::Transfer;

/// How many threads.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct ThreadArguments {
    /// Threads; 0 for one per available core
    #[arg(
        long,
        short,
        default_value = "0",
        hide_default_value = true,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = parse::threads
    )]
    threads: usize,
}

/// A model and how it is to be run, as the arguments and all else say it.
#[derive(Debug)]
pub(crate) struct ModelSource {
    layers: Layers,
}

impl ThreadArguments {
    /// A session on the devices of configurations and the CPU.
    pub(crate) fn session<'c>(
        self,
        configs: impl IntoIterator<Item = &'c PipelineConfig>,
    ) -> anyhow::Result<InferenceSession> {
        session(self.threads, configs)
    }
}

/// A session on the devices of configurations, and on so many threads of the CPU; 0 is one per core.
pub(crate) fn session<'c>(
    threads: usize,
    configs: impl IntoIterator<Item = &'c PipelineConfig>,
) -> anyhow::Result<InferenceSession> {
    let mut builder = InferenceSession::builder();
    let is_far = |config: &&PipelineConfig| config.device_specs.iter().any(|spec| !spec.is_host());
    for config in configs.into_iter().filter(is_far) {
        let devices = config.devices_of(&PLATFORM)?;
        builder = builder.devices(devices.into_iter().filter(|device| !device.is_host()));
    }
    let builder = builder.device(Arc::new(Cpu::new(threads)));
    Ok(builder.compile_cache(CompileCache::user()).build()?)
}

impl ModelSource {
    /// The model that is meant.
    pub(crate) fn new(layers: Layers) -> ModelSource {
        ModelSource { layers }
    }

    /// The model that needs no file, with nothing set.
    pub(crate) fn built_in() -> ModelSource {
        ModelSource { layers: Layers::default() }
    }

    /// What was asked for.
    pub(crate) fn config(&self) -> &PipelineConfig {
        self.layers.config()
    }

    /// Whether someone set a field.
    pub(crate) fn is_set(&self, field: &str) -> bool {
        self.layers.is_set(field)
    }

    /// Sets a field as the command line does.
    pub(crate) fn set(&mut self, field: &str, value: &serde_json::Value) -> anyhow::Result<()> {
        Ok(self.layers.set(field, value, Origin::Argument)?)
    }

    /// Sets a field unless someone did.
    pub(crate) fn default_to(&mut self, field: &str, value: &serde_json::Value) -> anyhow::Result<()> {
        if !self.is_set(field) {
            self.layers.set(field, value, Origin::Command)?;
        }
        Ok(())
    }

    /// Prints warnings, except those about limits that memory imposes: a run that reaches one says so.
    pub(crate) fn warn(&self, plan: &Plan) {
        if self.is_built_in() && self.config().force_download {
            exit::warn("force_download has no effect: the model is built in");
        }
        plan.warnings().iter().for_each(|warning| exit::warn(warning));
    }

    /// What to call the model.
    pub(crate) fn name(&self) -> String {
        if self.is_built_in() { storyteller::NAME.to_string() } else { self.config().short_name() }
    }

    /// Plans with the headers of the model's files, whether it fits into memory or not; fetches no weights.
    pub(crate) fn plan(&self) -> anyhow::Result<Plan> {
        let machine = Machine::new(&PLATFORM);
        opened(self.config().plan_or_built_in(machine))
    }

    /// Plans the model as [`ModelSource::plan`] does, and downloads the files that are not on this machine.
    pub(crate) fn open(&self, progress: &Progress) -> anyhow::Result<Plan> {
        fetch(self.plan()?, progress)
    }

    /// As [`ModelSource::open`], of a model that fits into memory; others are not fetched.
    pub(crate) fn plan_and_fetch(&self, progress: &Progress) -> anyhow::Result<Plan> {
        fetch(self.fitting_plan()?, progress)
    }

    /// As [`ModelSource::plan_and_fetch`], of a model that makes text; others are not fetched.
    pub(crate) fn plan_and_fetch_decoder(&self, progress: &Progress) -> anyhow::Result<Plan> {
        let plan = self.fitting_plan()?;
        plan.expect_text().context("cannot open the model")?;
        fetch(plan, progress)
    }

    fn fitting_plan(&self) -> anyhow::Result<Plan> {
        let plan = self.plan()?;
        plan.memory().map_err(pipelines::Error::from).context("cannot open the model")?;
        Ok(plan)
    }

    /// Whether no model is named.
    pub(crate) fn is_built_in(&self) -> bool {
        self.config().is_built_in()
    }
}

fn fetch(plan: Plan, progress: &Progress) -> anyhow::Result<Plan> {
    let transfer = Transfer::new(progress);
    let plan = plan.fetch(&|step| transfer.report(step));
    progress.clear();
    opened(plan)
}

/// What is wrong with a configuration stands for itself; other errors are about a model.
fn explained<T>(result: Result<T, pipelines::Error>, context: &'static str) -> anyhow::Result<T> {
    match result {
        Err(error @ pipelines::Error::Config(_)) => Err(error.into()),
        other => other.context(context),
    }
}

fn opened<T>(result: Result<T, pipelines::Error>) -> anyhow::Result<T> {
    explained(result, "cannot open the model")
}

/// The most tokens of an answer, unless there is no limit but that of the length.
pub(crate) fn max_new_tokens(plan: &Plan) -> Option<usize> {
    usize::try_from(plan.config().max_new_tokens).ok().filter(|&count| count > 0)
}

/// Compiles a model; reads no weights.
pub(crate) fn compile(session: &InferenceSession, plan: Plan) -> anyhow::Result<CompiledPlan> {
    compile_for(session, plan, None)
}

/// The same for a kind of machine, which may be another.
pub(crate) fn compile_for(
    session: &InferenceSession,
    plan: Plan,
    target: Option<&engine::Target>,
) -> anyhow::Result<CompiledPlan> {
    opened(plan.compile_for(session, target))
}

/// Packs the weights and saves the model without loading it, with a progress bar on standard error.
pub(crate) fn save(compiled: CompiledPlan, progress: &Progress) -> anyhow::Result<()> {
    let saved = compiled.save(&mut |packed| show_packing(packed, progress));
    progress.clear();
    saved.map(drop).context("cannot save the model")
}

/// Loads the weights, with a progress bar on standard error.
pub(crate) fn load(
    compiled: CompiledPlan,
    session: &InferenceSession,
    progress: &Progress,
) -> anyhow::Result<Arc<TextModel>> {
    let model = compiled.load_text(session, &mut |packed| show_packing(packed, progress));
    progress.clear();
    Ok(Arc::new(model.context("cannot load the model")?))
}

/// The same for a model of any task, which is given back at once.
pub(crate) fn load_and_drop(
    compiled: CompiledPlan,
    session: &InferenceSession,
    progress: &Progress,
) -> anyhow::Result<()> {
    let show = &mut |packed| show_packing(packed, progress);
    let packed = if compiled.plan().makes_text() {
        compiled.load_text(session, show).map(drop)
    } else if compiled.plan().is_classifier() {
        compiled.load_classifier(session, show).map(drop)
    } else {
        compiled.load_embedding(session, show).map(drop)
    };
    progress.clear();
    packed.context("cannot load the model")
}

/// Compiles a model to embed, encoder or decoder, and packs its weights, with a progress bar on standard error.
pub(crate) fn embedding(
    session: &InferenceSession,
    plan: Plan,
    progress: &Progress,
) -> anyhow::Result<Arc<EmbeddingModel>> {
    let model = EmbeddingModel::from_plan(session, plan, &mut |packed| show_packing(packed, progress));
    progress.clear();
    explained(model.map(Arc::new), "cannot load the model")
}

/// Compiles a model to classify, and packs its weights, with a progress bar on standard error.
pub(crate) fn classification(
    session: &InferenceSession,
    plan: Plan,
    progress: &Progress,
) -> anyhow::Result<Arc<ClassificationModel>> {
    let model = ClassificationModel::from_plan(session, plan, &mut |packed| show_packing(packed, progress));
    progress.clear();
    explained(model.map(Arc::new), "cannot load the model")
}

fn show_packing(packed: engine::Progress, progress: &Progress) {
    progress.bytes("packing", "packing", packed.done as u64, packed.total as u64);
}

/// The tokenizer at a path, of a repo or of a file in one (`owner/name/file`), or that of the built-in model.
pub(crate) fn tokenizer(name: Option<&Path>) -> anyhow::Result<Tokenizer> {
    let tokenizer = match name {
        Some(path) => match repo_and_file(path) {
            Some((repo, file)) => HuggingFaceRepo::new(repo)
                .map_err(pipelines::Error::from)
                .and_then(|repo| pipelines::tokenizer_from_repo(&repo, file.as_deref())),
            None => Tokenizer::open(path).map_err(pipelines::Error::from),
        },
        None => Weights::from_bytes(storyteller::NAME, Bytes::new(storyteller::GGUF))
            .map_err(pipelines::Error::from)
            .and_then(|weights| Ok(Tokenizer::from_gguf(weights.metadata())?)),
    };
    tokenizer.context("cannot open the tokenizer")
}

/// What a name means on a hub, unless it is a path: a repo, and perhaps a file in it.
fn repo_and_file(path: &Path) -> Option<(String, Option<String>)> {
    let name = path.to_str().filter(|_| !path.exists())?;
    let parts: Vec<&str> = name.split('/').collect();
    let is_file =
        path.extension().is_some_and(|suffix| suffix == "json" || suffix == "model" || suffix == "gguf");
    let (repo, file) = match parts[..] {
        [_] if is_file => return None,
        [] | [_] | [_, _] => (name.to_string(), None),
        [owner, repo, ..] => (format!("{owner}/{repo}"), Some(parts[2..].join("/"))),
    };
    (sources::is_repo_id(&repo) && file.as_deref().is_none_or(|file| sources::file_path(file).is_ok()))
        .then_some((repo, file))
}
