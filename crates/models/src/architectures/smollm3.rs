//! SmolLM3: Llama without positions in every fourth layer.

use graph::ops::RopeStyle;

use super::Architecture;
use super::llama::llama;
use super::mistral::windowed;
use crate::{Config, Decoder, Rope, WeightTypes};

/// SmolLM3.
pub(crate) const SMOLLM3: Architecture = Architecture {
    hugging_face: "SmolLM3ForCausalLM",
    gguf: "smollm3",
    gguf_rope: RopeStyle::Interleaved,
    zero_centered_norms: false,
    decoder: smollm3,
};

fn smollm3(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let rotated =
        |index: usize| config.rotated_layers.as_ref().map_or(index % 4 != 3, |layers| layers[index]);
    let mut decoder = llama(config, ropes, weights);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        layer.attention.rope = rotated(index).then_some(0);
    }
    windowed(decoder, config, |index| !rotated(index))
}
