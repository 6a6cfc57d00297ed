//! BERT: learned positions, token types, layer norms behind each block, attention in both directions.

use graph::ops::Unary;

use super::EncoderArchitecture;
use crate::encoder::{Encoder, EncoderLayer, EncoderNorms, FeedForward, Positions};
use crate::names::NameTable;
use crate::{
    Activation, CenteredNorms, Config, EncoderConfig, Error, Norm, Plain, SelfAttention, WeightTypes,
};

/// BERT, and the many models of its shape: MiniLM, BGE, E5, GTE.
pub(crate) const BERT: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "BertModel",
    examples: &["sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-small-en-v1.5"],
    gguf: "bert",
    names: &[NAMES],
    renames: &[],
    family: None,
    centered_norms: CenteredNorms::None,
    in_llama_cpp: true,
    head: None,
    encoder: bert,
};

/// BERT with a head that fills gaps, of which embeddings make no use.
pub(crate) const BERT_MASKED: EncoderArchitecture =
    EncoderArchitecture { hugging_face: "BertForMaskedLM", examples: &[], ..BERT };

/// BERT with a head that scores texts: a layer that was its pooler, and the scores.
pub(crate) const BERT_CLASSIFIER: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "BertForSequenceClassification",
    examples: &["cross-encoder/ms-marco-MiniLM-L6-v2"],
    names: &[&[("pooler.dense", "cls"), ("classifier", "cls.output")], NAMES],
    head: Some(Unary::Tanh),
    ..BERT
};

pub(super) const NAMES: NameTable = &[
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("encoder.layer.#.attention.self.query", "blk.#.attn_q"),
    ("encoder.layer.#.attention.self.key", "blk.#.attn_k"),
    ("encoder.layer.#.attention.self.value", "blk.#.attn_v"),
    ("encoder.layer.#.attention.output.dense", "blk.#.attn_output"),
    ("encoder.layer.#.attention.output.LayerNorm", "blk.#.attn_output_norm"),
    ("encoder.layer.#.intermediate.dense", "blk.#.ffn_up"),
    ("encoder.layer.#.output.dense", "blk.#.ffn_down"),
    ("encoder.layer.#.output.LayerNorm", "blk.#.layer_output_norm"),
];

fn bert(config: &Config, encoder: &EncoderConfig, weights: &dyn WeightTypes) -> Result<Encoder, Error> {
    with_positions_from(0, config, encoder, weights)
}

/// A BERT whose texts start at another row of the table of positions than the first.
pub(super) fn with_positions_from(
    first: usize,
    config: &Config,
    encoder: &EncoderConfig,
    weights: &dyn WeightTypes,
) -> Result<Encoder, Error> {
    let rows = config.context_length;
    if first >= rows {
        let message = format!("texts start at position {first}, but there are {rows} positions");
        return Err(Error::config(&config.source_name, message));
    }
    let norm = Norm::layer(encoder.norm_eps);
    let (heads, head_dim) = (config.attention.heads, config.attention.head_dim);
    let layer = EncoderLayer {
        attention: SelfAttention {
            heads,
            kv_heads: heads,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            bias: true,
            qk_norm: None,
            rope: None,
            window: None,
        },
        feed_forward: FeedForward::Plain(Plain {
            width: config.feed_forward,
            activation: config.activation.unwrap_or(Activation::Unary(Unary::Gelu)),
            bias: true,
        }),
        norm,
        norms: EncoderNorms::After,
    };
    Ok(Encoder {
        vocab: config.vocab,
        hidden: config.hidden,
        context_length: rows - first,
        embedding_scale: 1.0,
        positions: Some(Positions { rows, first }),
        ropes: Vec::new(),
        token_types: weights.dtype("token_types.weight").map(|_| encoder.token_types),
        relative_bias: None,
        norm: Some(norm),
        layers: vec![layer; config.layers],
        final_norm: None,
        head: None,
    })
}
