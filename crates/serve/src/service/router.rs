//! The routes: one row each, from which the OpenAPI document follows too.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRef};
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{access, admission, context, error_shape, openapi};
use crate::api_error::ApiError;
use crate::blocking;
use crate::operations::{admin, health, memory, metrics, requests, version};
use crate::protocols::anthropic::{count_tokens, messages};
use crate::protocols::openai::responses::{self, ResponseStore};
use crate::protocols::openai::{chat, completions, embeddings, models};
use crate::protocols::scoring::{classify, rerank, score};
use crate::protocols::text::{apply_template, detokenize, tokenize};
use crate::protocols::{kserve, llama_cpp, ollama, sagemaker};
use crate::state::ServerState;
use crate::ui;

/// What handlers can ask for.
#[derive(Clone)]
struct RouterState {
    server: Arc<ServerState>,
    responses: Arc<ResponseStore>,
}

impl FromRef<RouterState> for Arc<ServerState> {
    fn from_ref(state: &RouterState) -> Arc<ServerState> {
        Arc::clone(&state.server)
    }
}

impl FromRef<RouterState> for Arc<ResponseStore> {
    fn from_ref(state: &RouterState) -> Arc<ResponseStore> {
        Arc::clone(&state.responses)
    }
}

/// The routes, with the layers that all requests pass.
pub(super) fn router(server: &Arc<ServerState>) -> Router {
    let (router, document) = OpenApiRouter::with_openapi(document())
        .routes(routes!(chat::create))
        .routes(routes!(completions::create))
        .routes(routes!(embeddings::create))
        .routes(routes!(embeddings::pool))
        .routes(routes!(responses::create::create))
        .routes(routes!(responses::input_tokens::create))
        .routes(routes!(responses::stored::show, responses::stored::delete))
        .routes(routes!(responses::stored::input_items))
        .routes(routes!(responses::stored::cancel))
        .routes(routes!(models::list))
        .routes(routes!(models::show))
        .routes(routes!(messages::create))
        .routes(routes!(count_tokens::create))
        .routes(routes!(ollama::generate::create))
        .routes(routes!(ollama::chat::create))
        .routes(routes!(ollama::embed::create))
        .routes(routes!(ollama::embed::create_one))
        .routes(routes!(ollama::pull::create))
        .routes(routes!(ollama::copy::create))
        .routes(routes!(ollama::create::create))
        .routes(routes!(ollama::delete::delete))
        .routes(routes!(ollama::models::tags))
        .routes(routes!(ollama::models::processes))
        .routes(routes!(ollama::models::show))
        .routes(routes!(ollama::models::version))
        .routes(routes!(llama_cpp::completion::create))
        .routes(routes!(llama_cpp::infill::create))
        .routes(routes!(llama_cpp::props::show))
        .routes(routes!(llama_cpp::slots::list))
        .routes(routes!(embeddings::create_native))
        .routes(routes!(ui::index))
        .routes(routes!(rerank::create_v1))
        .routes(routes!(rerank::create))
        .routes(routes!(score::create_v1))
        .routes(routes!(score::create))
        .routes(routes!(classify::create_v1))
        .routes(routes!(classify::create))
        .routes(routes!(tokenize::create))
        .routes(routes!(tokenize::create_v1))
        .routes(routes!(detokenize::create))
        .routes(routes!(detokenize::create_v1))
        .routes(routes!(apply_template::create))
        .routes(routes!(apply_template::create_v1))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(health::health))
        .routes(routes!(version::version))
        .routes(routes!(metrics::show))
        .routes(routes!(admin::load))
        .routes(routes!(admin::unload))
        .routes(routes!(admin::pin))
        .routes(routes!(admin::drain))
        .routes(routes!(admin::reset_prefix_cache))
        .routes(routes!(requests::list))
        .routes(routes!(requests::cancel))
        .routes(routes!(requests::show))
        .routes(routes!(memory::show))
        .routes(routes!(kserve::health::live))
        .routes(routes!(kserve::health::ready))
        .routes(routes!(kserve::models::show))
        .routes(routes!(kserve::models::ready))
        .routes(routes!(kserve::infer::create))
        .routes(routes!(sagemaker::ping))
        .routes(routes!(sagemaker::invoke))
        .split_for_parts();
    let document = openapi::complete(&document);
    let router = router
        .route("/openapi.json", get(async || Json(document)))
        .merge(ollama::unsupported::routes())
        .merge(unversioned())
        .merge(other_names())
        .route("/ui/{*name}", get(ui::asset))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(context::cancellable))
        .layer(middleware::from_fn(blocking::answer_large))
        .layer(DefaultBodyLimit::max(server.config.max_body_bytes))
        .layer(middleware::from_fn_with_state(Arc::clone(server), access::check_key));
    // The last layer is the first to see a request.
    let router = match access::cors(&server.config.cors_origins) {
        Some(cors) => router.layer(cors),
        None => router,
    };
    let config = &server.config;
    let responses = Arc::new(ResponseStore::new(config.max_stored_responses, config.max_stored_bytes));
    router
        .layer(middleware::from_fn_with_state(Arc::clone(server), access::check_host))
        .layer(middleware::from_fn_with_state(Arc::clone(server), admission::check))
        .layer(middleware::from_fn(error_shape::apply))
        .layer(middleware::from_fn_with_state(Arc::clone(server), context::attach))
        .with_state(RouterState { server: Arc::clone(server), responses })
}

/// The routes of OpenAI and Anthropic for clients whose address of the server lacks the `/v1`.
fn unversioned() -> Router<RouterState> {
    let stored = get(responses::stored::show).delete(responses::stored::delete);
    Router::new()
        .route("/chat/completions", post(chat::create))
        .route("/completions", post(llama_cpp::completion::create_either))
        .route("/embeddings", post(embeddings::create))
        .route("/pooling", post(embeddings::pool))
        .route("/responses", post(responses::create::create))
        .route("/responses/{id}", stored)
        .route("/responses/{id}/input_items", get(responses::stored::input_items))
        .route("/responses/{id}/cancel", post(responses::stored::cancel))
        .route("/messages", post(messages::create))
        .route("/messages/count_tokens", post(count_tokens::create))
        .route("/models", get(models::list))
        .route("/models/{*id}", get(models::show))
}

/// Routes under the other names that llama.cpp's server has for them.
fn other_names() -> Router<RouterState> {
    Router::new()
        .route("/reranking", post(rerank::create))
        .route("/v1/reranking", post(rerank::create_v1))
        .route("/v1/health", get(health::health))
}

/// The OpenAPI document without routes.
fn document() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Perihelion")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Language models on this machine, in the shapes that clients know."));
    OpenApiBuilder::new().info(info).build()
}

// A body that is not read makes hyper close the connection, which clients may be about to use again.
async fn unknown_route(uri: Uri, _body: Bytes) -> ApiError {
    let message = format!("there is no route {}; GET /openapi.json lists all", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "route_not_found", message)
}

async fn wrong_method(method: Method, uri: Uri, _body: Bytes) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
