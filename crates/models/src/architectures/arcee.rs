//! Arcee is a Llama whose feed-forward blocks have no gate and use a squared ReLU.

use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, llama, rms_norm, with_plain_channels};
use crate::config::ConfigKeys;
use crate::{Activation, Config, Decoder, Rope, WeightTypes};

/// Arcee's foundation models.
pub(crate) const ARCEE: Architecture = Architecture {
    hugging_face: "ArceeForCausalLM",
    examples: &["arcee-ai/AFM-4.5B"],
    gguf: Some("arcee"),
    model_type: "arcee",
    complete,
    decoder: arcee,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 32000, "hidden_size": 2560, "intermediate_size": 18432, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "relu2",
    }));
    rms_norm(keys)
}

fn arcee(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    with_plain_channels(llama(config, ropes, weights), config, Activation::ReluSquared, weights)
}
