//! Mellum 2: Qwen3-MoE whose layers have a window, and a rope of their own, where the file lists them.

use serde_json::json;
use weights::MetaValue;

use super::llama::{llama, rms_norm, windowed};
use super::qwen3::normalized;
use super::qwen3_moe::QWEN3_MOE;
use super::{Architecture, olmo2};
use crate::config::ConfigKeys;
use crate::{Config, Decoder, Rope, WeightTypes};

/// JetBrains' models of code.
pub(crate) const MELLUM: Architecture = Architecture {
    hugging_face: "MellumForCausalLM",
    examples: &["JetBrains/Mellum2-12B-A2.5B-Base"],
    gguf: Some("mellum"),
    model_type: "mellum",
    keys: &[
        "attention_bias",
        "head_dim",
        "hidden_act",
        "layer_types",
        "mlp_layer_types",
        "moe_intermediate_size",
        "norm_topk_prob",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "num_mtp_layers",
        "num_nextn_predict_layers",
        "rms_norm_eps",
        "sliding_window",
    ],
    complete,
    gguf_quirks: olmo2::gguf_quirks,
    gguf_keys: listed_windows,
    decoder: mellum,
    ..QWEN3_MOE
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("num_local_experts", "num_experts");
    keys.rename("num_mtp_layers", "num_nextn_predict_layers");
    keys.add(json!({
        "vocab_size": 98304, "hidden_size": 2304, "intermediate_size": 7168, "num_hidden_layers": 28,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 131_072,
        "sliding_window": 1024, "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 896,
        "norm_topk_prob": true, "rope_parameters": {
            "full_attention": { "rope_theta": 500_000.0 }, "sliding_attention": { "rope_theta": 10_000.0 },
        },
    }));
    if !keys.has("layer_types") {
        keys.remove("sliding_window");
    }
    rms_norm(keys)
}

/// Which layers have the window, for files that always list them.
pub(super) fn listed_windows(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let windowed = config.lists.windowed.clone();
    windowed.map(|windowed| ("attention.sliding_window_pattern", windowed.into())).into_iter().collect()
}

fn mellum(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    windowed(normalized(llama(config, ropes, weights), config), config, |index| index % 4 != 3)
}
