//! Granite: Llama with factors on embeddings, attention scores, residuals and logits.

use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama, rms_norm};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::{Config, Decoder, Error, Rope, WeightTypes};

/// Granite 3, dense.
pub(crate) const GRANITE: Architecture = Architecture {
    hugging_face: "GraniteForCausalLM",
    examples: &["ibm-granite/granite-3.3-2b-instruct"],
    gguf: Some("granite"),
    model_type: "granite",
    keys: &[
        "attention_bias",
        "attention_multiplier",
        "embedding_multiplier",
        "head_dim",
        "hidden_act",
        "logits_scaling",
        "mlp_bias",
        "num_key_value_heads",
        "residual_multiplier",
        "rms_norm_eps",
    ],
    complete,
    gguf_quirks,
    decoder: granite,
    ..LLAMA
};

pub(super) fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "attention_multiplier": 1.0 }));
    keys.invert("logits_scaling", "logit_scale");
    rms_norm(keys)
}

/// Logits are divided by what other families multiply them with.
pub(super) fn gguf_quirks(_: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.multipliers.logits = 1.0 / config.multipliers.logits;
    Ok(())
}

pub(super) fn granite(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    for layer in &mut decoder.layers {
        layer.residual.scale = config.multipliers.residual;
    }
    Decoder {
        embedding_scale: config.multipliers.embedding,
        logit_scale: config.multipliers.logits,
        ..decoder
    }
}
