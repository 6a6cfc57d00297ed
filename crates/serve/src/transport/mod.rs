//! Sockets and connections: accepted, bounded in number and time, and finished before the server ends.

mod guard;
mod head;
mod limits;
mod listener;
mod probe;
mod tls;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Request;
use futures_util::future::join_all;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use guard::{Guard, Timeouts};
use limits::Limits;
pub(crate) use listener::Listener;
pub use probe::is_ready;
pub(crate) use tls::Tls;

use crate::service::Service;
use crate::state::Connection;

/// How long to wait before accepting again if the system is out of descriptors.
const RETRY: Duration = Duration::from_millis(50);
/// How long connections may take to end once their requests have: what was written goes to clients that read slowly.
pub(crate) const CLOSE: Duration = Duration::from_secs(3);
/// The most bytes of a connection that hyper keeps.
const BUFFER: usize = 64 << 10;

/// Bytes to a client and back.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Answers the requests of all connections until `stopping` is done.
pub(crate) async fn serve(
    listeners: Vec<Listener>,
    service: Service,
    tls: &Arc<Tls>,
    stopping: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let acceptor = Acceptor {
        builder: builder(),
        timeouts: Timeouts::new(&service.state().config),
        limits: Arc::new(Limits::new(&service.state().config)),
        tls: Arc::clone(tls),
        service,
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

/// The settings of connections.
#[derive(Clone)]
struct Acceptor {
    service: Service,
    builder: Builder<TokioExecutor>,
    timeouts: Timeouts,
    limits: Arc<Limits>,
    tls: Arc<Tls>,
}

impl Acceptor {
    /// Accepts connections for ever.
    async fn accept(&self, listener: &Listener, graceful: &GracefulShutdown) {
        loop {
            let room = self.limits.room().await;
            match listener.accept().await {
                Ok((stream, address)) => match self.limits.admit(room, address) {
                    Some(permit) => {
                        let tls = self.tls.current().filter(|_| listener.is_tcp()).map(TlsAcceptor::from);
                        let served = self.clone().answer(stream, tls, graceful.watcher());
                        tokio::spawn(async move {
                            served.await;
                            drop(permit);
                        });
                    }
                    None => self.service.state().metrics.note_refused_connection(),
                },
                Err(error) => pause(&error).await,
            }
        }
    }

    /// Answers the requests of a connection.
    async fn answer(self, stream: Box<dyn Stream>, tls: Option<TlsAcceptor>, watcher: Watcher) {
        let stream = match tls {
            None => stream,
            Some(tls) => match tokio::time::timeout(self.timeouts.head, tls.accept(stream)).await {
                Ok(Ok(stream)) => Box::new(stream),
                Ok(Err(error)) => return tracing::debug!("a connection was not encrypted: {error}"),
                Err(_) => return,
            },
        };
        let connection = Arc::new(Connection::default());
        let stream = Guard::new(stream, Arc::clone(&connection), self.timeouts);
        let service = TowerToHyperService::new(self.service);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&connection));
            service.call(request)
        });
        let served = self.builder.serve_connection(TokioIo::new(stream), service).into_owned();
        if let Err(error) = watcher.watch(served).await {
            tracing::debug!("a connection ended: {error}");
        }
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::body::{Body, Bytes};
    use futures_util::stream;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::config::ServerConfig;

    /// Bytes of a piece of an endless answer.
    const PIECE: usize = 1000;
    /// Bytes between the server and its client.
    const PIPE: usize = 4096;

    /// How many bytes of endless answers are made for a client that sends `requests` and reads nothing.
    fn made_for(requests: &[u8]) -> usize {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let answer = move || {
            let pieces = stream::repeat_with(move || {
                count.fetch_add(PIECE, Ordering::Relaxed);
                Ok::<_, Infallible>(Bytes::from_static(&[b'x'; PIECE]))
            });
            async { Body::from_stream(pieces) }
        };
        let service = TowerToHyperService::new(Router::new().fallback(answer));
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
            let (mut client, stream) = tokio::io::duplex(PIPE);
            let guard = Guard::new(stream, Arc::default(), Timeouts::new(&ServerConfig::default()));
            let served = builder().serve_connection(TokioIo::new(guard), service).into_owned();
            let served = tokio::spawn(async move { served.await.map_err(|error| error.to_string()) });
            client.write_all(requests).await.unwrap();
            for _ in 0..10_000 {
                tokio::task::yield_now().await;
            }
            assert!(!served.is_finished());
        });
        made.load(Ordering::Relaxed)
    }

    /// A frame of HTTP/2.
    fn frame(kind: u8, flags: u8, stream: u32, contents: &[u8]) -> Vec<u8> {
        let length = &(contents.len() as u32).to_be_bytes()[1..];
        [length, &[kind, flags], &stream.to_be_bytes(), contents].concat()
    }

    /// Fault F9: answers that a client does not read are made as far as a buffer holds them.
    #[test]
    fn of_answers_that_a_client_does_not_read_little_is_made() {
        let made = made_for(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!((PIPE..=PIPE + BUFFER + 2 * PIECE).contains(&made), "{made}");

        // The client says that it takes all bytes, of each stream and of the connection.
        let mut requests = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let (settings, window) = (4, 8);
        requests.extend(frame(settings, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
        requests.extend(frame(window, 0, 0, &(i32::MAX - 65_535).to_be_bytes()));
        let streams = 20;
        for stream in 0..streams {
            // `GET`, `http`, `/` and the authority; the head and the request end here.
            let head = [&[0x82, 0x86, 0x84, 0x01, 9][..], b"localhost"].concat();
            requests.extend(frame(1, 5, 2 * stream + 1, &head));
        }
        let made = made_for(&requests);
        let most = PIPE + streams as usize * (BUFFER + 2 * PIECE);
        assert!((PIPE..=most).contains(&made), "{made} of {most}");
    }
}
