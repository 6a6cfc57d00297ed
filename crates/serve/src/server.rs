//! The server: a service behind sockets, and its life from the first to the last connection.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use engine::InferenceSession;
use engine::devices::Platform;
use tokio::runtime::{self, Runtime};

use crate::Error;
use crate::config::{Address, ModelConfig, ServerConfig};
use crate::service::Service;
use crate::state::{CANCEL, ServerState};
use crate::telemetry::Traces;
use crate::transport::{self, Listener, Tls};

/// How long the threads that answer requests may take beyond all other times.
const LATE: Duration = Duration::from_secs(1);

/// Threads that answer requests. They parse, render and write; models compute on threads of their own.
const THREADS: usize = 2;
/// The most threads that block or answer large requests, most of which wait for a model: more than may wait for one.
const BLOCKING_THREADS: usize = 2048;

/// A server that answers requests.
pub struct Server {
    runtime: Runtime,
    state: Arc<ServerState>,
    tls: Arc<Tls>,
    /// Closed when no connection is accepted any more and all are finished.
    ended: Receiver<()>,
    addresses: Vec<Address>,
}

/// Held while connections are accepted; a defect that ends that ends the server.
struct End {
    state: Arc<ServerState>,
    _ended: SyncSender<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.state.stop();
    }
}

/// Steers a server from any thread.
#[derive(Clone)]
pub struct ServerHandle {
    state: Arc<ServerState>,
    tls: Arc<Tls>,
}

impl ServerHandle {
    /// Has the server finish what runs, refuse what is new, and end.
    pub fn stop(&self) {
        self.state.stop();
    }

    /// Serves these models in place of all others. Models that stay as they are stay in memory; others leave once their
    /// requests have ended. Reads headers of files, and may block.
    ///
    /// # Errors
    /// If two have the same name, or one cannot run here; all stays as it was.
    pub fn set_models(&self, models: Vec<ModelConfig>) -> Result<(), Error> {
        self.state.models.list(models)
    }

    /// Reads the key file and the TLS files again. Running requests are not affected.
    ///
    /// # Errors
    /// If one of them is wrong: all stay as they are.
    pub fn reload(&self) -> Result<(), Error> {
        let keys = self.state.keys().read_again()?;
        let tls = Tls::read(self.state.config.tls.as_ref())?;
        self.state.set_keys(keys);
        self.tls.set(tls);
        Ok(())
    }

    /// Whether the threads that answer requests do something that they are given, within a time.
    pub fn answers_within(&self, time: Duration) -> bool {
        let (done, wait) = sync_channel(1);
        self.state.models.runtime().spawn(async move {
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
            return Err(Error::Open { address: address.to_string() });
        }
        let tls = Arc::new(Tls::new(config.tls.as_ref())?);
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
        let config = ServerConfig { addresses: addresses.clone(), ..config };
        let service = Service::new(config, models, session, platform, runtime.handle())?;
        let state = Arc::clone(service.state());
        let (end, ended) = sync_channel(0);
        let end = End { state: Arc::clone(&state), _ended: end };
        let of_task = Arc::clone(&tls);
        runtime.spawn(async move {
            let _end = end;
            let state = Arc::clone(service.state());
            transport::serve(listeners, service, &of_task, state.ended()).await;
        });
        Ok(Server { runtime, state, tls, ended, addresses })
    }

    /// Loads the models that fit into memory together, unless requests are to load them.
    ///
    /// # Errors
    /// If one that fits cannot be loaded.
    pub fn load(&self) -> Result<(), Error> {
        self.state.load()
    }

    /// Where it listens, with the ports that it took.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Steers the server while it runs.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle { state: Arc::clone(&self.state), tls: Arc::clone(&self.tls) }
    }

    /// Waits until the server is stopped and the requests that run are finished. Until the last of them is over, new ones
    /// are refused. This thread keeps the time, so that the server ends in time whatever the threads that answer do.
    pub fn run(self) {
        let Server { runtime, state, ended, .. } = self;
        runtime.block_on(state.stopped());
        let most = state.config.drain_timeout.saturating_add(CANCEL + transport::CLOSE + LATE);
        if ended.recv_timeout(most) == Err(RecvTimeoutError::Timeout) {
            tracing::error!("connections are cut: the server did not finish within {} s", most.as_secs_f64());
        }
        runtime.shutdown_background();
        tracing::info!("ended");
        state.log.finish();
        state.traces.iter().for_each(Traces::finish);
    }
}

async fn listen(addresses: &[Address]) -> Result<Vec<Listener>, Error> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        let listener = Listener::bind(address).await;
        listeners.push(listener.map_err(|source| Error::Bind { address: address.to_string(), source })?);
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;

    use cpu::Cpu;
    use pipelines::config::PipelineConfig;

    use super::*;
    use crate::config::ModelSettings;

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
