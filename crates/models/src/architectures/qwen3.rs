//! Qwen3: Qwen2 with RMS-normalized queries and keys.

use graph::ops::RopeStyle;

use super::Architecture;
use super::mistral::mistral;
use crate::{Config, Decoder, Norm, QkNorm, Rope, WeightTypes};

/// Qwen3, dense.
pub(crate) const QWEN3: Architecture = Architecture {
    hugging_face: "Qwen3ForCausalLM",
    gguf: "qwen3",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: false,
    decoder: qwen3,
};

pub(super) fn qwen3(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = mistral(config, ropes, weights);
    for layer in &mut decoder.layers {
        layer.attention.qk_norm = Some(QkNorm::PerHead(Norm { eps: config.norm_eps }));
    }
    decoder
}
