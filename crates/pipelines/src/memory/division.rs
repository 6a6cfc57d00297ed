//! How memory is divided between weights and cache, and what sizes fit, before anything is loaded.
//!
//! The cache may have `free · utilization - weights` bytes. What a configuration leaves open is made as large as fits;
//! what it asks for and does not fit is refused with what would.

use std::fmt;

use sources::MemoryBytes as Bytes;

use super::OutOfMemory;
use crate::config::{Auto, KVCacheStrategy, MIN_PAGE_SIZE};

/// What is asked of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryRequest {
    /// Bytes of weights.
    pub(crate) weights: u64,
    /// Bytes of cache for each token.
    pub(crate) cache_bytes_per_token: u64,
    /// Tokens in a page of the cache.
    pub(crate) page_size: usize,
    /// How the cache is used.
    pub(crate) strategy: KVCacheStrategy,
    /// What room for a sequence is a multiple of, beside whole pages.
    pub(crate) pad_to_multiple_of: usize,
    /// Bytes that are free; `None` if that is unknown.
    pub(crate) free: Option<u64>,
    /// The part of them that may be used.
    pub(crate) utilization: f64,
    /// The most tokens that the model can take.
    pub(crate) model_length: usize,
    /// Tokens of a sequence.
    pub(crate) max_length: Auto,
    /// Sequences in the cache at once.
    pub(crate) max_batch: Auto,
    /// Whether the first device is the host.
    pub(crate) on_host: bool,
}

/// How memory is divided, and the sizes that follow. It prints as lines of text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of cache.
    pub cache: u64,
    /// Bytes that are free; `None` if that is unknown.
    pub free: Option<u64>,
    /// Tokens that the cache holds, all sequences together; 0 of models that have none.
    pub cache_tokens: usize,
    /// Tokens of a sequence.
    pub max_length: usize,
    /// Whether that was left open.
    pub length_inferred: bool,
    /// Sequences in the cache at once.
    pub max_batch: usize,
    /// Whether that was left open.
    pub batch_inferred: bool,
    /// What is worth knowing of it.
    pub warnings: Vec<String>,
}

/// What would fit instead of what was asked for: each is told where lowering it alone is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fitting {
    /// `max_length`.
    pub length: Option<usize>,
    /// `max_cache_batch_size`.
    pub batch: Option<usize>,
}

/// Sequences at once that are never exceeded by a number that was left open.
const MAX_INFERRED_BATCH: u64 = 4096;
/// Sequences at once where pages make the number uncritical.
const PAGED_BATCH: usize = 512;
/// The same on a host, where memory is needed for other things too.
const HOST_PAGED_BATCH: usize = 64;
/// Tokens that these share, unless a sequence may be longer.
const HOST_PAGED_TOKENS: usize = 32_768;

impl MemoryRequest {
    /// Divides the memory.
    ///
    /// # Errors
    /// If not even the weights fit, or the cache does not beside them; with what would.
    pub(crate) fn plan(&self) -> Result<MemoryPlan, OutOfMemory> {
        let Some(free) = self.free else { return Ok(self.unknown()) };
        let workspace = workspace(self.weights, free, self.utilization)?;
        if self.cache_bytes_per_token == 0 {
            return Ok(self.without_cache());
        }
        let max_batch = self.max_batch.given().unwrap_or_else(|| self.infer_batch(workspace));
        let wanted = self.max_length.given().unwrap_or(self.model_length);
        let paged = self.strategy == KVCacheStrategy::Paged;
        // Pages are taken as sequences grow, so one sequence of full length must fit, and all of them need not.
        let certain = if paged { 1 } else { max_batch };
        let fits = self.longest(workspace, certain);
        let max_length = if self.max_length == Auto::Auto { wanted.min(fits) } else { wanted };
        if max_length > fits || max_length == 0 {
            return Err(self.refuse(workspace, free, wanted, certain));
        }
        let full = self.wanted_bytes(max_length, max_batch);
        let cache = if paged { full.min(workspace - workspace % self.page_bytes()) } else { full };
        let mut plan = self.divided(max_length, max_batch, cache);
        if max_length < wanted {
            plan.warnings.push(format!(
                "max_length is lowered from the model's {wanted} to {max_length}, which fits beside the weights into \
                 the {} of {} free that may be used",
                Bytes(usable(free, self.utilization)),
                Bytes(free)
            ));
        }
        if cache < full {
            plan.warnings.push(format!(
                "the cache holds {} tokens, fewer than the {max_batch} sequences of {max_length} tokens allowed at \
                 once: they wait for each other when all are long",
                plan.cache_tokens
            ));
        }
        if (self.weights + cache) as f64 > 0.95 * free as f64 {
            plan.warnings.push(format!(
                "weights and cache take {} of {} free: little is left for anything else",
                Bytes(self.weights + cache),
                Bytes(free)
            ));
        }
        Ok(plan)
    }

    /// Of a model that keeps nothing of earlier tokens, every length fits.
    fn without_cache(&self) -> MemoryPlan {
        let max_length = self.max_length.given().unwrap_or(self.model_length);
        let max_batch = self.max_batch.given().unwrap_or(1);
        MemoryPlan { cache_tokens: 0, ..self.divided(max_length, max_batch, 0) }
    }

    /// If the free memory is unknown, nothing is checked.
    fn unknown(&self) -> MemoryPlan {
        let mut plan = self.without_cache();
        if self.cache_bytes_per_token > 0 {
            let (length, batch) = (plan.max_length, plan.max_batch);
            plan = self.divided(length, batch, self.bytes(length, batch));
        }
        plan.warnings.push("the system does not say how much memory is free: nothing is checked".to_string());
        plan
    }

    fn divided(&self, max_length: usize, max_batch: usize, cache: u64) -> MemoryPlan {
        let pages = usize::try_from(cache / self.page_bytes()).unwrap_or(usize::MAX);
        MemoryPlan {
            weights: self.weights,
            cache,
            free: self.free,
            cache_tokens: pages.saturating_mul(self.page_size),
            max_length,
            length_inferred: self.max_length == Auto::Auto,
            max_batch,
            batch_inferred: self.max_batch == Auto::Auto,
            warnings: Vec::new(),
        }
    }

    fn infer_batch(&self, workspace: u64) -> usize {
        match self.strategy {
            KVCacheStrategy::Paged if self.on_host => HOST_PAGED_BATCH,
            KVCacheStrategy::Paged => PAGED_BATCH,
            _ if self.on_host => 1,
            _ => {
                let length = self.max_length.given().unwrap_or(self.model_length);
                (workspace / self.bytes(length, 1).max(1)).clamp(1, MAX_INFERRED_BATCH) as usize
            }
        }
    }

    /// The longest sequences of which so many fit, within what the model can take.
    fn longest(&self, workspace: u64, batch: usize) -> usize {
        let pages = workspace / self.page_bytes().saturating_mul(batch as u64).max(1);
        let tokens = usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(self.page_size);
        (tokens - tokens % self.pad_to_multiple_of).min(self.model_length)
    }

    /// The error, with the length or the number of sequences that would fit, if they were set. What was left open is as small
    /// as it can be already.
    fn refuse(&self, workspace: u64, available: u64, length: usize, batch: usize) -> OutOfMemory {
        let (weights, usable) = (self.weights, usable(available, self.utilization));
        if self.longest(workspace, 1) == 0 {
            return match self.too_coarse(workspace) {
                Some((field, value, fits)) => OutOfMemory::Coarse { field, value, workspace, fits },
                None => OutOfMemory::NoRoom { weights, usable, available },
            };
        }
        let shorter = self.longest(workspace, batch);
        let shortest = self.max_length.given().unwrap_or(1);
        let fewer = usize::try_from(workspace / self.bytes(shortest, 1).max(1)).unwrap_or(usize::MAX);
        let fitting = Fitting {
            length: Some(shorter).filter(|&fits| fits > 0 && fits < length && self.max_length != Auto::Auto),
            batch: Some(fewer).filter(|&fits| fits > 0 && fits < batch && self.max_batch != Auto::Auto),
        };
        let cache = self.bytes(length, batch);
        OutOfMemory::Settings { weights, cache, length, batch, usable, available, fitting }
    }

    /// The setting in whose steps room is given, where one step is more than there is, its value, and the largest that
    /// fits.
    fn too_coarse(&self, workspace: u64) -> Option<(&'static str, usize, usize)> {
        let tokens = usize::try_from(workspace / self.cache_bytes_per_token.max(1)).unwrap_or(usize::MAX);
        if tokens < self.page_size {
            let fits = tokens.checked_ilog2().map_or(0, |power| 1 << power);
            return (fits >= MIN_PAGE_SIZE).then_some(("kv_cache_page_size", self.page_size, fits));
        }
        let pages = tokens - tokens % self.page_size;
        (self.pad_to_multiple_of > pages).then_some(("pad_to_multiple_of", self.pad_to_multiple_of, pages))
    }

    /// Bytes of cache if all that is wanted fits.
    fn wanted_bytes(&self, length: usize, batch: usize) -> u64 {
        let all = self.bytes(length, batch);
        let is_shared =
            self.on_host && self.strategy == KVCacheStrategy::Paged && self.max_batch == Auto::Auto;
        if is_shared { all.min(self.bytes(length.max(HOST_PAGED_TOKENS), 1)) } else { all }
    }

    /// Bytes of so many sequences of a length, in whole pages.
    fn bytes(&self, length: usize, batch: usize) -> u64 {
        let padded = length.div_ceil(self.pad_to_multiple_of).saturating_mul(self.pad_to_multiple_of);
        let pages = padded.div_ceil(self.page_size) as u64;
        pages.saturating_mul(self.page_bytes()).saturating_mul(batch as u64)
    }

    fn page_bytes(&self) -> u64 {
        self.cache_bytes_per_token.saturating_mul(self.page_size as u64).max(1)
    }
}

/// Bytes that may be used.
fn usable(free: u64, utilization: f64) -> u64 {
    (free as f64 * utilization) as u64
}

/// Bytes that are left for a cache beside so many bytes of weights.
///
/// # Errors
/// If the weights do not fit.
fn workspace(weights: u64, free: u64, utilization: f64) -> Result<u64, OutOfMemory> {
    let usable = usable(free, utilization);
    match usable.checked_sub(weights) {
        Some(workspace) => Ok(workspace),
        None if weights > free => Err(OutOfMemory::Weights { weights, available: free }),
        None => Err(OutOfMemory::NoRoom { weights, usable, available: free }),
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = |inferred: bool| if inferred { "auto-inferred" } else { "current" };
        let total = self.weights.saturating_add(self.cache);
        writeln!(f, "weights               {}", Bytes(self.weights))?;
        match self.cache_tokens {
            0 => writeln!(f, "cache                 none")?,
            tokens => writeln!(f, "cache                 {} for {tokens} tokens", Bytes(self.cache))?,
        }
        match self.free {
            Some(free) => writeln!(f, "total                 {} of {} free", Bytes(total), Bytes(free))?,
            None => writeln!(f, "total                 {}", Bytes(total))?,
        }
        writeln!(f, "max_length            {} ({})", self.max_length, origin(self.length_inferred))?;
        write!(f, "max_cache_batch_size  {} ({})", self.max_batch, origin(self.batch_inferred))
    }
}

impl fmt::Display for Fitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.length.map(|length| format!("lower max_length to {length}"));
        let batch = self.batch.map(|batch| format!("lower max_cache_batch_size to {batch}"));
        match [length, batch].into_iter().flatten().collect::<Vec<_>>() {
            words if words.is_empty() => f.write_str("lower max_length and max_cache_batch_size"),
            words => f.write_str(&words.join(", or ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 bytes a token, pages of 16, 10 000 bytes of weights, 100 000 free, 90 % of them usable: 80 000 of cache.
    const REQUEST: MemoryRequest = MemoryRequest {
        weights: 10_000,
        cache_bytes_per_token: 100,
        page_size: 16,
        strategy: KVCacheStrategy::Continuous,
        pad_to_multiple_of: 1,
        free: Some(100_000),
        utilization: 0.9,
        model_length: 4096,
        max_length: Auto::At(160),
        max_batch: Auto::At(1),
        on_host: true,
    };

    /// The length, sequences and bytes of cache of a request that fits.
    fn fits(request: MemoryRequest) -> (usize, usize, u64) {
        let plan = request.plan().unwrap();
        (plan.max_length, plan.max_batch, plan.cache)
    }

    fn refusal(request: MemoryRequest) -> String {
        request.plan().unwrap_err().to_string()
    }

    #[test]
    fn what_is_left_open_is_as_large_as_fits() {
        assert_eq!(fits(REQUEST), (160, 1, 16_000));
        assert_eq!(fits(MemoryRequest { max_length: Auto::At(5), ..REQUEST }), (5, 1, 1600), "whole pages");
        let padded = MemoryRequest { pad_to_multiple_of: 48, ..REQUEST };
        assert_eq!(fits(padded), (160, 1, 19_200), "and whole paddings");
        assert_eq!(fits(MemoryRequest { max_length: Auto::Auto, ..padded }), (768, 1, 76_800));
        // 80 000 bytes are 800 tokens.
        assert_eq!(fits(MemoryRequest { max_length: Auto::Auto, ..REQUEST }), (800, 1, 80_000));
        assert_eq!(
            fits(MemoryRequest { max_length: Auto::Auto, max_batch: Auto::At(3), ..REQUEST }),
            (256, 3, 76_800)
        );
        let small = MemoryRequest { model_length: 100, max_length: Auto::Auto, ..REQUEST };
        assert_eq!(fits(small), (100, 1, 11_200), "no longer than the model");
        // A host runs one, or many that share pages; elsewhere it is as many as fit, or a fixed number that share pages.
        let open = MemoryRequest { max_batch: Auto::Auto, ..REQUEST };
        assert_eq!(fits(open), (160, 1, 16_000));
        assert_eq!(fits(MemoryRequest { on_host: false, ..open }), (160, 5, 80_000));
        let shared = MemoryRequest { strategy: KVCacheStrategy::Paged, free: Some(100_000_000), ..open };
        assert_eq!(fits(shared), (160, 64, 64 * 16_000));
        assert_eq!(fits(MemoryRequest { max_length: Auto::At(4096), ..shared }), (4096, 64, 3_276_800));
        let long = MemoryRequest { max_length: Auto::At(65_536), model_length: 1 << 20, ..shared };
        assert_eq!(fits(long), (65_536, 64, 6_553_600), "room for one of them");
        let paged = MemoryRequest { on_host: false, strategy: KVCacheStrategy::Paged, ..open };
        assert_eq!(fits(paged), (160, 512, 80_000));
        assert_eq!(fits(MemoryRequest { max_length: Auto::Auto, ..paged }), (800, 512, 80_000));
    }

    #[test]
    fn pages_need_not_hold_all_sequences_at_full_length() {
        let request = MemoryRequest { strategy: KVCacheStrategy::Paged, max_batch: Auto::At(100), ..REQUEST };
        let plan = request.plan().unwrap();
        assert_eq!((plan.cache, plan.cache_tokens, plan.max_batch), (80_000, 800, 100));
        assert!(
            plan.warnings[0].starts_with("the cache holds 800 tokens, fewer than"),
            "{:?}",
            plan.warnings
        );
        assert!(
            refusal(MemoryRequest { max_length: Auto::At(801), ..request })
                .contains("lower max_length to 800")
        );
    }

    #[test]
    fn what_does_not_fit_is_told_what_would() {
        let both = MemoryRequest { max_length: Auto::At(400), max_batch: Auto::At(4), ..REQUEST };
        assert_eq!(
            refusal(both),
            "the weights need 9.77 KiB and the cache for 4 sequences of 400 tokens 156.25 KiB, but 87.89 KiB of the \
             97.66 KiB free may be used: lower max_length to 192, or lower max_cache_batch_size to 2"
        );
        let length = MemoryRequest { max_length: Auto::At(1000), max_batch: Auto::Auto, ..REQUEST };
        assert!(refusal(length).ends_with("may be used: lower max_length to 800"), "{}", refusal(length));
        let batch = MemoryRequest { max_length: Auto::Auto, max_batch: Auto::At(60), ..REQUEST };
        assert!(
            refusal(batch).ends_with("may be used: lower max_cache_batch_size to 50"),
            "{}",
            refusal(batch)
        );
    }

    #[test]
    fn weights_alone_may_be_too_much() {
        let text = refusal(MemoryRequest { weights: 100_001, ..REQUEST });
        assert!(text.contains("use a smaller model or a smaller quantization"), "{text}");
        let text = refusal(MemoryRequest { weights: 89_000, max_length: Auto::Auto, ..REQUEST });
        assert!(text.contains("free may be used: raise gpu_memory_utilization"), "{text}");
    }

    #[test]
    fn pages_and_padding_may_be_too_much() {
        let page = MemoryRequest { page_size: 1 << 40, ..REQUEST };
        assert_eq!(
            refusal(page),
            "kv_cache_page_size is 1099511627776 tokens, but the 78.12 KiB of memory left after the weights are too \
             little for such a step: lower it to 512"
        );
        let padded = MemoryRequest { pad_to_multiple_of: 1_000_000_000_000, ..REQUEST };
        assert!(refusal(padded).ends_with("for such a step: lower it to 800"), "{}", refusal(padded));
        // Not even the smallest page: nothing that lowering could mend.
        let tight = MemoryRequest { weights: 89_000, page_size: 512, ..REQUEST };
        assert!(refusal(tight).contains("free may be used: raise"), "{}", refusal(tight));
    }

    #[test]
    fn models_without_a_cache_take_their_weights_alone() {
        let encoder = MemoryRequest { cache_bytes_per_token: 0, max_length: Auto::Auto, ..REQUEST };
        let plan = encoder.plan().unwrap();
        assert_eq!((plan.cache, plan.cache_tokens, plan.max_length), (0, 0, 4096));
        assert!(plan.to_string().contains("cache                 none\n"), "{plan}");
        let unknown = MemoryRequest { free: None, ..encoder }.plan().unwrap();
        assert_eq!((unknown.cache, unknown.cache_tokens), (0, 0));
        assert!(MemoryRequest { weights: 90_001, ..encoder }.plan().is_err(), "more than may be used");
    }

    #[test]
    fn warnings_tell_of_scarce_and_of_unknown_memory() {
        let tight = MemoryRequest { utilization: 1.0, max_length: Auto::Auto, ..REQUEST };
        let plan = tight.plan().unwrap();
        assert!(
            plan.warnings.iter().any(|warning| warning.starts_with("weights and cache take")),
            "{plan:?}"
        );
        assert!(
            plan.warnings[0].starts_with("max_length is lowered from the model's 4096 to 896"),
            "{plan:?}"
        );
        let unknown = MemoryRequest { free: None, max_length: Auto::Auto, max_batch: Auto::Auto, ..REQUEST };
        let plan = unknown.plan().unwrap();
        assert_eq!((plan.max_length, plan.max_batch, plan.warnings.len()), (4096, 1, 1));
    }

    #[test]
    fn plans_print() {
        let plan = MemoryRequest { max_length: Auto::Auto, ..REQUEST }.plan().unwrap();
        assert_eq!(
            plan.to_string(),
            "weights               9.77 KiB\n\
             cache                 78.12 KiB for 800 tokens\n\
             total                 87.89 KiB of 97.66 KiB free\n\
             max_length            800 (auto-inferred)\n\
             max_cache_batch_size  1 (current)"
        );
    }
}
