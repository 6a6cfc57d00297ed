//! A model that embeds: an encoder, or a decoder without its head, with its tokenizer and what its files say of vectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{InferenceSession, Model, Progress};
use models::Checkpoint;
use tensor::{Buffer, ReadGuard};
use text::Tokenizer;
use weights::Format;

use crate::plan::model_files::sentence_transformers::EmbeddingConfig;
use crate::plan::{Plan, Task};
use crate::run::runner::Logits;
use crate::tasks::compiled::{CompiledPlan, Loaded, LoadedGraph, Program};
use crate::tasks::dense::{DenseLayer, DenseLayers};
use crate::tasks::texts::{self, TextRows};
use crate::{Error, Pooling};

/// A model ready to embed.
pub struct EmbeddingModel {
    loaded: Loaded,
    files: EmbeddingConfig,
    dense: Option<DenseLayers>,
}

/// The hidden states of a batch of texts.
pub(crate) struct Hidden {
    states: States,
    /// The row where each text starts, and the end.
    offsets: Vec<usize>,
    width: usize,
}

/// f32[tokens, width]
enum States {
    Encoded(ReadGuard),
    Decoded(Logits),
}

impl CompiledPlan {
    /// Fetches the weights if need be, binds and packs them, and builds the tokenizer meanwhile. Calls `progress` after
    /// each weight.
    ///
    /// # Errors
    /// If the model was compiled to write, does not fit into memory, its files ask for embeddings that are not
    /// supported, or there is no tokenizer.
    pub fn load_embedding(
        self,
        session: &InferenceSession,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EmbeddingModel, Error> {
        let name = || self.plan().architecture().to_string();
        match self.task() {
            Task::Embed => {}
            Task::Write => return Err(models::Error::NotAnEncoder { name: name() }.into()),
            Task::Classify => return Err(not_for_embeddings(self.plan())),
        }
        // A remote model's files are asked once they are here.
        let early = self.plan().is_local().then(|| files(self.plan(), self.checkpoint())).transpose()?;
        let loaded = self.init(session, progress)?;
        let files = early.map_or_else(|| files(&loaded.plan, loaded.checkpoint()), Ok)?;
        if loaded.plan.is_classifier() && files.pooling.is_none() {
            return Err(not_for_embeddings(&loaded.plan));
        }
        let width = width(&loaded);
        let layers = match loaded.checkpoint().map(Checkpoint::weights) {
            Some(weights) if weights.format() == Format::Gguf => DenseLayer::from_gguf(weights),
            _ => {
                files.dense.iter().map(|folder| DenseLayer::from_folder(folder)).collect::<Result<_, _>>()?
            }
        };
        let dense = DenseLayers::load(session, &layers, width)?;
        Ok(EmbeddingModel { loaded, files, dense })
    }
}

impl EmbeddingModel {
    /// Fetches, compiles and loads a planned model: an encoder, or a decoder without its head. Calls `progress` after
    /// each weight that is packed.
    ///
    /// # Errors
    /// As [`Plan::compile`] and [`CompiledPlan::load_embedding`].
    pub fn from_plan(
        session: &InferenceSession,
        plan: Plan,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EmbeddingModel, Error> {
        CompiledPlan::new(session, plan, Task::Embed, None)?.load_embedding(session, progress)
    }

    /// The plan that it was loaded with.
    pub fn plan(&self) -> &Plan {
        &self.loaded.plan
    }

    /// How hidden states become one vector, as the model's files say; where they are silent, the mean for encoders,
    /// and nothing for decoders.
    pub fn pooling(&self) -> Option<Pooling> {
        let mean = self.loaded.plan.reads_whole_texts().then_some(Pooling::Mean);
        self.files.pooling.or(mean)
    }

    /// Dims of vectors of which all are wanted.
    pub fn dimensions(&self) -> usize {
        self.dense.as_ref().map_or_else(|| width(&self.loaded), |layers| layers.width)
    }

    /// The most tokens of a text as the model's files say, those around it included.
    pub fn max_length(&self) -> usize {
        let context = self.loaded.plan.context_length();
        self.files.max_length.map_or(context, |length| length.min(context))
    }

    /// The prompts that the model's files name.
    pub fn prompts(&self) -> &BTreeMap<String, String> {
        &self.files.prompts
    }

    /// Rows of the embedding: one more than the highest token.
    pub fn vocab(&self) -> usize {
        self.loaded.vocab()
    }

    /// The checkpoint; `None` if the model does not run as a graph.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.loaded.checkpoint()
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.loaded.tokenizer
    }

    /// The executable; `None` if the model does not run as a graph.
    pub fn model(&self) -> Option<&Model> {
        self.loaded.model()
    }

    /// Checks that it can run: its files are as they were, and the process that runs it, if there is one, has not ended.
    ///
    /// # Errors
    /// If it cannot.
    pub fn check(&self) -> Result<(), Error> {
        self.loaded.check()
    }

    /// What the model's files say of embeddings.
    pub(crate) fn files(&self) -> &EmbeddingConfig {
        &self.files
    }

    /// The hidden states of texts, which have tokens, all of them known.
    ///
    /// # Errors
    /// If a decoder's cache does not fit into memory.
    pub(crate) fn hidden(&self, texts: &[&[u32]]) -> Result<Hidden, Error> {
        let mut offsets = vec![0];
        for text in texts {
            offsets.push(offsets[offsets.len() - 1] + text.len());
        }
        let width = width(&self.loaded);
        let states = match &self.loaded.program {
            Program::Transformers(model) => States::Decoded(model.hidden(texts)?),
            Program::Graph(graph) if graph.checkpoint.model.runs_in_steps() => {
                States::Decoded(texts::decode(&self.loaded.plan, graph, texts, TextRows::All, width)?)
            }
            Program::Graph(graph) => States::Encoded(encode(graph, texts, &offsets)?),
        };
        Ok(Hidden { states, offsets, width })
    }

    /// What the layers behind the pooling make of vectors.
    ///
    /// # Errors
    /// If they fail.
    pub(crate) fn dense(&self, vectors: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, Error> {
        match &self.dense {
            Some(layers) => layers.apply(&vectors),
            None => Ok(vectors),
        }
    }
}

/// The hidden states of texts through an encoder.
fn encode(graph: &LoadedGraph, texts: &[&[u32]], offsets: &[usize]) -> Result<ReadGuard, Error> {
    let (tokens, offsets) = (texts.concat(), offsets.iter().map(|&row| row as u32).collect::<Vec<_>>());
    let inputs = [Buffer::from_slice([tokens.len()], &tokens), Buffer::from_slice([offsets.len()], &offsets)];
    let outputs = graph.model.execute(&inputs)?;
    Ok(outputs[0].read().expect("nothing else writes the output"))
}

impl Hidden {
    /// Those of each text: f32[its tokens, width].
    pub(crate) fn texts(&self) -> impl Iterator<Item = &[f32]> {
        let states = match &self.states {
            States::Encoded(states) => states.as_slice::<f32>(),
            States::Decoded(states) => states.as_slice(),
        };
        self.offsets.windows(2).map(|rows| &states[rows[0] * self.width..rows[1] * self.width])
    }

    /// Dims of each.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}

/// Dims of hidden states.
fn width(loaded: &Loaded) -> usize {
    match &loaded.program {
        Program::Transformers(model) => model.width(),
        Program::Graph(graph) => graph.checkpoint.model.hidden,
    }
}

fn not_for_embeddings(plan: &Plan) -> Error {
    Error::NotForEmbeddings { architecture: plan.architecture().to_string() }
}

/// What a model's files say of embeddings: GGUF metadata, or files in its folder.
fn files(plan: &Plan, checkpoint: Option<&Checkpoint>) -> Result<EmbeddingConfig, Error> {
    match checkpoint.map(Checkpoint::weights) {
        Some(weights) if weights.format() == Format::Gguf => EmbeddingConfig::from_gguf(weights.metadata()),
        _ => EmbeddingConfig::from_folder(plan.folder()),
    }
}
