//! What `transformers` assumes where a `config.json` says nothing.

use serde_json::{Map, Value, json};

/// The configuration of the text half, if there is one, with what it leaves out: inside of others, files say only what
/// differs from the defaults of the family.
pub(super) fn complete(mut json: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Object(text)) = json.remove("text_config") {
        let outer = std::mem::replace(&mut json, text);
        json.extend(outer.into_iter().filter(|(key, _)| key == "architectures" || key == "_name_or_path"));
    }
    let family = json.get("model_type").and_then(Value::as_str).unwrap_or_default();
    if let Value::Object(defaults) = of_family(family) {
        for (key, value) in defaults {
            json.entry(key).or_insert(value);
        }
    }
    json
}

/// By `model_type`.
fn of_family(family: &str) -> Value {
    match family {
        "gemma" => json!({ "head_dim": 256, "max_position_embeddings": 8192 }),
        "gemma2" => json!({
            "head_dim": 256, "max_position_embeddings": 8192, "sliding_window": 4096, "query_pre_attn_scalar": 256,
            "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        }),
        "gemma3_text" => json!({
            "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 131_072, "sliding_window": 4096, "query_pre_attn_scalar": 256,
            "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        }),
        "qwen2" | "qwen3" => json!({ "max_position_embeddings": 32768, "use_sliding_window": false }),
        "mistral" | "ministral" => json!({
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
            "sliding_window": 4096,
        }),
        "ministral3" => json!({
            "vocab_size": 131_072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 262_144, "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
                "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
        }),
        "phi3" => json!({ "rms_norm_eps": 1e-5, "max_position_embeddings": 4096 }),
        "smollm3" => json!({
            "rope_theta": 2e6, "num_key_value_heads": 4, "max_position_embeddings": 32768,
            "no_rope_layer_interval": 4, "use_sliding_window": false,
        }),
        "olmo2" => json!({ "rms_norm_eps": 1e-5 }),
        // Scaling is that of the layers that see all the way.
        "olmo3" => json!({
            "rms_norm_eps": 1e-5, "rope_theta": 5e5, "rope_local_base_freq": 5e5, "sliding_window": 4096,
        }),
        "exaone4" => json!({
            "rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4,
        }),
        "mixtral" => json!({
            "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "max_position_embeddings": 131_072, "rope_theta": 1e6,
            "num_local_experts": 8, "num_experts_per_tok": 2,
        }),
        "qwen2_moe" => json!({
            "num_key_value_heads": 16, "max_position_embeddings": 32768, "use_sliding_window": false,
            "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632, "norm_topk_prob": false, "decoder_sparse_step": 1,
        }),
        "qwen3_moe" => json!({
            "num_key_value_heads": 4, "max_position_embeddings": 32768, "use_sliding_window": false,
            "num_local_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": false,
            "decoder_sparse_step": 1,
        }),
        "olmoe" => json!({
            "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "num_experts": 64, "num_experts_per_tok": 8,
            "norm_topk_prob": false,
        }),
        "granitemoe" => json!({ "num_local_experts": 8, "num_experts_per_tok": 2 }),
        _ => Value::Null,
    }
}
