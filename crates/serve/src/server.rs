//! The server: models and settings that handlers share, and its life from the first to the last connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use engine::InferenceSession;
use engine::devices::Platform;
use pipelines::ToolFormat;
use tokio::runtime::{self, Runtime};
use tokio::sync::watch;
use tokio_rustls::rustls;

use crate::Error;
use crate::access::{Hosts, KeyUsage, Keys};
use crate::access_log::{AccessLog, LogFormat};
use crate::error::ApiError;
use crate::kv_events::KvEventsConfig;
use crate::listener::{self, Address, Listener, TlsFiles};
use crate::models::{ActiveModel, ModelConfig, ModelSettings, Models};
use crate::openai::responses::ResponseStore;
use crate::operations::metrics::Metrics;
use crate::requests::Requests;
use crate::router::router;
use crate::traces::{TraceConfig, Traces};

/// How a server listens, and what it refuses.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where it listens.
    pub addresses: Vec<Address>,
    /// The keys of clients.
    pub keys: Keys,
    /// Encrypts the connections of all addresses that are no sockets in the file system.
    pub tls: Option<TlsFiles>,
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
    /// How models write calls of tools; `None` is found in their chat templates.
    pub tool_format: Option<&'static ToolFormat>,
    /// Whether models reason before they answer, if they do and the request does not say.
    pub reasoning: bool,
    /// The most responses of `/v1/responses` that are kept; 0 keeps none.
    pub max_stored_responses: usize,
    /// The most bytes of them together.
    pub max_stored_bytes: usize,
    /// Where the server sends a span of each request to a model, if it does: only with the feature `otlp`.
    pub traces: Option<TraceConfig>,
    /// Where the server publishes which pages its cache holds, if it does.
    pub kv_events: Option<KvEventsConfig>,
    /// The most connections at once; further clients wait.
    pub max_connections: usize,
    /// The most connections of an address of another machine; further ones are closed.
    pub max_connections_per_address: usize,
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long a client may take to send the body of a request.
    pub body_timeout: Duration,
    /// How long a connection without requests is kept.
    pub idle_timeout: Duration,
    /// How long a client may read nothing of what is sent to it.
    pub write_timeout: Duration,
    /// How long an answer may take, with its time in the queue; `None` for any time.
    pub request_timeout: Option<Duration>,
    /// The lines that it writes to standard error, one for each request.
    pub log: LogFormat,
    /// How long running requests may take once the server is to end; then they are cancelled.
    pub drain_timeout: Duration,
    /// How models come into memory and leave it.
    pub models: ModelSettings,
    /// The version of the program, with its commit if that is known; a part of `system_fingerprint`.
    pub build: String,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            addresses: vec![Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 8000)))],
            keys: Keys::default(),
            tls: None,
            insecure: false,
            shared_cache: false,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            max_body_bytes: 32 << 20,
            keep_attribution_header: false,
            tool_format: None,
            reasoning: true,
            max_stored_responses: 1000,
            max_stored_bytes: 64 << 20,
            traces: None,
            kv_events: None,
            max_connections: 1024,
            max_connections_per_address: 64,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(300),
            request_timeout: None,
            log: LogFormat::Off,
            drain_timeout: Duration::from_secs(30),
            models: ModelSettings::default(),
            build: env!("CARGO_PKG_VERSION").to_string(),
        }
    }
}

/// What handlers share.
pub(crate) struct Shared {
    pub(crate) config: ServerConfig,
    pub(crate) models: Arc<Models>,
    pub(crate) hosts: Hosts,
    keys: RwLock<Arc<Keys>>,
    pub(crate) key_usage: Arc<KeyUsage>,
    tls: RwLock<Option<Arc<rustls::ServerConfig>>>,
    pub(crate) responses: ResponseStore,
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

/// A request to a model; it is over when this is dropped.
pub(crate) struct Work(watch::Sender<usize>);

impl Drop for Work {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl Shared {
    /// The keys as they are now.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The encryption of new connections.
    pub(crate) fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the server finish what runs, take nothing new, and end.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Whether the models that are to be in memory from the start are not all there.
    pub(crate) fn is_starting(&self) -> bool {
        self.is_starting.load(Ordering::Relaxed)
    }

    /// Whether the server finishes what runs and takes nothing new.
    pub(crate) fn is_draining(&self) -> bool {
        *self.stop.borrow()
    }

    /// Counts a request to a model, which the server waits for when it ends. Called before [`Shared::is_draining`] is.
    pub(crate) fn begin_work(&self) -> Work {
        self.work.send_modify(|open| *open += 1);
        Work(self.work.clone())
    }

    /// Reads the key file and the TLS files again. Running requests are not affected.
    ///
    /// # Errors
    /// If one of them is wrong: all stay as they are.
    pub(crate) fn reload(&self) -> Result<(), Error> {
        let keys = self.keys().read_again()?;
        let tls = self.config.tls.as_ref().map(TlsFiles::read).transpose()?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
        Ok(())
    }

    /// Waits until the server is to end and its requests are over: in time by themselves, then because they are
    /// cancelled.
    async fn ended(&self) {
        // The senders live as long as the server.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
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

/// How long requests that are cancelled may take to say so.
const CANCEL: Duration = Duration::from_secs(3);
/// How long the threads that answer requests may take beyond all other times.
const LATE: Duration = Duration::from_secs(1);

/// Threads that answer requests. They parse, render and write; models compute on threads of their own.
const THREADS: usize = 2;
/// The most threads that block or answer large requests, most of which wait for a model: more than may wait for one.
const BLOCKING_THREADS: usize = 2048;

/// A server that answers requests.
pub struct Server {
    runtime: Runtime,
    shared: Arc<Shared>,
    /// Closed when no connection is accepted any more and all are finished.
    ended: Receiver<()>,
    addresses: Vec<Address>,
}

/// Held while connections are accepted; a defect that ends that ends the server.
struct End {
    shared: Arc<Shared>,
    _ended: SyncSender<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Steers a server from any thread.
#[derive(Clone)]
pub struct ServerHandle(Arc<Shared>);

impl ServerHandle {
    /// Has the server finish what runs, refuse what is new, and end.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Serves these models in place of all others. Models that stay as they are stay in memory; others leave once their
    /// requests have ended. Reads headers of files, and may block.
    ///
    /// # Errors
    /// If two have the same name, or one cannot run here; all stays as it was.
    pub fn set_models(&self, models: Vec<ModelConfig>) -> Result<(), Error> {
        self.0.models.list(models)
    }

    /// Reads the key file and the TLS files again. Running requests are not affected.
    ///
    /// # Errors
    /// If one of them is wrong: all stay as they are.
    pub fn reload(&self) -> Result<(), Error> {
        self.0.reload()
    }

    /// Whether the threads that answer requests do something that they are given, within a time.
    pub fn answers_within(&self, time: Duration) -> bool {
        let (done, wait) = sync_channel(1);
        self.0.models.runtime().spawn(async move {
            // The caller may have stopped waiting.
            let _ = done.try_send(());
        });
        wait.recv_timeout(time).is_ok()
    }
}

impl Server {
    /// Starts to answer requests, and loads the models that fit into memory together. Meanwhile `/ready` answers 503, and
    /// requests to models wait for them.
    ///
    /// # Errors
    /// If an address cannot be listened on or would let everyone in, a file of certificates is wrong, two models have the
    /// same name, or one cannot be loaded.
    pub fn start(
        config: ServerConfig,
        models: Vec<ModelConfig>,
        session: Arc<InferenceSession>,
        platform: &'static Platform,
    ) -> Result<Server, Error> {
        let server = Server::listen(config, models, session, platform)?;
        server.load()?;
        Ok(server)
    }

    /// Starts to answer requests, with no model in memory before [`Server::load`].
    ///
    /// # Errors
    /// As [`Server::start`], which loads them too.
    pub fn listen(
        config: ServerConfig,
        models: Vec<ModelConfig>,
        session: Arc<InferenceSession>,
        platform: &'static Platform,
    ) -> Result<Server, Error> {
        let has_keys = config.keys.are_needed();
        let reached = config.addresses.iter().find(|address| !address.is_local());
        if let Some(address) = reached.filter(|_| !has_keys && !config.insecure) {
            return Err(Error::Open { address: address.clone() });
        }
        let tls = config.tls.as_ref().map(TlsFiles::read).transpose()?;
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(Error::Start)?;
        // Before the models, whose loading takes long: an address in use is known at once.
        let listeners = runtime.block_on(listen(&config.addresses))?;
        let addresses: Vec<Address> =
            listeners.iter().map(Listener::address).collect::<Result<_, _>>().map_err(Error::Start)?;
        let settings = config.models.clone();
        let models = Models::new(models, settings, session, platform, runtime.handle())?;
        if let (Some(events), Some(address)) = (&config.kv_events, addresses.first()) {
            models.publish_cache_events(events, address)?;
        }
        let hosts = Hosts::new(&ips(&addresses), &config.allowed_hosts, &config.cors_origins, has_keys);
        let shared = Arc::new(Shared {
            models,
            hosts,
            keys: RwLock::new(Arc::new(config.keys.clone())),
            key_usage: Arc::default(),
            tls: RwLock::new(tls),
            responses: ResponseStore::new(config.max_stored_responses, config.max_stored_bytes),
            requests: Requests::default(),
            metrics: Metrics::default(),
            log: AccessLog::new(config.log),
            traces: config.traces.as_ref().map(|traces| Traces::start(traces, &config.build)).transpose()?,
            is_starting: AtomicBool::new(true),
            stop: watch::Sender::new(false),
            work: watch::Sender::new(0),
            config,
        });
        let (routes, of_task) = (router(&shared), Arc::clone(&shared));
        let (end, ended) = sync_channel(0);
        let end = End { shared: Arc::clone(&shared), _ended: end };
        runtime.spawn(async move {
            let _end = end;
            listener::serve(listeners, routes, &of_task, of_task.ended()).await;
        });
        Ok(Server { runtime, shared, ended, addresses })
    }

    /// Loads the models that fit into memory together, unless requests are to load them.
    ///
    /// # Errors
    /// If one that fits cannot be loaded.
    pub fn load(&self) -> Result<(), Error> {
        self.shared.models.load_what_fits()?;
        self.shared.is_starting.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Where it listens, with the ports that it took.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Steers the server while it runs.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle(Arc::clone(&self.shared))
    }

    /// Waits until the server is stopped and the requests that run are finished. Until the last of them is over, new ones
    /// are refused. This thread keeps the time, so that the server ends in time whatever the threads that answer do.
    pub fn run(self) {
        let Server { runtime, shared, ended, .. } = self;
        // The sender lives as long as the server.
        let _ = runtime.block_on(shared.stop.subscribe().wait_for(|stop| *stop)).is_ok();
        let most = shared.config.drain_timeout.saturating_add(CANCEL + listener::CLOSE + LATE);
        if ended.recv_timeout(most) == Err(RecvTimeoutError::Timeout) {
            tracing::error!("connections are cut: the server did not finish within {} s", most.as_secs_f64());
        }
        runtime.shutdown_background();
        tracing::info!("ended");
        shared.log.finish();
        shared.traces.iter().for_each(Traces::finish);
    }
}

async fn listen(addresses: &[Address]) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        let listener = address.bind().await;
        listeners.push(listener.map_err(|source| Error::Bind { address: address.clone(), source })?);
    }
    Ok(listeners)
}

/// The names of a server without names.
fn ips(addresses: &[Address]) -> Vec<IpAddr> {
    let ip = |address: &Address| match address {
        Address::Tcp(address) => Some(address.ip()),
        Address::Unix(_) => None,
    };
    addresses.iter().filter_map(ip).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use cpu::Cpu;
    use pipelines::config::PipelineConfig;

    use super::*;

    static PLATFORM: Platform = Platform::new(|| Arc::new(Cpu::new(1)));

    /// Fault F2: whatever holds up the threads that answer, the end comes in time.
    #[test]
    fn server_ends_in_time_although_its_threads_are_blocked() {
        let config = ServerConfig {
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            drain_timeout: Duration::from_millis(50),
            models: ModelSettings { lazy: true, ..ModelSettings::default() },
            ..ServerConfig::default()
        };
        let session = InferenceSession::builder().device(Arc::new(Cpu::new(1))).build().unwrap();
        let models = vec![ModelConfig::new(PipelineConfig::default())];
        let server = Server::start(config, models, Arc::new(session), &PLATFORM).unwrap();
        let handle = server.handle();
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let (arrive, arrived) = sync_channel(THREADS);
        for _ in 0..THREADS {
            let (gate, arrive) = (Arc::clone(&gate), arrive.clone());
            server.runtime.spawn(async move {
                arrive.send(()).unwrap();
                drop(gate.lock());
            });
        }
        (0..THREADS).for_each(|_| arrived.recv().unwrap());
        assert!(!handle.answers_within(Duration::from_millis(10)));
        handle.stop();
        server.run();
        drop(closed);
    }

    #[test]
    fn server_whose_threads_work_says_so() {
        let config = ServerConfig {
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 0)).into()],
            models: ModelSettings { lazy: true, ..ModelSettings::default() },
            ..ServerConfig::default()
        };
        let session = InferenceSession::builder().device(Arc::new(Cpu::new(1))).build().unwrap();
        let models = vec![ModelConfig::new(PipelineConfig::default())];
        let server = Server::start(config, models, Arc::new(session), &PLATFORM).unwrap();
        assert!(server.handle().answers_within(Duration::from_secs(60)));
        server.handle().stop();
        server.run();
    }
}
