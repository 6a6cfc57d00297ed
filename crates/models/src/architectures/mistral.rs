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
    zero_centered_norms: false,
    decoder: mistral,
};

/// Ministral, whose configuration lists the layers that have the window.
pub(crate) const MINISTRAL: Architecture = Architecture { hugging_face: "MinistralForCausalLM", ..MISTRAL };

/// Ministral 3, whose queries grow with their positions.
pub(crate) const MINISTRAL3: Architecture =
    Architecture { hugging_face: "Ministral3ForCausalLM", gguf: "mistral3", ..MISTRAL };

/// Mistral Small 3.1 and later, and Ministral 3 that sees, of which we run the text half.
pub(crate) const MISTRAL3: Architecture =
    Architecture { hugging_face: "Mistral3ForConditionalGeneration", ..MINISTRAL3 };

pub(super) fn mistral(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    windowed(llama(config, ropes, weights), config, |_| true)
}

/// Gives layers the window of the configuration and the last of the ropes: those that the configuration lists, or
/// else those that `usual` tells by their index.
pub(super) fn windowed(decoder: Decoder, config: &Config, usual: impl Fn(usize) -> bool) -> Decoder {
    let mut decoder = decoder;
    let local = decoder.ropes.len() - 1;
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        let listed = config.windowed_layers.as_ref().map(|layers| layers[index]);
        if config.window.is_some() && listed.unwrap_or_else(|| usual(index)) {
            layer.attention.window = config.window;
            layer.attention.rope = layer.attention.rope.map(|_| local);
        }
    }
    decoder
}
