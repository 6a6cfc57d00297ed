//! Requests that are only to be counted: the prompts as the model would read them, and nothing generated.

use axum::Json;
use axum::response::{IntoResponse, Response};
use pipelines::Request;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::models::ActiveModel;
use crate::state::Context;

/// The field of all routes that generate.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct DryRunField {
    /// Whether the request is only checked and counted: the answer has its usage and the tokens of its prompts.
    dry_run: Option<bool>,
}

/// The prompts of a request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRun {
    object: &'static str,
    model: String,
    /// The tokens of each prompt.
    prompt_token_ids: Vec<Vec<u32>>,
    usage: PromptUsage,
}

/// Counts of tokens.
#[derive(Debug, Serialize, ToSchema)]
struct PromptUsage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
}

impl DryRunField {
    /// The answer to a request that is only to be counted.
    pub(crate) fn answer(
        &self,
        model: &ActiveModel,
        requests: &[Request],
        context: &Context,
    ) -> Option<Response> {
        if !self.dry_run.unwrap_or(false) {
            return None;
        }
        let prompt_tokens = requests.iter().map(|request| request.prompt.len()).sum();
        context.note_prompt(&model.id, prompt_tokens);
        let answer = DryRun {
            object: "dry_run",
            model: model.id.clone(),
            prompt_token_ids: requests.iter().map(|request| request.prompt.clone()).collect(),
            usage: PromptUsage { prompt_tokens, completion_tokens: 0, total_tokens: prompt_tokens },
        };
        Some(Json(answer).into_response())
    }
}
