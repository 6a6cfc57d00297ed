//! `GET` and `DELETE /v1/responses/{id}`, `/input_items` and `/cancel`: responses that the server keeps.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::events::{Events, ResponseEvent};
use super::object::ResponseObject;
use super::store::ResponseStore;
use crate::api_error::ApiError;
use crate::state::Context;

/// The items of a list, unless the request says how many.
const DEFAULT_LIMIT: usize = 20;
/// The most items of a list.
const MAX_LIMIT: usize = 100;

/// How a response is shown.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowParams {
    /// Whether the response is sent as events, from the first.
    stream: Option<bool>,
    /// Has no effect.
    starting_after: Option<u64>,
}

/// Shows a response.
#[utoipa::path(
    get,
    path = "/v1/responses/{id}",
    tag = "OpenAI",
    params(("id" = String, Path, description = "The id of a stored response"), ShowParams),
    responses((status = 200, description = "The response, or with `stream` its events", content(
        (ResponseObject = "application/json"),
        (ResponseEvent = "text/event-stream")
    )))
)]
pub(crate) async fn show(
    State(store): State<Arc<ResponseStore>>,
    context: Context,
    Path(id): Path<String>,
    params: Result<Query<ShowParams>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(params) = params.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    let stored = store.get(&id, "id")?;
    let ignored = params.starting_after.map(|_| "starting_after".to_string());
    context.note(|facts| facts.ignored.extend(ignored));
    if params.stream.unwrap_or(false) {
        let events = Events::replay(store, &stored.response);
        return Ok(([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], events).into_response());
    }
    Ok(Json(stored.response.clone()).into_response())
}

/// A response that was deleted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeletedResponse {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// Deletes a response. Those that went on from it stay.
#[utoipa::path(
    delete,
    path = "/v1/responses/{id}",
    tag = "OpenAI",
    params(("id" = String, Path, description = "The id of a stored response")),
    responses((status = 200, body = DeletedResponse))
)]
pub(crate) async fn delete(
    State(store): State<Arc<ResponseStore>>,
    Path(id): Path<String>,
) -> Result<Json<DeletedResponse>, ApiError> {
    store.remove(&id)?;
    Ok(Json(DeletedResponse { id, object: "response", deleted: true }))
}

/// Refuses to cancel a response that has ended. A running one is cancelled by closing its connection.
#[utoipa::path(
    post,
    path = "/v1/responses/{id}/cancel",
    tag = "OpenAI",
    params(("id" = String, Path, description = "The id of a stored response")),
    responses((status = 400, description = "The response has ended"))
)]
pub(crate) async fn cancel(State(store): State<Arc<ResponseStore>>, Path(id): Path<String>) -> ApiError {
    match store.get(&id, "id") {
        Ok(_) => ApiError::invalid(
            "id",
            "the response has ended; a running one is cancelled by closing its connection",
        ),
        Err(error) => error,
    }
}

/// Which of the items are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// 1 to 100 items; 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// `asc` or `desc`, which is the default.
    #[param(pattern = "^(asc|desc)$")]
    order: Option<String>,
    /// Only items after the one with this id.
    after: Option<String>,
}

/// Items of a response's input.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ItemList {
    object: &'static str,
    #[schema(value_type = Vec<Object>)]
    data: Vec<Value>,
    #[schema(value_type = Option<String>)]
    first_id: Value,
    #[schema(value_type = Option<String>)]
    last_id: Value,
    has_more: bool,
}

/// Lists the items that the request of a response gave.
#[utoipa::path(
    get,
    path = "/v1/responses/{id}/input_items",
    tag = "OpenAI",
    params(("id" = String, Path, description = "The id of a stored response"), ListParams),
    responses((status = 200, body = ItemList))
)]
pub(crate) async fn input_items(
    State(store): State<Arc<ResponseStore>>,
    Path(id): Path<String>,
    params: Result<Query<ListParams>, QueryRejection>,
) -> Result<Json<ItemList>, ApiError> {
    let Query(params) = params.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    let limit = params.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(ApiError::invalid("limit", format!("limit is {limit}: give 1 to {MAX_LIMIT}")));
    }
    let stored = store.get(&id, "id")?;
    let mut items: Vec<&Value> = stored.input.iter().collect();
    match params.order.as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(other) => {
            return Err(ApiError::invalid("order", format!("order is `{other}`: give asc or desc")));
        }
    }
    if let Some(after) = &params.after {
        let index = items.iter().position(|item| item["id"] == after[..]);
        let index = index.ok_or_else(|| ApiError::invalid("after", format!("there is no item `{after}`")))?;
        items.drain(..=index);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id_of = |item: Option<&&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    Ok(Json(ItemList {
        object: "list",
        first_id: id_of(items.first()),
        last_id: id_of(items.last()),
        data: items.into_iter().cloned().collect(),
        has_more,
    }))
}
