//! Makes tokens: requests in, events out, one step at a time.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::Error;
use crate::batch::Batch;
use crate::detokenizer::Detokenizer;
use crate::generator_options::GeneratorOptions;
use crate::runner::{Logits, Runner};
use crate::sampler::{Row, Sampler, SamplingParams, TokenCounts};
use crate::scheduler::Scheduler;
use crate::sequence::{Sequence, SequenceId};
use crate::text_model::TextModel;
use crate::tokenizer::SkipSpecial;

/// What is wanted of a prompt.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The tokens to continue; at least one.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// The most tokens to make; `None` is up to the model's context length.
    pub max_new_tokens: Option<NonZeroUsize>,
    /// Whether the model's end-of-sequence tokens are tokens like any other.
    pub ignore_eos: bool,
    /// With prefix caching, pages are shared only with requests of the same salt.
    pub cache_salt: Option<String>,
}

/// Something happened to a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The sequence.
    pub id: SequenceId,
    /// What happened.
    pub kind: EventKind,
}

/// What can happen to a sequence.
#[derive(Debug, Clone, PartialEq)]
pub enum EventKind {
    /// A token was made. The text is empty while a character is incomplete.
    Token {
        /// Its id.
        token: u32,
        /// The text that is complete with it.
        text: String,
    },
    /// The sequence is over.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Text that was held back for a character that never came.
        text: String,
    },
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model made an end-of-sequence token, which is not part of the text.
    Stop,
    /// As many tokens as asked for, or as the model's context holds.
    Length,
}

impl FinishReason {
    /// The name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
        }
    }
}

/// Continues many prompts together. What a request gets depends on that request alone: not on the others, nor on
/// how its prompt was cut into steps.
pub struct Generator {
    model: Arc<TextModel>,
    runner: Runner,
    scheduler: Scheduler,
    sampler: Sampler,
    active: HashMap<SequenceId, Active>,
    max_length: usize,
    next_id: u64,
}

/// What the generator keeps of a sequence beside its tokens.
struct Active {
    sampling: SamplingParams,
    /// Empty where the sampling does not look back.
    history: TokenCounts,
    detokenizer: Detokenizer,
    ignore_eos: bool,
}

impl Generator {
    /// A generator with nothing to do.
    ///
    /// # Errors
    /// If options are out of range or contradict each other, or the cache does not fit into memory.
    pub fn new(model: Arc<TextModel>, options: &GeneratorOptions) -> Result<Generator, Error> {
        let max_length = options.check(model.decoder().context_length)?;
        let cache = options.cache(max_length, model.page_size())?;
        Ok(Generator {
            runner: model.runner(cache.num_pages())?,
            scheduler: Scheduler::new(options.limits(), options.batching(), cache),
            max_length,
            sampler: Sampler::default(),
            active: HashMap::new(),
            next_id: 0,
            model,
        })
    }

    /// Queues a request.
    ///
    /// # Errors
    /// If the prompt is empty, has tokens that the model does not know, is too long for the model or the
    /// cache, or the sampling parameters are out of range.
    pub fn add(&mut self, request: Request) -> Result<SequenceId, Error> {
        let decoder = self.model.decoder();
        let (len, limit) = (request.prompt.len(), self.max_length);
        if len == 0 {
            return Err(Error::EmptyPrompt);
        }
        if let Some(&token) = request.prompt.iter().find(|&&token| token as usize >= decoder.vocab) {
            return Err(Error::UnknownToken { token, vocab: decoder.vocab });
        }
        if len >= limit {
            return Err(Error::PromptTooLong { tokens: len, limit });
        }
        request.sampling.validate(decoder.vocab)?;
        let id = SequenceId(self.next_id);
        let max_tokens = request.max_new_tokens.map_or(limit, |new| len.saturating_add(new.get()).min(limit));
        let active = Active {
            history: match request.sampling.uses_history() {
                true => TokenCounts::new(&request.prompt),
                false => TokenCounts::default(),
            },
            sampling: request.sampling,
            detokenizer: Detokenizer::after(
                Arc::clone(self.model.tokenizer()),
                SkipSpecial::Yes,
                &request.prompt,
            ),
            ignore_eos: request.ignore_eos,
        };
        let mut sequence = Sequence::new(id, request.prompt, max_tokens);
        sequence.cache_salt = request.cache_salt.map(Arc::from);
        self.scheduler.add(sequence)?;
        self.active.insert(id, active);
        self.next_id += 1;
        Ok(id)
    }

    /// Forgets a sequence and frees its pages. A sequence that is over already is ignored.
    pub fn abort(&mut self, id: SequenceId) {
        self.scheduler.remove(id);
        self.active.remove(&id);
    }

    /// Whether every sequence is over.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// Who runs and who waits, and the cache.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Forgets what the cache holds of earlier requests: those that start from now on compute all their tokens.
    pub fn reset_prefix_cache(&mut self) {
        self.scheduler.reset_prefixes();
    }

    /// Runs one step, and says what came of it.
    ///
    /// # Errors
    /// If the model cannot run, or its logits leave no token to choose. The sequences of the step stay as they
    /// were, to be aborted or tried again.
    pub fn step(&mut self) -> Result<Vec<Event>, Error> {
        let batch = self.scheduler.schedule();
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let logits = self.runner.run(&batch, false)?;
        let tokens = self.sample(&batch, &logits)?;
        self.scheduler.advance(&batch, &tokens);
        Ok(self.report(&batch, &tokens))
    }

    /// The next token of each sequence that the batch predicts for.
    fn sample(&mut self, batch: &Batch, logits: &Logits) -> Result<Vec<u32>, Error> {
        let mut tokens = Vec::new();
        for (row, id) in batch.predicting().enumerate() {
            let sequence = self.scheduler.get(id).expect("a batch is made of sequences");
            let active = &self.active[&id];
            let row = Row {
                logits: logits.row(row),
                params: &active.sampling,
                history: &active.history,
                position: sequence.tokens.len() as u64,
                allowed: None,
            };
            tokens.push(self.sampler.sample(&row)?.token);
        }
        Ok(tokens)
    }

    fn report(&mut self, batch: &Batch, tokens: &[u32]) -> Vec<Event> {
        let mut events = Vec::new();
        for (id, &token) in batch.predicting().zip(tokens) {
            let sequence = self.scheduler.get(id).expect("a batch is made of sequences");
            let active = self.active.get_mut(&id).expect("each sequence is active");
            let stop = !active.ignore_eos && self.model.tokenizer().eos_ids().contains(&token);
            let full = sequence.tokens.len() >= sequence.max_tokens;
            if active.sampling.uses_history() {
                active.history.push(token);
            }
            if !stop {
                let text = active.detokenizer.push(token).unwrap_or_default();
                events.push(Event { id, kind: EventKind::Token { token, text } });
            }
            if stop || full {
                let reason = if stop { FinishReason::Stop } else { FinishReason::Length };
                self.scheduler.remove(id);
                let active = self.active.remove(&id).expect("each sequence is active");
                let text = active.detokenizer.finish().unwrap_or_default();
                events.push(Event { id, kind: EventKind::Finished { reason, text } });
            }
        }
        events
    }
}
