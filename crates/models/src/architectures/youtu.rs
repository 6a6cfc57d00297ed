//! Youtu: DeepSeek V3 without experts.

use serde_json::json;
use weights::MetaValue;

use super::Architecture;
use super::deepseek::{DEEPSEEK_V3, latent};
use crate::Config;
use crate::config::ConfigKeys;

/// Tencent's small models. In GGUF files they call themselves DeepSeek V2.
pub(crate) const YOUTU: Architecture = Architecture {
    hugging_face: "YoutuForCausalLM",
    examples: &["tencent/Youtu-LLM-2B"],
    model_type: "youtu",
    keys: &[
        "attention_bias",
        "hidden_act",
        "kv_lora_rank",
        "mlp_bias",
        "num_key_value_heads",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "rms_norm_eps",
        "rope_interleave",
        "v_head_dim",
    ],
    complete,
    gguf_keys,
    ..DEEPSEEK_V3
};

/// No layer has experts.
fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let size = |size: usize| MetaValue::from(u32::try_from(size).unwrap_or(u32::MAX));
    vec![
        ("leading_dense_block_count", size(config.layers)),
        ("expert_feed_forward_length", size(config.feed_forward)),
        ("expert_shared_count", size(0)),
    ]
}

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 32,
        "num_attention_heads": 16, "max_position_embeddings": 131_072, "q_lora_rank": 1536, "tie_word_embeddings": true,
    }));
    latent(keys)
}
