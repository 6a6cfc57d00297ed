//! The names of the cache strategies.

use std::fmt;

/// How the KV cache is shared out among sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KVCacheStrategy {
    /// What the architecture prefers.
    ModelDefault,
    /// Room for the longest text, in padded batches that run to their end together.
    Naive,
    /// Room for the longest text in a slot of its own, for each text.
    Continuous,
    /// Pages, taken as a text grows and shared by texts that begin alike.
    Paged,
}

impl fmt::Display for KVCacheStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KVCacheStrategy::ModelDefault => "model_default",
            KVCacheStrategy::Naive => "naive",
            KVCacheStrategy::Continuous => "continuous",
            KVCacheStrategy::Paged => "paged",
        })
    }
}
