//! Qwen2-MoE: Qwen2 with experts, and one that every token gets.

use serde_json::json;

use super::Architecture;
use super::llama::windowed;
use super::llama::{NAMES, llama, rms_norm};
use super::qwen2::QWEN2;
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::names::NameTable;
use crate::{Config, Decoder, Error, Rope, WeightTypes};

/// Qwen 1.5 and 2 with experts.
pub(crate) const QWEN2_MOE: Architecture = Architecture {
    hugging_face: "Qwen2MoeForCausalLM",
    examples: &["Qwen/Qwen1.5-MoE-A2.7B-Chat"],
    gguf: Some("qwen2moe"),
    model_type: "qwen2_moe",
    keys: &[
        "decoder_sparse_step",
        "head_dim",
        "hidden_act",
        "layer_types",
        "max_window_layers",
        "mlp_only_layers",
        "moe_intermediate_size",
        "norm_topk_prob",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "qkv_bias",
        "rms_norm_eps",
        "shared_expert_intermediate_size",
        "sliding_window",
        "use_sliding_window",
    ],
    complete,
    gguf_quirks,
    names: &[EXPERT_NAMES, NAMES],
    decoder: qwen2_moe,
    ..QWEN2
};

/// The router, experts one by one or all together, and the one that every token gets.
pub(super) const EXPERT_NAMES: NameTable = &[
    ("layers.#.mlp.gate", "blk.#.ffn_gate_inp"),
    ("layers.#.mlp.experts.#.gate_proj", "blk.#.ffn_gate.#"),
    ("layers.#.mlp.experts.#.up_proj", "blk.#.ffn_up.#"),
    ("layers.#.mlp.experts.#.down_proj", "blk.#.ffn_down.#"),
    ("layers.#.mlp.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"),
    ("layers.#.mlp.experts.down_proj", "blk.#.ffn_down_exps"),
    ("layers.#.mlp.shared_expert_gate", "blk.#.ffn_gate_inp_shexp"),
    ("layers.#.mlp.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"),
    ("layers.#.mlp.shared_expert.up_proj", "blk.#.ffn_up_shexp"),
    ("layers.#.mlp.shared_expert.down_proj", "blk.#.ffn_down_shexp"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_key_value_heads": 16, "max_position_embeddings": 32768, "use_sliding_window": false,
        "sliding_window": 4096, "max_window_layers": 28, "num_experts": 60, "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "norm_topk_prob": false,
        "decoder_sparse_step": 1,
    }));
    // Unlike in Qwen2, every other one of the first layers has the window.
    if !keys.has("layer_types") {
        let end = keys.count("max_window_layers").unwrap_or(0);
        let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
        let windowed = |index: usize| index.is_multiple_of(2) && index < end;
        let kind = |index| if windowed(index) { "sliding_attention" } else { "full_attention" };
        keys.set("layer_types", (0..layers).map(kind).collect::<Vec<_>>());
    }
    rms_norm(keys)
}

fn qwen2_moe(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    windowed(llama(config, ropes, weights), config, |index| index % 2 == 0)
}

/// Shares of a token's experts do not sum to 1 unless the file says it.
pub(super) fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    if let (Some(experts), None) = (&mut config.experts, keys.optional::<bool>("expert_weights_norm")?) {
        experts.routing.normalized = false;
    }
    Ok(())
}
