//! Gemma 3: Gemma 2 with normalized queries and keys instead of capped scores, and a window in five layers of six,
//! which have a rope of their own.

use serde_json::json;

use super::Architecture;
use super::gemma::GEMMA;
use super::gemma2::{SANDWICH_NAMES, sandwiched};
use super::llama::windowed;
use super::llama::{NAMES, rms_norm};
use super::qwen3::QK_NORM_NAMES;
use crate::config::{ConfigKeys, RopeConfig};
use crate::key::GgufKeys;
use crate::{Config, Decoder, Error, Norm, QkNorm, Rope, WeightTypes};

/// Gemma 3 of text alone.
pub(crate) const GEMMA3: Architecture = Architecture {
    hugging_face: "Gemma3ForCausalLM",
    examples: &["google/gemma-3-1b-it"],
    gguf: Some("gemma3"),
    model_type: "gemma3_text",
    keys: &[
        "attention_bias",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "head_dim",
        "hidden_activation",
        "layer_types",
        "num_key_value_heads",
        "query_pre_attn_scalar",
        "rms_norm_eps",
        "rope_local_base_freq",
        "sliding_window",
        "sliding_window_pattern",
    ],
    complete,
    gguf_quirks,
    names: &[SANDWICH_NAMES, QK_NORM_NAMES, NAMES],
    decoder: gemma3,
    ..GEMMA
};

/// Gemma 3 that sees, of which we run the text half.
pub(crate) const GEMMA3_VISION: Architecture = Architecture {
    hugging_face: "Gemma3ForConditionalGeneration",
    examples: &["google/gemma-3-4b-it"],
    model_type: "gemma3",
    ..GEMMA3
};

/// The base of ropes in layers that have the window.
const LOCAL_THETA: f64 = 1e4;

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("hidden_activation", "hidden_act");
    keys.add(json!({
        "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131_072, "sliding_window": 4096, "query_pre_attn_scalar": 256,
        "rope_theta": 1e6, "rope_local_base_freq": LOCAL_THETA, "tie_word_embeddings": true,
    }));
    rms_norm(keys)
}

/// Most files do not say that layers with the window have a rope of their own.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    let local = RopeConfig { theta: LOCAL_THETA, scaling: None, ..config.rope.clone() };
    let said = keys.optional::<f32>("rope.freq_base_swa")?.is_some();
    if config.attention.window.is_some() && !said && local != config.rope {
        config.local_rope = Some(local);
    }
    Ok(())
}

pub(super) fn gemma3(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = sandwiched(config, ropes, weights);
    for attention in decoder.attentions_mut() {
        attention.qk_norm = Some(QkNorm::PerHead(Norm::Rms { eps: config.norm_eps }));
    }
    windowed(decoder, config, |index| index % 6 != 5)
}
