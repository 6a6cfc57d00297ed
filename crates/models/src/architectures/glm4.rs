//! GLM-4: Llama with stacked gates, positions that turn half of each head in pairs of neighbouring dims, and in the later
//! models norms around its blocks.

use graph::ops::RopeStyle;
use serde_json::json;

use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama, rms_norm};
use super::phi3::STACKED_NAMES;
use super::{Architecture, rope_sections};
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{Config, Decoder, Norm, Norms, Rope, WeightTypes};

/// GLM-4 9B and GLM Edge.
pub(crate) const GLM: Architecture = Architecture {
    hugging_face: "GlmForCausalLM",
    examples: &["zai-org/glm-4-9b-chat-hf"],
    gguf: Some("chatglm"),
    model_type: "glm",
    keys: &["head_dim", "hidden_act", "num_key_value_heads", "partial_rotary_factor", "rms_norm_eps"],
    complete,
    names: &[STACKED_NAMES, LLAMA_NAMES],
    rope: RopeStyle::Interleaved,
    decoder: llama,
    ..LLAMA
};

/// GLM-4 0414.
pub(crate) const GLM4: Architecture = Architecture {
    hugging_face: "Glm4ForCausalLM",
    examples: &["zai-org/GLM-4-9B-0414"],
    gguf: Some("glm4"),
    model_type: "glm4",
    names: &[NAMES, STACKED_NAMES, LLAMA_NAMES],
    decoder: glm4,
    ..GLM
};

/// GLM-4.1V, of which we run the text half.
pub(crate) const GLM4_VISION: Architecture = Architecture {
    hugging_face: "Glm4vForConditionalGeneration",
    examples: &["zai-org/GLM-4.1V-9B-Thinking"],
    model_type: "glm4v_text",
    complete: complete_vision,
    gguf_rope: RopeStyle::HalfSplit,
    gguf_keys: |config| rope_sections(config, [8, 12, 12]),
    ..GLM4
};

const NAMES: NameTable = &[
    ("layers.#.post_self_attn_layernorm", "blk.#.post_attention_norm"),
    ("layers.#.post_mlp_layernorm", "blk.#.post_ffw_norm"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 151_552, "num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7,
        "max_position_embeddings": 131_072, "partial_rotary_factor": 0.5,
    }));
    rms_norm(keys)
}

fn complete_vision(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "rms_norm_eps": 1e-5, "max_position_embeddings": 32768 }));
    // As `transformers` has it for all of them, if the file does not say it.
    let head_dim = keys.count("hidden_size").zip(keys.count("num_attention_heads"));
    if let Some((hidden, heads)) = head_dim.filter(|&(_, heads)| heads > 0) {
        keys.add(json!({ "head_dim": hidden / heads }));
    }
    complete(keys)
}

fn glm4(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let norm = Norm::Rms { eps: config.norm_eps };
    let mut decoder = llama(config, ropes, weights);
    decoder.layers.iter_mut().for_each(|layer| layer.norms = Norms::sandwich(norm));
    decoder
}
