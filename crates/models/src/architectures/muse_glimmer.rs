//! Muse Glimmer: Gemma's norms around blocks, a norm on embeddings, a gate behind attention, normalized queries with a factor, and
//! layers without a window, which do not rotate.

use graph::ops::RopeStyle;
use serde_json::{Value, json};
use weights::MetaValue;

use super::Architecture;
use super::gemma2::SANDWICH_NAMES;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama, rms_norm, windowed};
use super::mellum::listed_windows;
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::names::NameTable;
use crate::{AttentionGate, CenteredNorms, Config, Decoder, Error, Norm, Norms, QkNorm, Rope, WeightTypes};

/// Meta's Muse Glimmer, which sees, and of which we run the text part.
pub(crate) const MUSE_GLIMMER: Architecture = Architecture {
    hugging_face: "MuseGlimmerForConditionalGeneration",
    examples: &["meta-models/Muse-Glimmer-30B"],
    gguf: Some("muse-glimmer"),
    model_type: "muse_glimmer",
    keys: &[
        "attention_bias",
        "final_logit_softcapping",
        "head_dim",
        "hidden_activation",
        "layer_rope_theta",
        "layer_types",
        "num_key_value_heads",
        "output_multiplier",
        "post_norm_eps",
        "qk_scale_factor",
        "rms_norm_eps",
        "sliding_window",
    ],
    complete,
    gguf_quirks,
    gguf_keys,
    names: &[NAMES, SANDWICH_NAMES, QK_NORM_NAMES, LLAMA_NAMES],
    gguf_rope: RopeStyle::Interleaved,
    centered_norms: CenteredNorms::OfLayers,
    decoder: muse_glimmer,
    ..LLAMA
};

const NAMES: NameTable = &[("layers.#.self_attn.gate_proj", "blk.#.attn_gate")];

/// `eps` of the norms behind blocks, which GGUF files leave out.
const POST_NORM_EPS: f32 = 1e-8;

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("hidden_activation", "hidden_act");
    keys.rename("output_multiplier", "logit_scale");
    keys.add(json!({
        "vocab_size": 202_048, "hidden_size": 6656, "intermediate_size": 19968, "num_hidden_layers": 52,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5, "post_norm_eps": POST_NORM_EPS, "sliding_window": 2048, "final_logit_softcapping": 20.0,
        "qk_scale_factor": 3.87, "logit_scale": 0.196_116_135_138_184_04,
    }));
    let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
    if !keys.has("layer_types") {
        let kind = |layer| if has_window(layers, layer) { "sliding_attention" } else { "full_attention" };
        keys.set("layer_types", (0..layers).map(kind).collect::<Vec<_>>());
    }
    // The bases of layers say which of them rotate, all by the base of the model.
    let rotated = match keys.remove("layer_rope_theta") {
        Some(Value::Array(thetas)) => thetas.iter().map(|theta| theta.as_f64() != Some(0.0)).collect(),
        _ => (0..layers).map(|layer| has_window(layers, layer)).collect::<Vec<bool>>(),
    };
    keys.set("no_rope_layers", rotated.into_iter().map(u32::from).collect::<Vec<_>>());
    rms_norm(keys)
}

/// The last layer and every fourth before it have none.
fn has_window(layers: usize, layer: usize) -> bool {
    !(layers - 1 - layer).is_multiple_of(4)
}

fn gguf_quirks(_: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.post_norm_eps = Some(POST_NORM_EPS);
    Ok(())
}

/// The factor on logits counts even if it is 1.
fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let own = ("logit_scale", config.multipliers.logits.into());
    listed_windows(config).into_iter().chain([own]).collect()
}

fn muse_glimmer(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let decoder = llama(config, ropes, weights);
    let mut decoder = windowed(decoder, config, |layer| has_window(config.layers, layer));
    let eps = config.norm_eps;
    let before = Norm::Rms { eps };
    let after = Norm::Rms { eps: config.post_norm_eps.unwrap_or(POST_NORM_EPS) };
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        layer.norms = Norms::Sandwich { before, after };
        let Some(attention) = layer.mixer.attention_mut() else { continue };
        // GGUF files have weights of norms, which hold the factor on queries.
        let has_weights = weights.dtype(&format!("blk.{index}.attn_q_norm.weight")).is_some();
        let norm = if has_weights { before } else { Norm::Unweighted { eps } };
        attention.qk_norm = Some(QkNorm::PerHead(norm));
        attention.scale *= config.multipliers.queries;
        attention.gate = Some(AttentionGate::Projected { softplus: false, per_head: false });
        let rotates = attention.window.is_some();
        let rotates = config.lists.rotated.as_ref().map_or(rotates, |rotated| rotated[index]);
        attention.rope = attention.rope.filter(|_| rotates);
    }
    Decoder {
        embedding_norm: Some(Norm::Unweighted { eps }),
        logit_scale: config.multipliers.logits,
        ..decoder
    }
}
