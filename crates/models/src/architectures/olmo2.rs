//! OLMo 2: Llama with norms behind its blocks, and on all queries and all keys together.

use graph::ops::RopeStyle;

use super::Architecture;
use super::llama::llama;
use crate::{Config, Decoder, Norm, Norms, QkNorm, Rope, WeightTypes};

/// OLMo 2.
pub(crate) const OLMO2: Architecture = Architecture {
    hugging_face: "Olmo2ForCausalLM",
    gguf: "olmo2",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: false,
    decoder: olmo2,
};

fn olmo2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    let norm = Norm { eps: config.norm_eps };
    for layer in &mut decoder.layers {
        layer.norms = Norms::Post(norm);
        layer.attention.qk_norm = Some(QkNorm::Whole(norm));
    }
    decoder
}
