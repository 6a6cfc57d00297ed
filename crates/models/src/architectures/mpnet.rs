//! MPNet: BERT with relative positions in addition to the learned ones, and without token types.

use graph::ops::Unary;

use super::EncoderArchitecture;
use super::bert::{self, BERT, with_positions_from};
use super::roberta;
use crate::encoder::{Encoder, RelativeBias};
use crate::names::NameTable;
use crate::{Config, EncoderConfig, Error, WeightTypes};

/// MPNet, as in all-mpnet-base-v2.
pub(crate) const MPNET: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "MPNetModel",
    examples: &[],
    gguf: "mpnet",
    names: &[NAMES, bert::NAMES],
    in_llama_cpp: false,
    encoder: mpnet,
    ..BERT
};

/// MPNet with a head that fills gaps.
pub(crate) const MPNET_MASKED: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "MPNetForMaskedLM",
    examples: &["sentence-transformers/all-mpnet-base-v2"],
    ..MPNET
};

/// MPNet with a head that scores texts.
pub(crate) const MPNET_CLASSIFIER: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "MPNetForSequenceClassification",
    examples: &[],
    names: &[roberta::HEAD, NAMES, bert::NAMES],
    head: Some(Unary::Tanh),
    ..MPNET
};

const NAMES: NameTable = &[
    ("encoder.relative_attention_bias", "attn_rel_b"),
    ("encoder.layer.#.attention.attn.q", "blk.#.attn_q"),
    ("encoder.layer.#.attention.attn.k", "blk.#.attn_k"),
    ("encoder.layer.#.attention.attn.v", "blk.#.attn_v"),
    ("encoder.layer.#.attention.attn.o", "blk.#.attn_output"),
    ("encoder.layer.#.attention.LayerNorm", "blk.#.attn_output_norm"),
];

/// The row of a text's first token, whatever the configuration says of padding.
const FIRST: usize = 2;
/// What `transformers` computes with, whatever the size of the table.
const BUCKETS: usize = 32;
const MAX_DISTANCE: usize = 128;

fn mpnet(config: &Config, encoder: &EncoderConfig, weights: &dyn WeightTypes) -> Result<Encoder, Error> {
    if encoder.buckets != BUCKETS {
        let message = format!(
            "`relative_attention_num_buckets` is {}, expected {BUCKETS}, which models were trained with",
            encoder.buckets
        );
        return Err(Error::config(&config.source_name, message));
    }
    let relative_bias = Some(RelativeBias { buckets: BUCKETS, max_distance: MAX_DISTANCE });
    Ok(Encoder { relative_bias, ..with_positions_from(FIRST, config, encoder, weights)? })
}
