//! Which model, on which device: the arguments that several commands share, and loading with progress.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use cpu::Cpu;
use engine::InferenceSession;
use pipelines::{CompiledText, LoadOptions, TextModel};
use tensor::Bytes;

use crate::progress::Progress;

/// The model that needs no file: a small writer of fairy tales.
static STORYTELLER: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../assets/storyteller/model.gguf"));

/// GGUF aligns tensors relative to the start of the file.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

/// Where the weights are and how they run.
#[derive(clap::Args, Clone)]
pub(crate) struct ModelArguments {
    /// A GGUF file, or a folder with config.json and weights (default: a small storyteller that is built in)
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// The weights, if they are not with the model
    #[arg(long, value_name = "PATH", requires = "model")]
    pub weights: Option<PathBuf>,
    #[command(flatten)]
    pub threads: ThreadArguments,
}

/// How many threads.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct ThreadArguments {
    /// Threads to compute with; 0 is one per core that is free to use
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
}

/// A loaded model, and what loading took.
pub(crate) struct Loaded {
    /// The model.
    pub model: Arc<TextModel>,
    /// From the first byte read to ready.
    pub time: Duration,
}

impl ThreadArguments {
    /// A session on the CPU.
    pub(crate) fn session(self) -> anyhow::Result<InferenceSession> {
        Ok(InferenceSession::new([Arc::new(Cpu::new(self.threads)) as Arc<dyn engine::Device>])?)
    }
}

impl ModelArguments {
    /// Opens and compiles; reads no weights.
    pub(crate) fn open(&self, session: &InferenceSession) -> anyhow::Result<CompiledText> {
        match &self.model {
            Some(path) => {
                let options = LoadOptions { weights: self.weights.clone(), ..LoadOptions::new(path) };
                CompiledText::open(session, &options).context("cannot open the model")
            }
            None => {
                let bytes = Bytes::new(&STORYTELLER.0);
                CompiledText::from_gguf(session, "storyteller", bytes)
                    .context("cannot open the built-in model")
            }
        }
    }

    /// Opens, compiles, and packs the weights, with a progress bar on standard error.
    pub(crate) fn load(&self, session: &InferenceSession, quiet: bool) -> anyhow::Result<Loaded> {
        let start = Instant::now();
        let compiled = self.open(session)?;
        let progress = Progress::new(quiet);
        let model = compiled
            .init(session, &mut |packed| progress.show("packing", packed.done as u64, packed.total as u64));
        progress.finish();
        let model = model.context("cannot load the model")?;
        Ok(Loaded { model: Arc::new(model), time: start.elapsed() })
    }
}
