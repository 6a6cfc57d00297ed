//! MiMo V2: experts, keys with more dims than values, and layers with a window, which have sinks, a rope of their own and twice
//! as many key and value heads.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::gemma4::heads_by_kind;
use super::glm4_moe::{self, SHARED_EXPERT_NAMES, routed_experts};
use super::llama::{LLAMA, NAMES, llama, rms_norm, windowed};
use super::qwen2_moe::EXPERT_NAMES;
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::names::NameTable;
use crate::{Config, Decoder, Error, GlobalHeads, Rope, WeightTypes};

/// Xiaomi's MiMo V2.
pub(crate) const MIMO_V2: Architecture = Architecture {
    hugging_face: "MiMoV2FlashForCausalLM",
    examples: &["XiaomiMiMo/MiMo-V2-Flash"],
    gguf: Some("mimo2"),
    model_type: "mimo_v2_flash",
    keys: &[
        "attention_bias",
        "attention_value_scale",
        "head_dim",
        "hidden_act",
        "layer_types",
        "mlp_layer_types",
        "moe_intermediate_size",
        "n_group",
        "n_routed_experts",
        "norm_topk_prob",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "partial_rotary_factor",
        "rms_norm_eps",
        "routed_scaling_factor",
        "sliding_window",
        "sliding_window_size",
        "topk_group",
        "v_head_dim",
    ],
    complete,
    gguf_quirks,
    names: &[MIMO_NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: mimo_v2,
    ..LLAMA
};

const MIMO_NAMES: NameTable = &[
    ("layers.#.self_attn.attention_sink_bias", "blk.#.attn_sinks"),
    ("layers.#.self_attn.sinks", "blk.#.attn_sinks"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "rms_norm_eps": 1e-5, "sliding_window": 129,
        "attention_value_scale": 0.707, "max_position_embeddings": 131_072, "rope_parameters": {
            "full_attention": { "rope_theta": 5e6 }, "sliding_attention": { "rope_theta": 1e4 },
        },
    }));
    keys.set("partial_rotary_factor", 0.334);
    // The token itself counts too.
    if let Some(earlier) = keys.count("sliding_window_size") {
        keys.set("sliding_window", earlier.saturating_add(1));
    }
    if !keys.has("layer_types") {
        let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
        let kind = |layer| if has_window(layer) { "sliding_attention" } else { "full_attention" };
        keys.set("layer_types", (0..layers).map(kind).collect::<Vec<_>>());
    }
    if !keys.has("mlp_layer_types") {
        keys.set("first_k_dense_replace", 1);
    }
    let [kv_heads, head_dim] = ["num_key_value_heads", "head_dim"].map(|key| keys.count(key).unwrap_or(0));
    keys.set("num_global_key_value_heads", kv_heads);
    keys.set("global_head_dim", head_dim);
    keys.set("num_key_value_heads", kv_heads.saturating_mul(2));
    if keys.count("v_head_dim") != Some(head_dim) {
        keys.rename("v_head_dim", "value_head_dim");
    }
    routed_experts(
        keys,
        json!({
            "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_group": 1,
            "topk_group": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        }),
    );
    rms_norm(keys)
}

/// The first layer and every sixth have none.
fn has_window(layer: usize) -> bool {
    layer > 0 && layer % 6 != 5
}

/// Files list the key and value heads of each layer.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    let own = &mut config.attention;
    own.global_heads.get_or_insert(GlobalHeads { kv_heads: own.kv_heads, head_dim: own.head_dim });
    heads_by_kind(keys, config)?;
    glm4_moe::gguf_quirks(keys, config)
}

fn mimo_v2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = windowed(llama(config, ropes, weights), config, has_window);
    for attention in decoder.attentions_mut() {
        attention.sinks = attention.window.is_some();
        if let (None, Some(global)) = (attention.window, config.attention.global_heads) {
            attention.kv_heads = global.kv_heads;
        }
    }
    decoder
}
