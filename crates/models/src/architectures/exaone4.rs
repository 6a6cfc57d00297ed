//! EXAONE 4: Llama with norms behind its blocks and on each query and key, and, in larger models, a window in three
//! layers of four; the fourth has no positions then.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::gemma2::SANDWICH_NAMES;
use super::llama::windowed;
use super::llama::{LLAMA, NAMES, llama, rms_norm};
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::{Config, Decoder, Norm, Norms, QkNorm, Rope, WeightTypes};

/// EXAONE 4.
pub(crate) const EXAONE4: Architecture = Architecture {
    hugging_face: "Exaone4ForCausalLM",
    examples: &["LGAI-EXAONE/EXAONE-4.0-1.2B"],
    gguf: Some("exaone4"),
    model_type: "exaone4",
    keys: &[
        "head_dim",
        "hidden_act",
        "layer_types",
        "num_key_value_heads",
        "num_nextn_predict_layers",
        "rms_norm_eps",
        "sliding_window",
        "sliding_window_pattern",
    ],
    complete,
    names: &[SANDWICH_NAMES, QK_NORM_NAMES, NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: exaone4,
    ..LLAMA
};

/// EXAONE 4.5, of which we run the text half.
pub(crate) const EXAONE4_5: Architecture = Architecture {
    hugging_face: "Exaone4_5_ForConditionalGeneration",
    examples: &["LGAI-EXAONE/EXAONE-4.5-33B"],
    model_type: "exaone4_5_text",
    ..EXAONE4
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4 }));
    rms_norm(keys)
}

pub(super) fn exaone4(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let norm = Norm::Rms { eps: config.norm_eps };
    let mut decoder = llama(config, ropes, weights);
    decoder.layers.iter_mut().for_each(|layer| layer.norms = Norms::Post(norm));
    decoder.attentions_mut().for_each(|attention| attention.qk_norm = Some(QkNorm::PerHead(norm)));
    let mut decoder = windowed(decoder, config, |index| index % 4 != 3);
    if config.attention.window.is_some() {
        for attention in decoder.attentions_mut().filter(|attention| attention.window.is_none()) {
            attention.rope = None;
        }
    }
    decoder
}
