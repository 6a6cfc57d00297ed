//! Texts as callers have them, and their tokens as the model takes them.

use super::EmbeddingSettings;
use super::options::EmbeddingParameters;
use crate::Error;
use crate::tasks::embedding_model::EmbeddingModel;
use crate::tasks::vectors::{Tokens, Truncate, VectorRequest};
use crate::tokenizer::{AddSpecial, ParseSpecial};

/// Texts, and how they become vectors.
pub type EmbeddingRequest = VectorRequest<EmbeddingText, EmbeddingParameters>;

/// What becomes a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbeddingText {
    /// A text; names of special tokens in it are text.
    Text(String),
    /// Tokens, as they are.
    Tokens(Vec<u32>),
}

/// A vector, and what it is of.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Embedding {
    /// Its dims.
    pub vector: Vec<f32>,
    /// How many tokens it was made of.
    pub tokens: usize,
    /// How many more the text has, which were left out.
    pub truncated: usize,
}

impl EmbeddingText {
    /// The tokens as the model takes them: of a text with the prompt before it, and the tokens that belong around it.
    /// `index` is that of the text in its request.
    ///
    /// # Errors
    /// If there are none, too many, or some that the model does not have.
    pub(super) fn tokens(
        &self,
        index: usize,
        model: &EmbeddingModel,
        settings: &EmbeddingSettings,
        limit: usize,
    ) -> Result<Tokens, Error> {
        let whole = match self {
            EmbeddingText::Text(text) => encode(text, model, settings, AddSpecial::Yes)?,
            EmbeddingText::Tokens(tokens) => tokens.clone(),
        };
        let limit = settings.max_tokens.map_or(limit, |most| most.min(limit));
        let tokens = match (settings.truncate, self) {
            (Truncate::Never, _) => Tokens { ids: whole, ..Tokens::default() },
            _ if whole.len() <= limit => Tokens { ids: whole, ..Tokens::default() },
            (side, EmbeddingText::Tokens(_)) => Tokens::truncated(&whole, &whole, limit, side),
            (side, EmbeddingText::Text(text)) => {
                Tokens::truncated(&whole, &encode(text, model, settings, AddSpecial::No)?, limit, side)
            }
        };
        if tokens.ids.len() > limit {
            return Err(Error::TextTooLong { index, tokens: tokens.ids.len(), limit });
        }
        tokens.check(index, model.vocab())?;
        Ok(tokens)
    }
}

fn encode(
    text: &str,
    model: &EmbeddingModel,
    settings: &EmbeddingSettings,
    add: AddSpecial,
) -> Result<Vec<u32>, Error> {
    let encode = |text: &str| model.tokenizer().encode(text, add, ParseSpecial::No);
    Ok(match (settings.prompt.is_empty(), model.files().lowercase) {
        (true, false) => encode(text)?,
        (_, true) => encode(&format!("{}{text}", settings.prompt).to_lowercase())?,
        (false, false) => encode(&format!("{}{text}", settings.prompt))?,
    })
}

impl From<String> for EmbeddingText {
    fn from(text: String) -> EmbeddingText {
        EmbeddingText::Text(text)
    }
}

impl From<&String> for EmbeddingText {
    fn from(text: &String) -> EmbeddingText {
        EmbeddingText::Text(text.clone())
    }
}

impl From<&str> for EmbeddingText {
    fn from(text: &str) -> EmbeddingText {
        EmbeddingText::Text(text.to_string())
    }
}

impl From<Vec<u32>> for EmbeddingText {
    fn from(tokens: Vec<u32>) -> EmbeddingText {
        EmbeddingText::Tokens(tokens)
    }
}

/// One text.
impl From<&str> for EmbeddingRequest {
    fn from(text: &str) -> EmbeddingRequest {
        EmbeddingRequest::new([text])
    }
}

/// One text.
impl From<String> for EmbeddingRequest {
    fn from(text: String) -> EmbeddingRequest {
        EmbeddingRequest::new([text])
    }
}
