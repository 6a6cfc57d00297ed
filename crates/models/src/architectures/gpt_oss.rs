//! GPT-OSS: Llama with sinks in attention, a window in every other layer, biases throughout, and experts whose gates have a
//! limit.

use graph::ops::{RopeStyle, Unary};
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama, rms_norm, windowed};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Activation, Channel, Config, Decoder, Error, Rope, Scaling, WeightTypes};

/// GPT-OSS.
pub(crate) const GPT_OSS: Architecture = Architecture {
    hugging_face: "GptOssForCausalLM",
    examples: &["openai/gpt-oss-20b", "openai/gpt-oss-120b"],
    gguf: Some("gpt-oss"),
    model_type: "gpt_oss",
    keys: &[
        "head_dim",
        "hidden_act",
        "layer_types",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "rms_norm_eps",
        "sliding_window",
        "swiglu_alpha",
        "swiglu_limit",
    ],
    complete,
    gguf_quirks,
    names: &[NAMES, LLAMA_NAMES],
    gguf_names: |_| &[("blk.#.post_attention_norm", "blk.#.ffn_norm")],
    layout,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: gpt_oss,
    ..LLAMA
};

/// Sinks, the router, and all experts together, with gates and what they multiply in turn.
const NAMES: NameTable = &[
    ("layers.#.self_attn.sinks", "blk.#.attn_sinks"),
    ("layers.#.mlp.router", "blk.#.ffn_gate_inp"),
    ("layers.#.mlp.experts.gate_up_proj", "blk.#.ffn_gate_up_exps"),
    ("layers.#.mlp.experts.gate_up_proj_bias", "blk.#.ffn_gate_up_exps.bias"),
    ("layers.#.mlp.experts.down_proj", "blk.#.ffn_down_exps"),
    ("layers.#.mlp.experts.down_proj_bias", "blk.#.ffn_down_exps.bias"),
];

/// The limit of gates. GGUF files leave it out.
const LIMIT: f32 = 7.0;

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 201_088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131_072,
        "sliding_window": 128, "rms_norm_eps": 1e-5, "rope_theta": 150_000.0, "num_local_experts": 128,
        "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": LIMIT,
    }));
    if !keys.has("rope_parameters") {
        let yarn = json!({
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
            "original_max_position_embeddings": 4096,
        });
        keys.set("rope_parameters", yarn);
    }
    // Gates are `x · sigmoid(1.702 x)`, whatever it says.
    keys.remove("hidden_act");
    match keys.number("swiglu_alpha") {
        Some(1.702) => {}
        other => return Err(format!("`swiglu_alpha` is {other:?}, expected 1.702")),
    }
    keys.rename("num_local_experts", "num_experts");
    rms_norm(keys)
}

/// Files say neither the limit nor that the blend of frequencies starts between pairs.
fn gguf_quirks(_: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    if let Some(experts) = &mut config.experts {
        experts.gate_limit = Some(LIMIT);
    }
    if let Some(Scaling::Yarn { truncate, .. }) = &mut config.rope.scaling {
        *truncate = false;
    }
    Ok(())
}

fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        let name = |stem: &str, leaf: &str| format!("blk.{layer}.ffn_{stem}_exps.{leaf}");
        for stem in ["gate_up", "down"] {
            layout.transpose(&name(stem, "weight"));
        }
        for leaf in ["weight", "bias"] {
            layout.split_alternating(&name("gate_up", leaf), 1, [name("gate", leaf), name("up", leaf)])?;
        }
    }
    Ok(())
}

fn gpt_oss(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = windowed(llama(config, ropes, weights), config, |index| index % 2 == 0);
    decoder.attentions_mut().for_each(|attention| attention.sinks = true);
    for layer in &mut decoder.layers {
        if let Channel::Experts(experts) = &mut layer.channel {
            experts.activation = Activation::Unary(Unary::GeluQuick);
            experts.offset = 1.0;
        }
    }
    decoder
}
