//! Gemma 3: Gemma 2 with normalized queries and keys instead of capped scores, and a window in five layers of six,
//! which have a rope of their own.

use graph::ops::RopeStyle;

use super::Architecture;
use super::gemma2::sandwiched;
use super::mistral::windowed;
use crate::{Config, Decoder, Norm, QkNorm, Rope, WeightTypes};

/// Gemma 3 of text alone.
pub(crate) const GEMMA3: Architecture = Architecture {
    hugging_face: "Gemma3ForCausalLM",
    gguf: "gemma3",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: true,
    decoder: gemma3,
};

/// Gemma 3 that sees, of which we run the text half.
pub(crate) const GEMMA3_VISION: Architecture =
    Architecture { hugging_face: "Gemma3ForConditionalGeneration", ..GEMMA3 };

fn gemma3(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = sandwiched(config, ropes, weights);
    for layer in &mut decoder.layers {
        layer.attention.qk_norm = Some(QkNorm::PerHead(Norm { eps: config.norm_eps }));
    }
    windowed(decoder, config, |index| index % 6 != 5)
}
