//! A model that does not fit into memory: the numbers, and what to change.

use std::fmt;

use sources::MemoryBytes as Bytes;

/// A model that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutOfMemory {
    /// Not even the weights fit.
    #[error("the weights need {}, but {} of memory is free: use a smaller model or a smaller quantization", Bytes(*weights), Bytes(*available))]
    Weights {
        /// Bytes of weights.
        weights: u64,
        /// Bytes free.
        available: u64,
    },
    /// The weights fit and the cache does not.
    #[error(
        "{}, but {} of memory is free: use fewer tokens or fewer sequences at once",
        needs(*weights, *cache, *tokens), Bytes(*available)
    )]
    Cache {
        /// Bytes of weights; 0 where they are loaded already.
        weights: u64,
        /// Bytes of cache.
        cache: u64,
        /// Tokens the cache was to hold.
        tokens: usize,
        /// Bytes free.
        available: u64,
    },
    /// The weights are as much as may be used, or more.
    #[error(
        "the weights need {}, but only {} of the {} free may be used: raise gpu_memory_utilization, or use a smaller model or a smaller quantization",
        Bytes(*weights), Bytes(*usable), Bytes(*available)
    )]
    NoRoom {
        /// Bytes of weights.
        weights: u64,
        /// Bytes that may be used.
        usable: u64,
        /// Bytes free.
        available: u64,
    },
    /// The weights fit, and what they leave is less than one of the steps in which room is given.
    #[error(
        "{field} is {value} tokens, but the {} of memory left after the weights are too little for such a step: lower it to {fits}",
        Bytes(*workspace)
    )]
    Coarse {
        /// `kv_cache_page_size` or `pad_to_multiple_of`.
        field: &'static str,
        /// Its value.
        value: usize,
        /// Bytes that are left for a cache.
        workspace: u64,
        /// What would fit.
        fits: usize,
    },
    /// The system refused memory that seemed to be free.
    #[error("the system refused {} of memory for the {what}: close other programs, raise the limit of this one (ulimit -v), or use fewer tokens or fewer sequences at once", Bytes(*bytes))]
    Refused {
        /// What it was for.
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A configuration asks for more than fits.
    #[error(
        "the weights need {}, but {} of the {} free may be used: {fitting}",
        settings((*weights, *cache, *states), (*batch, *length, *max_batch)), Bytes(*usable), Bytes(*available)
    )]
    Settings {
        /// Bytes of weights.
        weights: u64,
        /// Bytes of cache for tokens.
        cache: u64,
        /// Tokens of a sequence.
        length: usize,
        /// Sequences that the cache must have room for.
        batch: usize,
        /// Bytes of states of sequences.
        states: u64,
        /// Sequences at once.
        max_batch: usize,
        /// Bytes that may be used.
        usable: u64,
        /// Bytes free.
        available: u64,
        /// What would fit.
        fitting: Fitting,
    },
}

impl OutOfMemory {
    /// Bytes that are needed.
    pub fn needed(&self) -> u64 {
        match *self {
            OutOfMemory::Weights { weights, .. } | OutOfMemory::NoRoom { weights, .. } => weights,
            OutOfMemory::Cache { weights, cache, .. } => weights.saturating_add(cache),
            OutOfMemory::Settings { weights, cache, states, .. } => {
                weights.saturating_add(cache).saturating_add(states)
            }
            OutOfMemory::Coarse { workspace, .. } => workspace,
            OutOfMemory::Refused { bytes, .. } => bytes,
        }
    }

    /// Bytes that are free; `None` if the system refused memory that seemed to be free.
    pub fn free(&self) -> Option<u64> {
        match *self {
            OutOfMemory::Weights { available, .. }
            | OutOfMemory::NoRoom { available, .. }
            | OutOfMemory::Cache { available, .. }
            | OutOfMemory::Settings { available, .. } => Some(available),
            OutOfMemory::Coarse { workspace, .. } => Some(workspace),
            OutOfMemory::Refused { .. } => None,
        }
    }

    /// What to do about it: the end of the message.
    pub fn suggestion(&self) -> String {
        let message = self.to_string();
        message.split_once(": ").map_or(String::new(), |(_, suggestion)| suggestion.to_string())
    }
}

/// What would fit instead of what was asked for: each is told where lowering it alone is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fitting {
    /// `max_length`.
    pub length: Option<usize>,
    /// `max_cache_batch_size`.
    pub batch: Option<usize>,
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

/// What the settings of a configuration need: bytes of weights, cache and states, for sequences of a length in the cache, and
/// for sequences at once.
fn settings(
    (weights, cache, states): (u64, u64, u64),
    (batch, length, max_batch): (usize, usize, usize),
) -> String {
    let sequences = |count: usize| format!("{count} {}", if count == 1 { "sequence" } else { "sequences" });
    let (weights, cache) =
        (Bytes(weights), format!("{} of {length} tokens {}", sequences(batch), Bytes(cache)));
    match states {
        0 => format!("{weights} and the cache for {cache}"),
        _ => format!(
            "{weights}, the cache for {cache} and the states of {} {}",
            sequences(max_batch),
            Bytes(states)
        ),
    }
}

/// What a cache needs, and weights that are not loaded yet.
fn needs(weights: u64, cache: u64, tokens: usize) -> String {
    match weights {
        0 => format!("the cache for {tokens} tokens needs {}", Bytes(cache)),
        _ => format!("the weights need {}, the cache for {tokens} tokens {}", Bytes(weights), Bytes(cache)),
    }
}
