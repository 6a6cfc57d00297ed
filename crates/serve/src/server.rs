//! The server: models and settings that handlers share, and its life from the first to the last connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::InferenceSession;
use engine::devices::Platform;
use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;

use crate::Error;
use crate::access::Hosts;
use crate::listener;
use crate::models::{Entry, ModelConfig, Models};
use crate::router::router;

/// How a server listens, and what it refuses.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// Names that the server answers to without keys, in addition to its address and the names of this machine.
    pub allowed_hosts: Vec<String>,
    /// Pages of other origins that may call it: origins, `localhost` for all of this machine, or `*`.
    pub cors_origins: Vec<String>,
    /// The largest body of a request.
    pub max_body_bytes: usize,
    /// Whether the line that coding agents put at the top of system prompts stays there. It differs from request to
    /// request, so that prompts with it share no prefix.
    pub keep_attribution_header: bool,
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long running requests may take once the server is to end.
    pub drain_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            address: SocketAddr::from(([127, 0, 0, 1], 8000)),
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            max_body_bytes: 32 << 20,
            keep_attribution_header: false,
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
    draining: AtomicBool,
}

impl Shared {
    /// Whether the server finishes what runs and takes nothing new.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// What answers depend on apart from the request: equal fingerprints give equal bytes.
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

/// Ends a server from any thread.
#[derive(Debug, Clone)]
pub struct StopHandle(watch::Sender<bool>);

impl StopHandle {
    /// Has the server finish what runs, and end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Starts to listen and loads the models. Connections wait until [`Server::run`].
    ///
    /// # Errors
    /// If the address cannot be listened on, two models have the same name, or one cannot be loaded.
    pub fn start(
        config: ServerConfig,
        models: Vec<ModelConfig>,
        session: &InferenceSession,
        platform: &Platform,
    ) -> Result<Server, Error> {
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
        let hosts = Hosts::new(&[address], &config.allowed_hosts, &config.cors_origins, false);
        let shared = Arc::new(Shared { config, models, hosts, draining: AtomicBool::new(false) });
        Ok(Server { runtime, shared, listener, address, stop: watch::Sender::new(false) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server when the caller wants.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.stop.clone())
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
