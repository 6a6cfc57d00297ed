//! The bytes of a connection: heads are checked before hyper reads them, slow clients are dropped, and requests that
//! wait behind another one stay here, so that hyper sees when its client leaves.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::head::{self, Framing, Scanner};
use crate::api_error::ApiError;
use crate::config::ServerConfig;
use crate::state::Connection;

/// Bytes that are read at once.
const CHUNK: usize = 8 << 10;
/// The most bytes that wait behind a request that is not over.
const MAX_WAITING: usize = head::MAX_BYTES + CHUNK;
/// How long, and for how many bytes, a connection that ends in the middle of a request is read: a client that still
/// writes would lose the response with the connection.
const LINGER: Duration = Duration::from_secs(1);
const MAX_LINGER_BYTES: usize = 1 << 20;
/// The head that hyper reads instead of a refused one. The service answers it with the refusal.
const REFUSED: &[u8] = b"GET /- HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// How long clients may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    pub(super) head: Duration,
    idle: Duration,
    write: Duration,
}

/// A stream whose heads are checked.
pub(super) struct Guard<S> {
    stream: S,
    connection: Arc<Connection>,
    timeouts: Timeouts,
    next: NextBytes,
    scanner: Scanner,
    /// Bytes that hyper has not read.
    buffer: Vec<u8>,
    /// The first of them that it may read.
    ready: usize,
    is_first: bool,
    read_timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    linger_timer: Option<Pin<Box<Sleep>>>,
    lingered: usize,
}

/// The kind of the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextBytes {
    Head,
    /// So many bytes of a body.
    Body(u64),
    /// Chunks, after which the connection ends.
    Chunks,
    /// Frames of HTTP/2.
    Frames,
    /// Nothing that is read.
    Refused,
}

impl Timeouts {
    pub(super) fn new(config: &ServerConfig) -> Timeouts {
        Timeouts { head: config.header_timeout, idle: config.idle_timeout, write: config.write_timeout }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    pub(super) fn new(stream: S, connection: Arc<Connection>, timeouts: Timeouts) -> Guard<S> {
        Guard {
            stream,
            connection,
            timeouts,
            next: NextBytes::Head,
            scanner: Scanner::default(),
            buffer: Vec::new(),
            ready: 0,
            is_first: true,
            read_timer: None,
            write_timer: None,
            linger_timer: None,
            lingered: 0,
        }
    }

    /// Decides how many of the bytes hyper may read.
    fn release(&mut self) {
        self.ready = match &mut self.next {
            NextBytes::Head => return self.release_head(),
            NextBytes::Body(left) => {
                let bytes = self.buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= bytes as u64;
                if *left == 0 {
                    self.next = NextBytes::Head;
                }
                bytes
            }
            NextBytes::Chunks | NextBytes::Frames => self.buffer.len(),
            NextBytes::Refused => 0,
        };
    }

    fn release_head(&mut self) {
        if self.connection.is_busy() {
            return;
        }
        while self.buffer.starts_with(b"\r\n") {
            self.buffer.drain(..2);
            self.scanner = Scanner::default();
        }
        let end = match self.scanner.end(&self.buffer) {
            Ok(None) => return,
            Ok(Some(end)) => head::framing(&self.buffer[..end]).map(|framing| (end, framing)),
            Err(error) => Err(error),
        };
        match end {
            Ok((end, framing)) => self.release_request(end, framing),
            Err(error) => self.refuse(error),
        }
    }

    fn release_request(&mut self, end: usize, framing: Framing) {
        (self.ready, self.scanner, self.read_timer) = (end, Scanner::default(), None);
        self.is_first = false;
        self.next = match framing {
            Framing::Bytes(0) => NextBytes::Head,
            Framing::Bytes(bytes) => NextBytes::Body(bytes),
            Framing::Chunks => NextBytes::Chunks,
            Framing::Http2 => NextBytes::Frames,
        };
        if self.next == NextBytes::Chunks {
            self.connection.end();
        }
        // The service counts the requests of HTTP/2.
        if self.next != NextBytes::Frames {
            self.connection.begin();
        }
    }

    fn refuse(&mut self, error: ApiError) {
        (self.next, self.read_timer) = (NextBytes::Refused, None);
        self.buffer = REFUSED.to_vec();
        self.ready = self.buffer.len();
        self.connection.refuse(error);
        self.connection.begin();
    }

    /// Reads bytes into the buffer; gives how many, 0 at the end.
    fn poll_fill(&mut self, task: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut chunk = [0; CHUNK];
        let mut chunk = ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut self.stream).poll_read(task, &mut chunk))?;
        self.buffer.extend_from_slice(chunk.filled());
        Poll::Ready(Ok(chunk.filled().len()))
    }

    /// Whether the client took too long to send a head, or to begin one.
    fn poll_timeout(&mut self, task: &mut Context<'_>) -> Poll<()> {
        let is_between = matches!(self.next, NextBytes::Head | NextBytes::Frames);
        if !is_between || self.connection.poll_idle(task).is_pending() {
            self.read_timer = None;
            return Poll::Pending;
        }
        let is_head = self.is_first || !self.buffer.is_empty();
        let time = if is_head { self.timeouts.head } else { self.timeouts.idle };
        let timer = self.read_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        timer.as_mut().poll(task)
    }

    /// The same, unless the client reads nothing for too long.
    fn poll_written<T>(
        &mut self,
        task: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_timer = None;
            return written;
        }
        let time = self.timeouts.write;
        let timer = self.write_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        timer.as_mut().poll(task).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Whether the client may still write what is not read.
    fn is_cut(&self) -> bool {
        matches!(self.next, NextBytes::Refused | NextBytes::Chunks | NextBytes::Body(_))
    }

    /// Reads and forgets what the client still writes, within limits.
    fn poll_linger(&mut self, task: &mut Context<'_>) -> Poll<()> {
        let timer = self.linger_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if timer.as_mut().poll(task).is_ready() {
            return Poll::Ready(());
        }
        while self.lingered < MAX_LINGER_BYTES {
            match ready!(self.poll_fill(task)) {
                Ok(0) | Err(_) => break,
                Ok(bytes) => self.lingered += bytes,
            }
            self.buffer.clear();
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        loop {
            let was_busy = guard.connection.is_busy();
            if guard.ready == 0 {
                guard.release();
            }
            if guard.ready > 0 {
                let bytes = guard.ready.min(out.remaining());
                out.put_slice(&guard.buffer[..bytes]);
                guard.buffer.drain(..bytes);
                guard.ready -= bytes;
                return Poll::Ready(Ok(()));
            }
            if guard.next == NextBytes::Refused {
                return Poll::Pending;
            }
            if guard.buffer.len() > MAX_WAITING {
                ready!(guard.connection.poll_idle(task));
                continue;
            }
            let was_empty = guard.buffer.is_empty();
            match guard.poll_fill(task)? {
                Poll::Ready(0) => return Poll::Ready(Ok(())),
                Poll::Ready(_) if was_empty && guard.next == NextBytes::Head => guard.read_timer = None,
                Poll::Ready(_) => {}
                // The request before ended meanwhile, perhaps before it knew whom to wake.
                Poll::Pending if was_busy && guard.connection.poll_idle(task).is_ready() => {}
                Poll::Pending => {
                    ready!(guard.poll_timeout(task));
                    if guard.next == NextBytes::Frames || guard.buffer.is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                    guard.refuse(ApiError::too_slow("head", guard.timeouts.head));
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let guard = self.get_mut();
        let written = Pin::new(&mut guard.stream).poll_write(task, bytes);
        guard.poll_written(task, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let guard = self.get_mut();
        let written = Pin::new(&mut guard.stream).poll_write_vectored(task, slices);
        guard.poll_written(task, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        let flushed = Pin::new(&mut guard.stream).poll_flush(task);
        guard.poll_written(task, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        let ended = Pin::new(&mut guard.stream).poll_shutdown(task);
        ready!(guard.poll_written(task, ended))?;
        if guard.is_cut() {
            ready!(guard.poll_linger(task));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::state::OpenRequest;

    /// A client that has sent bytes, whose first request ends while the server looks for more.
    struct Client {
        bytes: Vec<u8>,
        request: Option<OpenRequest>,
    }

    impl AsyncRead for Client {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            out: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.bytes.is_empty() {
                self.request = None;
                return Poll::Pending;
            }
            out.put_slice(&std::mem::take(&mut self.bytes));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Client {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn request_behind_one_that_ends_just_now_is_read_at_once() {
        let head = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let connection = Arc::new(Connection::default());
        let client = Client { bytes: head.repeat(2), request: None };
        let timeouts = Timeouts::new(&ServerConfig::default());
        let mut guard = Guard::new(client, Arc::clone(&connection), timeouts);
        let mut task = Context::from_waker(Waker::noop());
        let mut read = |guard: &mut Guard<Client>| {
            let mut bytes = [0; 256];
            let mut out = ReadBuf::new(&mut bytes);
            let read = Pin::new(guard).poll_read(&mut task, &mut out);
            read.map(|result| result.map(|()| out.filled().to_vec()).unwrap())
        };
        // No clock is needed before a request is late.
        assert_eq!(read(&mut guard), Poll::Ready(head.to_vec()));
        guard.stream.request = Some(connection.request(false));
        assert_eq!(read(&mut guard), Poll::Ready(head.to_vec()));
    }
}
