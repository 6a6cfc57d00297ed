//! Seed-OSS: Llama with heads of their own size, and biases that the weights show.

use graph::ops::RopeStyle;
use serde_json::json;

use super::llama::{LLAMA, rms_norm};
use super::{Architecture, joined};
use crate::config::ConfigKeys;

/// Seed-OSS.
pub(crate) const SEED_OSS: Architecture = Architecture {
    hugging_face: "SeedOssForCausalLM",
    examples: &["ByteDance-Seed/Seed-OSS-36B-Instruct"],
    gguf: Some("seed_oss"),
    model_type: "seed_oss",
    keys: &joined::<{ LLAMA.keys.len() + 1 }>(LLAMA.keys, &["attention_out_bias"]),
    complete,
    // The norm before the feed-forward block, which is behind nothing but attention.
    gguf_names: |_| &[("blk.#.post_attention_norm", "blk.#.ffn_norm")],
    gguf_rope: RopeStyle::HalfSplit,
    ..LLAMA
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 155_136, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 524_288,
    }));
    rms_norm(keys)
}
