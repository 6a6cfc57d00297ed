//! Gemma: Llama with embeddings scaled by their size, a GELU gate, and norms that multiply by 1 plus their weight.

use graph::ops::{RopeStyle, Unary};
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama, rms_norm};
use crate::config::ConfigKeys;
use crate::{Activation, CenteredNorms, Channel, Config, Decoder, Rope, WeightTypes};

/// Gemma 1, and the CodeGemma that came of it.
pub(crate) const GEMMA: Architecture = Architecture {
    hugging_face: "GemmaForCausalLM",
    examples: &["google/gemma-2b-it"],
    gguf: Some("gemma"),
    model_type: "gemma",
    complete,
    gguf_rope: RopeStyle::HalfSplit,
    centered_norms: CenteredNorms::All,
    decoder: gemma,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "head_dim": 256, "max_position_embeddings": 8192, "tie_word_embeddings": true }));
    rms_norm(keys)
}

pub(super) fn gemma(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    for layer in &mut decoder.layers {
        if let Channel::Gated(gated) = &mut layer.channel {
            // Some configurations say `gelu` and mean its approximation.
            let said = config.activation.filter(|&said| said != Activation::Unary(Unary::Gelu));
            gated.activation = said.unwrap_or(Activation::Unary(Unary::GeluTanh));
        }
    }
    Decoder { embedding_scale: (config.hidden as f32).sqrt(), ..decoder }
}
