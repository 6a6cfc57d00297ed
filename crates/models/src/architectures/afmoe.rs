//! AFMoE: experts next to some that every token gets, norms around both blocks, a gate behind attention, and positions in
//! layers with a window alone.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::glm4_moe::{self, SHARED_EXPERT_NAMES, routed_experts};
use super::llama::{LLAMA, NAMES, llama, rms_norm, windowed};
use super::qwen2_moe::EXPERT_NAMES;
use super::qwen3::{QK_NORM_NAMES, normalized};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::names::NameTable;
use crate::{AttentionGate, Config, Decoder, Error, Norm, Norms, Rope, WeightTypes};

/// Arcee's models with experts.
pub(crate) const AFMOE: Architecture = Architecture {
    hugging_face: "AfmoeForCausalLM",
    examples: &["arcee-ai/Trinity-Mini", "arcee-ai/Trinity-Nano-Preview"],
    gguf: Some("afmoe"),
    model_type: "afmoe",
    keys: &[
        "attention_bias",
        "global_attn_every_n_layers",
        "head_dim",
        "hidden_act",
        "layer_types",
        "moe_intermediate_size",
        "mup_enabled",
        "num_dense_layers",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_shared_experts",
        "rms_norm_eps",
        "route_scale",
        "sliding_window",
    ],
    complete,
    gguf_quirks,
    names: &[AFMOE_NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, QK_NORM_NAMES, NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: afmoe,
    ..LLAMA
};

const AFMOE_NAMES: NameTable = &[
    ("layers.#.self_attn.gate_proj", "blk.#.attn_gate"),
    ("layers.#.post_attention_layernorm", "blk.#.post_attention_norm"),
    ("layers.#.pre_mlp_layernorm", "blk.#.ffn_norm"),
    ("layers.#.post_mlp_layernorm", "blk.#.post_ffw_norm"),
    ("layers.#.mlp.router.gate", "blk.#.ffn_gate_inp"),
    ("layers.#.mlp.expert_bias", "blk.#.exp_probs_b.bias"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_attention_heads": 16, "head_dim": 128, "max_position_embeddings": 16384, "rms_norm_eps": 1e-5,
        "sliding_window": 1024, "global_attn_every_n_layers": 4, "num_dense_layers": 1, "num_shared_experts": 2,
    }));
    if !keys.has("layer_types") {
        keys.rename("global_attn_every_n_layers", "sliding_window_pattern");
    }
    if let (true, Some(width)) = (keys.is(true, "mup_enabled"), keys.number("hidden_size")) {
        keys.set("embedding_multiplier", width.sqrt());
    }
    keys.rename("num_dense_layers", "first_k_dense_replace");
    keys.rename("num_shared_experts", "n_shared_experts");
    keys.rename("route_scale", "routed_scaling_factor");
    routed_experts(
        keys,
        json!({
            "num_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "scoring_func": "sigmoid",
        }),
    );
    rms_norm(keys)
}

/// Embeddings are always multiplied, which no key says.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.multipliers.embedding = (config.hidden as f64).sqrt() as f32;
    glm4_moe::gguf_quirks(keys, config)
}

fn afmoe(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let decoder = normalized(llama(config, ropes, weights), config);
    let mut decoder = windowed(decoder, config, |index| index % 4 != 3);
    let norm = Norm::Rms { eps: config.norm_eps };
    decoder.layers.iter_mut().for_each(|layer| layer.norms = Norms::sandwich(norm));
    for attention in decoder.attentions_mut() {
        attention.gate = Some(AttentionGate::Projected { softplus: false, per_head: false });
        attention.rope = attention.rope.filter(|_| attention.window.is_some());
    }
    Decoder { embedding_scale: config.multipliers.embedding, ..decoder }
}
