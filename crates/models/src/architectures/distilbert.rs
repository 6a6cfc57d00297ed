//! DistilBERT: BERT without token types, under names of its own.

use graph::ops::Unary;

use super::EncoderArchitecture;
use super::bert::{self, BERT};
use crate::names::NameTable;

/// DistilBERT.
pub(crate) const DISTILBERT: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "DistilBertModel",
    examples: &[],
    names: &[NAMES, bert::NAMES],
    renames: &[
        ("dim", "hidden_size"),
        ("hidden_dim", "intermediate_size"),
        ("n_layers", "num_hidden_layers"),
        ("n_heads", "num_attention_heads"),
        ("activation", "hidden_act"),
    ],
    ..BERT
};

/// DistilBERT with a head that fills gaps.
pub(crate) const DISTILBERT_MASKED: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "DistilBertForMaskedLM",
    examples: &["distilbert/distilbert-base-uncased"],
    ..DISTILBERT
};

/// DistilBERT with a head that scores texts.
pub(crate) const DISTILBERT_CLASSIFIER: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "DistilBertForSequenceClassification",
    examples: &["distilbert/distilbert-base-uncased-finetuned-sst-2-english"],
    names: &[&[("pre_classifier", "cls"), ("classifier", "cls.output")], NAMES, bert::NAMES],
    head: Some(Unary::Relu),
    ..DISTILBERT
};

/// The names of a layer, behind the wrapper `transformer.`.
const NAMES: NameTable = &[
    ("layer.#.attention.q_lin", "blk.#.attn_q"),
    ("layer.#.attention.k_lin", "blk.#.attn_k"),
    ("layer.#.attention.v_lin", "blk.#.attn_v"),
    ("layer.#.attention.out_lin", "blk.#.attn_output"),
    ("layer.#.sa_layer_norm", "blk.#.attn_output_norm"),
    ("layer.#.ffn.lin1", "blk.#.ffn_up"),
    ("layer.#.ffn.lin2", "blk.#.ffn_down"),
    ("layer.#.output_layer_norm", "blk.#.layer_output_norm"),
];
