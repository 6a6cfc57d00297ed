//! Hunyuan: Llama with norms on queries and keys after they are rotated.

use graph::ops::RopeStyle;
use serde_json::{Value, json};

use super::Architecture;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama, rms_norm};
use super::qwen2_moe::EXPERT_NAMES;
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{Config, Decoder, Norm, QkNorm, Rope, WeightTypes};

/// Hunyuan, dense.
pub(crate) const HUNYUAN: Architecture = Architecture {
    hugging_face: "HunYuanDenseV1ForCausalLM",
    examples: &["tencent/Hunyuan-4B-Instruct"],
    gguf: Some("hunyuan-dense"),
    model_type: "hunyuan_v1_dense",
    complete,
    names: &[NAMES, LLAMA_NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: hunyuan,
    ..LLAMA
};

/// Hunyuan with experts.
pub(crate) const HUNYUAN_MOE: Architecture = Architecture {
    hugging_face: "HunYuanMoEV1ForCausalLM",
    examples: &["tencent/Hunyuan-A13B-Instruct"],
    gguf: Some("hunyuan-moe"),
    model_type: "hunyuan_v1_moe",
    keys: &[
        "attention_bias",
        "head_dim",
        "hidden_act",
        "moe_intermediate_size",
        "moe_topk",
        "num_experts",
        "num_key_value_heads",
        "rms_norm_eps",
    ],
    complete: complete_moe,
    names: &[NAMES, EXPERT_NAMES, LLAMA_NAMES],
    ..HUNYUAN
};

const NAMES: NameTable = &[
    ("layers.#.self_attn.query_layernorm", "blk.#.attn_q_norm"),
    ("layers.#.self_attn.key_layernorm", "blk.#.attn_k_norm"),
    ("layers.#.mlp.gate.wg", "blk.#.ffn_gate_inp"),
    ("layers.#.mlp.shared_mlp.gate_proj", "blk.#.ffn_gate_shexp"),
    ("layers.#.mlp.shared_mlp.up_proj", "blk.#.ffn_up_shexp"),
    ("layers.#.mlp.shared_mlp.down_proj", "blk.#.ffn_down_shexp"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "rms_norm_eps": 1e-5 }));
    rms_norm(keys)
}

/// Experts, and the one that every token gets, are as wide as a dense block, whatever else files say of their width.
fn complete_moe(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "num_experts": 1, "moe_topk": 1, "decoder_sparse_step": 1 }));
    keys.remove("moe_intermediate_size");
    match keys.remove("moe_topk").unwrap_or_default() {
        Value::Array(mut layers) => {
            layers.truncate(keys.count("num_hidden_layers").unwrap_or(layers.len()));
            let most = layers.iter().filter_map(Value::as_u64).max();
            keys.set("num_experts_per_tok", most.ok_or("`moe_topk` has no number")?);
            keys.set("experts_per_token", layers);
        }
        all => keys.set("num_experts_per_tok", all),
    }
    if let Some(width) = keys.count("intermediate_size") {
        keys.set("shared_expert_intermediate_size", width);
    }
    complete(keys)
}

fn hunyuan(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    for attention in decoder.attentions_mut() {
        attention.qk_norm = Some(QkNorm::PerRotatedHead(Norm::Rms { eps: config.norm_eps }));
    }
    decoder
}
