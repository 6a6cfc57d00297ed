//! What handlers share: the state of the server, and the facts of each request.

mod connection;
mod context;
mod record;
mod requests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use tokio::sync::watch;

pub(crate) use connection::{Connection, OpenRequest};
pub(crate) use context::Context;
pub(crate) use record::RequestRecord;
use requests::Requests;

use crate::Error;
use crate::access::{Access, Hosts, KeyUsage, Keys};
use crate::api_error::ApiError;
use crate::config::{Address, ServerConfig};
use crate::models::{ActiveModel, ModelStatus, Models};
use crate::telemetry::{AccessLog, Metrics, Traces};

/// How long requests that are cancelled may take to say so.
pub(crate) const CANCEL: Duration = Duration::from_secs(3);

/// What handlers share: the models, who may use them, and who does.
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) models: Arc<Models>,
    pub(crate) hosts: Hosts,
    keys: RwLock<Arc<Keys>>,
    pub(crate) key_usage: Arc<KeyUsage>,
    pub(crate) requests: Requests,
    pub(crate) metrics: Metrics,
    pub(crate) log: AccessLog,
    pub(crate) traces: Option<Traces>,
    /// Whether the models that are to be in memory from the start are not all there.
    is_starting: AtomicBool,
    /// Set when the server is to end.
    stop: watch::Sender<bool>,
    /// Requests to models that are not over.
    work: watch::Sender<usize>,
}

/// Whether a server takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It does.
    Ready,
    /// The models that are to be in memory from the start are not all there, or one is loaded while none is in memory.
    Loading,
    /// It finishes what runs and takes nothing new.
    Draining,
}

impl Readiness {
    /// The status that routes for health checks answer with.
    pub(crate) fn status_code(self) -> StatusCode {
        if self == Readiness::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
    }
}

/// A request to a model; it is over when this is dropped.
pub(crate) struct Work(watch::Sender<usize>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl ServerState {
    /// The state of a server with these models and nothing in memory.
    ///
    /// # Errors
    /// If the address of the collector of traces is not one.
    pub(crate) fn new(config: ServerConfig, models: Arc<Models>) -> Result<ServerState, Error> {
        let ips: Vec<IpAddr> = config.addresses.iter().filter_map(Address::ip).collect();
        let has_keys = config.keys.are_needed();
        Ok(ServerState {
            models,
            hosts: Hosts::new(&ips, &config.allowed_hosts, &config.cors_origins, has_keys),
            keys: RwLock::new(Arc::new(config.keys.clone())),
            key_usage: Arc::default(),
            requests: Requests::default(),
            metrics: Metrics::default(),
            log: AccessLog::new(config.log),
            traces: config.traces.as_ref().map(|traces| Traces::start(traces, &config.build)).transpose()?,
            is_starting: AtomicBool::new(true),
            stop: watch::Sender::new(false),
            work: watch::Sender::new(0),
            config,
        })
    }

    /// The keys as they are now.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has the server finish what runs, take nothing new, and end.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Loads the models that fit into memory together, unless requests are to load them.
    ///
    /// # Errors
    /// If one that fits cannot be loaded.
    pub(crate) fn load(&self) -> Result<(), Error> {
        self.models.load_what_fits()?;
        self.is_starting.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the server is to end.
    pub(crate) async fn stopped(&self) {
        // The sender lives as long as the server.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await.is_ok();
    }

    /// Whether the server finishes what runs and takes nothing new.
    pub(crate) fn is_draining(&self) -> bool {
        *self.stop.borrow()
    }

    /// Whether the server takes requests while its models are where these statuses say.
    pub(crate) fn readiness(&self, models: &[ModelStatus]) -> Readiness {
        let in_memory = models.iter().any(|status| status.loaded.is_some());
        let is_loading = models.iter().any(|status| status.progress.is_some());
        if self.is_draining() {
            Readiness::Draining
        } else if self.is_starting.load(Ordering::Relaxed) || !in_memory && is_loading {
            Readiness::Loading
        } else {
            Readiness::Ready
        }
    }

    /// Counts a request to a model, which the server waits for when it ends. Called before [`ServerState::is_draining`] is.
    pub(crate) fn begin_work(&self) -> Work {
        self.work.send_modify(|open| *open += 1);
        Work(self.work.clone())
    }

    /// Takes these keys in place of those before. Running requests are not affected.
    pub(crate) fn set_keys(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// Whether a client may see facts about the server: it has a key, or needs none.
    pub(crate) fn may_see_facts(&self, headers: &HeaderMap) -> bool {
        self.keys().check(headers, Access::AnyKey).is_ok()
    }

    /// Waits until the server is to end and its requests are over: in time by themselves, then because they are
    /// cancelled.
    pub(crate) async fn ended(&self) {
        self.stopped().await;
        tracing::info!("ending: {} requests run", *self.work.borrow());
        let mut work = self.work.subscribe();
        let time = self.config.drain_timeout;
        if tokio::time::timeout(time, work.wait_for(|open| *open == 0)).await.is_ok() {
            return;
        }
        let open = *work.borrow();
        tracing::warn!("{open} requests still ran after {} s and are cancelled", time.as_secs_f64());
        let error = ApiError::draining(time);
        self.requests.running().iter().for_each(|request| request.cancel(error.clone()));
        let _ = tokio::time::timeout(CANCEL, work.wait_for(|open| *open == 0)).await;
    }

    /// Identifies the build, the files and settings of a model, and the system with its architecture; the instruction set
    /// only if it changes answers. Equal requests to servers with equal fingerprints get equal answers.
    pub(crate) fn fingerprint(&self, model: &ActiveModel) -> String {
        let (system, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
        format!("peri-{}-{}-{architecture}-{system}", self.config.build, model.fingerprint())
    }
}
