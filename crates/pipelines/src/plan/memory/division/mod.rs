//! How memory is divided between weights and cache, and what sizes fit, before anything is loaded.
//!
//! The cache may have `free · utilization - weights` bytes. Sizes that a configuration leaves open are made as large as fit;
//! sizes that it sets and that do not fit are an error with the size that would.
//!
//! A model with recurrent layers keeps states of sequences in slots, which are part of the cache: two slots for each sequence
//! that may run at once, and in the paged cache one for a prompt whose samples wait. With prefix caching there are at least
//! two more for each sequence, for checkpoints; more if they take fewer bytes than the pages, and at most one for each page.
//! A number of sequences that is left open in the paged cache is such that slots take at most a quarter of the memory that is
//! left after the weights.

use std::fmt;

use sources::MemoryBytes as Bytes;

use crate::error::{Fitting, OutOfMemory};
use crate::limits::{MIN_PAGE_SIZE, SLOTS_PER_SEQUENCE};
use crate::plan::config::{Auto, KVCacheStrategy};

/// What is asked of memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryRequest {
    /// Bytes of weights.
    pub(crate) weights: u64,
    /// Bytes of cache for each token.
    pub(crate) cache_bytes_per_token: u64,
    /// Bytes of each slot for a state of a sequence.
    pub(crate) bytes_per_slot: u64,
    /// Tokens in a page of the cache.
    pub(crate) page_size: usize,
    /// How the cache is used.
    pub(crate) strategy: KVCacheStrategy,
    /// Whether sequences that begin alike share pages.
    pub(crate) caches_prefixes: bool,
    /// What room for a sequence is a multiple of, in addition to whole pages.
    pub(crate) pad_to_multiple_of: usize,
    /// Bytes that are free; `None` if that is unknown.
    pub(crate) free: Option<u64>,
    /// The part of them that may be used.
    pub(crate) utilization: f64,
    /// The most bytes of cache; `None` is as many as the weights leave.
    pub(crate) cache_limit: Option<u64>,
    /// The most tokens that the model can take.
    pub(crate) model_length: usize,
    /// Tokens of a sequence.
    pub(crate) max_length: Auto,
    /// Sequences in the cache at once.
    pub(crate) max_batch: Auto,
    /// Whether the model runs on the host.
    pub(crate) on_host: bool,
}

/// Memory for a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Bytes that are free; `None` if that is unknown.
    pub(crate) free: Option<u64>,
    /// The most bytes of cache; `None` is as many as the weights leave.
    pub(crate) cache_limit: Option<u64>,
    /// The most bytes of one buffer; `None` is as many as there are.
    pub(crate) buffer_limit: Option<u64>,
}

/// How memory is divided, and the sizes that follow. It prints as lines of text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of cache: of tokens, and of states of sequences if the model keeps them.
    pub cache: u64,
    /// Bytes that are free; `None` if that is unknown.
    pub free: Option<u64>,
    /// Tokens that the cache holds, all sequences together; 0 of models that have none.
    pub cache_tokens: usize,
    /// Slots for states of sequences; 0 of models that keep none.
    pub state_slots: usize,
    /// Bytes of these, which are part of the cache.
    pub states: u64,
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

/// Sequences at once that are never exceeded by a number that was left open.
const MAX_INFERRED_BATCH: u64 = 4096;
/// Sequences at once where pages make the number uncritical.
const PAGED_BATCH: usize = 512;
/// The same on a host, where memory is needed for other things too.
const HOST_PAGED_BATCH: usize = 64;
/// Tokens that these share, unless a sequence may be longer.
const HOST_PAGED_TOKENS: usize = 32_768;
/// The same of models that keep nothing of tokens, whose pages are only counted.
const HOST_FREE_TOKENS: usize = 1 << 22;
/// The part of the memory for a cache that the slots of such sequences take at most, so that most is left for tokens.
const SLOTS_PART: u64 = 4;

impl MemoryRequest {
    /// Divides the memory.
    ///
    /// # Errors
    /// If not even the weights fit, or the cache does not fit next to them; with what would.
    pub(crate) fn plan(&self) -> Result<MemoryPlan, OutOfMemory> {
        let Some(free) = self.free else { return Ok(self.unknown()) };
        let left = workspace(self.weights, free, self.utilization)?;
        let workspace = left.min(self.cache_limit.unwrap_or(u64::MAX));
        if self.keeps_nothing() {
            return Ok(self.without_cache());
        }
        let max_batch = self.max_batch.given().unwrap_or_else(|| self.infer_batch(workspace));
        let wanted = self.max_length.given().unwrap_or(self.model_length);
        let paged = self.strategy == KVCacheStrategy::Paged;
        // Pages are taken as sequences grow, so one sequence of full length must fit, and all of them need not.
        let certain = if paged { 1 } else { max_batch };
        let states = self.slot_bytes(max_batch);
        let fits = self.longest(workspace.saturating_sub(states), certain);
        let max_length = if self.max_length == Auto::Auto { wanted.min(fits) } else { wanted };
        if max_length > fits || max_length == 0 || states > workspace {
            return Err(self.refuse(workspace, free, wanted, max_batch));
        }
        let room = workspace - states;
        let full = self.wanted_pages(max_length, max_batch);
        let pages = if paged { full.min(self.pages_in(room)) } else { full };
        let checkpoints = self.more_checkpoints(max_batch, pages, room - pages * self.page_bytes());
        let mut plan = self.divided(max_length, max_batch, pages, checkpoints);
        let cache = plan.cache;
        if max_length < wanted {
            plan.warnings.push(format!(
                "max_length is lowered from the model's {wanted} to {max_length}: weights and cache may use {} of the \
                 {} free",
                Bytes(self.weights + workspace),
                Bytes(free)
            ));
        }
        if pages < full {
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

    /// The fewest bytes of cache with which sequences are as long as in a plan of this request: all that the plan has if
    /// the number of sequences was set, else enough for one of them.
    pub(crate) fn least_cache(&self, plan: &MemoryPlan) -> u64 {
        if self.keeps_nothing() || self.max_batch.asked().is_some() {
            return plan.cache;
        }
        let certain = if self.strategy == KVCacheStrategy::Paged { 1 } else { plan.max_batch };
        let tokens = self.bytes(plan.max_length, certain);
        // Slots may take a part of the room for each sequence that fits into it.
        let slots =
            self.slot_bytes(1).max(if self.bytes_per_slot > 0 { tokens.div_ceil(SLOTS_PART - 1) } else { 0 });
        tokens.saturating_add(slots).min(plan.cache)
    }

    /// Of a model that keeps nothing of earlier tokens, every length fits.
    fn without_cache(&self) -> MemoryPlan {
        let max_length = self.max_length.given().unwrap_or(self.model_length);
        let max_batch = self.max_batch.given().unwrap_or(1);
        self.divided(max_length, max_batch, 0, 0)
    }

    /// If the free memory is unknown, nothing is checked.
    fn unknown(&self) -> MemoryPlan {
        let mut plan = self.without_cache();
        if !self.keeps_nothing() {
            let (length, batch) = (plan.max_length, plan.max_batch);
            let pages = self.pages(length, batch);
            plan = self.divided(length, batch, pages, self.more_checkpoints(batch, pages, u64::MAX));
        }
        plan.warnings.push("the system does not say how much memory is free: nothing is checked".to_string());
        plan
    }

    /// The plan for so many pages, and checkpoints beyond those that each sequence has.
    fn divided(&self, max_length: usize, max_batch: usize, pages: u64, checkpoints: u64) -> MemoryPlan {
        let tokens = pages.saturating_mul(self.page_size as u64);
        let slots = if self.keeps_nothing() { 0 } else { self.slots(max_batch).saturating_add(checkpoints) };
        let states = slots.saturating_mul(self.bytes_per_slot);
        MemoryPlan {
            weights: self.weights,
            cache: pages.saturating_mul(self.page_bytes()).saturating_add(states),
            free: self.free,
            cache_tokens: usize::try_from(tokens).unwrap_or(usize::MAX),
            state_slots: usize::try_from(slots).unwrap_or(usize::MAX),
            states,
            max_length,
            length_inferred: self.max_length == Auto::Auto,
            max_batch,
            batch_inferred: self.max_batch == Auto::Auto,
            warnings: Vec::new(),
        }
    }

    fn infer_batch(&self, workspace: u64) -> usize {
        match self.strategy {
            KVCacheStrategy::Paged => {
                let usual = if self.on_host { HOST_PAGED_BATCH } else { PAGED_BATCH };
                usual.min(self.sequences_in(workspace / SLOTS_PART)).max(1)
            }
            _ if self.on_host => 1,
            _ => {
                let length = self.max_length.given().unwrap_or(self.model_length);
                let bytes = self.bytes(length, 1).saturating_add(self.slot_bytes(1));
                (workspace / bytes.max(1)).clamp(1, MAX_INFERRED_BATCH) as usize
            }
        }
    }

    /// The longest sequences of which so many fit, within what the model can take.
    fn longest(&self, room: u64, batch: usize) -> usize {
        let pages = self.pages_in(room) / (batch as u64).max(1);
        let tokens = usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(self.page_size);
        (tokens - tokens % self.pad_to_multiple_of).min(self.model_length)
    }

    /// The error, with the length or the number of sequences that would fit, if they were set. Sizes that were left open are as small
    /// as they can be already.
    fn refuse(&self, workspace: u64, available: u64, length: usize, max_batch: usize) -> OutOfMemory {
        let (weights, usable) = (self.weights, self.weights.saturating_add(workspace));
        let room_beside = |batch| workspace.saturating_sub(self.slot_bytes(batch));
        if self.longest(room_beside(1), 1) == 0 || self.slot_bytes(1) > workspace {
            return match self.too_coarse(room_beside(1)) {
                Some((field, value, fits)) => {
                    OutOfMemory::Coarse { field, value, workspace: room_beside(1), fits }
                }
                None => OutOfMemory::NoRoom { weights, usable, available },
            };
        }
        let batch = if self.strategy == KVCacheStrategy::Paged { 1 } else { max_batch };
        let shorter = self.longest(room_beside(max_batch), batch);
        let shortest = self.max_length.given().unwrap_or(1);
        let fewer = self.most_sequences(workspace, shortest);
        let fitting = Fitting {
            length: Some(shorter).filter(|&fits| fits > 0 && fits < length && self.max_length != Auto::Auto),
            batch: Some(fewer).filter(|&fits| fits > 0 && fits < max_batch && self.max_batch != Auto::Auto),
        };
        let (cache, states) = (self.bytes(length, batch), self.slot_bytes(max_batch));
        OutOfMemory::Settings { weights, cache, length, batch, states, max_batch, usable, available, fitting }
    }

    /// How many sequences of a length may run at once.
    fn most_sequences(&self, workspace: u64, length: usize) -> usize {
        let one = self.bytes(length, 1);
        if self.strategy == KVCacheStrategy::Paged {
            return workspace.checked_sub(one).map_or(0, |room| self.sequences_in(room));
        }
        let bytes = one.saturating_add(self.slot_bytes(1));
        usize::try_from(workspace / bytes.max(1)).unwrap_or(usize::MAX)
    }

    /// The setting in whose steps room is given, where one step is more than there is, its value, and the largest that
    /// fits.
    fn too_coarse(&self, room: u64) -> Option<(&'static str, usize, usize)> {
        let tokens = room.checked_div(self.cache_bytes_per_token).unwrap_or(u64::MAX);
        let tokens = usize::try_from(tokens).unwrap_or(usize::MAX);
        if tokens < self.page_size {
            let fits = tokens.checked_ilog2().map_or(0, |power| 1 << power);
            return (fits >= MIN_PAGE_SIZE).then_some(("kv_cache_page_size", self.page_size, fits));
        }
        let pages = tokens - tokens % self.page_size;
        (self.pad_to_multiple_of > pages).then_some(("pad_to_multiple_of", self.pad_to_multiple_of, pages))
    }

    /// Pages if all that is wanted fits.
    fn wanted_pages(&self, length: usize, batch: usize) -> u64 {
        let all = self.pages(length, batch);
        let is_shared =
            self.on_host && self.strategy == KVCacheStrategy::Paged && self.max_batch == Auto::Auto;
        let tokens = if self.page_bytes() > 0 { HOST_PAGED_TOKENS } else { HOST_FREE_TOKENS };
        if is_shared { all.min(self.pages(length.max(tokens), 1)) } else { all }
    }

    /// Pages of so many sequences of a length.
    fn pages(&self, length: usize, batch: usize) -> u64 {
        let padded = length.div_ceil(self.pad_to_multiple_of).saturating_mul(self.pad_to_multiple_of);
        (padded.div_ceil(self.page_size) as u64).saturating_mul(batch as u64)
    }

    /// Bytes of so many sequences of a length, in whole pages.
    fn bytes(&self, length: usize, batch: usize) -> u64 {
        self.pages(length, batch).saturating_mul(self.page_bytes())
    }

    /// Pages that fit: any number if the model keeps nothing of tokens.
    fn pages_in(&self, room: u64) -> u64 {
        room.checked_div(self.page_bytes()).unwrap_or(u64::MAX)
    }

    fn page_bytes(&self) -> u64 {
        self.cache_bytes_per_token.saturating_mul(self.page_size as u64)
    }

    /// Whether the model keeps nothing of earlier tokens.
    fn keeps_nothing(&self) -> bool {
        self.cache_bytes_per_token == 0 && self.bytes_per_slot == 0
    }

    /// Slots that so many sequences need at least, with checkpoints of them.
    fn slots(&self, batch: usize) -> u64 {
        let running = (SLOTS_PER_SEQUENCE as u64).saturating_mul(batch as u64);
        match self.strategy {
            _ if self.bytes_per_slot == 0 => 0,
            KVCacheStrategy::Paged if self.caches_prefixes => 2 * running,
            KVCacheStrategy::Paged => running + 1,
            _ => running,
        }
    }

    /// Bytes of these.
    fn slot_bytes(&self, batch: usize) -> u64 {
        self.slots(batch).saturating_mul(self.bytes_per_slot)
    }

    /// How many sequences have enough slots in so many bytes.
    fn sequences_in(&self, bytes: u64) -> usize {
        let slots = bytes.checked_div(self.bytes_per_slot).unwrap_or(u64::MAX);
        let of_each = SLOTS_PER_SEQUENCE as u64 * if self.caches_prefixes { 2 } else { 1 };
        let shared = u64::from(!self.caches_prefixes);
        usize::try_from(slots.saturating_sub(shared) / of_each).unwrap_or(usize::MAX)
    }

    /// Checkpoints in addition to those that each sequence has, which fit into `rest` bytes.
    fn more_checkpoints(&self, batch: usize, pages: u64, rest: u64) -> u64 {
        if self.bytes_per_slot == 0 || !self.caches_prefixes {
            return 0;
        }
        let most = pages.min(pages.saturating_mul(self.page_bytes()) / self.bytes_per_slot);
        most.saturating_sub(self.slots(batch) / 2).min(rest / self.bytes_per_slot)
    }
}

/// Bytes that may be used.
fn usable(free: u64, utilization: f64) -> u64 {
    (free as f64 * utilization) as u64
}

/// Bytes that are left for a cache next to so many bytes of weights.
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

impl MemoryPlan {
    /// What the cache holds, in words: `78.12 KiB for 800 tokens`.
    pub fn cache_in_words(&self) -> String {
        let of_tokens = format!("{} for {} tokens", Bytes(self.cache - self.states), self.cache_tokens);
        match (self.cache_tokens, self.state_slots) {
            (0, 0) => "none".to_string(),
            (_, 0) => of_tokens,
            (_, slots) => {
                let (all, states) = (Bytes(self.cache), Bytes(self.states));
                format!("{all}: {of_tokens}, {states} for {slots} states of sequences")
            }
        }
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = |inferred: bool| if inferred { "auto-inferred" } else { "current" };
        let total = self.weights.saturating_add(self.cache);
        writeln!(f, "weights               {}", Bytes(self.weights))?;
        writeln!(f, "cache                 {}", self.cache_in_words())?;
        match self.free {
            Some(free) => writeln!(f, "total                 {} of {} free", Bytes(total), Bytes(free))?,
            None => writeln!(f, "total                 {}", Bytes(total))?,
        }
        writeln!(f, "max_length            {} ({})", self.max_length, origin(self.length_inferred))?;
        write!(f, "max_cache_batch_size  {} ({})", self.max_batch, origin(self.batch_inferred))
    }
}

#[cfg(test)]
mod tests;
