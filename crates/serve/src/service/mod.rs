//! The server without its sockets: a tower service that answers requests.

mod access;
mod admission;
mod context;
mod error_shape;
mod openapi;
mod router;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use axum::BoxError;
use axum::Router;
use axum::body::{Bytes, HttpBody};
use axum::http::Request;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use engine::InferenceSession;
use engine::devices::Platform;
use tokio::runtime::Handle;

use crate::Error;
use crate::config::{ModelConfig, ServerConfig};
use crate::models::Models;
use crate::state::ServerState;

/// Answers requests: the routes, the models, and what the configuration says of both. It knows no sockets: a listener, a
/// test or another server gives it requests. Clones share everything.
#[derive(Clone)]
pub struct Service {
    router: Router,
    state: Arc<ServerState>,
}

impl Service {
    /// A service for these models, with none of them in memory yet. Its requests are answered by tasks of `runtime`. Reads
    /// headers of files and may block, so it is not called from a task.
    ///
    /// # Errors
    /// If two models have the same name, one cannot run here, the catalog cannot be read, or cache events or traces have a
    /// wrong address.
    pub fn new(
        config: ServerConfig,
        models: Vec<ModelConfig>,
        session: Arc<InferenceSession>,
        platform: &'static Platform,
        runtime: &Handle,
    ) -> Result<Service, Error> {
        let models = Models::new(models, config.models.clone(), session, platform, runtime)?;
        if let (Some(events), Some(address)) = (&config.kv_events, config.addresses.first()) {
            models.publish_cache_events(events, address)?;
        }
        let state = Arc::new(ServerState::new(config, models)?);
        Ok(Service { router: router::router(&state), state })
    }

    /// Loads the models that fit into memory together, unless requests are to load them. Until then, `/ready` answers 503.
    ///
    /// # Errors
    /// If one that fits cannot be loaded.
    pub fn load(&self) -> Result<(), Error> {
        self.state.load()
    }

    /// What its handlers share.
    pub(crate) fn state(&self) -> &Arc<ServerState> {
        &self.state
    }
}

impl<B> tower_service::Service<Request<B>> for Service
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> RouteFuture<Infallible> {
        self.router.call(request)
    }
}
