//! Connections: accepted, bounded, and finished before the server ends.

use std::future::Future;
use std::io;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::server::ServerConfig;

/// The most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 32 << 10;
/// The most headers of a request.
const MAX_HEADERS: usize = 100;
/// How long to wait before accepting again if the system is out of descriptors.
const RETRY: Duration = Duration::from_millis(50);

/// Answers the requests of all connections until `stopping` is done, and then those that run.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    config: &ServerConfig,
    stopping: impl Future<Output = ()>,
) {
    let builder = builder(config);
    let graceful = GracefulShutdown::new();
    let mut stopping = std::pin::pin!(stopping);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    pause(&error).await;
                    continue;
                }
            },
            () = &mut stopping => break,
        };
        // A socket that is gone already fails when it is read.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(config.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests still ran after {} s and were cancelled", config.drain_timeout.as_secs());
    }
}

fn builder(config: &ServerConfig) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD_BYTES as u32)
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
