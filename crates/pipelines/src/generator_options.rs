//! How a generator shares out its steps and its cache, and what its requests may ask for.

use crate::Error;
use crate::config::{KVCacheStrategy, PipelineConfig, ResolvedConfig};
use crate::error::InvalidField;
use crate::kv_cache::KvCache;
use crate::sampling_options::SamplingOptions;
use crate::scheduler::{Batching, Limits};

/// How large a generator's batches and cache are, how they are filled, and what requests may ask for. What a request
/// gets depends on none of the rest.
#[derive(Debug, Clone)]
pub struct GeneratorOptions {
    /// Tokens of one sequence, prompt and generated; `None` is the default of configurations, or the model's context length
    /// if that is less.
    pub max_length: Option<usize>,
    /// Tokens to make for requests that do not say how many; `None` is until the model ends its text or
    /// [`GeneratorOptions::max_length`] is reached.
    pub max_new_tokens: Option<usize>,
    /// How tokens are chosen for requests that leave it open; what is open here too is greedy.
    pub sampling: SamplingOptions,
    /// Whether requests may have log-probabilities of their prompts, which cost the logits of every token of the
    /// prompt in memory and time.
    pub enable_echo: bool,
    /// How the cache is shared out among sequences; [`KVCacheStrategy::ModelDefault`] is paged.
    pub cache_strategy: KVCacheStrategy,
    /// Whether sequences that begin alike share the pages of their beginning; paged only.
    pub enable_prefix_caching: bool,
    /// Sequences that run at once.
    pub max_cache_batch_size: usize,
    /// Sequences of which a step runs prompt tokens; [`GeneratorOptions::max_cache_batch_size`], if that is less.
    pub max_ce_batch_size: usize,
    /// Tokens in a step, prompt and decode together; longer prompts run in chunks.
    pub max_batch_tokens: usize,
    /// Decode steps that follow each other without a look at who waits.
    pub max_num_steps: usize,
    /// What the common length of prompts that run together is a multiple of; naive only.
    pub pad_to_multiple_of: usize,
    /// Tokens that the KV cache holds, all sequences together; `None` is room for as many of the longest sequences
    /// as run at once.
    pub cache_tokens: Option<usize>,
}

/// Those of a configuration that says nothing.
impl Default for GeneratorOptions {
    fn default() -> GeneratorOptions {
        GeneratorOptions::of(&PipelineConfig::default())
    }
}

impl From<&ResolvedConfig> for GeneratorOptions {
    fn from(resolved: &ResolvedConfig) -> GeneratorOptions {
        let memory = resolved.memory();
        GeneratorOptions {
            max_length: Some(memory.max_length),
            sampling: resolved.sampling_defaults(),
            max_cache_batch_size: memory.max_batch,
            cache_tokens: Some(memory.cache_tokens),
            ..GeneratorOptions::of(resolved.config())
        }
    }
}

impl GeneratorOptions {
    /// What a configuration says, where nothing is known of the model and the memory.
    fn of(config: &PipelineConfig) -> GeneratorOptions {
        GeneratorOptions {
            max_length: config.max_length.wished(),
            max_new_tokens: usize::try_from(config.max_new_tokens).ok(),
            sampling: config.sampling_defaults(),
            enable_echo: config.enable_echo,
            cache_strategy: config.cache_strategy,
            enable_prefix_caching: config.enable_prefix_caching,
            max_cache_batch_size: config.max_cache_batch_size.given().unwrap_or(1),
            max_ce_batch_size: config.max_ce_batch_size,
            max_batch_tokens: config.max_batch_tokens,
            max_num_steps: usize::try_from(config.max_num_steps).unwrap_or(1),
            pad_to_multiple_of: config.pad_to_multiple_of,
            cache_tokens: None,
        }
    }

    /// Tokens of one sequence, if the options make sense for a model of that context length.
    ///
    /// # Errors
    /// With every option that is out of range or contradicts another.
    pub(crate) fn check(&self, context_length: usize) -> Result<usize, Error> {
        let mut invalid = Vec::new();
        let mut require = |ok: bool, field, value: String, fix: &str| {
            if !ok {
                invalid.push(InvalidField { field, value, fix: fix.to_string() });
            }
        };
        for (field, value) in [
            ("max_cache_batch_size", self.max_cache_batch_size),
            ("max_ce_batch_size", self.max_ce_batch_size),
            ("max_batch_tokens", self.max_batch_tokens),
            ("max_num_steps", self.max_num_steps),
            ("pad_to_multiple_of", self.pad_to_multiple_of),
        ] {
            require(value > 0, field, value.to_string(), "give at least 1");
        }
        let usual = || PipelineConfig::default().max_length.given().unwrap_or(context_length);
        let max_length = self.max_length.unwrap_or_else(|| usual().min(context_length));
        let fix = format!("give 1 to {context_length}, the model's context length");
        require((1..=context_length).contains(&max_length), "max_length", max_length.to_string(), &fix);
        require(
            !self.enable_prefix_caching || self.is_paged(),
            "enable_prefix_caching",
            self.enable_prefix_caching.to_string(),
            &format!("the cache strategy is {}, and only paged shares prefixes", self.cache_strategy),
        );
        invalid.extend(self.sampling.params().problems(usize::MAX));
        if invalid.is_empty() { Ok(max_length) } else { Err(Error::Options(invalid)) }
    }

    /// Pages of a cache for sequences of up to `max_length` tokens.
    ///
    /// # Errors
    /// If one such sequence needs more room than the cache is to have, and the strategy gives it all at once.
    pub(crate) fn num_pages(&self, max_length: usize, page_size: usize) -> Result<usize, Error> {
        let reserved = self.reserved(max_length);
        let pages = reserved.div_ceil(page_size);
        let num_pages = match self.cache_tokens {
            Some(tokens) => tokens.div_ceil(page_size).max(1),
            None => pages.saturating_mul(self.max_cache_batch_size),
        };
        if !self.is_paged() && num_pages < pages {
            let tokens = num_pages.saturating_mul(page_size);
            return Err(Error::CacheTooSmall { strategy: self.cache_strategy, tokens, reserved });
        }
        if u32::try_from(num_pages).is_err() {
            return Err(Error::TooManyPages { pages: num_pages, page_size });
        }
        // Pages that make no slot are of no use.
        Ok(if self.is_paged() { num_pages } else { num_pages - num_pages % pages })
    }

    /// A cache of so many pages.
    pub(crate) fn cache(&self, num_pages: usize, max_length: usize, page_size: usize) -> KvCache {
        match (self.is_paged(), self.enable_prefix_caching) {
            (false, _) => KvCache::slots(num_pages, page_size, self.reserved(max_length)),
            (true, false) => KvCache::paged(num_pages, page_size),
            (true, true) => KvCache::with_prefix_caching(num_pages, page_size),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_batch_tokens: self.max_batch_tokens,
            max_cache_batch_size: self.max_cache_batch_size,
            max_ce_batch_size: self.max_ce_batch_size,
            max_num_steps: self.max_num_steps,
        }
    }

    pub(crate) fn batching(&self) -> Batching {
        match self.cache_strategy {
            KVCacheStrategy::Naive => Batching::Homogenous { pad_to_multiple_of: self.pad_to_multiple_of },
            _ => Batching::Continuous,
        }
    }

    /// Tokens that a sequence of up to `max_length` tokens may take, with padding where prompts are padded.
    fn reserved(&self, max_length: usize) -> usize {
        match self.batching() {
            Batching::Continuous => max_length,
            Batching::Homogenous { pad_to_multiple_of } => {
                max_length.checked_next_multiple_of(pad_to_multiple_of).unwrap_or(usize::MAX)
            }
        }
    }

    fn is_paged(&self) -> bool {
        matches!(self.cache_strategy, KVCacheStrategy::Paged | KVCacheStrategy::ModelDefault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let options = GeneratorOptions {
            max_length: Some(600),
            cache_strategy: KVCacheStrategy::Continuous,
            enable_prefix_caching: true,
            max_num_steps: 0,
            sampling: SamplingOptions { top_p: Some(0.0), ..SamplingOptions::default() },
            ..GeneratorOptions::default()
        };
        assert_eq!(
            options.check(512).unwrap_err().to_string(),
            "generator options: max_num_steps is 0: give at least 1; \
             max_length is 600: give 1 to 512, the model's context length; \
             enable_prefix_caching is true: the cache strategy is continuous, and only paged shares prefixes; \
             top_p is 0: give a number above 0 and up to 1"
        );
        // Nobody writes to the end of a long context who did not ask for it.
        let lengths = [100, 512, 131_072].map(|context| GeneratorOptions::default().check(context).unwrap());
        assert_eq!(lengths, [100, 512, 512]);
    }

    #[test]
    fn caches_are_as_large_as_they_must_be() {
        let pages = |strategy, tokens, sequences, pad_to_multiple_of| {
            let options = GeneratorOptions {
                cache_strategy: strategy,
                cache_tokens: tokens,
                max_cache_batch_size: sequences,
                pad_to_multiple_of,
                ..GeneratorOptions::default()
            };
            options.num_pages(100, 16).map_err(|error| error.to_string())
        };
        // Seven pages hold 100 tokens, and 112; eight hold 128.
        assert_eq!(pages(KVCacheStrategy::Paged, None, 3, 2), Ok(21));
        assert_eq!(pages(KVCacheStrategy::Paged, Some(1), 3, 2), Ok(1));
        assert_eq!(pages(KVCacheStrategy::Continuous, None, 3, 2), Ok(21));
        assert_eq!(pages(KVCacheStrategy::Continuous, Some(240), 3, 2), Ok(14), "15 pages are two slots");
        assert_eq!(pages(KVCacheStrategy::Naive, None, 3, 64), Ok(24));
        assert_eq!(
            pages(KVCacheStrategy::Naive, Some(112), 3, 64).unwrap_err(),
            "the cache holds 112 tokens, and the naive strategy reserves 128 for each sequence: \
             give a larger cache, a smaller max_length, or take the paged strategy"
        );
        assert!(pages(KVCacheStrategy::Naive, None, 3, usize::MAX).unwrap_err().starts_with("a cache of"));
    }
}
