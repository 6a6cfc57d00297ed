//! Texts as requests give them: as text, as tokens, or as both in turn.

use std::sync::Arc;

use pipelines::{AddSpecial, EmbeddingText, ParseSpecial, Prompt, TextError, Tokenizer};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::generation::{check_bytes, off_the_runtime};
use crate::models::ActiveModel;

/// A text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum TextInput {
    Text(String),
    /// Tokens, and texts between them.
    Pieces(Vec<TextPiece>),
    Object(TextObject),
    Parts(TextParts),
}

/// A token, or a text between tokens.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum TextPiece {
    Token(u32),
    Text(String),
}

/// A text in the object that llama.cpp takes for texts with images.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextObject {
    prompt_string: String,
    /// Empty: the models read text only.
    #[serde(rename = "multimodal_data")]
    #[schema(value_type = Option<Vec<String>>, max_items = 0)]
    _images: Option<[String; 0]>,
}

/// A text in parts, which are joined.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextParts {
    content: Vec<TextPart>,
}

/// A part of a text.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TextPart {
    /// Always `text`.
    #[serde(rename = "type", deserialize_with = "text_type")]
    #[schema(value_type = String, pattern = "^text$")]
    _kind: (),
    text: String,
}

/// The type of a part that is text. (serde takes numbers for names of variants too.)
fn text_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    match &*String::deserialize(deserializer)? {
        "text" => Ok(()),
        other => Err(D::Error::custom(format!("got {other:?}, expected \"text\""))),
    }
}

impl TextInput {
    /// The text, or the tokens that it is in the vocabulary of a model. The token that begins texts comes before a text
    /// at the start.
    ///
    /// # Errors
    /// If the text has too many bytes for the model's length.
    pub(crate) async fn into_text(self, model: &ActiveModel) -> Result<EmbeddingText, ApiError> {
        let pieces = match self {
            TextInput::Text(text) => return Ok(EmbeddingText::Text(text)),
            TextInput::Object(object) => return Ok(EmbeddingText::Text(object.prompt_string)),
            TextInput::Parts(TextParts { content }) => {
                let texts = content.into_iter().map(|part| part.text);
                return Ok(EmbeddingText::Text(texts.collect()));
            }
            TextInput::Pieces(pieces) => pieces,
        };
        let bytes = pieces.iter().map(|piece| if let TextPiece::Text(text) = piece { text.len() } else { 0 });
        let bytes = bytes.sum();
        check_bytes(bytes, model, false)?;
        let tokenizer = Arc::clone(model.loaded.tokenizer());
        let tokens = off_the_runtime(bytes, move || Ok(tokens(&tokenizer, pieces)?)).await?;
        Ok(EmbeddingText::Tokens(tokens))
    }

    /// The prompt that it is to a model.
    ///
    /// # Errors
    /// If it has too many bytes for the model's length.
    pub(crate) async fn into_prompt(self, model: &ActiveModel) -> Result<Prompt, ApiError> {
        Ok(match self.into_text(model).await? {
            EmbeddingText::Text(text) => text.into(),
            EmbeddingText::Tokens(tokens) => tokens.into(),
        })
    }
}

/// The tokens of pieces, end to end.
fn tokens(tokenizer: &Tokenizer, pieces: Vec<TextPiece>) -> Result<Vec<u32>, TextError> {
    let mut tokens = Vec::new();
    for piece in pieces {
        match piece {
            TextPiece::Token(token) => tokens.push(token),
            TextPiece::Text(text) => {
                if tokens.is_empty() {
                    let starts = tokenizer.encode("", AddSpecial::Yes, ParseSpecial::No)?;
                    tokens.extend(starts.into_iter().filter(|&token| Some(token) == tokenizer.bos()));
                }
                tokens.extend(tokenizer.encode(&text, AddSpecial::No, ParseSpecial::Yes)?);
            }
        }
    }
    Ok(tokens)
}
