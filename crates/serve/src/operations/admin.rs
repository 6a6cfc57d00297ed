//! `POST /admin/…`: loads, unloads and pins models, empties caches, and drains the server.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::blocking;
use crate::body::{Body, Fields, RequestBody};
use crate::config::{KeepAlive, KeepAliveField};
use crate::models::ModelWorker;
use crate::protocols::openai::models::Model;
use crate::state::ServerState;

/// A model to load.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct LoadRequest {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// How long the model stays in memory unused.
    #[schema(value_type = Option<KeepAliveField>)]
    keep_alive: Option<KeepAlive>,
}

/// A model to unload.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct UnloadRequest {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
}

/// A model to keep in memory.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct PinRequest {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// Whether it stays in memory, once it is there, until it is unloaded by name; true by default.
    pin: Option<bool>,
}

/// A model whose cached prefixes are forgotten.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ResetRequest {
    /// The id or an alias of a model; without one, all models in memory are meant.
    model: Option<String>,
}

/// The state of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Done {
    /// `draining`, or `reset`.
    status: &'static str,
}

impl RequestBody for LoadRequest {
    fn read(fields: &mut Fields) -> Result<LoadRequest, ApiError> {
        fields.take()
    }
}

impl RequestBody for UnloadRequest {
    fn read(fields: &mut Fields) -> Result<UnloadRequest, ApiError> {
        fields.take()
    }
}

impl RequestBody for PinRequest {
    fn read(fields: &mut Fields) -> Result<PinRequest, ApiError> {
        fields.take()
    }
}

impl RequestBody for ResetRequest {
    fn read(fields: &mut Fields) -> Result<ResetRequest, ApiError> {
        fields.take()
    }
}

/// Loads a model, and answers once it is in memory.
#[utoipa::path(
    post,
    path = "/admin/load",
    tag = "Admin",
    request_body = LoadRequest,
    responses((status = 200, body = Model))
)]
pub(crate) async fn load(
    State(server): State<Arc<ServerState>>,
    Body(body): Body<LoadRequest>,
) -> Result<Json<Model>, ApiError> {
    let model = server.models.find(body.model.as_deref())?;
    let _entry = server.models.acquire(Some(model.id()), body.keep_alive).await?;
    Ok(Json(Model::from_status(server.models.status(&model))))
}

/// Has a model leave memory once the requests that use it have ended, also if it is pinned.
#[utoipa::path(
    post,
    path = "/admin/unload",
    tag = "Admin",
    request_body = UnloadRequest,
    responses((status = 200, body = Model))
)]
pub(crate) async fn unload(
    State(server): State<Arc<ServerState>>,
    Body(body): Body<UnloadRequest>,
) -> Result<Json<Model>, ApiError> {
    let model = server.models.find(body.model.as_deref())?;
    server.models.unload(&model);
    Ok(Json(Model::from_status(server.models.status(&model))))
}

/// Has a model stay in memory, or lets it leave again.
#[utoipa::path(
    post,
    path = "/admin/pin",
    tag = "Admin",
    request_body = PinRequest,
    responses((status = 200, body = Model))
)]
pub(crate) async fn pin(
    State(server): State<Arc<ServerState>>,
    Body(body): Body<PinRequest>,
) -> Result<Json<Model>, ApiError> {
    let model = server.models.find(body.model.as_deref())?;
    server.models.pin(&model, body.pin.unwrap_or(true));
    Ok(Json(Model::from_status(server.models.status(&model))))
}

/// Has the server finish what runs, take nothing new, and end.
#[utoipa::path(post, path = "/admin/drain", tag = "Admin", responses((status = 200, body = Done)))]
pub(crate) async fn drain(State(server): State<Arc<ServerState>>) -> Json<Done> {
    server.stop();
    Json(Done { status: "draining" })
}

/// Forgets the prefixes that caches hold of earlier requests.
#[utoipa::path(
    post,
    path = "/admin/reset-prefix-cache",
    tag = "Admin",
    request_body = ResetRequest,
    responses((status = 200, body = Done))
)]
pub(crate) async fn reset_prefix_cache(
    State(server): State<Arc<ServerState>>,
    Body(body): Body<ResetRequest>,
) -> Result<Json<Done>, ApiError> {
    let statuses = match body.model.as_deref() {
        Some(name) => vec![server.models.status(&server.models.find(Some(name))?)],
        None => server.models.statuses(),
    };
    for loaded in statuses.into_iter().filter_map(|status| status.loaded) {
        if let ModelWorker::Text(generator) = loaded.worker() {
            let generator = generator.clone();
            // A full queue is waited for.
            blocking::run(move || {
                generator.reset_prefix_cache();
                Ok(())
            })
            .await?;
        }
    }
    Ok(Json(Done { status: "reset" }))
}
