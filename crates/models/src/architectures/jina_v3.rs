//! Jina v3: XLM-RoBERTa with rotated queries and keys in place of positions, and adapters for tasks, which are left out.

use graph::ops::Unary;

use super::EncoderArchitecture;
use super::bert::{self, BERT};
use super::nomic_bert::{self, rotated};
use crate::encoder::Encoder;
use crate::names::NameTable;
use crate::{Config, EncoderConfig, Error, WeightTypes};

/// jina-embeddings-v3.
pub(crate) const JINA_V3: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "JinaEmbeddingsV3Model",
    examples: &["jinaai/jina-embeddings-v3"],
    gguf: "jina-bert-v3",
    names: &[NAMES, nomic_bert::NAMES, bert::NAMES],
    renames: &[("rotary_emb_base", "rope_theta")],
    encoder: jina_v3,
    ..BERT
};

const NAMES: NameTable = &[
    ("encoder.layers.#.mixer.Wqkv", "blk.#.attn_qkv"),
    ("encoder.layers.#.mixer.out_proj", "blk.#.attn_output"),
    ("layers.#.mlp.fc1", "blk.#.ffn_up"),
    ("layers.#.mlp.fc2", "blk.#.ffn_down"),
];

/// Positions before the first, which configurations count as RoBERTa's do. GGUF files leave them out.
fn jina_v3(config: &Config, own: &EncoderConfig, weights: &dyn WeightTypes) -> Result<Encoder, Error> {
    let before = own.padding.map_or(0, |padding| padding.saturating_add(1));
    let context_length = config.context_length.saturating_sub(before).max(1);
    Ok(Encoder { context_length, ..rotated(config, own, weights, Unary::Silu)? })
}
