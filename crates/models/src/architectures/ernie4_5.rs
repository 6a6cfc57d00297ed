//! ERNIE 4.5: Llama that turns pairs of neighbouring dims, and in the larger models experts.

use graph::ops::RopeStyle;
use serde_json::json;
use weights::MetaValue;

use super::Architecture;
use super::glm4_moe::SHARED_EXPERT_NAMES;
use super::llama::{LLAMA, NAMES, rms_norm};
use super::qwen2_moe::EXPERT_NAMES;
use crate::Config;
use crate::config::ConfigKeys;
use crate::key::MAX_LAYERS;
use crate::layout::Layout;
use crate::names::NameTable;

/// ERNIE 4.5, dense.
pub(crate) const ERNIE4_5: Architecture = Architecture {
    hugging_face: "Ernie4_5ForCausalLM",
    examples: &["baidu/ERNIE-4.5-0.3B-PT"],
    gguf: Some("ernie4_5"),
    model_type: "ernie4_5",
    keys: &["head_dim", "hidden_act", "num_key_value_heads", "rms_norm_eps", "use_bias"],
    complete,
    rope: RopeStyle::Interleaved,
    ..LLAMA
};

/// ERNIE 4.5 with experts.
pub(crate) const ERNIE4_5_MOE: Architecture = Architecture {
    hugging_face: "Ernie4_5_MoeForCausalLM",
    examples: &["baidu/ERNIE-4.5-21B-A3B-PT"],
    gguf: Some("ernie4_5-moe"),
    model_type: "ernie4_5_moe",
    keys: &[
        "head_dim",
        "hidden_act",
        "moe_intermediate_size",
        "moe_k",
        "moe_layer_end_index",
        "moe_layer_interval",
        "moe_layer_start_index",
        "moe_num_experts",
        "moe_num_shared_experts",
        "num_key_value_heads",
        "rms_norm_eps",
        "use_bias",
    ],
    complete: complete_moe,
    gguf_keys,
    names: &[CORRECTION_NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, NAMES],
    layout,
    gguf_layout: layout,
    ..ERNIE4_5
};

const CORRECTION_NAMES: NameTable =
    &[("layers.#.mlp.moe_statics.e_score_correction_bias", "blk.#.exp_probs_b")];

/// Corrections of scores have one more axis.
fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), crate::Error> {
    (0..config.layers).for_each(|layer| layout.flatten(&format!("blk.{layer}.exp_probs_b.bias")));
    Ok(())
}

/// Every how many layers one has experts.
fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let sparse = config.lists.sparse.iter().flatten().enumerate();
    let mut sparse = sparse.filter(|(_, is_sparse)| **is_sparse).map(|(layer, _)| layer as u32);
    let step = sparse.next().zip(sparse.next()).map_or(1, |(first, second)| second - first);
    vec![("interleave_moe_layer_step", step.into())]
}

fn complete_moe(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_key_value_heads": 4, "rope_theta": 5e5, "moe_k": 6, "moe_num_experts": 64,
        "moe_num_shared_experts": 2, "moe_intermediate_size": 1536, "moe_layer_start_index": 1,
        "moe_layer_interval": 1,
    }));
    let count = |key: &str| keys.count(key).unwrap_or(0);
    if !keys.has("head_dim")
        && let Some(dims) = count("hidden_size").checked_div(count("num_attention_heads"))
    {
        keys.set("head_dim", dims);
    }
    let count = |key: &str| keys.count(key).unwrap_or(0);
    let layers = count("num_hidden_layers").min(MAX_LAYERS);
    let first = count("moe_layer_start_index");
    // -1 is the last one.
    let last = keys.count("moe_layer_end_index").unwrap_or(layers);
    let dense: Vec<usize> = (0..layers).filter(|layer| !(first..=last).contains(layer)).collect();
    let shared = count("moe_num_shared_experts").saturating_mul(count("moe_intermediate_size"));
    keys.set("mlp_only_layers", dense);
    keys.set("shared_expert_intermediate_size", shared);
    keys.rename("moe_layer_interval", "decoder_sparse_step");
    keys.rename("moe_num_experts", "num_experts");
    keys.rename("moe_k", "num_experts_per_tok");
    complete(keys)
}

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 103_424, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "max_position_embeddings": 131_072, "tie_word_embeddings": true,
    }));
    rms_norm(keys)
}
