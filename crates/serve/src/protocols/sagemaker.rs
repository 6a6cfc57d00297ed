//! `GET /ping` and `POST /invocations`: the routes of SageMaker's containers, with bodies in the shape of OpenAI.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::body::{Body, Fields, RequestBody};
use crate::protocols::openai::{chat, completions, embeddings};
use crate::state::Context;
use crate::state::ServerState;

/// A conversation, texts to continue, or texts to make vectors of.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Invocation {
    /// If there are `messages`.
    Chat(Box<chat::ChatRequest>),
    /// If there is an `input`.
    Embeddings(Box<embeddings::EmbeddingsRequest>),
    /// Otherwise.
    Completion(Box<completions::CompletionRequest>),
}

impl RequestBody for Invocation {
    fn read(fields: &mut Fields) -> Result<Invocation, ApiError> {
        if fields.has("messages") {
            Ok(Invocation::Chat(Box::new(RequestBody::read(fields)?)))
        } else if fields.has("input") {
            Ok(Invocation::Embeddings(Box::new(RequestBody::read(fields)?)))
        } else {
            Ok(Invocation::Completion(Box::new(RequestBody::read(fields)?)))
        }
    }
}

/// Says whether the server takes requests.
#[utoipa::path(get, path = "/ping", tag = "SageMaker", responses((status = 200), (status = 503)))]
pub(crate) async fn ping(State(server): State<Arc<ServerState>>) -> StatusCode {
    server.readiness(&server.models.statuses()).status_code()
}

/// Answers as the route of OpenAI that takes such a body.
#[utoipa::path(
    post,
    path = "/invocations",
    tag = "SageMaker",
    request_body = Invocation,
    responses((status = 200, description = "The answer of the route of OpenAI"))
)]
pub(crate) async fn invoke(
    state: State<Arc<ServerState>>,
    context: Context,
    Body(body): Body<Invocation>,
) -> Result<Response, ApiError> {
    match body {
        Invocation::Chat(body) => chat::create(state, context, Body(*body)).await,
        Invocation::Embeddings(body) => {
            Ok(embeddings::create(state, context, Body(*body)).await?.into_response())
        }
        Invocation::Completion(body) => completions::create(state, context, Body(*body)).await,
    }
}
