//! Texts as callers have them, and their tokens as the model takes them.

use super::Settled;
use super::options::{EmbeddingParameters, Truncate};
use crate::Error;
use crate::embedding_model::EmbeddingModel;
use crate::tokenizer::{AddSpecial, ParseSpecial};

/// Texts, and how they become vectors.
#[derive(Debug, Clone, Default)]
pub struct EmbeddingRequest {
    /// What becomes vectors.
    pub texts: Vec<EmbeddingText>,
    /// How.
    pub parameters: EmbeddingParameters,
}

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

/// The tokens of a text, and how many of them were left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) ids: Vec<u32>,
    pub(super) truncated: usize,
}

impl EmbeddingRequest {
    /// Texts that become vectors as the embedder was started.
    pub fn new<T: Into<EmbeddingText>>(texts: impl IntoIterator<Item = T>) -> EmbeddingRequest {
        let texts = texts.into_iter().map(Into::into).collect();
        EmbeddingRequest { texts, parameters: EmbeddingParameters::default() }
    }

    /// The same, in another way.
    #[must_use]
    pub fn with(self, parameters: EmbeddingParameters) -> EmbeddingRequest {
        EmbeddingRequest { parameters, ..self }
    }
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
        settled: &Settled,
        limit: usize,
    ) -> Result<Tokens, Error> {
        let whole = match self {
            EmbeddingText::Text(text) => encode(text, model, settled, AddSpecial::Yes)?,
            EmbeddingText::Tokens(tokens) => tokens.clone(),
        };
        let tokens = match (settled.truncate, self) {
            (Truncate::Right, _) if whole.len() <= limit => Tokens { ids: whole, truncated: 0 },
            (Truncate::Right, EmbeddingText::Text(text)) => {
                truncate(&whole, &encode(text, model, settled, AddSpecial::No)?, limit)
            }
            (Truncate::Right, EmbeddingText::Tokens(_)) => truncate(&whole, &whole, limit),
            (Truncate::Never, _) => Tokens { ids: whole, truncated: 0 },
        };
        tokens.check(index, limit, model.checkpoint().network.vocab())?;
        Ok(tokens)
    }
}

impl Tokens {
    fn check(&self, index: usize, limit: usize, vocab: usize) -> Result<(), Error> {
        if self.ids.is_empty() {
            return Err(Error::EmptyText { index });
        }
        if self.ids.len() > limit {
            return Err(Error::TextTooLong { index, tokens: self.ids.len(), limit });
        }
        match self.ids.iter().find(|&&token| token as usize >= vocab) {
            Some(&token) => Err(Error::UnknownToken { token, vocab }),
            None => Ok(()),
        }
    }
}

fn encode(text: &str, model: &EmbeddingModel, settled: &Settled, add: AddSpecial) -> Result<Vec<u32>, Error> {
    let encode = |text: &str| model.tokenizer().encode(text, add, ParseSpecial::No);
    Ok(match (settled.prompt.is_empty(), model.files().lowercase) {
        (true, false) => encode(text)?,
        (_, true) => encode(&format!("{}{text}", settled.prompt).to_lowercase())?,
        (false, false) => encode(&format!("{}{text}", settled.prompt))?,
    })
}

/// The first tokens of a text, and all of those around it: `whole` holds both, `text` the text's alone.
fn truncate(whole: &[u32], text: &[u32], limit: usize) -> Tokens {
    let around = whole.len() - text.len().min(whole.len());
    let before = (0..=around).find(|&start| whole[start..].starts_with(text));
    // Where the text cannot be told from what is around it, there is nothing to keep.
    let (before, around) = before.map_or((0, 0), |before| (before, around));
    let kept = limit.saturating_sub(around).min(whole.len() - around);
    let behind = &whole[whole.len() - (around - before)..];
    let ids = [&whole[..before + kept], behind].concat();
    Tokens { truncated: whole.len() - ids.len(), ids }
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

impl<T: Into<EmbeddingText>> From<Vec<T>> for EmbeddingRequest {
    fn from(texts: Vec<T>) -> EmbeddingRequest {
        EmbeddingRequest::new(texts)
    }
}

impl<T: Into<EmbeddingText>, const N: usize> From<[T; N]> for EmbeddingRequest {
    fn from(texts: [T; N]) -> EmbeddingRequest {
        EmbeddingRequest::new(texts)
    }
}

impl<T: Clone + Into<EmbeddingText>> From<&[T]> for EmbeddingRequest {
    fn from(texts: &[T]) -> EmbeddingRequest {
        EmbeddingRequest::new(texts.iter().cloned())
    }
}

impl<T: Clone + Into<EmbeddingText>> From<&Vec<T>> for EmbeddingRequest {
    fn from(texts: &Vec<T>) -> EmbeddingRequest {
        EmbeddingRequest::from(&texts[..])
    }
}

impl<T: Clone + Into<EmbeddingText>, const N: usize> From<&[T; N]> for EmbeddingRequest {
    fn from(texts: &[T; N]) -> EmbeddingRequest {
        EmbeddingRequest::from(&texts[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_keeps_what_is_around() {
        let check = |whole: &[u32], text: &[u32], limit, expected: &[u32]| {
            let tokens = truncate(whole, text, limit);
            assert_eq!(tokens.ids, expected);
            assert_eq!(tokens.truncated, whole.len() - expected.len());
        };
        check(&[101, 7, 8, 9, 102], &[7, 8, 9], 4, &[101, 7, 8, 102]);
        check(&[101, 7, 8, 9, 102], &[7, 8, 9], 2, &[101, 102]);
        check(&[7, 8, 9, 5], &[7, 8, 9], 3, &[7, 8, 5]);
        check(&[7, 8, 9], &[7, 8, 9], 2, &[7, 8]);
        check(&[4, 7, 8, 9], &[7, 8, 6], 3, &[4, 7, 8]);
    }
}
