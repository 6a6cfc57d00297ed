//! Gemma 4: Gemma 3 with normalized values, larger heads in layers without window, of which the first pairs turn, and by
//! size a part of a second embedding for each layer, shared keys and values, or experts in addition to the dense block.

use graph::ops::Unary;
use serde_json::{Value, json};

use super::Architecture;
use super::gemma2::SANDWICH_NAMES;
use super::gemma3::{GEMMA3, gemma3};
use super::gemma3n::{LAYER_EMBEDDING_NAMES, list_layers, with_layer_embedding, with_shared_keys};
use super::llama::{NAMES as LLAMA_NAMES, rms_norm};
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::names::NameTable;
use crate::{
    Activation, CenteredNorms, Channel, Config, Decoder, Error, Gated, GatedAndExperts, GlobalHeads, Norm,
    Rope, WeightTypes,
};

/// Gemma 4 of text alone.
pub(crate) const GEMMA4: Architecture = Architecture {
    hugging_face: "Gemma4ForCausalLM",
    examples: &["google/gemma-4-E4B"],
    gguf: Some("gemma4"),
    model_type: "gemma4_text",
    keys: &[
        "attention_bias",
        "attention_k_eq_v",
        "enable_moe_block",
        "final_logit_softcapping",
        "global_head_dim",
        "head_dim",
        "hidden_activation",
        "hidden_size_per_layer_input",
        "layer_types",
        "moe_intermediate_size",
        "num_experts",
        "num_global_key_value_heads",
        "num_key_value_heads",
        "num_kv_shared_layers",
        "per_layer_config",
        "rms_norm_eps",
        "rope_parameters.partial_rotary_factor",
        "sliding_window",
        "top_k_experts",
        "use_double_wide_mlp",
        "vocab_size_per_layer_input",
    ],
    complete,
    gguf_quirks,
    // llama.cpp's usual value is another one; 0 is none.
    gguf_keys: |config| vec![("final_logit_softcapping", config.logit_softcap.unwrap_or(0.0).into())],
    gguf_joins_gates: true,
    names: &[NAMES, LAYER_EMBEDDING_NAMES, SANDWICH_NAMES, QK_NORM_NAMES, LLAMA_NAMES],
    centered_norms: CenteredNorms::None,
    decoder: gemma4,
    ..GEMMA3
};

/// Gemma 4 that sees and hears, of which we run the text part.
pub(crate) const GEMMA4_VISION: Architecture = Architecture {
    hugging_face: "Gemma4ForConditionalGeneration",
    examples: &["google/gemma-4-E2B-it", "google/gemma-4-26B-A4B-it", "google/gemma-4-31B-it"],
    model_type: "gemma4",
    ..GEMMA4
};

/// Gemma 4 that sees and hears without towers, of which we run the text part.
pub(crate) const GEMMA4_UNIFIED: Architecture = Architecture {
    hugging_face: "Gemma4UnifiedForConditionalGeneration",
    examples: &["google/gemma-4-12B-it"],
    model_type: "gemma4_unified_text",
    complete: complete_unified,
    ..GEMMA4
};

/// The number that a layer's result is multiplied with, and experts in addition to the dense block.
const NAMES: NameTable = &[
    ("layers.#.layer_scalar", "blk.#.layer_output_scale"),
    ("layers.#.router.proj", "blk.#.ffn_gate_inp"),
    ("layers.#.router.scale", "blk.#.ffn_gate_inp.scale"),
    ("layers.#.router.per_expert_scale", "blk.#.ffn_down_exps.scale"),
    ("layers.#.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"),
    ("layers.#.experts.down_proj", "blk.#.ffn_down_exps"),
    ("layers.#.post_feedforward_layernorm_1", "blk.#.post_ffw_norm_1"),
    ("layers.#.pre_feedforward_layernorm_2", "blk.#.pre_ffw_norm_2"),
    ("layers.#.post_feedforward_layernorm_2", "blk.#.post_ffw_norm_2"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "max_position_embeddings": 131_072, "sliding_window": 512, "vocab_size_per_layer_input": 262_144,
        "hidden_size_per_layer_input": 256,
    }));
    complete_both(keys)
}

fn complete_unified(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "max_position_embeddings": 262_144, "sliding_window": 1024 }));
    complete_both(keys)
}

fn complete_both(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("hidden_activation", "hidden_act");
    keys.add(json!({
        "vocab_size": 262_144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512,
        "attention_k_eq_v": false, "num_kv_shared_layers": 0, "tie_word_embeddings": true,
        "rope_parameters": {
            "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 },
            "full_attention": { "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6 },
        },
    }));
    // Whatever the size of heads.
    keys.set("attention_multiplier", 1.0);
    // Images only, unless it is all.
    let both_ways = keys.get("use_bidirectional_attention").and_then(Value::as_str) == Some("all");
    keys.set("use_bidirectional_attention", both_ways);
    complete_layers(keys)?;
    keys.rename("top_k_experts", "num_experts_per_tok");
    if !keys.is(true, "enable_moe_block") {
        keys.remove("num_experts");
    }
    rms_norm(keys)
}

/// The kinds of layers, and what differs between them.
fn complete_layers(keys: &mut ConfigKeys) -> Result<(), String> {
    let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
    // The last one sees all, whatever the file says.
    list_layers(keys, layers, |index| index % 6 == 5);
    if let Some(Value::Array(mut kinds)) = keys.get("layer_types").cloned() {
        if let Some(last) = kinds.last_mut() {
            *last = "full_attention".into();
        }
        keys.set("layer_types", kinds);
    }
    if !keys.is(true, "attention_k_eq_v") {
        keys.remove("num_global_key_value_heads");
    }
    // Layers without window are those that have an entry.
    if let Some(Value::Object(own)) = keys.get("per_layer_config").cloned() {
        let mut entries = own.values();
        let first = entries.next().cloned().unwrap_or_default();
        if entries.any(|other| *other != first) {
            return Err("`per_layer_config` has entries that differ, expected one kind of heads".into());
        }
        for (own, key) in
            [("head_dim", "global_head_dim"), ("num_key_value_heads", "num_global_key_value_heads")]
        {
            if let Some(size) = first.get(own) {
                keys.set(key, size.clone());
            }
        }
    }
    if keys.is(true, "use_double_wide_mlp") {
        let width = keys.count("intermediate_size").unwrap_or(0);
        let first = layers.saturating_sub(keys.count("num_kv_shared_layers").unwrap_or(0));
        let width_of = |index| if index < first { width } else { width.saturating_mul(2) };
        keys.set("layer_widths", (0..layers).map(width_of).collect::<Vec<usize>>());
    }
    Ok(())
}

/// Scores have no factor.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.multipliers.attention = Some(1.0);
    heads_by_kind(keys, config)
}

/// The key and value heads of layers of both kinds, if files list those of each layer.
pub(super) fn heads_by_kind(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    let blocks = config.layers + config.prediction_layers;
    let heads = keys.optional_list::<usize>("attention.head_count_kv", blocks)?;
    let (Some(heads), Some(windowed), Some(global)) =
        (heads, config.lists.windowed.as_ref(), &mut config.attention.global_heads)
    else {
        return Ok(());
    };
    let of_kind =
        |kind: bool| heads.iter().zip(windowed).find_map(|(&heads, &own)| (own == kind).then_some(heads));
    config.attention.kv_heads = of_kind(true).unwrap_or(config.attention.kv_heads);
    global.kv_heads = of_kind(false).unwrap_or(global.kv_heads);
    Ok(())
}

fn gemma4(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = gemma3(config, ropes, weights);
    let has = |index: usize, name: &str| weights.dtype(&format!("blk.{index}.{name}.weight")).is_some();
    for (index, attention) in decoder.attentions_mut().enumerate() {
        if let (None, Some(GlobalHeads { kv_heads, head_dim })) =
            (attention.window, config.attention.global_heads)
        {
            (attention.kv_heads, attention.head_dim) = (kv_heads, head_dim);
            let shares = index >= config.layers - config.attention.shared_layers;
            let lacks_values = || !shares && !has(index, "attn_v");
            attention.keys_as_values = config.attention.keys_as_values.unwrap_or_else(lacks_values);
        }
    }
    let mut decoder = with_layer_embedding(with_shared_keys(decoder, config), config);
    let norm = Norm::Rms { eps: config.norm_eps };
    let activation = config.activation.unwrap_or(Activation::Unary(Unary::GeluTanh));
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        layer.scaled = has(index, "layer_output_scale");
        let width = config.lists.widths.as_ref().map_or(config.feed_forward, |widths| widths[index]);
        let gated = Gated {
            width,
            activation,
            bias: false,
            cutoff: None,
            limit: None,
            gate_scale: 1.0,
            output_scale: 1.0,
        };
        layer.channel = match layer.channel {
            Channel::Experts(mut experts) => {
                experts.scaled = true;
                experts.activation = activation;
                Channel::GatedAndExperts(GatedAndExperts { gated, experts, norm })
            }
            _ => Channel::Gated(gated),
        };
    }
    decoder
}
