//! Apertus: Llama whose feed-forward blocks have no gate and use an xIELU, with a norm on each query and key.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, rms_norm, with_plain_channels};
use super::qwen3::{QK_NORM_NAMES, qwen3};
use crate::config::ConfigKeys;
use crate::layers::XIELU;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Activation, Config, Decoder, Error, Rope, WeightTypes};

/// Apertus.
pub(crate) const APERTUS: Architecture = Architecture {
    hugging_face: "ApertusForCausalLM",
    examples: &["swiss-ai/Apertus-8B-Instruct-2509"],
    gguf: Some("apertus"),
    model_type: "apertus",
    keys: &["attention_bias", "head_dim", "hidden_act", "num_key_value_heads", "rms_norm_eps"],
    complete,
    names: &[NAMES, QK_NORM_NAMES, LLAMA_NAMES],
    layout,
    gguf_layout,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: apertus,
    ..LLAMA
};

const NAMES: NameTable = &[
    ("layers.#.attention_layernorm", "blk.#.attn_norm"),
    ("layers.#.feedforward_layernorm", "blk.#.ffn_norm"),
    ("layers.#.mlp.act_fn.alpha_p", "blk.#.ffn_act_alpha_p"),
    ("layers.#.mlp.act_fn.alpha_n", "blk.#.ffn_act_alpha_n"),
    ("layers.#.mlp.act_fn.beta", "blk.#.ffn_act_beta"),
    ("layers.#.mlp.act_fn.eps", "blk.#.ffn_act_eps"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 131_072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 65536, "rms_norm_eps": 1e-5, "rope_theta": 12e6,
        "hidden_act": "xielu", "rope_parameters": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    }));
    rms_norm(keys)
}

/// The numbers of the activations are stored with one axis or none.
fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        XIELU.iter().for_each(|name| layout.flatten(&format!("blk.{layer}.ffn_act_{name}.weight")));
    }
    Ok(())
}

/// The numbers of the activations are among the metadata.
fn gguf_layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for (layer, numbers) in config.lists.xielu.iter().flatten().enumerate() {
        for (number, name) in numbers.iter().zip(XIELU) {
            layout.make(format!("blk.{layer}.ffn_act_{name}.weight"), &[*number]);
        }
    }
    Ok(())
}

fn apertus(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    with_plain_channels(qwen3(config, ropes, weights), config, Activation::Xielu, weights)
}
