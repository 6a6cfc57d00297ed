//! Gemma 2: Gemma with norms around its blocks, capped scores and logits, and a window in every other layer.

use graph::ops::RopeStyle;

use super::Architecture;
use super::gemma::gemma;
use super::mistral::windowed;
use crate::{Config, Decoder, Norm, Norms, Rope, WeightTypes};

/// Gemma 2.
pub(crate) const GEMMA2: Architecture = Architecture {
    hugging_face: "Gemma2ForCausalLM",
    gguf: "gemma2",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: true,
    decoder: gemma2,
};

fn gemma2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    windowed(sandwiched(config, ropes, weights), config, |index| index % 2 == 0)
}

/// Gemma with norms around its blocks.
pub(super) fn sandwiched(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = gemma(config, ropes, weights);
    for layer in &mut decoder.layers {
        layer.norms = Norms::Sandwich(Norm { eps: config.norm_eps });
        layer.attention.scale = score_scale(config);
    }
    decoder
}

/// The factor on scores. GGUF files leave it out, so that the largest models, whose factor is not that of their head
/// size, are known by their number of layers.
fn score_scale(config: &Config) -> f32 {
    let largest = matches!((config.architecture.as_str(), config.layers), ("gemma2", 46) | ("gemma3", 62));
    let size = if largest { config.hidden / config.heads } else { config.head_dim };
    config.multipliers.attention.unwrap_or(1.0 / (size as f32).sqrt())
}
