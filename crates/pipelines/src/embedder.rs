//! Texts to vectors: an encoder, or a decoder without its head, and the pooling behind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{InferenceSession, InitOptions, Model, Progress};
use models::{Checkpoint, Decoder, Network};
use tensor::{Buffer, DType};
use weights::Format;

use crate::Error;
use crate::batch::{Batch, Slice};
use crate::error::InvalidField;
use crate::kv_cache::Page;
use crate::memory::{self, MemoryNeed};
use crate::pooling::{Pooling, normalize};
use crate::runner::Runner;
use crate::sentence_transformers::EmbeddingConfig;
use crate::sequence::SequenceId;
use crate::text_model::{CheckpointWeights, LoadOptions, tokenizer};
use crate::tokenizer::{AddSpecial, ParseSpecial, Tokenizer};

/// Tokens that are computed at once, unless asked otherwise: enough to keep all threads busy.
const DEFAULT_BATCH_TOKENS: usize = 4096;

/// How texts become vectors; what is `None` is as the model's files say.
#[derive(Debug, Clone, Default)]
pub struct EmbedderOptions {
    /// How hidden states become one vector. Where the files are silent: the mean for encoders, and for decoders an
    /// error.
    pub pooling: Option<Pooling>,
    /// Whether vectors have the length 1. Where the files are silent, they have.
    pub normalize: Option<bool>,
    /// The first so many dims alone, normalized after the others are cut off. For models that were trained for that
    /// (Matryoshka).
    pub dimensions: Option<usize>,
    /// What happens to texts that are too long.
    pub truncate: Truncate,
    /// The most tokens of a text, those around it included; no more than the files say.
    pub max_length: Option<usize>,
    /// What stands before every text.
    pub prompt: Option<EmbeddingPrompt>,
    /// Tokens that are computed at once; a longer text is computed alone. 0 is a number that suits most machines.
    pub max_batch_tokens: usize,
}

/// What happens to a text of more tokens than the model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Truncate {
    /// It is an error.
    #[default]
    Never,
    /// Its last tokens are left out; those that the model wants around a text stay.
    Right,
}

/// What stands before a text, to tell the model what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbeddingPrompt {
    /// One that the model's files name, such as `query`.
    Named(String),
    /// A text.
    Text(String),
}

/// The vector of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// Its dims.
    pub vector: Vec<f32>,
    /// How many tokens it was made of.
    pub tokens: usize,
}

/// Makes vectors of texts. What a text gets depends on that text alone: not on the others, nor on threads.
pub struct Embedder {
    checkpoint: Arc<Checkpoint>,
    tokenizer: Tokenizer,
    model: Model,
    page_size: usize,
    cache_dtype: DType,
    pooling: Pooling,
    normalize: bool,
    dimensions: usize,
    truncate: Truncate,
    max_length: usize,
    lowercase: bool,
    prompt: String,
    prompts: BTreeMap<String, String>,
    max_batch_tokens: usize,
}

impl Embedder {
    /// Opens, compiles and initializes a model. `progress` is told of each weight that is packed.
    ///
    /// # Errors
    /// If the files cannot be read or do not fit into memory, the architecture is not supported, or the options do
    /// not fit the model.
    pub fn load(
        session: &InferenceSession,
        load: &LoadOptions,
        options: &EmbedderOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Embedder, Error> {
        let checkpoint = Arc::new(Checkpoint::open(&load.model, load.weights.as_deref())?);
        let files = checkpoint.weights();
        let config = match files.format() {
            Format::Gguf => EmbeddingConfig::of_gguf(files.metadata())?,
            _ => EmbeddingConfig::of_folder(load.folder())?,
        };
        let settled = Settled::new(&checkpoint, &config, options)?;
        let available = memory::available().unwrap_or(u64::MAX);
        MemoryNeed { weights: files.bytes(), cache: 0, available }.check(0)?;
        let compiled = session.compile(&checkpoint.hidden_graph(load.page_size, load.cache_dtype)?)?;
        let registry = CheckpointWeights(Arc::clone(&checkpoint));
        let init = InitOptions { progress: Some(progress), ..InitOptions::default() };
        let model = session.init_with(&compiled, &registry, init)?;
        Ok(Embedder {
            tokenizer: tokenizer(&checkpoint, load.folder())?,
            model,
            page_size: load.page_size,
            cache_dtype: load.cache_dtype,
            pooling: settled.pooling,
            normalize: options.normalize.or(config.normalize).unwrap_or(true),
            dimensions: settled.dimensions,
            truncate: options.truncate,
            max_length: settled.max_length,
            lowercase: config.lowercase,
            prompt: settled.prompt,
            prompts: config.prompts,
            max_batch_tokens: match options.max_batch_tokens {
                0 => DEFAULT_BATCH_TOKENS,
                tokens => tokens,
            },
            checkpoint,
        })
    }

    /// The vectors of texts, in their order.
    ///
    /// # Errors
    /// If a text is too long or has no tokens, or as [`Embedder::embed_tokens`].
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Vec<f32>>, Error> {
        Ok(self.encode(texts)?.into_iter().map(|embedding| embedding.vector).collect())
    }

    /// The vectors of texts with the numbers of their tokens, in their order.
    ///
    /// # Errors
    /// As [`Embedder::embed`].
    pub fn encode<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Embedding>, Error> {
        let tokens = texts.iter().enumerate().map(|(index, text)| self.tokens(index, text.as_ref()));
        let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
        let vectors = self.embed_tokens(&tokens)?;
        let embedding = |(vector, tokens): (_, Vec<u32>)| Embedding { vector, tokens: tokens.len() };
        Ok(vectors.into_iter().zip(tokens).map(embedding).collect())
    }

    /// The tokens of a text as the model takes them: with the prompt before it, the tokens that belong around it,
    /// and truncated if that was asked for.
    ///
    /// # Errors
    /// If it is too long or has no tokens.
    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>, Error> {
        self.tokens(0, text)
    }

    /// The vectors of texts that are tokens already, in their order.
    ///
    /// # Errors
    /// If a text is too long or has no tokens, a token is beyond the vocabulary, or a decoder's cache does not fit
    /// into memory.
    pub fn embed_tokens(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, Error> {
        texts.iter().enumerate().try_for_each(|(index, tokens)| self.check(index, tokens))?;
        let mut vectors = Vec::with_capacity(texts.len());
        let mut rest = texts;
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(self.batch_len(rest));
            vectors.extend(self.vectors(batch)?);
            rest = later;
        }
        Ok(vectors)
    }

    /// Dims of the vectors.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// How hidden states become one vector.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// The most tokens of a text, those around it included.
    pub fn max_length(&self) -> usize {
        self.max_length
    }

    /// The prompts that the model's files name.
    pub fn prompts(&self) -> &BTreeMap<String, String> {
        &self.prompts
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The executable.
    pub fn model(&self) -> &Model {
        &self.model
    }

    fn tokens(&self, index: usize, text: &str) -> Result<Vec<u32>, Error> {
        let text = format!("{}{text}", self.prompt);
        let text = if self.lowercase { text.to_lowercase() } else { text };
        let encode = |add| self.tokenizer.encode(&text, add, ParseSpecial::No);
        let tokens = encode(AddSpecial::Yes)?;
        if self.truncate == Truncate::Never || tokens.len() <= self.max_length {
            self.check(index, &tokens)?;
            return Ok(tokens);
        }
        let tokens = truncated(&tokens, &encode(AddSpecial::No)?, self.max_length);
        self.check(index, &tokens)?;
        Ok(tokens)
    }

    fn check(&self, index: usize, tokens: &[u32]) -> Result<(), Error> {
        if tokens.is_empty() {
            return Err(Error::EmptyText { index });
        }
        if tokens.len() > self.max_length {
            return Err(Error::TextTooLong { index, tokens: tokens.len(), limit: self.max_length });
        }
        let vocab = self.checkpoint.network.vocab();
        match tokens.iter().find(|&&token| token as usize >= vocab) {
            Some(&token) => Err(Error::UnknownToken { token, vocab }),
            None => Ok(()),
        }
    }

    /// How many of the texts are computed at once.
    fn batch_len(&self, texts: &[Vec<u32>]) -> usize {
        let mut tokens = 0;
        let fitting = texts.iter().take_while(|text| {
            tokens += text.len();
            tokens <= self.max_batch_tokens
        });
        fitting.count().max(1)
    }

    /// The vectors of a batch.
    fn vectors(&self, texts: &[Vec<u32>]) -> Result<Vec<Vec<f32>>, Error> {
        match &self.checkpoint.network {
            Network::Encoder(encoder) => self.encoded(texts, encoder.hidden),
            Network::Decoder(decoder) => self.decoded(texts, decoder),
        }
    }

    fn encoded(&self, texts: &[Vec<u32>], width: usize) -> Result<Vec<Vec<f32>>, Error> {
        let tokens = texts.concat();
        let mut offsets = vec![0];
        for text in texts {
            offsets.push(offsets[offsets.len() - 1] + text.len() as u32);
        }
        let inputs =
            [Buffer::from_slice([tokens.len()], &tokens), Buffer::from_slice([offsets.len()], &offsets)];
        let outputs = self.model.execute(&inputs)?;
        let hidden = outputs[0].read().expect("nobody else writes the output"); // [tokens, width]
        let hidden = hidden.as_slice::<f32>();
        let rows = offsets.windows(2).map(|rows| &hidden[rows[0] as usize * width..rows[1] as usize * width]);
        Ok(rows.map(|rows| self.vector(rows, width)).collect())
    }

    fn decoded(&self, texts: &[Vec<u32>], decoder: &Decoder) -> Result<Vec<Vec<f32>>, Error> {
        let read = |tokens: &Vec<u32>| if self.pooling == Pooling::Last { 1 } else { tokens.len() };
        let mut pages = 0;
        let slice = |(index, tokens): (usize, &Vec<u32>)| {
            let first = pages;
            pages += tokens.len().div_ceil(self.page_size) as Page;
            Slice {
                id: SequenceId(index as u64),
                tokens: tokens.clone(),
                pages: (first..pages).collect(),
                predicts: true,
                outputs: read(tokens),
                ..Slice::default()
            }
        };
        let slices = texts.iter().enumerate().map(slice).collect();
        let tokens = pages as usize * self.page_size;
        let cache = (tokens as u64).saturating_mul(decoder.cache_bytes_per_token(self.cache_dtype) as u64);
        let available = memory::available().unwrap_or(u64::MAX);
        MemoryNeed { weights: 0, cache, available }.check(tokens)?;
        let shape = decoder.cache_shape(pages as usize, self.page_size);
        let mut runner = Runner::new(self.model.clone(), shape, decoder.hidden);
        let hidden = runner.run(&Batch { slices, ..Batch::default() })?; // [outputs, hidden]
        let mut first = 0;
        let vector = |tokens: &Vec<u32>| {
            let rows: Vec<&[f32]> = (first..first + read(tokens)).map(|row| hidden.row(row)).collect();
            first += rows.len();
            self.vector(&rows.concat(), decoder.hidden)
        };
        Ok(texts.iter().map(vector).collect())
    }

    /// The vector of a text, of its hidden states.
    fn vector(&self, rows: &[f32], width: usize) -> Vec<f32> {
        let mut vector = self.pooling.pool(rows, width);
        vector.truncate(self.dimensions);
        if self.normalize {
            normalize(&mut vector);
        }
        vector
    }
}

/// Options and files together, checked against the model.
struct Settled {
    pooling: Pooling,
    dimensions: usize,
    max_length: usize,
    prompt: String,
}

impl Settled {
    fn new(
        checkpoint: &Checkpoint,
        config: &EmbeddingConfig,
        options: &EmbedderOptions,
    ) -> Result<Settled, Error> {
        let (hidden, context, usual) = match &checkpoint.network {
            Network::Encoder(encoder) => (encoder.hidden, encoder.context_length(), Some(Pooling::Mean)),
            Network::Decoder(decoder) => (decoder.hidden, decoder.context_length, None),
        };
        let Some(pooling) = options.pooling.or(config.pooling).or(usual) else {
            let problem = "a decoder, whose files do not say how hidden states become one vector";
            return Err(Error::embedding(&checkpoint.config.architecture, problem));
        };
        let limit = config.max_length.map_or(context, |length| length.min(context));
        let within = |field, value: Option<usize>, limit: usize| match value {
            Some(value) if value == 0 || value > limit => {
                let fix = format!("give 1 to {limit}, which is what the model has");
                Err(Error::EmbedderOption(InvalidField { field, value: value.to_string(), fix }))
            }
            value => Ok(value.unwrap_or(limit)),
        };
        Ok(Settled {
            pooling,
            dimensions: within("dimensions", options.dimensions, hidden)?,
            max_length: within("max_length", options.max_length, limit)?,
            prompt: prompt(config, options.prompt.as_ref())?,
        })
    }
}

/// The text of the prompt.
fn prompt(config: &EmbeddingConfig, wanted: Option<&EmbeddingPrompt>) -> Result<String, Error> {
    let text = match (wanted, &config.default_prompt) {
        (Some(EmbeddingPrompt::Text(text)), _) => text.clone(),
        (Some(EmbeddingPrompt::Named(name)), _) | (None, Some(name)) => {
            config.prompts.get(name).cloned().ok_or_else(|| {
                let names: Vec<&str> = config.prompts.keys().map(String::as_str).collect();
                let fix = match names.is_empty() {
                    true => "the model's files name no prompts; give its text".to_string(),
                    false => format!("the model's files name {}", names.join(", ")),
                };
                Error::EmbedderOption(InvalidField { field: "prompt", value: name.clone(), fix })
            })?
        }
        (None, None) => String::new(),
    };
    match config.excludes_prompt && !text.is_empty() {
        true => {
            let problem = "leaves the tokens of prompts out of its pooling, which is not supported";
            Err(Error::embedding("the model", problem))
        }
        false => Ok(text),
    }
}

/// The first tokens of a text, and all of those around it: `whole` holds both, `text` the text's alone.
fn truncated(whole: &[u32], text: &[u32], limit: usize) -> Vec<u32> {
    let around = whole.len() - text.len().min(whole.len());
    let before = (0..=around).find(|&start| whole[start..].starts_with(text));
    // Where the text cannot be told from what is around it, there is nothing to keep.
    let (before, around) = before.map_or((0, 0), |before| (before, around));
    let kept = limit.saturating_sub(around);
    let behind = &whole[whole.len() - (around - before)..];
    [&whole[..before + kept.min(whole.len() - around)], behind].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_keeps_what_is_around() {
        assert_eq!(truncated(&[101, 7, 8, 9, 102], &[7, 8, 9], 4), [101, 7, 8, 102]);
        assert_eq!(truncated(&[101, 7, 8, 9, 102], &[7, 8, 9], 2), [101, 102]);
        assert_eq!(truncated(&[7, 8, 9, 5], &[7, 8, 9], 3), [7, 8, 5]);
        assert_eq!(truncated(&[7, 8, 9], &[7, 8, 9], 2), [7, 8]);
        assert_eq!(truncated(&[4, 7, 8, 9], &[7, 8, 6], 3), [4, 7, 8]);
    }

    #[test]
    fn prompts_are_named_or_given() {
        let prompts = [("query".to_string(), "query: ".to_string())].into();
        let config = EmbeddingConfig { prompts, ..EmbeddingConfig::default() };
        let named = |name: &str| Some(EmbeddingPrompt::Named(name.to_string()));
        assert_eq!(prompt(&config, None).unwrap(), "");
        assert_eq!(prompt(&config, named("query").as_ref()).unwrap(), "query: ");
        assert_eq!(prompt(&config, Some(&EmbeddingPrompt::Text("find ".into()))).unwrap(), "find ");
        let error = prompt(&config, named("passage").as_ref()).unwrap_err().to_string();
        assert_eq!(error, "prompt is passage: the model's files name query");
        let usual = EmbeddingConfig { default_prompt: Some("query".into()), ..config };
        assert_eq!(prompt(&usual, None).unwrap(), "query: ");
        let excluding = EmbeddingConfig { excludes_prompt: true, ..usual };
        assert!(prompt(&excluding, None).unwrap_err().to_string().contains("not supported"));
        assert_eq!(prompt(&excluding, Some(&EmbeddingPrompt::Text(String::new()))).unwrap(), "");
    }
}
