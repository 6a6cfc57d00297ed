//! Connections: accepted, bounded in number and time, and finished before the server ends.

mod address;
mod connection;
mod guard;
mod head;
mod limits;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use futures_util::future::join_all;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};

pub use address::Address;
pub(crate) use address::Listener;
pub(crate) use connection::{Connection, OpenRequest};
pub(crate) use guard::too_slow;
use guard::{Guard, Timeouts};
use limits::{Limits, Permit};

use crate::server::Shared;

/// How long to wait before accepting again if the system is out of descriptors.
const RETRY: Duration = Duration::from_millis(50);
/// How long connections may take to end once their requests have.
const CLOSE: Duration = Duration::from_secs(1);
/// The most bytes of a connection that hyper keeps.
const BUFFER: usize = 64 << 10;

/// Bytes to a client and back.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Answers the requests of all connections until `stopping` is done.
pub(crate) async fn serve(
    listeners: Vec<Listener>,
    router: Router,
    shared: &Arc<Shared>,
    stopping: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let acceptor = Acceptor {
        router,
        builder: builder(),
        timeouts: Timeouts::new(&shared.config),
        limits: Limits::new(&shared.config),
        shared: Arc::clone(shared),
    };
    tokio::select! {
        _ = join_all(listeners.iter().map(|listener| acceptor.accept(listener, &graceful))) => {}
        () = stopping => {}
    }
    drop(listeners);
    if tokio::time::timeout(CLOSE, graceful.shutdown()).await.is_err() {
        tracing::debug!("connections were still open and were closed");
    }
}

/// What connections are served with.
struct Acceptor {
    router: Router,
    builder: Builder<TokioExecutor>,
    timeouts: Timeouts,
    limits: Limits,
    shared: Arc<Shared>,
}

impl Acceptor {
    /// Accepts connections for ever.
    async fn accept(&self, listener: &Listener, graceful: &GracefulShutdown) {
        loop {
            let room = self.limits.room().await;
            match listener.accept().await {
                Ok((stream, address)) => match self.limits.admit(room, address) {
                    Some(permit) => self.spawn(stream, permit, graceful.watcher()),
                    None => self.shared.metrics.note_refused_connection(),
                },
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Answers the requests of a connection, in a task of its own.
    fn spawn(&self, stream: Box<dyn Stream>, permit: Permit, watcher: Watcher) {
        let connection = Arc::new(Connection::default());
        let stream = Guard::new(stream, Arc::clone(&connection), self.timeouts);
        let service = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&connection));
            service.call(request)
        });
        let served = self.builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let served = watcher.watch(served);
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(permit);
        });
    }
}

/// The guard has the limits of HTTP/1.
fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().header_read_timeout(None).max_headers(2 * head::MAX_HEADERS).max_buf_size(BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(head::MAX_BYTES as u32)
        .max_send_buf_size(BUFFER)
        .keep_alive_interval(Some(Duration::from_secs(20)));
    builder
}

/// A connection that is gone before it is accepted costs nothing; without descriptors, others must end first.
async fn pause(error: &io::Error) {
    let gone = [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
    if !gone.contains(&error.kind()) {
        tracing::warn!("cannot accept a connection: {error}");
        tokio::time::sleep(RETRY).await;
    }
}
