//! Laguna: experts next to one that every token gets, a gate behind attention, and layers whose heads and ropes differ.

use graph::ops::RopeStyle;
use serde_json::json;

use super::glm4_moe::{self, SHARED_EXPERT_NAMES};
use super::llama::{LLAMA, NAMES, llama, rms_norm, windowed};
use super::qwen2_moe::EXPERT_NAMES;
use super::qwen3::{QK_NORM_NAMES, normalized};
use super::{Architecture, mellum};
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{AttentionGate, Config, Decoder, Rope, WeightTypes};

/// Poolside's models of code.
pub(crate) const LAGUNA: Architecture = Architecture {
    hugging_face: "LagunaForCausalLM",
    examples: &["poolside/Laguna-XS.2"],
    gguf: Some("laguna"),
    model_type: "laguna",
    keys: &[
        "attention_bias",
        "gating",
        "head_dim",
        "hidden_act",
        "layer_types",
        "mlp_layer_types",
        "moe_apply_router_weight_on_input",
        "moe_intermediate_size",
        "moe_routed_scaling_factor",
        "moe_router_logit_softcapping",
        "num_attention_heads_per_layer",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "partial_rotary_factor",
        "rms_norm_eps",
        "shared_expert_intermediate_size",
        "sliding_window",
    ],
    complete,
    gguf_quirks: glm4_moe::gguf_quirks,
    gguf_keys: mellum::listed_windows,
    names: &[LAGUNA_NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, QK_NORM_NAMES, NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: laguna,
    ..LLAMA
};

const LAGUNA_NAMES: NameTable = &[
    ("layers.#.self_attn.g_proj", "blk.#.attn_gate"),
    ("layers.#.mlp.experts.e_score_correction_bias", "blk.#.exp_probs_b"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 100_352, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 40,
        "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131_072,
        "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "sliding_window": 512, "rope_parameters": {
            "full_attention": { "rope_theta": 500_000.0, "partial_rotary_factor": 0.5 },
            "sliding_attention": { "rope_theta": 10_000.0 },
        },
    }));
    if keys.is(true, "moe_apply_router_weight_on_input") {
        return Err(
            "shares that multiply what experts read (`moe_apply_router_weight_on_input`) are not supported"
                .into(),
        );
    }
    if !keys.has("layer_types") {
        keys.remove("sliding_window");
    }
    if !keys.has("mlp_layer_types") {
        keys.set("first_k_dense_replace", 1);
    }
    // The ropes of both kinds of layers have their own.
    keys.remove("partial_rotary_factor");
    keys.rename("moe_routed_scaling_factor", "routed_scaling_factor");
    if let Some(softcap) = keys.number("moe_router_logit_softcapping").filter(|&softcap| softcap > 0.0) {
        keys.set("router_logit_softcapping", softcap);
    }
    keys.set("scoring_func", "sigmoid");
    rms_norm(keys)
}

fn laguna(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = normalized(llama(config, ropes, weights), config);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        let Some(attention) = layer.mixer.attention_mut() else { continue };
        let gates = weights.rows(&format!("blk.{index}.attn_gate.weight"));
        let per_head = gates != Some(attention.heads * attention.head_dim);
        attention.gate = Some(AttentionGate::Projected { softplus: true, per_head });
    }
    windowed(decoder, config, |index| index % 4 != 0)
}
