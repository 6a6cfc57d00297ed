//! Routes that score texts: rankings in the shape of Cohere and Jina, scores and labels in vLLM's shape.

pub(crate) mod classify;
pub(crate) mod rerank;
pub(crate) mod score;

use pipelines::{ClassificationParameters, EmbeddingPrompt, ScoreActivation, Truncate};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::context::Context;
use crate::error::ApiError;

/// The most texts of a request.
const MAX_TEXTS: usize = 2048;

/// How texts are scored.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ScoringFields {
    /// -1 cuts texts to as many tokens as the model takes, of a pair the longer text first. Without it, longer texts are
    /// an error.
    #[schema(minimum = -1, maximum = -1)]
    truncate_prompt_tokens: Option<i64>,
    /// Whether scores are made of logits as the model's files say; if not, they are the logits.
    use_activation: Option<bool>,
    /// What the model is to judge by, for models that take instructions; that of the model's files, unless given.
    instruction: Option<String>,
}

/// One text, or several.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum ScoredTexts {
    One(String),
    Several(Vec<String>),
}

/// Counts of tokens.
#[derive(Debug, Serialize, ToSchema)]
struct ScoringUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl ScoringFields {
    /// # Errors
    /// If texts are to be cut to another length than the model's.
    fn parameters(&self) -> Result<ClassificationParameters, ApiError> {
        if let Some(length) = self.truncate_prompt_tokens.filter(|&length| length != -1) {
            let message = format!(
                "truncate_prompt_tokens is {length}: give -1, which cuts to as many tokens as the model takes"
            );
            return Err(ApiError::invalid("truncate_prompt_tokens", message));
        }
        Ok(ClassificationParameters {
            activation: (self.use_activation == Some(false)).then_some(ScoreActivation::Identity),
            truncate: self.truncate_prompt_tokens.map(|_| Truncate::Right),
            prompt: self.instruction.clone().map(EmbeddingPrompt::Text),
        })
    }
}

impl ScoredTexts {
    /// The texts of a field.
    ///
    /// # Errors
    /// If there are none, or too many.
    fn into_texts(self, field: &str) -> Result<Vec<String>, ApiError> {
        let texts = match self {
            ScoredTexts::One(text) => vec![text],
            ScoredTexts::Several(texts) => texts,
        };
        check_count(field, texts.len())?;
        Ok(texts)
    }
}

impl ScoringUsage {
    fn new(tokens: usize) -> ScoringUsage {
        ScoringUsage { prompt_tokens: tokens, total_tokens: tokens }
    }
}

/// Refuses no texts, and too many.
fn check_count(field: &str, count: usize) -> Result<(), ApiError> {
    if (1..=MAX_TEXTS).contains(&count) {
        return Ok(());
    }
    Err(ApiError::invalid(field, format!("{field} has {count} texts: give 1 to {MAX_TEXTS}")))
}

/// Notes for the log which model computed how many tokens.
fn note(context: &Context, model: &str, tokens: usize) {
    context.note(|facts| {
        facts.model = Some(model.to_string());
        facts.prompt_tokens = tokens;
    });
}
