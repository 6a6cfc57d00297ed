//! A generator with the batches, the cache and the limits of a plan.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::plan::Plan;
use crate::plan::config::KVCacheStrategy;
use crate::run::generator::{Generator, GeneratorOptions, RequestLimits};
use crate::run::kv_cache::KvCache;
use crate::run::scheduler::{Batching, Limits, Scheduler};
use crate::tasks::text_model::TextModel;

/// Tokens in a step that writes, unless the configuration sets them.
const BATCH_TOKENS: usize = 512;

impl Generator {
    /// A generator with nothing to do, with the limits of the model's plan.
    ///
    /// # Errors
    /// As [`Generator::with_plan`].
    pub fn new(model: Arc<TextModel>) -> Result<Generator, Error> {
        Generator::with_plan(Arc::clone(&model), model.plan())
    }

    /// A generator with nothing to do, with the limits of another plan of the same model ([`Plan::with`]).
    ///
    /// # Errors
    /// If the model or the cache does not fit into memory.
    pub fn with_plan(model: Arc<TextModel>, plan: &Plan) -> Result<Generator, Error> {
        let page_size = model.page_size();
        let num_pages = num_pages(plan, page_size)?;
        // First of all, as it finds out whether there is memory for so many pages.
        let runner = model.runner_with_slots(num_pages, plan.memory()?.state_slots)?;
        let cache = cache(plan, num_pages, page_size)?;
        let config = plan.config();
        let requests = RequestLimits {
            vocab: model.vocab(),
            context_length: plan.context_length(),
            max_length: plan.max_length()?,
            max_new_tokens: usize::try_from(config.max_new_tokens).ok(),
            capacity: cache.capacity(),
        };
        let options = GeneratorOptions {
            requests,
            sampling: plan.sampling_defaults(),
            enable_echo: config.enable_echo,
            step_time: step_time(plan),
        };
        let scheduler = Scheduler::new(limits(plan)?, batching(plan), cache);
        let texts = (Arc::clone(model.tokenizer()), Arc::clone(model.grammars()));
        Ok(Generator::from_parts(runner, scheduler, texts, options))
    }
}

/// Pages of a generator's cache.
///
/// # Errors
/// If the model does not fit into memory; or one sequence needs more room than the cache is to have, and the strategy
/// gives it all at once.
fn num_pages(plan: &Plan, page_size: usize) -> Result<usize, Error> {
    let reserved = reserved(plan)?;
    let pages = reserved.div_ceil(page_size);
    let num_pages = plan.memory()?.cache_tokens.div_ceil(page_size).max(1);
    let is_paged = is_paged(plan);
    if u32::try_from(num_pages).is_err() {
        return Err(Error::TooManyPages { pages: num_pages, page_size });
    }
    if !is_paged && num_pages < pages {
        let (strategy, tokens) = (plan.config().cache_strategy.name(), num_pages.saturating_mul(page_size));
        return Err(Error::CacheTooSmall { strategy, tokens, reserved });
    }
    // Pages that make no slot are of no use.
    Ok(if is_paged { num_pages } else { num_pages - num_pages % pages })
}

/// A cache of so many pages.
fn cache(plan: &Plan, num_pages: usize, page_size: usize) -> Result<KvCache, Error> {
    let cache = match (is_paged(plan), plan.config().enable_prefix_caching) {
        (false, _) => KvCache::slots(num_pages, page_size, reserved(plan)?),
        (true, false) => KvCache::paged(num_pages, page_size),
        (true, true) => KvCache::with_prefix_caching(num_pages, page_size),
    };
    let cache = cache.with_states(plan.memory()?.state_slots);
    Ok(if plan.runs_elsewhere() { cache.by_sequence() } else { cache })
}

/// What bounds a step.
fn limits(plan: &Plan) -> Result<Limits, Error> {
    let config = plan.config();
    let runs_apart = plan.runs_elsewhere() && batching(plan) == Batching::Continuous;
    Ok(Limits {
        // What does not run as a graph reads a prompt at once, so that its bits depend on no other, and one after the other.
        max_batch_tokens: match config.max_batch_tokens.given() {
            _ if plan.runs_elsewhere() => usize::MAX,
            tokens => tokens.unwrap_or(BATCH_TOKENS),
        },
        max_cache_batch_size: plan.memory()?.max_batch,
        max_ce_batch_size: if runs_apart { 1 } else { config.max_ce_batch_size },
        max_num_steps: usize::try_from(config.max_num_steps).unwrap_or(1),
    })
}

/// The time that a step may take, for which prompts are cut; 0 is no limit.
fn step_time(plan: &Plan) -> Duration {
    // What does not run as a graph reads a prompt at once.
    let milliseconds = if plan.runs_elsewhere() { 0 } else { plan.config().max_step_ms };
    Duration::from_millis(milliseconds as u64)
}

/// When waiting sequences start.
fn batching(plan: &Plan) -> Batching {
    match plan.config().cache_strategy {
        KVCacheStrategy::Naive => {
            Batching::Homogenous { pad_to_multiple_of: plan.config().pad_to_multiple_of }
        }
        _ => Batching::Continuous,
    }
}

/// Tokens that a sequence may take, with padding if prompts are padded.
fn reserved(plan: &Plan) -> Result<usize, Error> {
    let max_length = plan.max_length()?;
    Ok(match batching(plan) {
        Batching::Continuous => max_length,
        Batching::Homogenous { pad_to_multiple_of } => {
            max_length.checked_next_multiple_of(pad_to_multiple_of).unwrap_or(usize::MAX)
        }
    })
}

fn is_paged(plan: &Plan) -> bool {
    plan.config().cache_strategy == KVCacheStrategy::Paged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::config::PipelineConfig;

    #[test]
    fn caches_are_as_large_as_they_must_be() {
        let plan = crate::testing::plan(&testdata::asset("storyteller/model.gguf"));
        let pages = |strategy, tokens: Option<usize>, sequences: usize, pad: usize| {
            let change = |config: PipelineConfig| {
                config
                    .max_length(100)
                    .kv_cache_page_size(16_usize)
                    .cache_strategy(strategy)
                    .max_cache_batch_size(sequences)
                    .pad_to_multiple_of(pad)
            };
            let plan = plan.with(change).unwrap();
            let plan = if let Some(tokens) = tokens { plan.with_cache_tokens(tokens) } else { plan };
            num_pages(&plan, 16).map_err(|error| error.to_string())
        };
        // Seven pages hold 100 tokens, and 112; eight hold 128.
        assert_eq!(pages(KVCacheStrategy::Paged, None, 3, 2), Ok(21));
        assert_eq!(pages(KVCacheStrategy::Paged, Some(1), 3, 2), Ok(1));
        assert_eq!(pages(KVCacheStrategy::Continuous, None, 3, 2), Ok(21));
        assert_eq!(pages(KVCacheStrategy::Continuous, Some(240), 3, 2), Ok(14), "15 pages are two slots");
        assert_eq!(pages(KVCacheStrategy::Naive, None, 3, 64), Ok(24));
        assert_eq!(
            pages(KVCacheStrategy::Naive, Some(112), 3, 64).unwrap_err(),
            "the cache holds 112 tokens, but the naive strategy reserves 128 for each sequence: \
             use a larger cache, a smaller max_length, or the paged strategy"
        );
        assert!(pages(KVCacheStrategy::Naive, None, 3, usize::MAX).unwrap_err().starts_with("a cache of"));
    }
}
