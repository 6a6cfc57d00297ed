//! Routes that score texts: rankings in the shape of Cohere and Jina, scores and labels in vLLM's shape.

pub(crate) mod classify;
pub(crate) mod rerank;
pub(crate) mod score;

use pipelines::{ClassificationParameters, Classifier, EmbeddingPrompt, ScoreActivation};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::Fields;
use crate::fields::truncation::{Truncation, TruncationFields};

/// The most texts of a request.
const MAX_TEXTS: usize = 2048;
/// The most bytes of a text that is read with several others, once for each of them.
const MAX_REPEATED_BYTES: usize = 64 << 20;

/// How texts are scored.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ScoringFields {
    #[serde(flatten)]
    settings: ScoringSettings,
    /// Of a pair, the longer text is cut first.
    #[serde(flatten)]
    truncation: TruncationFields,
}

/// The instruction to judge texts by, and how logits become scores.
#[derive(Debug, Default, Deserialize, ToSchema)]
struct ScoringSettings {
    /// Whether scores are made of logits as the model's files say; if not, they are the logits.
    use_activation: Option<bool>,
    /// The instruction to judge texts by, for models that take one. Defaults to that in the model's files.
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
    /// If a field has a type that it cannot have.
    fn read(fields: &mut Fields) -> Result<ScoringFields, ApiError> {
        Ok(ScoringFields { settings: fields.take()?, truncation: fields.take()? })
    }

    /// # Errors
    /// If texts are to be cut to a length that the model does not take.
    fn parameters(&self, classifier: &Classifier) -> Result<ClassificationParameters, ApiError> {
        let Truncation { truncate, max_tokens } = self.truncation.within(classifier.max_length())?;
        let is_raw = self.settings.use_activation == Some(false);
        let activation = is_raw.then_some(ScoreActivation::Identity);
        let prompt = self.settings.instruction.clone().map(EmbeddingPrompt::Text);
        Ok(ClassificationParameters { activation, truncate, max_tokens, prompt })
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

/// The error of a classifier with the fields as these routes name them.
fn own_names(error: pipelines::Error) -> ApiError {
    ApiError::from(error).rename("truncate", "truncation_side")
}

/// Refuses no texts, and too many.
fn check_count(field: &str, count: usize) -> Result<(), ApiError> {
    if (1..=MAX_TEXTS).contains(&count) {
        return Ok(());
    }
    Err(ApiError::invalid(field, format!("{field} has {count} texts: give 1 to {MAX_TEXTS}")))
}

/// Refuses a text that would be read with each of too many others.
fn check_repeated(field: &str, bytes: usize, times: usize) -> Result<(), ApiError> {
    if bytes.saturating_mul(times) <= MAX_REPEATED_BYTES {
        return Ok(());
    }
    let message = format!(
        "{field} has {bytes} bytes and is read with {times} texts: together at most {MAX_REPEATED_BYTES} bytes are read"
    );
    Err(ApiError::invalid(field, message))
}
