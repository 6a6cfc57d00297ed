//! Two texts as one sequence of tokens, for models that compare them.

use super::{Encoder, Model, Tokenizer};
use crate::Error;

/// The tokens of two texts and those that the model wants around them, each with its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairTokens {
    /// The tokens.
    pub ids: Vec<u32>,
    /// The types, which BERT calls segments.
    pub types: Vec<u32>,
}

/// A part of the template for two texts, and the type of its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairPart {
    pub(super) content: PairContent,
    pub(super) token_type: u32,
}

/// A part of the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairContent {
    Token(u32),
    First,
    Second,
}

impl Tokenizer {
    /// Two texts, which are tokens already, as the post-processor of a `tokenizer.json` joins them. Other files have none:
    /// WordPiece joins texts as BERT does (`[CLS] first [SEP] second [SEP]`, with types), and others as RoBERTa does
    /// (`<s> first </s></s> second </s>`).
    ///
    /// # Errors
    /// If the model does not say how to join texts.
    pub fn pair(&self, first: &[u32], second: &[u32]) -> Result<PairTokens, Error> {
        let template = match &self.model {
            Model::HuggingFace(_) => self.pair_template.clone(),
            Model::Own(encoder, _) => self.usual_template(matches!(**encoder, Encoder::WordPiece(_))),
        };
        let template = template
            .ok_or_else(|| Error::Encode("the tokenizer has no template that joins two texts".to_string()))?;
        let mut tokens = PairTokens { ids: Vec::new(), types: Vec::new() };
        for PairPart { content, token_type } in template {
            match content {
                PairContent::Token(id) => tokens.ids.push(id),
                PairContent::First => tokens.ids.extend(first),
                PairContent::Second => tokens.ids.extend(second),
            }
            tokens.types.resize(tokens.ids.len(), token_type);
        }
        Ok(tokens)
    }

    /// The template of tokenizers that state none, if tokens go before and behind a text.
    fn usual_template(&self, is_bert: bool) -> Option<Vec<PairPart>> {
        if self.before.is_empty() || self.after.is_empty() {
            return None;
        }
        let tokens = |ids: &[u32]| ids.iter().map(|&id| PairContent::Token(id)).collect::<Vec<_>>();
        let (before, after) = (tokens(&self.before), tokens(&self.after));
        let between = if is_bert { Vec::new() } else { after.clone() };
        let first = [&before[..], &[PairContent::First], &after].concat();
        let second = [&between[..], &[PairContent::Second], &after].concat();
        let part = |token_type: u32| move |content: PairContent| PairPart { content, token_type };
        Some(first.into_iter().map(part(0)).chain(second.into_iter().map(part(is_bert.into()))).collect())
    }
}
