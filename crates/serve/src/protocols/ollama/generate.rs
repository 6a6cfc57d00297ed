//! `POST /api/generate`: a text to continue or to answer.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use pipelines::{AddSpecial, Chat, InfillTexts, ParseSpecial, Prompt, TextGenerator};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::answer::{AnswerFields, AnswerLine, Route, Shape};
use super::options::Options;
use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::fields::dry_run::DryRunField;
use crate::generation::infill;
use crate::models::ActiveModel;
use crate::state::Context;
use crate::state::ServerState;

/// A text to continue or to answer.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct GenerateRequest {
    #[serde(flatten)]
    prompt: PromptFields,
    #[serde(flatten)]
    answer: AnswerFields,
    #[schema(value_type = Option<Options>)]
    options: Options,
    #[serde(flatten)]
    dry_run: DryRunField,
}

/// The prompt of a request.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = GeneratePromptFields)]
struct PromptFields {
    /// The text. An empty one only loads the model.
    prompt: Option<String>,
    /// Instructions for the model.
    system: Option<String>,
    /// Whether the prompt is read as it is, without the chat template.
    raw: Option<bool>,
    /// Not supported: templates are refused.
    template: Option<String>,
    /// The text after the answer, which then fills the gap between the prompt and it, by models that can.
    suffix: Option<String>,
    /// Not supported: `/api/chat` takes conversations.
    context: Option<Vec<u32>>,
    /// Not supported: images are refused.
    #[schema(value_type = Option<Vec<String>>)]
    images: Option<Vec<Value>>,
}

impl RequestBody for GenerateRequest {
    fn read(fields: &mut Fields) -> Result<GenerateRequest, ApiError> {
        let options = Options::read(fields, "options")?;
        Ok(GenerateRequest {
            prompt: fields.take()?,
            answer: fields.take()?,
            options,
            dry_run: fields.take()?,
        })
    }
}

/// Continues a text, or answers it.
#[utoipa::path(
    post,
    path = "/api/generate",
    tag = "Ollama",
    request_body = GenerateRequest,
    responses((status = 200, description = "The answer, or unless `stream` is false its lines", content(
        (AnswerLine = "application/json"),
        (AnswerLine = "application/x-ndjson")
    )))
)]
pub(crate) async fn create(
    State(server): State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<GenerateRequest>,
) -> Result<Response, ApiError> {
    let GenerateRequest { prompt, answer, options, dry_run } = body;
    prompt.check()?;
    if prompt.is_empty() {
        return answer.nothing(options, &server.models, Shape::Generate).await;
    }
    let model = &server.models.acquire(answer.model.as_deref(), answer.keep_alive).await?;
    let prompt = prompt.into_prompt(model, &context).await?;
    let route = Route { model, server: &server, context };
    answer.answer(prompt.into(), options, dry_run, Shape::Generate, route).await
}

impl PromptFields {
    /// Refuses fields that are not supported.
    ///
    /// # Errors
    /// If there is one.
    fn check(&self) -> Result<(), ApiError> {
        let is_given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let refused = [
            (
                "template",
                is_given(&self.template),
                "the model's chat template is used; send `raw: true` to use none",
            ),
            (
                "context",
                self.context.as_ref().is_some_and(|tokens| !tokens.is_empty()),
                "send conversations to /api/chat",
            ),
            (
                "images",
                self.images.as_ref().is_some_and(|images| !images.is_empty()),
                "the models read text only",
            ),
        ];
        if let Some((field, _, reason)) = refused.iter().find(|(_, is_given, _)| *is_given) {
            return Err(ApiError::invalid(*field, format!("{field} is not supported: {reason}")));
        }
        if self.raw.unwrap_or(false) && is_given(&self.system) {
            return Err(ApiError::invalid("system", "a prompt with `raw: true` has no `system`"));
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.prompt.as_ref().is_none_or(|prompt| prompt.is_empty())
    }

    async fn into_prompt(self, model: &Arc<ActiveModel>, context: &Context) -> Result<Prompt, ApiError> {
        let generator = model.loaded.generator()?;
        if let Some(suffix) = self.suffix.filter(|suffix| !suffix.is_empty()) {
            if self.system.is_some_and(|system| !system.is_empty()) {
                context.note(|facts| facts.ignored.extend(["system".to_string()]));
            }
            let before = self.prompt.unwrap_or_default();
            let texts = InfillTexts { before, after: suffix, ..InfillTexts::default() };
            return Ok(infill::prompt(model, texts, usize::MAX, "suffix").await?.tokens.into());
        }
        let raw = self.raw.unwrap_or(false);
        let of_preset = || model.preset().filter(|_| !raw).and_then(|preset| preset.spec().system.clone());
        let system = self.system.filter(|system| !system.is_empty()).or_else(of_preset);
        let text = self.prompt.unwrap_or_default();
        if raw || model.chat_template().is_none() {
            let text = system.map_or_else(|| text.clone(), |system| format!("{system}\n{text}"));
            let parse = if raw { ParseSpecial::Yes } else { ParseSpecial::No };
            return Ok(Prompt::Text { add: special_tokens(generator, &text), text, parse });
        }
        let system = system.map(|system| json!({ "role": "system", "content": system }));
        let user = json!({ "role": "user", "content": text });
        Ok(Chat::new(system.into_iter().chain([user]).collect()).into())
    }
}

/// Whether the tokens around a text are added: not if it already begins with the first of them.
fn special_tokens(generator: &TextGenerator, text: &str) -> AddSpecial {
    let tokenizer = generator.model().tokenizer();
    let first = tokenizer.bos().and_then(|bos| tokenizer.token(bos));
    let begins = first.is_some_and(|first| !first.is_empty() && text.starts_with(&*first));
    if begins { AddSpecial::No } else { AddSpecial::Yes }
}
