//! Prompts whose answers fill the gap between two texts.

use std::sync::Arc;

use pipelines::{InfillFormat, InfillPrompt, InfillTexts};

use crate::api_error::ApiError;
use crate::generation::off_the_runtime;
use crate::models::ActiveModel;

/// The prompt of a gap between two texts, of at most `room` tokens. `field` is the one of the request that asks for it.
///
/// # Errors
/// If the model has no marks for gaps, or makes no text.
pub(crate) async fn prompt(
    model: &Arc<ActiveModel>,
    texts: InfillTexts,
    room: usize,
    field: &str,
) -> Result<InfillPrompt, ApiError> {
    let tokenizer = Arc::clone(model.loaded.generator()?.model().tokenizer());
    let Some(format) = InfillFormat::for_tokenizer(&tokenizer) else {
        let id = &model.id;
        let message = format!(
            "{field}: the vocabulary of {id} has no marks for a gap between two texts, so it cannot fill one; leave the \
             field out, or ask a model that was trained to"
        );
        return Err(ApiError::invalid(field, message));
    };
    let files: usize = texts.files.iter().map(|file| file.text.len()).sum();
    let bytes = texts.before.len() + texts.after.len() + files;
    off_the_runtime(bytes, move || Ok(format.prompt(&tokenizer, &texts, room)?)).await
}
