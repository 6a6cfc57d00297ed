//! How much memory a model will take, and how much there is, before anything is loaded.

mod limits;

use sources::MemoryBytes as Bytes;

use crate::memory_plan::Fitting;

pub use self::limits::{available, limit};

/// Bytes that a model, its cache and one step need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Packed weights, and those used as stored.
    pub weights: u64,
    /// The KV cache.
    pub cache: u64,
    /// Bytes that this process may still take.
    pub available: u64,
}

/// A model that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfMemory {
    /// Not even the weights fit.
    #[error("the weights need {} and {} of memory is free: take a smaller model or a smaller quantization", Bytes(*weights), Bytes(*available))]
    Weights {
        /// Bytes of weights.
        weights: u64,
        /// Bytes free.
        available: u64,
    },
    /// The weights fit and the cache does not.
    #[error(
        "{}, and {} of memory is free: ask for fewer tokens or fewer sequences at once",
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
        "the weights need {}, and leave no room in the {} of {} free that may be used: raise gpu_memory_utilization, or take a smaller model or a smaller quantization",
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
        "{field} is {value} tokens, and the {} of memory left beside the weights are not enough for one such step: lower it to {fits}",
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
    #[error("the system refuses {} of memory for the {what}: end other programs, raise what limits this one (ulimit -v), or ask for fewer tokens or fewer sequences at once", Bytes(*bytes))]
    Refused {
        /// What it was for.
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A configuration asks for more than fits.
    #[error(
        "the weights need {} and the cache for {batch} {} of {length} tokens {}, but {} of the {} free may be used: {fitting}",
        Bytes(*weights), if *batch == 1 { "sequence" } else { "sequences" }, Bytes(*cache), Bytes(*usable), Bytes(*available)
    )]
    Settings {
        /// Bytes of weights.
        weights: u64,
        /// Bytes of cache.
        cache: u64,
        /// Tokens of a sequence.
        length: usize,
        /// Sequences at once.
        batch: usize,
        /// Bytes that may be used.
        usable: u64,
        /// Bytes free.
        available: u64,
        /// What would fit.
        fitting: Fitting,
    },
}

impl MemoryNeed {
    /// Says no where the need exceeds what is available.
    ///
    /// # Errors
    /// With the numbers, and what to change.
    pub fn check(&self, tokens: usize) -> Result<(), OutOfMemory> {
        let MemoryNeed { weights, cache, available } = *self;
        if weights > available {
            return Err(OutOfMemory::Weights { weights, available });
        }
        if cache > available - weights {
            return Err(OutOfMemory::Cache { weights, cache, tokens, available });
        }
        Ok(())
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
    fn says_what_does_not_fit() {
        let need = MemoryNeed { weights: 3 << 30, cache: 2 << 30, available: 4 << 30 };
        assert_eq!(
            need.check(4096).unwrap_err().to_string(),
            "the weights need 3.00 GiB, the cache for 4096 tokens 2.00 GiB, and 4.00 GiB of memory is free: \
             ask for fewer tokens or fewer sequences at once"
        );
        let need = MemoryNeed { weights: 5 << 30, ..need };
        assert!(need.check(1).unwrap_err().to_string().starts_with("the weights need 5.00 GiB and 4.00 GiB"));
        let loaded = MemoryNeed { weights: 0, ..need };
        let refusal = MemoryNeed { available: 1 << 30, ..loaded }.check(1).unwrap_err().to_string();
        assert!(refusal.starts_with("the cache for 1 tokens needs "), "{refusal}");
        assert!(MemoryNeed { available: 7 << 30, ..need }.check(1).is_ok());
    }
}
