//! A model that embeds: an encoder, or a decoder without its head, with its tokenizer and what its files say of vectors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engine::{InferenceSession, Model, Progress};
use models::{Checkpoint, Decoder, Network};
use tensor::{Buffer, ReadGuard};
use weights::Format;

use crate::batch::{Batch, Slice};
use crate::compiled::{CacheLayout, Compiled, Initialized, Task};
use crate::config::ResolvedConfig;
use crate::kv_cache::Page;
use crate::memory::{self, MemoryNeed};
use crate::runner::{Logits, Runner};
use crate::sentence_transformers::EmbeddingConfig;
use crate::sequence::SequenceId;
use crate::tokenizer::Tokenizer;
use crate::{Error, Pooling};

/// A model ready to embed.
pub struct EmbeddingModel {
    checkpoint: Arc<Checkpoint>,
    tokenizer: Arc<Tokenizer>,
    model: Model,
    cache: CacheLayout,
    files: EmbeddingConfig,
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

impl EmbeddingModel {
    /// Compiles and initializes the model of a resolved configuration, or reads it from the file of
    /// `serialized_model_path`. `progress` is told of each weight that is packed.
    ///
    /// # Errors
    /// If the files do not fit into memory, what the files say of embeddings is not supported, or a saved model was
    /// made from another one or with other settings.
    pub fn from_config(
        session: &InferenceSession,
        resolved: ResolvedConfig,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EmbeddingModel, Error> {
        EmbeddingModel::init(session, Compiled::from_config(session, resolved, Task::Embed)?, progress)
    }

    /// A model that was compiled to embed.
    pub(crate) fn init(
        session: &InferenceSession,
        compiled: Compiled,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<EmbeddingModel, Error> {
        let files = files(&compiled.checkpoint, &compiled.folder)?;
        let Initialized { checkpoint, tokenizer, model, cache, .. } = compiled.init(session, progress)?;
        Ok(EmbeddingModel { checkpoint, tokenizer, model, cache, files })
    }

    /// How hidden states become one vector, as the model's files say; where they are silent, the mean for encoders,
    /// and nothing for decoders.
    pub fn pooling(&self) -> Option<Pooling> {
        let of_encoders = matches!(self.checkpoint.network, Network::Encoder(_)).then_some(Pooling::Mean);
        self.files.pooling.or(of_encoders)
    }

    /// Dims of the hidden states, and of vectors of which all are wanted.
    pub fn dimensions(&self) -> usize {
        match &self.checkpoint.network {
            Network::Encoder(encoder) => encoder.hidden,
            Network::Decoder(decoder) => decoder.hidden,
        }
    }

    /// The most tokens of a text as the model's files say, those around it included.
    pub fn max_length(&self) -> usize {
        let context = self.checkpoint.network.context_length();
        self.files.max_length.map_or(context, |length| length.min(context))
    }

    /// The prompts that the model's files name.
    pub fn prompts(&self) -> &BTreeMap<String, String> {
        &self.files.prompts
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The executable.
    pub fn model(&self) -> &Model {
        &self.model
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
        let states = match &self.checkpoint.network {
            Network::Encoder(_) => States::Encoded(self.encode(texts, &offsets)?),
            Network::Decoder(decoder) => States::Decoded(self.decode(texts, decoder)?),
        };
        Ok(Hidden { states, offsets, width: self.dimensions() })
    }

    fn encode(&self, texts: &[&[u32]], offsets: &[usize]) -> Result<ReadGuard, Error> {
        let (tokens, offsets) = (texts.concat(), offsets.iter().map(|&row| row as u32).collect::<Vec<_>>());
        let inputs =
            [Buffer::from_slice([tokens.len()], &tokens), Buffer::from_slice([offsets.len()], &offsets)];
        let outputs = self.model.execute(&inputs)?;
        Ok(outputs[0].read().expect("nobody else writes the output"))
    }

    fn decode(&self, texts: &[&[u32]], decoder: &Decoder) -> Result<Logits, Error> {
        let CacheLayout { page_size, dtype } = self.cache;
        let mut pages = 0;
        let slice = |(index, tokens): (usize, &&[u32])| {
            let first = pages;
            pages += tokens.len().div_ceil(page_size) as Page;
            Slice {
                id: SequenceId(index as u64),
                tokens: tokens.to_vec(),
                pages: (first..pages).collect(),
                predicts: true,
                outputs: tokens.len(),
                ..Slice::default()
            }
        };
        let slices = texts.iter().enumerate().map(slice).collect();
        let tokens = pages as usize * page_size;
        let cache = (tokens as u64).saturating_mul(decoder.state().bytes_per_token(dtype) as u64);
        let available = memory::available().unwrap_or(u64::MAX);
        MemoryNeed { weights: 0, cache, available }.check(tokens)?;
        let mut runner = Runner::new(self.model.clone(), pages as usize, decoder.hidden)?;
        runner.run(&Batch { slices, ..Batch::default() })
    }
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

/// What the files of a checkpoint say of embeddings: GGUF metadata, or files in `folder`.
fn files(checkpoint: &Checkpoint, folder: &Path) -> Result<EmbeddingConfig, Error> {
    match checkpoint.weights().format() {
        Format::Gguf => EmbeddingConfig::of_gguf(checkpoint.weights().metadata()),
        _ => EmbeddingConfig::of_folder(folder),
    }
}
