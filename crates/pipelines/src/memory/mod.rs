//! How much memory a model will take, and how much there is, before anything is loaded.

mod division;
mod free;

use sources::MemoryBytes as Bytes;

pub use self::division::{Fitting, MemoryPlan};
pub(crate) use self::division::{MemoryRequest, Room};
pub use self::free::{available, limit};

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

/// Checks that weights which are not loaded yet, and a cache, fit into the memory that is free now.
///
/// # Errors
/// If they do not, with the numbers and what to change.
pub(crate) fn check(weights: u64, cache: u64, tokens: usize) -> Result<(), OutOfMemory> {
    check_within(available().unwrap_or(u64::MAX), weights, cache, tokens)
}

fn check_within(available: u64, weights: u64, cache: u64, tokens: usize) -> Result<(), OutOfMemory> {
    if weights > available {
        return Err(OutOfMemory::Weights { weights, available });
    }
    if cache > available - weights {
        return Err(OutOfMemory::Cache { weights, cache, tokens, available });
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_give_the_numbers_and_what_to_change() {
        const GIB: u64 = 1 << 30;
        let refusal = |weights, cache, tokens, available| {
            check_within(available, weights, cache, tokens).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(3 * GIB, 2 * GIB, 4096, 4 * GIB),
            "the weights need 3.00 GiB, the cache for 4096 tokens 2.00 GiB, but 4.00 GiB of memory is free: \
             use fewer tokens or fewer sequences at once"
        );
        assert!(refusal(5 * GIB, 2 * GIB, 1, 4 * GIB).starts_with("the weights need 5.00 GiB, but 4.00 GiB"));
        let refused = check_within(4 * GIB, 3 * GIB, 2 * GIB, 4096).unwrap_err();
        assert_eq!((refused.needed(), refused.free()), (5 * GIB, Some(4 * GIB)));
        assert_eq!(refused.suggestion(), "use fewer tokens or fewer sequences at once");
        let text = refusal(0, 2 * GIB, 1, GIB);
        assert!(text.starts_with("the cache for 1 tokens needs "), "{text}");
        assert!(check_within(7 * GIB, 5 * GIB, 2 * GIB, 1).is_ok());
    }
}
