//! Mistral 4: DeepSeek V2 whose queries grow with their positions.

use serde_json::json;
use weights::MetaValue;

use super::Architecture;
use super::deepseek::{DEEPSEEK_V3, latent};
use super::glm4_moe::routed_experts;
use crate::config::ConfigKeys;
use crate::{Config, Scaling};

/// Mistral Small 4. Published files have the name of Mistral 3 around it.
pub(crate) const MISTRAL4: Architecture = Architecture {
    hugging_face: "Mistral4ForCausalLM",
    examples: &["mistralai/Mistral-Small-4-119B-2603"],
    gguf: Some("mistral4"),
    model_type: "mistral4",
    keys: &[
        "attention_bias",
        "first_k_dense_replace",
        "hidden_act",
        "kv_lora_rank",
        "moe_intermediate_size",
        "n_group",
        "n_routed_experts",
        "n_shared_experts",
        "norm_topk_prob",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "rms_norm_eps",
        "rope_interleave",
        "rope_parameters.llama_4_scaling_beta",
        "routed_scaling_factor",
        "topk_group",
        "v_head_dim",
    ],
    complete,
    gguf_keys,
    ..DEEPSEEK_V3
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 131_072, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
        "num_attention_heads": 32, "max_position_embeddings": 1_048_576, "q_lora_rank": 1024, "kv_lora_rank": 256,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_parameters": {
            "rope_type": "yarn", "factor": 128.0, "original_max_position_embeddings": 8192, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
        },
    }));
    // Groups are ranked by the sums of two, though nothing corrects scores.
    keys.set("topk_method", "noaux_tc");
    routed_experts(
        keys,
        json!({
            "n_routed_experts": 128, "n_shared_experts": 1, "moe_intermediate_size": 2048,
            "num_experts_per_tok": 4, "first_k_dense_replace": 0, "norm_topk_prob": true,
        }),
    );
    latent(keys)
}

/// llama.cpp refuses queries that grow without this key.
fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    match config.rope.scaling {
        Some(Scaling::Yarn { original_context, .. }) => {
            vec![("attention.temperature_length", (original_context as u32).into())]
        }
        _ => Vec::new(),
    }
}
