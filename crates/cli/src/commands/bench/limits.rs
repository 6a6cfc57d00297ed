//! The limits of measurements: the context length and the memory.

use std::fmt;
use std::io::Write;

use pipelines::config::KVCacheStrategy;
use pipelines::{MemoryBytes, OutOfMemory, Plan};

use super::{Arguments, BATCH_PROMPT, BATCH_TOKENS, Work};
use crate::exit::NoMemory;
use crate::model::ModelSource;

/// The limits of all works. Prints the context length.
pub(super) struct Limits {
    pub(super) plan: Plan,
    /// Sequences whose prompts may start in one step.
    at_once: usize,
    /// Most tokens of a sequence.
    pub(super) max_length: usize,
    /// Most tokens the model supports.
    context: usize,
}

impl Limits {
    /// The limits of a model.
    pub(super) fn new(source: &ModelSource, plan: &Plan) -> Result<Limits, OutOfMemory> {
        let (max_length, context) = (plan.max_length()?, plan.context_length());
        // The measured batches are larger than the configured one.
        let at_once = source.config().max_ce_batch_size;
        Ok(Limits { plan: plan.clone(), at_once, max_length, context })
    }

    /// The works to measure. Works that are too long are left out, and `warn` says whether to print which.
    ///
    /// # Errors
    /// If a work does not fit into memory.
    pub(super) fn works(&self, arguments: &Arguments, warn: bool) -> anyhow::Result<Vec<(String, Work)>> {
        if arguments.profile || arguments.shared_prefix.is_some() {
            return Ok(Vec::new());
        }
        let works = arguments.depth.iter().flat_map(|&depth| self.works_at(arguments, depth));
        let (fit, large): (Vec<_>, Vec<_>) = works.partition(|(_, work)| work.length() <= self.max_length);
        for (name, work) in large.iter().filter(|_| warn) {
            let problem = format!("{name} is left out: it needs {} tokens, but {self}", work.length());
            // A closed standard error changes nothing.
            let _ = writeln!(std::io::stderr(), "peri: {problem}");
        }
        fit.iter().try_for_each(|(name, work)| self.check(name, work))?;
        Ok(fit)
    }

    /// All works at a depth.
    fn works_at(&self, arguments: &Arguments, depth: usize) -> Vec<(String, Work)> {
        let at_depth = if depth > 0 { format!(" @ d{depth}") } else { String::new() };
        let prompts = arguments.prompt.iter().map(|prompt| {
            let prompt = prompt.get();
            let work = Work { sequences: 1, prompt, tokens: 1, depth, flag: "--prompt" };
            (format!("pp{prompt}{at_depth}"), work)
        });
        let generate = arguments.generate.get();
        let tokens = generate.saturating_add(1);
        let work = Work { sequences: 1, prompt: 1, tokens, depth, flag: "--generate" };
        let alone = (format!("tg{generate}{at_depth}"), work);
        let batches = arguments.batch.iter().filter(|_| depth == 0).map(|sequences| {
            let sequences = sequences.get();
            let steps = (sequences - 1) / self.at_once;
            let tokens =
                BATCH_TOKENS + steps.min(self.max_length.saturating_sub(BATCH_PROMPT + BATCH_TOKENS));
            let work = Work { sequences, prompt: BATCH_PROMPT, tokens, depth, flag: "--batch" };
            (format!("b{sequences}"), work)
        });
        prompts.chain([alone]).chain(batches).collect()
    }

    /// Checks that the cache of a work fits into the usable memory.
    pub(super) fn check(&self, name: &str, work: &Work) -> anyhow::Result<()> {
        // All sequences run at once, so each needs its full length.
        let strategy = match self.plan.config().cache_strategy {
            KVCacheStrategy::Paged => KVCacheStrategy::Continuous,
            strategy => strategy,
        };
        let all = self.plan.with(|config| {
            config
                .cache_strategy(strategy)
                .enable_prefix_caching(false)
                .max_length(work.length())
                .max_cache_batch_size(work.sequences)
        })?;
        match all.memory() {
            Ok(_) => Ok(()),
            Err(OutOfMemory::Settings { weights, cache, usable, available, .. }) => {
                let [weights, cache, usable, available] =
                    [weights, cache, usable, available].map(MemoryBytes);
                Err(NoMemory(format!(
                    "{name}: the weights need {weights} and the cache for {} sequences of {} tokens {cache}, but \
                     {usable} of the {available} free may be used: lower {}",
                    work.sequences,
                    work.length(),
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
        if self.max_length < self.context {
            write!(f, "max_length is {}", self.max_length)
        } else {
            write!(f, "the model's context holds {}", self.context)
        }
    }
}
