//! Llama 4: Llama with chunks of positions in three layers of four, whose queries and keys may be normalized; the fourth has
//! no positions, and sharpens as texts grow longer. Experts scale what they read.

use graph::ops::RopeStyle;
use serde_json::{Value, json};
use weights::MetaValue;

use super::Architecture;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama, rms_norm, windowed};
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Channel, Config, Decoder, Error, Norm, QkNorm, Rope, Routing, Scores, Temperature, WeightTypes};

/// Llama 4 of text alone.
pub(crate) const LLAMA4: Architecture = Architecture {
    hugging_face: "Llama4ForCausalLM",
    examples: &["meta-llama/Llama-Guard-4-12B"],
    gguf: Some("llama4"),
    model_type: "llama4_text",
    keys: &[
        "attention_bias",
        "attention_chunk_size",
        "attn_scale",
        "attn_temperature_tuning",
        "floor_scale",
        "head_dim",
        "hidden_act",
        "interleave_moe_layer_step",
        "intermediate_size_mlp",
        "layer_types",
        "moe_layers",
        "no_rope_layer_interval",
        "no_rope_layers",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
        "use_qk_norm",
    ],
    complete,
    gguf_quirks,
    gguf_keys,
    names: &[NAMES, LLAMA_NAMES],
    layout,
    rope: RopeStyle::Interleaved,
    decoder: llama4,
    ..LLAMA
};

/// Llama 4 that sees, of which we run the text half.
pub(crate) const LLAMA4_VISION: Architecture = Architecture {
    hugging_face: "Llama4ForConditionalGeneration",
    examples: &["meta-llama/Llama-4-Scout-17B-16E-Instruct", "meta-llama/Llama-4-Maverick-17B-128E-Instruct"],
    model_type: "llama4",
    ..LLAMA4
};

const NAMES: NameTable = &[
    ("layers.#.feed_forward.gate_proj", "blk.#.ffn_gate"),
    ("layers.#.feed_forward.up_proj", "blk.#.ffn_up"),
    ("layers.#.feed_forward.down_proj", "blk.#.ffn_down"),
    ("layers.#.feed_forward.router", "blk.#.ffn_gate_inp"),
    ("layers.#.feed_forward.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"),
    ("layers.#.feed_forward.experts.down_proj", "blk.#.ffn_down_exps"),
    ("layers.#.feed_forward.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"),
    ("layers.#.feed_forward.shared_expert.up_proj", "blk.#.ffn_up_shexp"),
    ("layers.#.feed_forward.shared_expert.down_proj", "blk.#.ffn_down_shexp"),
];

/// How positions are counted, which GGUF files leave out.
const CHUNK: usize = 8192;
/// How layers without positions sharpen, which GGUF files leave out.
const TEMPERATURE: Temperature = Temperature { growth: 0.1, context: 8192, offset: 1 };

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 202_048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "num_experts_per_tok": 1,
        "num_local_experts": 16, "interleave_moe_layer_step": 1, "use_qk_norm": true, "no_rope_layer_interval": 4,
        "attention_chunk_size": CHUNK, "attn_temperature_tuning": true, "floor_scale": 8192, "attn_scale": 0.1,
    }));
    // The width of experts; dense blocks have the other.
    keys.rename("intermediate_size", "moe_intermediate_size");
    if let Some(width) = keys.get("moe_intermediate_size").cloned() {
        keys.set("shared_expert_intermediate_size", width);
    }
    keys.rename("intermediate_size_mlp", "intermediate_size");
    keys.rename("num_local_experts", "num_experts");
    keys.rename("use_qk_norm", "unit_queries");
    // Some files have a number for it.
    let tuning = keys.get("attn_temperature_tuning");
    if tuning == Some(&Value::Bool(false)) || tuning.and_then(Value::as_u64) == Some(0) {
        keys.remove("attn_scale");
    }
    complete_layers(keys)?;
    rms_norm(keys)
}

/// Which layers have positions, chunks and experts.
fn complete_layers(keys: &mut ConfigKeys) -> Result<(), String> {
    let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
    let interval = keys.count("no_rope_layer_interval").filter(|&interval| interval > 0);
    let interval = interval.ok_or("`no_rope_layer_interval` is no number above 0")?;
    let listed = keys.get("no_rope_layers").and_then(Value::as_array).filter(|listed| !listed.is_empty());
    let rotates = |index: usize| match listed {
        Some(listed) => listed.get(index).and_then(Value::as_u64) != Some(0),
        None => !(index + 1).is_multiple_of(interval),
    };
    let rotates: Vec<bool> = (0..layers).map(rotates).collect();
    let count = listed.map_or(layers, Vec::len);
    if count < layers {
        return Err(format!("{layers} layers, but {count} in the list `no_rope_layers`"));
    }
    keys.set("no_rope_layers", rotates.iter().map(|&rotates| u32::from(rotates)).collect::<Vec<_>>());
    let kind = |chunked: bool| if chunked { "sliding_attention" } else { "full_attention" };
    let kinds: Vec<Value> = match keys.get("layer_types").and_then(Value::as_array) {
        Some(kinds) => kinds
            .iter()
            .map(|kind| match kind.as_str() {
                Some("chunked_attention") => "sliding_attention".into(),
                _ => kind.clone(),
            })
            .collect(),
        None => rotates.iter().map(|&rotates| kind(rotates).into()).collect(),
    };
    keys.set("layer_types", kinds);
    keys.rename("attention_chunk_size", "sliding_window");
    let step = keys.count("interleave_moe_layer_step").unwrap_or(0);
    match keys.get("moe_layers").and_then(Value::as_array) {
        Some(sparse) => {
            let is_sparse = |index: usize| sparse.iter().any(|layer| layer.as_u64() == Some(index as u64));
            let dense: Vec<usize> = (0..layers).filter(|&index| !is_sparse(index)).collect();
            keys.set("mlp_only_layers", dense);
            keys.set("decoder_sparse_step", 1);
        }
        None => keys.set("decoder_sparse_step", step),
    }
    Ok(())
}

/// How many layers it is from one with experts to the next.
fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let first = config.lists.sparse.as_ref().and_then(|sparse| sparse.iter().position(|&sparse| sparse));
    let step = first.and_then(|first| u32::try_from(first + 1).ok());
    vec![("interleave_moe_layer_step", step.unwrap_or(0).into())]
}

fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    let rotates = |index: usize| index % 4 != 3;
    // 0 says that all layers see everything, and have positions.
    if keys.optional::<usize>("attention.sliding_window")? != Some(0) {
        config.attention.window = Some(CHUNK);
        config.temperature = Some(TEMPERATURE);
        config.lists.rotated = Some((0..config.layers.min(MAX_LAYERS)).map(rotates).collect());
    }
    let Some(experts) = &mut config.experts else { return Ok(()) };
    experts.shared_width = Some(experts.width);
    config.attention.unit_queries = experts.count != 128;
    Ok(())
}

fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        for stem in ["gate_up", "down"] {
            layout.transpose(&format!("blk.{layer}.ffn_{stem}_exps.weight"));
        }
    }
    Ok(())
}

fn llama4(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = windowed(llama(config, ropes, weights), config, |index| index % 4 != 3);
    for (index, attention) in decoder.attentions_mut().enumerate() {
        attention.chunk = attention.window.take();
        if config.lists.rotated.as_ref().is_some_and(|rotated| !rotated[index]) {
            attention.rope = None;
        } else {
            attention.is_tempered = false;
            // Rotation does not change the size of a vector, so that it does not matter which comes first.
            let norm = Norm::Unweighted { eps: config.norm_eps };
            attention.qk_norm = config.attention.unit_queries.then_some(QkNorm::PerHead(norm));
        }
    }
    for layer in &mut decoder.layers {
        if let Channel::Experts(experts) = &mut layer.channel {
            experts.routing = Routing { scores: Scores::Sigmoid, normalized: false, ..Routing::default() };
            experts.scales_input = true;
        }
    }
    decoder
}
