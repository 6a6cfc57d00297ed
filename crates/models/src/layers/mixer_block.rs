//! The trait of blocks that mix tokens.

use graph::Value;

use super::Context;
use crate::Error;
use crate::state::CacheShape;

/// What a block that mixes tokens computes, and what it keeps between steps.
pub(crate) trait MixerBlock {
    /// f32[tokens, hidden] → f32[tokens, hidden]; reads and changes what the layer keeps of the sequences.
    fn build(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error>;

    /// Its sizes in a few words.
    fn summary(&self) -> String;

    /// What it keeps of each token, if it does.
    fn cached(&self) -> Option<CacheShape> {
        None
    }

    /// The earlier layer whose keys and values it reads, if it keeps none.
    fn keys_of(&self) -> Option<usize> {
        None
    }

    /// What its indexer keeps of each token, if it has one.
    fn indexed(&self) -> Option<CacheShape> {
        None
    }

    /// The shapes of what it keeps of all earlier tokens of a sequence together, in a model of a width.
    fn sequence_shapes(&self, _hidden: usize) -> Vec<Vec<usize>> {
        Vec::new()
    }
}
