//! OLMoE: Llama with norms on all queries and all keys together, and experts.

use graph::ops::RopeStyle;

use super::Architecture;
use super::llama::llama;
use crate::{Config, Decoder, Norm, QkNorm, Rope, WeightTypes};

/// OLMoE.
pub(crate) const OLMOE: Architecture = Architecture {
    hugging_face: "OlmoeForCausalLM",
    gguf: "olmoe",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: false,
    decoder: olmoe,
};

fn olmoe(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    for layer in &mut decoder.layers {
        layer.attention.qk_norm = Some(QkNorm::Whole(Norm { eps: config.norm_eps }));
    }
    decoder
}
