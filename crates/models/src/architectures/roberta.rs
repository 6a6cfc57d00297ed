//! RoBERTa: BERT with positions that start behind that of padding.

use graph::ops::Unary;

use super::EncoderArchitecture;
use super::bert::{self, BERT, with_positions_from};
use crate::encoder::Encoder;
use crate::names::NameTable;
use crate::{Config, EncoderConfig, Error, WeightTypes};

/// RoBERTa. GGUF files leave out the positions before the first, and call it a BERT.
pub(crate) const ROBERTA: EncoderArchitecture =
    EncoderArchitecture { hugging_face: "RobertaModel", examples: &[], encoder: roberta, ..BERT };

/// RoBERTa with a head that fills gaps.
pub(crate) const ROBERTA_MASKED: EncoderArchitecture =
    EncoderArchitecture { hugging_face: "RobertaForMaskedLM", examples: &[], ..ROBERTA };

/// RoBERTa with a head that scores texts.
pub(crate) const ROBERTA_CLASSIFIER: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "RobertaForSequenceClassification",
    examples: &["cross-encoder/stsb-roberta-base"],
    names: &[HEAD, bert::NAMES],
    head: Some(Unary::Tanh),
    ..ROBERTA
};

/// RoBERTa for a hundred languages: BGE-M3, multilingual E5.
pub(crate) const XLM_ROBERTA: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "XLMRobertaModel",
    examples: &["BAAI/bge-m3", "intfloat/multilingual-e5-small"],
    ..ROBERTA
};

/// The same with a head that fills gaps.
pub(crate) const XLM_ROBERTA_MASKED: EncoderArchitecture =
    EncoderArchitecture { hugging_face: "XLMRobertaForMaskedLM", examples: &[], ..ROBERTA };

/// The same with a head that scores texts.
pub(crate) const XLM_ROBERTA_CLASSIFIER: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "XLMRobertaForSequenceClassification",
    examples: &["BAAI/bge-reranker-base", "BAAI/bge-reranker-v2-m3"],
    ..ROBERTA_CLASSIFIER
};

/// The names of the head of RoBERTa and of those that took it over.
pub(super) const HEAD: NameTable = &[("classifier.dense", "cls"), ("classifier.out_proj", "cls.output")];

/// The padding of `transformers`' configurations that do not say one.
const PADDING: usize = 1;

fn roberta(config: &Config, encoder: &EncoderConfig, weights: &dyn WeightTypes) -> Result<Encoder, Error> {
    let padding = encoder.padding.unwrap_or(PADDING);
    with_positions_from(padding.saturating_add(1), config, encoder, weights)
}
