//! EmbeddingGemma: Gemma 3 whose tokens see later ones, without a head.

use graph::ops::{RopeStyle, Unary};

use super::gemma2::SANDWICH_NAMES;
use super::gemma3::GEMMA3;
use super::llama::NAMES;
use super::qwen3::QK_NORM_NAMES;
use super::{Architecture, EncoderArchitecture, bert::BERT};
use crate::config::ConfigKeys;
use crate::encoder::{Encoder, EncoderLayer, EncoderNorms, FeedForward};
use crate::{
    Activation, CenteredNorms, Config, EncoderConfig, Error, Gated, Norm, Rope, SelfAttention, WeightTypes,
};

/// EmbeddingGemma.
pub(crate) const EMBEDDING_GEMMA: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "Gemma3TextModel",
    examples: &["google/embeddinggemma-300m"],
    gguf: "gemma-embedding",
    names: &[SANDWICH_NAMES, QK_NORM_NAMES, NAMES],
    family: Some(&FAMILY),
    centered_norms: CenteredNorms::All,
    encoder: embedding_gemma,
    ..BERT
};

const FAMILY: Architecture = Architecture { complete, ..GEMMA3 };

/// Every how many layers one has no window, in files that do not list the layers.
const GLOBAL_EVERY: usize = 6;

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    if !keys.is(true, "use_bidirectional_attention") {
        let message = "`use_bidirectional_attention` is not true: of Gemma3TextModel, models whose tokens see later \
                       ones are supported";
        return Err(message.into());
    }
    keys.remove("use_bidirectional_attention");
    (GEMMA3.complete)(keys)
}

fn embedding_gemma(
    config: &Config,
    own: &EncoderConfig,
    _weights: &dyn WeightTypes,
) -> Result<Encoder, Error> {
    let norm = Norm::Rms { eps: own.norm_eps };
    let ropes = Rope::all(config, RopeStyle::HalfSplit)?;
    let local = ropes.len().checked_sub(1);
    let block = Gated {
        width: config.feed_forward,
        activation: config.activation.unwrap_or(Activation::Unary(Unary::GeluTanh)),
        bias: false,
        cutoff: None,
        limit: None,
        gate_scale: 1.0,
        output_scale: 1.0,
    };
    let layer = |index: usize| {
        let listed = config.lists.windowed.as_ref().map(|layers| layers[index]);
        let is_windowed = listed.unwrap_or(!(index + 1).is_multiple_of(GLOBAL_EVERY));
        // Half of the window is on each side.
        let window = config.attention.window.filter(|_| is_windowed).map(|window| window / 2);
        EncoderLayer {
            attention: SelfAttention {
                heads: config.attention.heads,
                kv_heads: config.attention.kv_heads,
                head_dim: config.attention.head_dim,
                scale: config
                    .multipliers
                    .attention
                    .unwrap_or(1.0 / (config.attention.head_dim as f32).sqrt()),
                bias: false,
                qk_norm: Some(norm),
                rope: if window.is_some() { local } else { local.map(|_| 0) },
                window,
            },
            feed_forward: FeedForward::Gated { block, down_bias: false },
            norm,
            norms: EncoderNorms::Sandwich,
        }
    };
    Ok(Encoder {
        vocab: config.vocab,
        hidden: config.hidden,
        context_length: config.context_length,
        embedding_scale: (config.hidden as f32).sqrt(),
        positions: None,
        ropes,
        token_types: None,
        relative_bias: None,
        norm: None,
        layers: (0..config.layers).map(layer).collect(),
        final_norm: Some(norm),
        head: None,
    })
}
