//! Which model, on which device: the arguments that several commands share, and loading with progress.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use cpu::Cpu;
use engine::InferenceSession;
use pipelines::{CompiledText, LoadOptions, TextModel, Tokenizer};
use tensor::Bytes;
use weights::{Format, Weights};

use crate::parse;
use crate::progress::Progress;

/// The model that needs no file: a small writer of fairy tales.
static STORYTELLER: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../assets/storyteller/model.gguf"));

/// What the model that needs no file is called.
const BUILT_IN: &str = "storyteller";

/// GGUF aligns tensors relative to the start of the file.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

/// The model as a flag, where prompts are the positional arguments.
#[derive(clap::Args, Clone)]
pub(crate) struct ModelFlags {
    /// A GGUF file, or a folder with config.json and weights [default: a small storyteller, built in]
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// The weights, if they are not with the model
    #[arg(long, value_name = "PATH", requires = "model")]
    weights: Option<PathBuf>,
}

/// The model as a positional argument.
#[derive(clap::Args, Clone)]
pub(crate) struct ModelPath {
    /// A GGUF file, or a folder with config.json and weights [default: a small storyteller, built in]
    path: Option<PathBuf>,
    /// The weights, if they are not with the model
    #[arg(long, value_name = "PATH", requires = "path")]
    weights: Option<PathBuf>,
}

/// How many threads.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct ThreadArguments {
    /// Threads to compute with; 0 is one per core that is free to use
    #[arg(
        long,
        default_value = "0",
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = parse::threads
    )]
    threads: usize,
}

/// Where a model is. `None` is the one that is built in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    model: Option<&'a Path>,
    weights: Option<&'a Path>,
}

impl ModelFlags {
    /// The model that is meant.
    pub(crate) fn source(&self) -> Source<'_> {
        Source { model: self.model.as_deref(), weights: self.weights.as_deref() }
    }
}

impl ModelPath {
    /// The model that is meant.
    pub(crate) fn source(&self) -> Source<'_> {
        Source { model: self.path.as_deref(), weights: self.weights.as_deref() }
    }
}

impl ModelPath {
    /// The path, if it names compiled models rather than a checkpoint.
    pub(crate) fn artifact(&self) -> Option<&Path> {
        self.path.as_deref().filter(|path| path.extension().is_some_and(|extension| extension == "mef"))
    }
}

impl ThreadArguments {
    /// A session on the CPU.
    pub(crate) fn session(self) -> anyhow::Result<InferenceSession> {
        session(self.threads)
    }
}

/// A session on so many threads of the CPU; 0 is one per core.
pub(crate) fn session(threads: usize) -> anyhow::Result<InferenceSession> {
    Ok(InferenceSession::new([Arc::new(Cpu::new(threads)) as Arc<dyn engine::Device>])?)
}

impl Source<'_> {
    /// What to call the model.
    pub(crate) fn name(&self) -> String {
        match self.model {
            Some(path) => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            None => BUILT_IN.to_string(),
        }
    }

    /// Opens and compiles; reads no weights.
    pub(crate) fn open(&self, session: &InferenceSession) -> anyhow::Result<CompiledText> {
        match self.model {
            Some(path) => {
                let weights = self.weights.map(Path::to_path_buf);
                let options = LoadOptions { weights, ..LoadOptions::new(path) };
                CompiledText::open(session, &options).context("cannot open the model")
            }
            None => CompiledText::from_gguf(session, BUILT_IN, Bytes::new(&STORYTELLER.0))
                .context("cannot open the built-in model"),
        }
    }

    /// The model's `generation_config.json`, there or not. A GGUF file stands for itself and has none.
    pub(crate) fn generation_config(&self, compiled: &CompiledText) -> Option<PathBuf> {
        let model = self.model.filter(|_| compiled.checkpoint().weights().format() != Format::Gguf)?;
        let folder = if model.is_dir() { Some(model) } else { model.parent() };
        Some(folder?.join("generation_config.json"))
    }
}

/// Packs the weights, with a progress bar on standard error.
pub(crate) fn pack(
    compiled: CompiledText,
    session: &InferenceSession,
    progress: &Progress,
) -> anyhow::Result<Arc<TextModel>> {
    let show = &mut |packed: engine::Progress| {
        progress.bytes("packing", packed.done as u64, packed.total as u64);
    };
    let model = compiled.init(session, show);
    progress.clear();
    Ok(Arc::new(model.context("cannot load the model")?))
}

/// The tokenizer at a path, or that of the built-in model.
pub(crate) fn tokenizer(path: Option<&Path>) -> anyhow::Result<Tokenizer> {
    let tokenizer = match path {
        Some(path) => Tokenizer::open(path),
        None => Weights::from_bytes(BUILT_IN, Bytes::new(&STORYTELLER.0))
            .map_err(pipelines::Error::from)
            .and_then(|weights| Tokenizer::from_gguf(weights.metadata())),
    };
    tokenizer.context("cannot open the tokenizer")
}
