//! What measurements run within: the length of sequences, and the memory that may be used.

use std::fmt;
use std::io::Write;

use pipelines::config::{Auto, KVCacheStrategy, ResolvedConfig};
use pipelines::{GeneratorOptions, MemoryBytes, MemoryRequest, OutOfMemory, SamplingOptions};

use super::{Arguments, BATCH_PROMPT, BATCH_TOKENS, Work};
use crate::exit::NoMemory;
use crate::model::Source;

/// What all works run within. It prints as the length that sequences may have.
pub(super) struct Limits {
    /// The options of the configuration, for greedy answers.
    pub(super) options: GeneratorOptions,
    memory: MemoryRequest,
    /// Tokens of a sequence.
    pub(super) max_length: usize,
    /// Those that the model can take.
    context: usize,
}

impl Limits {
    /// Those of a model.
    pub(super) fn of(source: &Source, resolved: &ResolvedConfig) -> Limits {
        let options = GeneratorOptions {
            sampling: SamplingOptions::GREEDY,
            // Of the sequences to measure, which are more than the configuration speaks of.
            max_ce_batch_size: source.config().max_ce_batch_size,
            ..GeneratorOptions::from(resolved)
        };
        let context = resolved.checkpoint().network.context_length();
        let (memory, max_length) = (*resolved.memory_request(), resolved.memory().max_length);
        Limits { options, memory, max_length, context }
    }

    /// The works to measure. Those that are too long are left out, which standard error tells; those that do not fit
    /// into memory are refused.
    pub(super) fn works(&self, arguments: &Arguments) -> anyhow::Result<Vec<(String, Work)>> {
        if arguments.profile || arguments.shared_prefix.is_some() {
            return Ok(Vec::new());
        }
        let prompts = arguments.prompt.iter().map(|prompt| {
            let prompt = prompt.get();
            (format!("pp{prompt}"), Work { sequences: 1, prompt, tokens: 1, flag: "--prompt" })
        });
        let generate = arguments.generate.get();
        let tokens = generate.saturating_add(1);
        let alone = (format!("tg{generate}"), Work { sequences: 1, prompt: 1, tokens, flag: "--generate" });
        let batches = arguments.batch.iter().map(|sequences| {
            let sequences = sequences.get();
            let steps = (sequences - 1) / self.options.max_ce_batch_size;
            let tokens =
                BATCH_TOKENS + steps.min(self.max_length.saturating_sub(BATCH_PROMPT + BATCH_TOKENS));
            (format!("b{sequences}"), Work { sequences, prompt: BATCH_PROMPT, tokens, flag: "--batch" })
        });
        let works = prompts.chain([alone]).chain(batches);
        let (fit, large): (Vec<_>, Vec<_>) = works.partition(|(_, work)| work.room() <= self.max_length);
        for (name, work) in large {
            let problem = format!("{name} is left out: it needs {} tokens, and {self}", work.room());
            // A closed standard error changes nothing.
            let _ = writeln!(std::io::stderr(), "peri: {problem}");
        }
        fit.iter().try_for_each(|(name, work)| self.check(name, work))?;
        Ok(fit)
    }

    /// Whether the cache for a work fits into what may be used of the memory.
    pub(super) fn check(&self, name: &str, work: &Work) -> anyhow::Result<()> {
        // Pages are not enough for one: all run at once.
        let strategy = match self.memory.strategy {
            KVCacheStrategy::Paged => KVCacheStrategy::Continuous,
            strategy => strategy,
        };
        let (max_length, max_batch) = (Auto::At(work.room()), Auto::At(work.sequences));
        match (MemoryRequest { strategy, max_length, max_batch, ..self.memory }).plan() {
            Ok(_) => Ok(()),
            Err(OutOfMemory::Settings { weights, cache, usable, available, .. }) => {
                let [weights, cache, usable, available] =
                    [weights, cache, usable, available].map(MemoryBytes);
                Err(NoMemory(format!(
                    "{name}: the weights need {weights} and the cache for {} sequences of {} tokens {cache}, but \
                     {usable} of the {available} free may be used: lower {}",
                    work.sequences,
                    work.room(),
                    work.flag
                ))
                .into())
            }
            Err(other) => Err(pipelines::Error::from(other).into()),
        }
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_length < self.context {
            true => write!(f, "max_length is {}", self.max_length),
            false => write!(f, "the model's context holds {}", self.context),
        }
    }
}
