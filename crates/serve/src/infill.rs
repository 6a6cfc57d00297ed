//! `suffix`: prompts whose answers fill the gap before a text.

use std::sync::Arc;

use pipelines::{InfillFormat, Prompt};

use crate::error::ApiError;
use crate::generation::off_the_runtime;
use crate::models::ActiveModel;

/// The prompt of a gap between two texts.
///
/// # Errors
/// If the model has no marks for gaps, or makes no text.
pub(crate) async fn prompt(
    model: &Arc<ActiveModel>,
    before: String,
    after: String,
) -> Result<Prompt, ApiError> {
    let tokenizer = Arc::clone(model.loaded.generator()?.model().tokenizer());
    let Some(format) = InfillFormat::of(&tokenizer) else {
        let id = &model.id;
        let message = format!(
            "suffix: the vocabulary of {id} has no marks for a gap between two texts, so it cannot fill one; leave the \
             field out, or ask a model that was trained to"
        );
        return Err(ApiError::invalid("suffix", message));
    };
    let bytes = before.len() + after.len();
    let tokens = off_the_runtime(bytes, move || Ok(format.prompt(&tokenizer, &before, &after)?)).await?;
    Ok(tokens.into())
}
