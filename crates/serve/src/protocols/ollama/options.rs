//! `options`: how tokens are chosen, and how many there may be.

use pipelines::Request;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::Fields;
use crate::models::ActiveModel;
use crate::sampling::{Lengths, Sampling};

/// How tokens are chosen, and how many there may be.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct Options {
    #[serde(flatten)]
    lengths: Lengths,
    #[serde(flatten)]
    sampling: Sampling,
}

/// A request whose prompt fits the context.
pub(super) struct Fitted {
    pub(super) request: Request,
    /// Tokens that were cut from the front of the prompt.
    pub(super) truncated: usize,
}

impl Options {
    /// Takes the options in a field.
    ///
    /// # Errors
    /// If an option has a type that it cannot have.
    pub(super) fn read(fields: &mut Fields, name: &str) -> Result<Options, ApiError> {
        fields.object(name, |fields| Ok(Options { lengths: fields.take()?, sampling: fields.take()? }))
    }

    /// Whether `num_ctx` is more than the model has, so that its own length bounds the prompt and the answer.
    pub(super) fn exceed(&self, model: &ActiveModel) -> bool {
        self.lengths.num_ctx.is_some_and(|context| context > model.max_length())
    }

    /// Checks the options of a request that makes no tokens. Models that make no text take any.
    ///
    /// # Errors
    /// If an option has a wrong value.
    pub(super) fn check(self, model: &ActiveModel) -> Result<(), ApiError> {
        let Ok(generator) = model.loaded.generator() else { return Ok(()) };
        let vocabulary = generator.model().vocab();
        let Fitted { request, .. } = self.request(model, Vec::new(), false)?;
        request.validate(vocabulary).map_err(|error| in_options(error.into()))
    }

    /// The request of a prompt. `truncate` cuts prompts that are too long from the front.
    ///
    /// # Errors
    /// If the prompt is too long, or an option has a wrong value.
    pub(super) fn request(
        self,
        model: &ActiveModel,
        mut prompt: Vec<u32>,
        truncate: bool,
    ) -> Result<Fitted, ApiError> {
        let limit = model.max_length();
        let context = self.lengths.num_ctx.unwrap_or(limit).min(limit);
        if context == 0 {
            let path = "options.num_ctx";
            return Err(ApiError::invalid(path, format!("{path} is 0: give 1 to {limit}")));
        }
        let wanted = self.lengths.or(model.lengths()).answer();
        let mut truncated = 0;
        if truncate {
            // An answer of open length gets half of the context.
            let room = wanted.unwrap_or(context / 2).min(context / 2).max(1).min(context - 1);
            truncated = prompt.len().saturating_sub(context - room);
            prompt.drain(..truncated);
        }
        if prompt.len() > context || prompt.len() == context && wanted != Some(0) {
            let tokens = prompt.len();
            let message = format!(
                "the prompt has {tokens} tokens, but options.num_ctx is {context}: raise it to up to {limit}, or send \
                 `truncate: true`"
            );
            return Err(ApiError { code: "context_length_exceeded", ..ApiError::bad_request(message) });
        }
        let max_new_tokens = Some(wanted.unwrap_or(usize::MAX).min(context - prompt.len()));
        let request = Request { prompt, max_new_tokens, ..model.request(self.sampling)? };
        Ok(Fitted { request, truncated })
    }
}

/// An error about a request, with the place in `options` of the field that is wrong.
pub(super) fn in_options(error: ApiError) -> ApiError {
    error.rename("max_tokens", "num_predict").within("options")
}
