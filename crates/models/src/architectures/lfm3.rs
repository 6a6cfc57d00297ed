//! LFM3: LFM2 with norms around both blocks, a gate behind attention, and a window, and a rope of their own, in some layers.

use serde_json::{Value, json};

use super::Architecture;
use super::lfm2::{LFM2, LFM2_NAMES, lfm2};
use super::llama::{NAMES, windowed};
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::key::MAX_LAYERS;
use crate::names::NameTable;
use crate::{AttentionGate, Config, Decoder, Norm, Norms, Rope, WeightTypes};

/// LFM3, dense.
pub(crate) const LFM3: Architecture = Architecture {
    hugging_face: "Lfm3ForCausalLM",
    examples: &["LiquidAI/LFM3-1.7B"],
    gguf: None,
    model_type: "lfm3",
    keys: &[
        "attention_bias",
        "conv_L_cache",
        "head_dim",
        "layer_types",
        "norm_eps",
        "num_key_value_heads",
        "rope_parameters.partial_rotary_factor",
        "sliding_window",
    ],
    complete,
    names: &[LFM3_NAMES, LFM2_NAMES, QK_NORM_NAMES, NAMES],
    decoder: lfm3,
    ..LFM2
};

const LFM3_NAMES: NameTable = &[
    ("layers.#.self_attn.gate_proj", "blk.#.attn_gate"),
    ("layers.#.self_attn.g_proj", "blk.#.attn_gate"),
    ("layers.#.post_operator_norm", "blk.#.post_attention_norm"),
    ("layers.#.post_ffn_norm", "blk.#.post_ffw_norm"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 128_000, "hidden_size": 2048, "intermediate_size": 7680, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 128_000,
        "norm_eps": 1e-5, "conv_L_cache": 7, "sliding_window": 256, "tie_word_embeddings": true, "rope_parameters": {
            "full_attention": { "rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5 },
            "sliding_attention": { "rope_theta": 1e4 },
        },
    }));
    keys.rename("conv_L_cache", "short_convolution");
    let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
    let mut kinds = match keys.remove("layer_types") {
        Some(Value::Array(kinds)) => kinds,
        _ => (0..layers).map(|layer| usual_kind(layer).into()).collect(),
    };
    let is_recurrent = |kind: &Value| kind == "conv";
    keys.set("recurrent_layers", kinds.iter().map(is_recurrent).collect::<Vec<_>>());
    // Other kinds attend, all the way or to a window.
    kinds.iter_mut().filter(|kind| is_recurrent(kind)).for_each(|kind| *kind = "full_attention".into());
    keys.set("layer_types", kinds);
    Ok(())
}

fn usual_kind(layer: usize) -> &'static str {
    match layer % 4 {
        2 => "full_attention",
        0 if layer > 0 => "sliding_attention",
        _ => "conv",
    }
}

fn lfm3(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = windowed(lfm2(config, ropes, weights), config, |_| false);
    let norm = Norm::Rms { eps: config.norm_eps };
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        let has = |name: &str| weights.dtype(&format!("blk.{index}.{name}.weight")).is_some();
        if has("post_attention_norm") {
            layer.norms = Norms::sandwich(norm);
        }
        if let (true, Some(attention)) = (has("attn_gate"), layer.mixer.attention_mut()) {
            attention.gate = Some(AttentionGate::Projected { softplus: false, per_head: true });
        }
    }
    decoder
}
