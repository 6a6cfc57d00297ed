//! Gemma: Llama with embeddings scaled by their size, a GELU gate, and norms that multiply by 1 plus their weight.

use graph::ops::{RopeStyle, Unary};

use super::Architecture;
use super::llama::llama;
use crate::{Config, Decoder, Rope, WeightTypes};

/// Gemma 1, and the CodeGemma that came of it.
pub(crate) const GEMMA: Architecture = Architecture {
    hugging_face: "GemmaForCausalLM",
    gguf: "gemma",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: true,
    decoder: gemma,
};

pub(super) fn gemma(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    for layer in &mut decoder.layers {
        // Some configurations say `gelu` and mean its approximation.
        let said = config.activation.filter(|&activation| activation != Unary::Gelu);
        layer.feed_forward.activation = said.unwrap_or(Unary::GeluTanh);
    }
    Decoder { embedding_scale: (config.hidden as f32).sqrt(), ..decoder }
}
