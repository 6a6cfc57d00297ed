//! SentencePiece's `tokenizer.model`: the fields of its protobuf (sentencepiece_model.proto) that we use.

use prost::Message;

use super::Tokenizer;
use super::gguf::GgufVocabulary;
use crate::Error;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(message, repeated, tag = "1")]
    pub(super) pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    pub(super) trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    pub(super) normalizer: Option<Normalizer>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Piece {
    #[prost(string, tag = "1")]
    pub(super) piece: String,
    #[prost(float, tag = "2")]
    pub(super) score: f32,
    /// As `TokenType` numbers them; absent is normal.
    #[prost(int32, optional, tag = "3")]
    pub(super) kind: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Trainer {
    /// 1 Unigram (also when absent), 2 BPE, 3 word, 4 character.
    #[prost(int32, optional, tag = "3")]
    pub(super) model_type: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    pub(super) whitespace_as_suffix: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    pub(super) byte_fallback: Option<bool>,
    #[prost(int32, optional, tag = "40")]
    pub(super) unknown: Option<i32>,
    #[prost(int32, optional, tag = "41")]
    pub(super) bos: Option<i32>,
    #[prost(int32, optional, tag = "42")]
    pub(super) eos: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Normalizer {
    #[prost(bytes = "vec", tag = "2")]
    pub(super) charsmap: Vec<u8>,
    #[prost(bool, optional, tag = "3")]
    pub(super) dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub(super) remove_extra_spaces: Option<bool>,
}

/// Builds a tokenizer from the bytes of a `tokenizer.model`.
///
/// A BPE model puts BOS in front of a text, as Llama does; a Unigram model puts EOS behind it, as T5 does.
pub(super) fn read(bytes: &[u8], origin: &str) -> Result<Tokenizer, Error> {
    let fail = |problem: String| Error::tokenizer(origin, problem);
    let model = Model::decode(bytes).map_err(|error| fail(format!("not a SentencePiece model: {error}")))?;
    let trainer = model.trainer.clone().unwrap_or_default();
    let normalizer = model.normalizer.clone().unwrap_or_default();
    if trainer.whitespace_as_suffix == Some(true) {
        return Err(fail(
            "words that end in their space (treat_whitespace_as_suffix) are not supported".into(),
        ));
    }
    let kind = match trainer.model_type.unwrap_or(1) {
        1 => "t5",
        2 => "llama",
        other => return Err(fail(format!("model type {other} is neither Unigram (1) nor BPE (2)"))),
    };
    // Text is cut at user-defined tokens before its spaces are marked.
    let text = |piece: &Piece| match piece.kind {
        Some(4) => piece.piece.replace('▁', " "),
        _ => piece.piece.clone(),
    };
    let id = |id: Option<i32>, default: u32| u32::try_from(id.unwrap_or(default as i32)).ok();
    let vocabulary = GgufVocabulary {
        model: kind,
        tokens: model.pieces.iter().map(|piece| text(piece).into()).collect(),
        scores: Some(model.pieces.iter().map(|piece| piece.score).collect()),
        token_types: Some(model.pieces.iter().map(|piece| piece.kind.unwrap_or(1)).collect()),
        unknown: id(trainer.unknown, 0),
        bos: id(trainer.bos, 1),
        eos: id(trainer.eos, 2),
        add_bos: Some(kind == "llama" && id(trainer.bos, 1).is_some()),
        add_eos: Some(kind == "t5" && id(trainer.eos, 2).is_some()),
        add_space_prefix: Some(normalizer.dummy_prefix.unwrap_or(true)),
        remove_extra_spaces: Some(normalizer.remove_extra_spaces.unwrap_or(true)),
        charsmap: normalizer.charsmap,
        byte_fallback: trainer.byte_fallback.unwrap_or(false),
        ..GgufVocabulary::default()
    };
    super::gguf::build(&vocabulary, origin)
}
