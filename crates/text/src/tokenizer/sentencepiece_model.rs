//! SentencePiece's `tokenizer.model`: the fields of its protobuf (sentencepiece_model.proto) that we use.

use std::borrow::Cow;

use prost::Message;
use weights::MetaValue;

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

/// A model whose kind is known.
pub(super) struct SentencePieceFile {
    model: Model,
    trainer: Trainer,
    normalizer: Normalizer,
}

impl SentencePieceFile {
    /// Reads the bytes of a `tokenizer.model`.
    ///
    /// # Errors
    /// If they are no such file.
    pub(super) fn decode(bytes: &[u8]) -> Result<SentencePieceFile, String> {
        let model = Model::decode(bytes).map_err(|error| format!("not a SentencePiece model: {error}"))?;
        let trainer = model.trainer.clone().unwrap_or_default();
        let normalizer = model.normalizer.clone().unwrap_or_default();
        Ok(SentencePieceFile { model, trainer, normalizer })
    }

    /// The texts of the tokens. Text is cut at user-defined ones before its spaces are marked.
    pub(super) fn texts(&self) -> impl ExactSizeIterator<Item = Cow<'_, str>> {
        self.model.pieces.iter().map(|piece| match piece.kind {
            Some(4) => piece.piece.replace('▁', " ").into(),
            _ => piece.piece.as_str().into(),
        })
    }

    pub(super) fn scores(&self) -> impl ExactSizeIterator<Item = f32> {
        self.model.pieces.iter().map(|piece| piece.score)
    }

    /// As `TokenType` numbers them.
    pub(super) fn kinds(&self) -> impl ExactSizeIterator<Item = i32> {
        self.model.pieces.iter().map(|piece| piece.kind.unwrap_or(1))
    }

    /// The model as GGUF calls it.
    pub(super) fn gguf_model(&self, origin: &str) -> Result<&'static str, Error> {
        match self.trainer.model_type.unwrap_or(1) {
            1 => Ok("t5"),
            2 => Ok("llama"),
            other => {
                let problem = format!("model type {other} is neither Unigram (1) nor BPE (2)");
                Err(Error::tokenizer(origin, problem))
            }
        }
    }

    /// Its settings as GGUF metadata.
    pub(super) fn gguf_keys(&self) -> Vec<(&'static str, MetaValue)> {
        let unknown = u32::try_from(self.trainer.unknown.unwrap_or(0)).ok();
        let mut keys: Vec<(&'static str, MetaValue)> = vec![
            ("add_space_prefix", self.normalizer.dummy_prefix.unwrap_or(true).into()),
            ("remove_extra_whitespaces", self.normalizer.remove_extra_spaces.unwrap_or(true).into()),
        ];
        keys.extend(unknown.map(|id| ("unknown_token_id", id.into())));
        if !self.normalizer.charsmap.is_empty() {
            keys.push(("precompiled_charsmap", self.normalizer.charsmap.clone().into()));
        }
        keys
    }
}

/// Builds a tokenizer from a `tokenizer.model`.
///
/// A BPE model puts BOS in front of a text, as Llama does; a Unigram model puts EOS behind it, as T5 does.
pub(super) fn build(file: &SentencePieceFile, origin: &str) -> Result<Tokenizer, Error> {
    let fail = |problem: String| Error::tokenizer(origin, problem);
    let kind = file.gguf_model(origin)?;
    let SentencePieceFile { trainer, normalizer, .. } = file;
    if trainer.whitespace_as_suffix == Some(true) {
        return Err(fail(
            "words that end in their space (treat_whitespace_as_suffix) are not supported".into(),
        ));
    }
    let id = |id: Option<i32>, default: u32| u32::try_from(id.unwrap_or(default as i32)).ok();
    let vocabulary = GgufVocabulary {
        model: kind,
        tokens: file.texts().collect(),
        scores: Some(file.scores().collect()),
        token_types: Some(file.kinds().collect()),
        unknown: id(trainer.unknown, 0),
        bos: id(trainer.bos, 1),
        eos: id(trainer.eos, 2),
        add_bos: Some(kind == "llama" && id(trainer.bos, 1).is_some()),
        add_eos: Some(kind == "t5" && id(trainer.eos, 2).is_some()),
        add_space_prefix: Some(normalizer.dummy_prefix.unwrap_or(true)),
        remove_extra_spaces: Some(normalizer.remove_extra_spaces.unwrap_or(true)),
        charsmap: normalizer.charsmap.clone(),
        byte_fallback: trainer.byte_fallback.unwrap_or(false),
        ..GgufVocabulary::default()
    };
    super::gguf::build(&vocabulary, origin)
}
