//! `GET /slots`: how many requests a model answers at once, and how many it answers now.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use pipelines::Plan;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::api_error::ApiError;
use crate::models::LoadedModel;
use crate::state::ServerState;

/// Which model, and what is an error.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SlotParams {
    /// The id or an alias of a model; may be left out if the server has one model.
    model: Option<String>,
    /// Unless it is 0, the answer is an error if no slot is free.
    fail_on_no_slot: Option<u8>,
}

/// Room for one request. Requests are not bound to slots: those that run take the first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Slot {
    id: usize,
    /// The most tokens of a prompt and its answer together.
    n_ctx: usize,
    speculative: bool,
    is_processing: bool,
}

/// Lists the room for requests of a model, which has none while it is not in memory.
#[utoipa::path(
    get,
    path = "/slots",
    tag = "llama.cpp",
    params(SlotParams),
    responses((status = 200, body = Vec<Slot>))
)]
pub(crate) async fn list(
    State(server): State<Arc<ServerState>>,
    params: Result<Query<SlotParams>, QueryRejection>,
) -> Result<Json<Vec<Slot>>, ApiError> {
    let Query(params) = params.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    let model = server.models.find(params.model.as_deref())?;
    let Some(loaded) = server.models.status(&model).loaded else { return Ok(Json(Vec::new())) };
    let running = loaded.generator()?.status()?.running;
    let slot = |id| Slot { id, n_ctx: loaded.max_length(), speculative: false, is_processing: id < running };
    let slots: Vec<Slot> = (0..slot_count(&loaded)).map(slot).collect();
    if params.fail_on_no_slot.is_some_and(|given| given != 0) && slots.iter().all(|slot| slot.is_processing) {
        let message = format!("all {} slots of {} are in use", slots.len(), model.id());
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message));
    }
    Ok(Json(slots))
}

/// How many requests a model answers at once; none if it makes no text.
pub(super) fn slot_count(model: &LoadedModel) -> usize {
    let of_plan = |plan: &Plan| plan.memory().map_or(0, |memory| memory.max_batch);
    model.generator().map_or(0, |generator| of_plan(generator.model().plan()))
}
