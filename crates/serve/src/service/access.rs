//! Refuses requests of pages and clients that may not ask.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::context::{IGNORED, REQUEST_ID};
use crate::access::{Access, Key, KeyPermit, Origin, Scope};
use crate::api_error::ApiError;
use crate::config::Address;
use crate::state::{Context, ServerState};

/// The most bytes of headers of requests that answers repeat.
const MAX_REPEATED: usize = 2 << 10;

/// Refuses requests whose `Host` or `Origin` shows that a browser sent them for a page of another site. Its own page
/// under another name (DNS rebinding) is stopped by `Host`, all other pages by `Origin`.
pub(super) async fn check_host(
    State(server): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(error) = check_repeated(request.headers()) {
        return error.into_response();
    }
    if request.uri().path() == "/live" {
        return next.run(request).await;
    }
    match server.hosts.check(request.version(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Refuses headers of a browser that would make the head of the answer too large, which repeats them.
fn check_repeated(headers: &HeaderMap) -> Result<(), ApiError> {
    for name in [header::ORIGIN, header::ACCESS_CONTROL_REQUEST_HEADERS] {
        let bytes: usize = headers.get_all(&name).iter().map(HeaderValue::len).sum();
        if bytes > MAX_REPEATED {
            let message = format!("the header {name} has {bytes} bytes, at most {MAX_REPEATED} are read");
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err(ApiError::new(status, "head_too_large", message));
        }
    }
    Ok(())
}

/// Refuses requests without a key that allows them, if clients need keys.
pub(super) async fn check_key(
    State(server): State<Arc<ServerState>>,
    context: Context,
    request: Request,
    next: Next,
) -> Response {
    let (keys, access) = (server.keys(), Access::for_path(request.uri().path()));
    if access == Access::Scope(Scope::Admin)
        && !keys.are_needed()
        && !server.config.addresses.iter().all(Address::is_local)
    {
        let message =
            "other machines reach this server, so that its admin routes need keys: start it with --key-file";
        return ApiError::new(StatusCode::FORBIDDEN, "permission_denied", message).into_response();
    }
    match keys.check(request.headers(), access) {
        Ok(key) => {
            if let Some(key) = key {
                let is_limited = access == Access::Scope(Scope::Infer)
                    && request.method() == Method::POST
                    && !key.limits.are_open();
                let permit = is_limited.then(|| admit(&server, key)).transpose();
                context.note(|facts| facts.key = Some(key.name.clone()));
                match permit {
                    Ok(permit) => context.note(|facts| facts.permit = permit),
                    Err(error) => return error.into_response(),
                }
            }
            next.run(request).await
        }
        Err(error) => {
            let is_unknown = error.status == StatusCode::UNAUTHORIZED;
            let mut response = error.into_response();
            if is_unknown {
                let bearer = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
            }
            response
        }
    }
}

/// Lets a request pass, unless a limit of its key is reached.
fn admit(server: &ServerState, key: &Key) -> Result<KeyPermit, ApiError> {
    let running = || server.requests.running().iter().filter_map(|record| record.tokens_of(&key.name)).sum();
    let tokens = if key.limits.tokens_per_minute.is_some() { running() } else { 0 };
    server.key_usage.admit(&key.name, &key.limits, tokens, Instant::now())
}

/// Lets the pages of the configured origins read answers; `None` if there are none.
pub(super) fn cors(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<Origin> = origins.iter().map(|text| Origin::new(text)).collect();
    if origins.is_empty() {
        return None;
    }
    let allows = move |origin: &HeaderValue, _: &_| {
        origin.to_str().is_ok_and(|origin| origins.iter().any(|allowed| allowed.allows(origin)))
    };
    let exposed = [REQUEST_ID, IGNORED, header::RETRY_AFTER];
    let layer = CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(allows))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed)
        .max_age(std::time::Duration::from_secs(600));
    Some(layer)
}
