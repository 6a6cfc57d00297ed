//! OLMoE: Llama with norms on all queries and all keys together, and experts.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, NAMES, llama, rms_norm};
use super::qwen2_moe::{self, EXPERT_NAMES};
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::{Config, Decoder, Norm, QkNorm, Rope, WeightTypes};

/// OLMoE.
pub(crate) const OLMOE: Architecture = Architecture {
    hugging_face: "OlmoeForCausalLM",
    examples: &["allenai/OLMoE-1B-7B-0125-Instruct"],
    gguf: Some("olmoe"),
    model_type: "olmoe",
    keys: &[
        "attention_bias",
        "clip_qkv",
        "head_dim",
        "hidden_act",
        "norm_topk_prob",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
    ],
    complete,
    gguf_quirks: qwen2_moe::gguf_quirks,
    names: &[EXPERT_NAMES, QK_NORM_NAMES, NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: olmoe,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("num_local_experts", "num_experts");
    keys.add(json!({
        "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "num_experts": 64, "num_experts_per_tok": 8,
        "norm_topk_prob": false,
    }));
    rms_norm(keys)
}

pub(super) fn olmoe(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    for attention in decoder.attentions_mut() {
        attention.qk_norm = Some(QkNorm::Whole(Norm::Rms { eps: config.norm_eps }));
    }
    decoder
}
