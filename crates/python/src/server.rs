//! The HTTP server as Python's class `Server` holds it, on a thread of this process.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::{self, JoinHandle};

use perihelion::driver::PLATFORM;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use serve::{Address, Error, Keys, ModelConfig, ServerConfig, ServerHandle};

use crate::error::file_error;
use crate::owned::Owned;
use crate::pipelines::{Config, Params, new_session, open_error, raise, wait, wait_for_thread};
use crate::running::guarded;

/// A server and its thread.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Server {
    running: Owned<Running>,
    address: SocketAddr,
}

struct Running {
    handle: ServerHandle,
    /// `None` once a call has taken its result.
    thread: Mutex<Option<JoinHandle<PyResult<()>>>>,
}

#[pymethods]
impl Server {
    /// Loads a model and answers requests from then on. `settings` has an attribute for each setting of a server.
    #[new]
    fn new(
        py: Python<'_>,
        config: &Config,
        num_threads: usize,
        settings: &Bound<'_, PyAny>,
    ) -> PyResult<Server> {
        let (model, settings) = (ModelConfig::new(config.get()), server_config(&Params(settings))?);
        let start = move || {
            let session = new_session(&model.config, num_threads).map_err(open_error)?;
            serve::Server::start(settings, vec![model], Arc::new(session.into()), &PLATFORM)
                .map_err(server_error)
        };
        let server = wait_for_thread(py, start)??;
        let handle = server.handle();
        let mut ports = server.addresses().iter().filter_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        });
        let address = ports.next().expect("it listens on the port that it was given");
        let run = move || guarded(|| server.run());
        let thread = thread::Builder::new().name("perihelion-serve".to_string()).spawn(run)?;
        let running = Running { handle, thread: Mutex::new(Some(thread)) };
        Ok(Server { running: Owned::new("the server", running), address })
    }

    /// Where programs on this machine reach it.
    #[getter]
    fn url(&self) -> String {
        let mut address = self.address;
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => (),
        }
        format!("http://{address}")
    }

    /// Waits until the server has ended.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get()?;
        wait(py, poll_fn(|_| if running.has_ended() { Poll::Ready(()) } else { Poll::Pending }))?;
        running.result()
    }

    /// Has the server finish what runs, and waits until it has ended.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.running.get()?.handle.stop();
        self.wait(py)
    }

    /// As `close` for an object that is gone, without waiting. A server of another process is left alone.
    fn release(&self) {
        if let Ok(running) = self.running.get() {
            running.handle.stop();
        }
    }
}

impl Running {
    fn has_ended(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The result of a thread that has ended, for the first call.
    fn result(&self) -> PyResult<()> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.map_or(Ok(()), |thread| thread.join().expect("panics are caught on the thread"))
    }
}

fn server_config(settings: &Params<'_, '_>) -> PyResult<ServerConfig> {
    let host: String = settings.get("host", "an IP address")?;
    let host: IpAddr = host.parse().map_err(|_| {
        PyValueError::new_err(format!("host is {host:?}: give an IP address, such as 127.0.0.1"))
    })?;
    let port = settings.get("port", "a whole number, at most 65535")?;
    let keys = settings.texts("keys")?.iter().fold(Keys::default(), |keys, key| keys.with_key(key));
    let key_file: Option<PathBuf> = settings.get("key_file", "a path or None")?;
    let keys = match key_file {
        Some(path) => keys.with_file(&path).map_err(server_error)?,
        None => keys,
    };
    Ok(ServerConfig {
        addresses: vec![Address::Tcp(SocketAddr::new(host, port))],
        keys,
        insecure: settings.get("insecure", "True or False")?,
        allowed_hosts: settings.texts("allowed_hosts")?,
        cors_origins: settings.texts("cors_origins")?,
        ..ServerConfig::default()
    })
}

/// The exception for a server that cannot start.
fn server_error(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Model { source, .. } => raise(&source, message),
        Error::Bind { source, .. } | Error::Start(source) => match source.raw_os_error() {
            Some(code) => PyOSError::new_err((code, message)),
            None => PyOSError::new_err(message),
        },
        Error::Keys { path, .. } => file_error(&path, message),
        _ => PyValueError::new_err(message),
    }
}
