//! OLMo: Llama with layer norms that have no weights, and in some models with clipped queries, keys and values.

use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama, with_norm};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::{Config, Decoder, Error, Norm, Rope, WeightTypes};

/// OLMo 1 and 1.7.
pub(crate) const OLMO: Architecture = Architecture {
    hugging_face: "OlmoForCausalLM",
    examples: &["allenai/OLMo-1B-hf"],
    gguf: Some("olmo"),
    model_type: "olmo",
    keys: &["attention_bias", "clip_qkv", "head_dim", "hidden_act", "num_key_value_heads"],
    complete,
    gguf_quirks,
    decoder: olmo,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "norm_eps": 1e-5 }));
    Ok(())
}

fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.attention.clip_qkv = keys.optional::<f32>("attention.clamp_kqv")?.filter(|&limit| limit != 0.0);
    Ok(())
}

fn olmo(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let norm = Norm::Layer { eps: config.norm_eps, weight: false, bias: false };
    with_norm(llama(config, ropes, weights), norm)
}
