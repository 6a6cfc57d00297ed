//! Granite SWASH: Granite with sinks in attention, a window in all layers but every fourth, and positions whose base may
//! differ between layers.

use serde_json::json;
use weights::MetaValue;

use super::granite::{self, GRANITE, granite};
use super::granite_moe::{EXPERT_NAMES, GRANITE_MOE_SHARED, SHARED_NAMES, complete_shared, split_shared};
use super::llama::{NAMES as LLAMA_NAMES, windowed};
use super::{Architecture, joined};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::names::NameTable;
use crate::{Config, Decoder, Error, Mixer, Rope, WeightTypes};

/// Granite SWASH, dense.
pub(crate) const GRANITE_SWA: Architecture = Architecture {
    hugging_face: "GraniteSWAForCausalLM",
    examples: &["ibm-granite/granite-swash-2b"],
    gguf: Some("granite_swa"),
    model_type: "granite_swa",
    keys: &joined::<{ GRANITE.keys.len() + KEYS.len() }>(GRANITE.keys, KEYS),
    complete,
    gguf_quirks,
    names: &[SINK_NAMES, LLAMA_NAMES],
    gguf_names: |_| &[("blk.#.ffn_up_shexp", "blk.#.ffn_gate_up_shexp")],
    gguf_keys,
    gguf_layout: split_shared,
    gguf_joins_gates: true,
    decoder: granite_swa,
    ..GRANITE
};

/// Granite SWASH with experts, and perhaps one that every token gets.
pub(crate) const GRANITE_MOE_SWA: Architecture = Architecture {
    hugging_face: "GraniteMoeSWAForCausalLM",
    examples: &["ibm-granite/granite-swash-3b-a600m"],
    model_type: "granitemoe_swa",
    keys: &joined::<{ GRANITE_MOE_SHARED.keys.len() + KEYS.len() }>(GRANITE_MOE_SHARED.keys, KEYS),
    complete: complete_moe,
    names: &[SINK_NAMES, STACKED_NAMES, SHARED_NAMES, EXPERT_NAMES, LLAMA_NAMES],
    layout: split_shared,
    ..GRANITE_SWA
};

const KEYS: &[&str] = &["layer_rope_theta", "layer_types", "sliding_window"];

const SINK_NAMES: NameTable = &[("layers.#.self_attn.sinks", "blk.#.attn_sinks")];

/// As `transformers` calls them, which renames those of other Granite models.
const STACKED_NAMES: NameTable = &[
    ("layers.#.block_sparse_moe.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"),
    ("layers.#.block_sparse_moe.experts.down_proj", "blk.#.ffn_down_exps"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 100_352, "hidden_size": 2560, "intermediate_size": 8192, "num_hidden_layers": 24,
        "num_attention_heads": 20, "num_key_value_heads": 4, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": true, "sliding_window": 128,
    }));
    granite::complete(keys)
}

fn complete_moe(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "sliding_window": 128 }));
    complete_shared(keys)
}

/// Files say which layers turn positions, all by one base.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    let theta = config.rope.theta;
    let turning = keys.flags(ROPE_PATTERN);
    config.lists.thetas =
        turning.map(|layers| layers.into_iter().map(|turns| if turns { theta } else { 0.0 }).collect());
    granite::gguf_quirks(keys, config)
}

const ROPE_PATTERN: &str = "attention.rope_pattern";

fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let windowed = match &config.lists.windowed {
        Some(windowed) => windowed.clone(),
        None => (0..config.layers).map(has_window).collect(),
    };
    let turning = |thetas: &Vec<f64>| thetas.iter().map(|&theta| theta != 0.0).collect::<Vec<bool>>();
    let turning = config.lists.thetas.as_ref().map(turning);
    let turning = turning.map(|layers| (ROPE_PATTERN, layers.into()));
    let bases = config.lists.bases();
    let base = bases.first().map(|&base| ("rope.freq_base", (base as f32).into()));
    [("attention.sliding_window_pattern", windowed.into())].into_iter().chain(turning).chain(base).collect()
}

/// Whether a layer has the window, if files do not say it.
fn has_window(index: usize) -> bool {
    !index.is_multiple_of(4)
}

fn granite_swa(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = windowed(granite(config, ropes, weights), config, has_window);
    let bases = config.lists.bases();
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        let Mixer::Attention(attention) = &mut layer.mixer else { continue };
        attention.sinks = true;
        if let Some(thetas) = &config.lists.thetas {
            attention.rope = bases.iter().position(|base| *base == thetas[index]);
        }
    }
    decoder
}
