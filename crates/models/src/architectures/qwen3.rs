//! Qwen3: Qwen2 with RMS-normalized queries and keys.

use super::llama::NAMES;
use super::llama::llama_with_window;
use super::qwen2::QWEN2;
use super::{Architecture, joined};
use crate::names::NameTable;
use crate::{Config, Decoder, Norm, QkNorm, Rope, WeightTypes};

/// Qwen3, dense.
pub(crate) const QWEN3: Architecture = Architecture {
    hugging_face: "Qwen3ForCausalLM",
    examples: &["Qwen/Qwen3-0.6B"],
    gguf: Some("qwen3"),
    model_type: "qwen3",
    keys: &joined::<{ QWEN2.keys.len() + 1 }>(QWEN2.keys, &["attention_bias"]),
    names: &[QK_NORM_NAMES, NAMES],
    decoder: qwen3,
    ..QWEN2
};

/// Qwen3 with a head that scores texts. Its rerankers come as such too.
pub(crate) const QWEN3_CLASSIFIER: Architecture = Architecture {
    hugging_face: "Qwen3ForSequenceClassification",
    examples: &["tomaarsen/Qwen3-Reranker-0.6B-seq-cls"],
    classifies: true,
    pair_template: Some("qwen3_reranker"),
    ..QWEN3
};

/// Of norms on queries and keys.
pub(super) const QK_NORM_NAMES: NameTable =
    &[("layers.#.self_attn.q_norm", "blk.#.attn_q_norm"), ("layers.#.self_attn.k_norm", "blk.#.attn_k_norm")];

pub(super) fn qwen3(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    normalized(llama_with_window(config, ropes, weights), config)
}

/// A decoder that normalizes the queries and keys of each head.
pub(super) fn normalized(mut decoder: Decoder, config: &Config) -> Decoder {
    for attention in decoder.attentions_mut() {
        attention.qk_norm = Some(QkNorm::PerHead(Norm::Rms { eps: config.norm_eps }));
    }
    decoder
}
