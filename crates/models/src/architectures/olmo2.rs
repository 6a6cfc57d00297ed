//! OLMo 2: Llama with norms behind its blocks, and on all queries and all keys together. OLMo 3: OLMo 2 with a window
//! in three layers of four.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::gemma2::SANDWICH_NAMES;
use super::llama::windowed;
use super::llama::{LLAMA, NAMES, llama, rms_norm};
use super::qwen3::QK_NORM_NAMES;
use crate::config::{ConfigKeys, RopeConfig};
use crate::key::GgufKeys;
use crate::{Config, Decoder, Error, Norm, Norms, QkNorm, Rope, WeightTypes};

/// OLMo 2.
pub(crate) const OLMO2: Architecture = Architecture {
    hugging_face: "Olmo2ForCausalLM",
    examples: &["allenai/OLMo-2-0425-1B-Instruct"],
    gguf: Some("olmo2"),
    model_type: "olmo2",
    complete,
    gguf_quirks,
    names: &[SANDWICH_NAMES, QK_NORM_NAMES, NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: olmo2,
    ..LLAMA
};

/// OLMo 3. In GGUF files it calls itself OLMo 2, which has no window.
pub(crate) const OLMO3: Architecture = Architecture {
    hugging_face: "Olmo3ForCausalLM",
    examples: &["allenai/Olmo-3-7B-Instruct"],
    model_type: "olmo3",
    keys: &[
        "attention_bias",
        "head_dim",
        "hidden_act",
        "layer_types",
        "num_key_value_heads",
        "rms_norm_eps",
        "sliding_window",
    ],
    complete: complete_olmo3,
    ..OLMO2
};

pub(super) fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "rms_norm_eps": 1e-5 }));
    rms_norm(keys)
}

/// Scaling is that of the layers that see all the way.
fn complete_olmo3(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "rope_theta": 5e5, "rope_local_base_freq": 5e5, "sliding_window": 4096 }));
    complete(keys)
}

/// OLMo 3, whose files call themselves so, stretches the ropes of layers without window alone.
pub(super) fn gguf_quirks(_: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    if config.attention.window.is_some() && config.local_rope.is_none() && config.rope.scaling.is_some() {
        config.local_rope = Some(RopeConfig { scaling: None, ..config.rope.clone() });
    }
    Ok(())
}

pub(super) fn olmo2(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let norm = Norm::Rms { eps: config.norm_eps };
    let mut decoder = llama(config, ropes, weights);
    decoder.layers.iter_mut().for_each(|layer| layer.norms = Norms::Post(norm));
    decoder.attentions_mut().for_each(|attention| attention.qk_norm = Some(QkNorm::Whole(norm)));
    windowed(decoder, config, |index| index % 4 != 3)
}
