//! Mistral: Llama whose tokens see no further back than a window.

use graph::ops::RopeStyle;

use super::Architecture;
use super::llama::llama;
use crate::{Config, Decoder, Rope, WeightTypes};

/// Mistral 7B and what came of it. In GGUF files it calls itself a Llama, and says no window.
pub(crate) const MISTRAL: Architecture = Architecture {
    hugging_face: "MistralForCausalLM",
    gguf: "llama",
    gguf_rope: RopeStyle::Interleaved,
    decoder: mistral,
};

pub(super) fn mistral(config: &Config, rope: Rope, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, rope, weights);
    for layer in decoder.layers.iter_mut().skip(config.full_layers) {
        layer.attention.window = config.window;
    }
    decoder
}
