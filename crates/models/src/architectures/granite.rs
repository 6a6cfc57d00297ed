//! Granite: Llama with factors on embeddings, attention scores, residuals and logits.

use graph::ops::RopeStyle;

use super::Architecture;
use super::llama::llama;
use crate::{Config, Decoder, Rope, WeightTypes};

/// Granite 3, dense.
pub(crate) const GRANITE: Architecture = Architecture {
    hugging_face: "GraniteForCausalLM",
    gguf: "granite",
    gguf_rope: RopeStyle::Interleaved,
    zero_centered_norms: false,
    decoder: granite,
};

pub(super) fn granite(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    let multipliers = config.multipliers;
    for layer in &mut decoder.layers {
        layer.attention.scale = multipliers.attention.unwrap_or(layer.attention.scale);
        layer.residual_scale = multipliers.residual;
    }
    Decoder {
        embedding_scale: multipliers.embedding,
        logit_scale: 1.0 / multipliers.logit_divisor,
        ..decoder
    }
}
