//! What mixes tokens in a layer.

use graph::Value;

use super::mixer_block::MixerBlock;
use super::{
    Attention, ChannelStateSpace, Context, GatedDelta, LatentAttention, ShortConvolution, StateSpace,
};
use crate::Error;
use crate::state::CacheShape;

/// What mixes tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mixer {
    /// Attention over all earlier tokens, or those of a window.
    Attention(Attention),
    /// Attention of which all heads share a row of each token.
    Latent(LatentAttention),
    /// A linear attention whose state forgets.
    GatedDelta(GatedDelta),
    /// A gated convolution over the last few tokens.
    ShortConvolution(ShortConvolution),
    /// A state space whose heads decay as a whole.
    StateSpace(StateSpace),
    /// A state space whose channels decay each on its own.
    ChannelStateSpace(ChannelStateSpace),
    /// Attention and a state space.
    SideBySide(SideBySide),
    /// The layer does not mix tokens.
    None,
}

/// Attention and a state space, which read the same and whose results are summed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SideBySide {
    /// Attention.
    pub attention: Attention,
    /// The state space.
    pub space: StateSpace,
}

impl Mixer {
    /// The block, if there is one.
    pub(crate) fn block(&self) -> Option<&dyn MixerBlock> {
        Some(match self {
            Mixer::Attention(attention) => attention,
            Mixer::Latent(latent) => latent,
            Mixer::GatedDelta(delta) => delta,
            Mixer::ShortConvolution(convolution) => convolution,
            Mixer::StateSpace(space) => space,
            Mixer::ChannelStateSpace(space) => space,
            Mixer::SideBySide(both) => both,
            Mixer::None => return None,
        })
    }

    /// The sizes of the block in a few words, if there is one.
    pub fn summary(&self) -> Option<String> {
        self.block().map(MixerBlock::summary)
    }

    /// The attention of each head by itself, if it has that.
    pub(crate) fn attention_mut(&mut self) -> Option<&mut Attention> {
        match self {
            Mixer::Attention(attention) => Some(attention),
            Mixer::SideBySide(both) => Some(&mut both.attention),
            _ => None,
        }
    }
}

impl MixerBlock for SideBySide {
    fn build(&self, context: &mut Context<'_>, x: Value) -> Result<Value, Error> {
        let attended = self.attention.build(context, x)?;
        let scanned = self.space.build(context, x)?;
        Ok(context.graph.add(scanned, attended)?)
    }

    fn summary(&self) -> String {
        format!("{}; {}", self.attention.summary(), self.space.summary())
    }

    fn cached(&self) -> Option<CacheShape> {
        self.attention.cached()
    }

    fn sequence_shapes(&self, hidden: usize) -> Vec<Vec<usize>> {
        self.space.sequence_shapes(hidden)
    }
}
