//! Gemma 3n: Gemma 3 with several residual streams, layers that take a part of a second embedding, a projection of low rank
//! next to attention, sparse gates in the first layers, and last layers that read the keys and values of earlier ones.

use graph::ops::Unary;
use serde_json::{Value, json};

use super::Architecture;
use super::gemma2::SANDWICH_NAMES;
use super::gemma3::{GEMMA3, gemma3};
use super::llama::{NAMES as LLAMA_NAMES, rms_norm};
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{
    Activation, CenteredNorms, Channel, Config, Decoder, Error, LayerEmbedding, Norm, Rope, StreamConfig,
    Streams, WeightTypes,
};

/// Gemma 3n of text alone.
pub(crate) const GEMMA3N: Architecture = Architecture {
    hugging_face: "Gemma3nForCausalLM",
    examples: &["google/gemma-3n-E4B-it-text"],
    gguf: Some("gemma3n"),
    model_type: "gemma3n_text",
    keys: &[
        "activation_sparsity_pattern",
        "altup_active_idx",
        "altup_correct_scale",
        "altup_num_inputs",
        "attention_bias",
        "final_logit_softcapping",
        "head_dim",
        "hidden_activation",
        "hidden_size_per_layer_input",
        "laurel_rank",
        "layer_types",
        "num_key_value_heads",
        "num_kv_shared_layers",
        "rms_norm_eps",
        "rope_local_base_freq",
        "sliding_window",
        "vocab_size_per_layer_input",
    ],
    complete,
    gguf_quirks,
    names: &[NAMES, LAYER_EMBEDDING_NAMES, SANDWICH_NAMES, QK_NORM_NAMES, LLAMA_NAMES],
    gguf_layout,
    centered_norms: CenteredNorms::None,
    decoder: gemma3n,
    ..GEMMA3
};

/// Gemma 3n that sees and hears, of which we run the text part.
pub(crate) const GEMMA3N_VISION: Architecture = Architecture {
    hugging_face: "Gemma3nForConditionalGeneration",
    examples: &["google/gemma-3n-E2B-it", "google/gemma-3n-E4B-it"],
    model_type: "gemma3n",
    ..GEMMA3N
};

/// Of streams, and of the projection next to attention.
const NAMES: NameTable = &[
    ("altup_projections.#", "altup_proj.#"),
    ("altup_unembed_projections.#", "altup_unembd_proj.#"),
    ("layers.#.altup.correct_output_scale", "blk.#.altup_correct_scale"),
    ("layers.#.altup.correction_coefs", "blk.#.altup_correct_coef"),
    ("layers.#.altup.prediction_coefs", "blk.#.altup_predict_coef"),
    ("layers.#.altup.modality_router", "blk.#.altup_router"),
    ("layers.#.altup.router_norm", "blk.#.altup_router_norm"),
    ("layers.#.laurel.linear_left", "blk.#.laurel_l"),
    ("layers.#.laurel.linear_right", "blk.#.laurel_r"),
    ("layers.#.laurel.post_laurel_norm", "blk.#.laurel_post_norm"),
];

/// Of the second embedding.
pub(super) const LAYER_EMBEDDING_NAMES: NameTable = &[
    ("embed_tokens_per_layer", "per_layer_token_embd"),
    ("per_layer_model_projection", "per_layer_model_proj"),
    ("per_layer_projection_norm", "per_layer_proj_norm"),
    ("layers.#.per_layer_input_gate", "blk.#.inp_gate"),
    ("layers.#.per_layer_projection", "blk.#.proj"),
    ("layers.#.post_per_layer_input_norm", "blk.#.post_norm"),
];

/// The rank of the projections next to attention, which GGUF files leave out.
const RANK: usize = 64;

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("hidden_activation", "hidden_act");
    keys.add(json!({
        "vocab_size": 262_400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
        "sliding_window": 512, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "tie_word_embeddings": true,
        "final_logit_softcapping": 30.0, "vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 256,
        "altup_num_inputs": 4, "altup_active_idx": 0, "altup_correct_scale": true, "laurel_rank": RANK,
        "num_kv_shared_layers": 15,
    }));
    // Whatever the size of heads.
    keys.set("attention_multiplier", 1.0);
    let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
    list_layers(keys, layers, |index| index % 5 == 4);
    if !keys.has("activation_sparsity_pattern") {
        let sparse = if layers > 10 { 10 } else { 0 };
        let share = |index| if index < sparse { 0.95 } else { 0.0 };
        keys.set("activation_sparsity_pattern", (0..layers).map(share).collect::<Vec<f64>>());
    }
    if let Some(Value::Array(widths)) = keys.get("intermediate_size") {
        let widths = widths.clone();
        keys.set("intermediate_size", widths.iter().filter_map(Value::as_u64).max().unwrap_or(0));
        keys.set("layer_widths", widths);
    }
    rms_norm(keys)
}

/// Says the kind of each layer, if the file does not.
pub(super) fn list_layers(keys: &mut ConfigKeys, layers: usize, full: impl Fn(usize) -> bool) {
    if !keys.has("layer_types") {
        let kind = |index| if full(index) { "full_attention" } else { "sliding_attention" };
        keys.set("layer_types", (0..layers).map(kind).collect::<Vec<_>>());
    }
}

/// What all files leave out, and what the first ones do.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    (GEMMA3.gguf_quirks)(keys, config)?;
    let usual = (0..config.layers.min(MAX_LAYERS)).map(|index| index % 5 != 4);
    config.lists.windowed.get_or_insert_with(|| usual.collect());
    config.multipliers.attention = Some(1.0);
    config.logit_softcap.get_or_insert(30.0);
    config.additions.low_rank = Some(RANK);
    if keys.optional::<usize>("attention.shared_kv_layers")?.is_none() {
        config.attention.shared_layers = config.layers.saturating_sub(20);
    }
    Ok(())
}

/// The projections of streams lie in one tensor.
fn gguf_layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    let others = config.additions.streams.map_or(0, |streams| streams.count - 1);
    ["altup_proj", "altup_unembd_proj"].into_iter().try_for_each(|stem| layout.unstack(stem, others))
}

fn gemma3n(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let norm = Norm::Rms { eps: config.norm_eps };
    let mut decoder = with_shared_keys(gemma3(config, ropes, weights), config);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        layer.low_rank = config.additions.low_rank;
        if let Channel::Gated(gated) = &mut layer.channel {
            gated.width = config.lists.widths.as_ref().map_or(gated.width, |widths| widths[index]);
            gated.cutoff = config.lists.gate_cutoffs.as_ref().and_then(|cutoffs| cutoffs[index]);
        }
    }
    let streams = |StreamConfig { count, active, scaled }| Streams { count, active, scaled, norm };
    Decoder { streams: config.additions.streams.map(streams), ..with_layer_embedding(decoder, config) }
}

/// A decoder whose values are normalized, and whose last layers read the keys and values of the last layer of their kind
/// that has its own.
pub(super) fn with_shared_keys(mut decoder: Decoder, config: &Config) -> Decoder {
    let first = config.layers - config.attention.shared_layers;
    let is_windowed: Vec<bool> =
        decoder.attentions_mut().map(|attention| attention.window.is_some()).collect();
    for (index, attention) in decoder.attentions_mut().enumerate() {
        attention.value_norm = Some(Norm::Unweighted { eps: config.norm_eps });
        if index >= first {
            let of_kind = |&earlier: &usize| is_windowed[earlier] == is_windowed[index];
            attention.keys_of = (0..first).rfind(of_kind);
        }
    }
    decoder
}

/// A decoder with the second embedding of the configuration, if it has one.
pub(super) fn with_layer_embedding(decoder: Decoder, config: &Config) -> Decoder {
    let activation = config.activation.unwrap_or(Activation::Unary(Unary::GeluTanh));
    let norm = Norm::Rms { eps: config.norm_eps };
    let embedding = config.additions.layer_embedding;
    let embedding = embedding.map(|[rows, width]| LayerEmbedding { rows, width, activation, norm });
    Decoder { layer_embedding: embedding, ..decoder }
}
