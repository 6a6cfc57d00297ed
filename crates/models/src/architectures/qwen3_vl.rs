//! Qwen3-VL: Qwen3 that sees, of which we run the text half, dense or with experts.

use serde_json::json;

use super::llama::rms_norm;
use super::qwen3::QWEN3;
use super::qwen3_moe::QWEN3_MOE;
use super::{Architecture, rope_sections};
use crate::config::ConfigKeys;
use crate::layout::Layout;
use crate::{Config, Error};

/// Qwen3-VL, dense.
pub(crate) const QWEN3_VL: Architecture = Architecture {
    hugging_face: "Qwen3VLForConditionalGeneration",
    examples: &["Qwen/Qwen3-VL-4B-Instruct", "Qwen/Qwen3-VL-8B-Instruct"],
    gguf: Some("qwen3vl"),
    model_type: "qwen3_vl_text",
    keys: &["attention_bias", "head_dim", "hidden_act", "num_key_value_heads", "rms_norm_eps"],
    complete,
    gguf_keys: |config| rope_sections(config, [24, 20, 20]),
    ..QWEN3
};

/// Qwen3-VL with experts.
pub(crate) const QWEN3_VL_MOE: Architecture = Architecture {
    hugging_face: "Qwen3VLMoeForConditionalGeneration",
    examples: &["Qwen/Qwen3-VL-30B-A3B-Instruct", "Qwen/Qwen3-VL-235B-A22B-Instruct"],
    gguf: Some("qwen3vlmoe"),
    model_type: "qwen3_vl_moe_text",
    keys: &[
        "attention_bias",
        "decoder_sparse_step",
        "head_dim",
        "hidden_act",
        "mlp_only_layers",
        "moe_intermediate_size",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
    ],
    complete: complete_experts,
    gguf_keys: |config| rope_sections(config, [24, 20, 20]),
    layout: turned_experts,
    ..QWEN3_MOE
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 128_000, "rope_theta": 5e5 }));
    rms_norm(keys)
}

fn complete_experts(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("num_local_experts", "num_experts");
    keys.add(json!({
        "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
        "decoder_sparse_step": 1, "max_position_embeddings": 128_000, "rope_theta": 5e5,
    }));
    rms_norm(keys)
}

/// Published files store matrices of experts with their axes the other way round; those that `transformers` writes do not.
fn turned_experts(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        let [gates, down] =
            ["ffn_gate_up_exps", "ffn_down_exps"].map(|stem| format!("blk.{layer}.{stem}.weight"));
        let is_turned = layout.shape(&down).is_some_and(|shape| shape.get(2) == Some(&config.hidden));
        if is_turned {
            layout.transpose(&gates);
            layout.transpose(&down);
        }
    }
    Ok(())
}
