//! Phi-3.5-MoE: Mixtral with layer norms, biases and LongRoPE, whose experts are chosen one after the other.

use graph::ops::RopeStyle;
use serde_json::{Value, json};

use super::Architecture;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama_with_window, rms_norm, with_norm};
use super::mixtral::EXPERT_NAMES;
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::names::NameTable;
use crate::{Config, Decoder, Error, Norm, Rope, WeightTypes};

/// Phi-3.5-MoE.
pub(crate) const PHI_MOE: Architecture = Architecture {
    hugging_face: "PhiMoEForCausalLM",
    // As `transformers` calls it.
    alias: Some("PhimoeForCausalLM"),
    examples: &["microsoft/Phi-3.5-MoE-instruct"],
    gguf: Some("phimoe"),
    model_type: "phimoe",
    keys: &[
        "attention_bias",
        "head_dim",
        "hidden_act",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
        "router_jitter_noise",
        "sliding_window",
    ],
    complete,
    gguf_quirks,
    names: &[NAMES, EXPERT_NAMES, LLAMA_NAMES],
    gguf_keys: |config| vec![("attention.layer_norm_rms_epsilon", config.norm_eps.into())],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: phi_moe,
    ..LLAMA
};

const NAMES: NameTable = &[("layers.#.mlp.router", "blk.#.ffn_gate_inp")];

/// How far the products of a token with its experts were scattered in training; GGUF files leave it out.
const NOISE: f64 = 0.01;

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 32064, "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5,
        "rope_theta": 1e6, "num_local_experts": 16, "num_experts_per_tok": 2, "router_jitter_noise": NOISE,
    }));
    if let Some(Value::Object(mut rope)) = keys.remove("rope_parameters") {
        match (rope.remove("short_mscale"), rope.remove("long_mscale")) {
            (Some(short), Some(long)) if short != long => {
                return Err(format!(
                    "`short_mscale` is {short} and `long_mscale` {long}, expected one number"
                ));
            }
            (Some(factor), _) => drop(rope.insert("attention_factor".to_string(), factor)),
            (None, _) => {}
        }
        keys.set("rope_parameters", rope);
    }
    if let Some(noise) = keys.number("router_jitter_noise") {
        keys.set("expert_distance", 2.0 * noise);
    }
    keys.rename("num_local_experts", "num_experts");
    rms_norm(keys)
}

fn gguf_quirks(_: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    if let Some(experts) = &mut config.experts {
        experts.routing.distance = Some((2.0 * NOISE) as f32);
    }
    Ok(())
}

fn phi_moe(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    with_norm(llama_with_window(config, ropes, weights), Norm::layer(config.norm_eps))
}
