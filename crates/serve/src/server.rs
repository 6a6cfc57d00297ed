//! The server: models and settings that handlers share, and its life from the first to the last connection.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use engine::InferenceSession;
use engine::devices::Platform;
use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;

use crate::Error;
use crate::access::{Hosts, Keys};
use crate::kv_events::KvEventsConfig;
use crate::listener;
use crate::models::{Entry, ModelConfig, Models};
use crate::openai::responses::ResponseStore;
use crate::operations::metrics::Metrics;
use crate::router::router;

/// How a server listens, and what it refuses.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// The keys of clients.
    pub keys: Keys,
    /// Whether everyone may use it without a key, also from other machines.
    pub insecure: bool,
    /// Whether clients with different keys share cached prefixes. The time of an answer then tells one client whether
    /// another sent the same prompt.
    pub shared_cache: bool,
    /// Names that the server answers to without keys, in addition to its address and the names of this machine.
    pub allowed_hosts: Vec<String>,
    /// Pages of other origins that may call it: origins, `localhost` for all of this machine, or `*`.
    pub cors_origins: Vec<String>,
    /// The largest body of a request.
    pub max_body_bytes: usize,
    /// Whether the line that coding agents put at the top of system prompts stays there. It differs from request to
    /// request, so that prompts with it share no prefix.
    pub keep_attribution_header: bool,
    /// The most responses of `/v1/responses` that are kept; 0 keeps none.
    pub max_stored_responses: usize,
    /// The most bytes of them together.
    pub max_stored_bytes: usize,
    /// Where the server publishes which pages its cache holds, if it does.
    pub kv_events: Option<KvEventsConfig>,
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long running requests may take once the server is to end.
    pub drain_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            address: SocketAddr::from(([127, 0, 0, 1], 8000)),
            keys: Keys::default(),
            insecure: false,
            shared_cache: false,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            max_body_bytes: 32 << 20,
            keep_attribution_header: false,
            max_stored_responses: 1000,
            max_stored_bytes: 64 << 20,
            kv_events: None,
            header_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// What handlers share.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) models: Models,
    pub(crate) hosts: Hosts,
    keys: RwLock<Arc<Keys>>,
    pub(crate) responses: ResponseStore,
    pub(crate) metrics: Metrics,
    draining: AtomicBool,
}

impl Shared {
    /// The keys as they are now.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the server finishes what runs and takes nothing new.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Identifies the build. Equal requests to servers with equal fingerprints and models get equal answers.
    pub(crate) fn fingerprint(&self, model: &Entry) -> String {
        let _ = model;
        format!("peri-{}", env!("CARGO_PKG_VERSION"))
    }
}

/// Threads that answer requests. They parse, render and write; models compute on threads of their own.
const THREADS: usize = 2;

/// A server that listens, with its models loaded.
pub struct Server {
    runtime: Runtime,
    shared: Arc<Shared>,
    listener: TcpListener,
    address: SocketAddr,
    stop: watch::Sender<bool>,
}

/// Steers a server from any thread.
#[derive(Clone)]
pub struct ServerHandle {
    stop: watch::Sender<bool>,
    shared: Arc<Shared>,
}

impl ServerHandle {
    /// Has the server finish what runs, and end.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Reads the file of keys again. Requests that run go on.
    ///
    /// # Errors
    /// If it is not one; the keys stay as they are.
    pub fn reload(&self) -> Result<(), Error> {
        let keys = self.shared.keys().read_again()?;
        *self.shared.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        Ok(())
    }
}

impl Server {
    /// Starts to listen and loads the models. Connections wait until [`Server::run`].
    ///
    /// # Errors
    /// If the address cannot be listened on or would let everyone in, two models have the same name, or one cannot be
    /// loaded.
    pub fn start(
        config: ServerConfig,
        models: Vec<ModelConfig>,
        session: &InferenceSession,
        platform: &Platform,
    ) -> Result<Server, Error> {
        let address = config.address;
        if !address.ip().is_loopback() && !config.keys.are_needed() && !config.insecure {
            return Err(Error::Open { address });
        }
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(Error::Start)?;
        let bind = |source| Error::Bind { address: config.address, source };
        // Before the models, whose loading takes long: an address in use is known at once.
        let listener = runtime.block_on(TcpListener::bind(config.address)).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let models = Models::load(models, session, platform)?;
        if let Some(events) = &config.kv_events {
            let (model, generator) = models.only_generator()?;
            events.start(&runtime, generator, model, address)?;
        }
        let has_keys = config.keys.are_needed();
        let hosts = Hosts::new(&[address], &config.allowed_hosts, &config.cors_origins, has_keys);
        let keys = RwLock::new(Arc::new(config.keys.clone()));
        let responses = ResponseStore::new(config.max_stored_responses, config.max_stored_bytes);
        let (metrics, draining) = (Metrics::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { config, models, hosts, keys, responses, metrics, draining });
        Ok(Server { runtime, shared, listener, address, stop: watch::Sender::new(false) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Steers the server while it runs.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle { stop: self.stop.clone(), shared: Arc::clone(&self.shared) }
    }

    /// Answers requests until it is stopped, finishes those that run, and returns.
    pub fn run(self) {
        let Server { runtime, shared, listener, stop, .. } = self;
        let mut stopped = stop.subscribe();
        let stopping = {
            let shared = Arc::clone(&shared);
            async move {
                // `stop` lives until this function returns.
                let _ = stopped.wait_for(|stop| *stop).await;
                shared.draining.store(true, Ordering::Release);
            }
        };
        runtime.block_on(listener::serve(listener, router(&shared), &shared.config, stopping));
        runtime.shutdown_background();
    }
}
