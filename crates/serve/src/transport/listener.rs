//! Sockets that take connections.

use std::io;
use std::net::IpAddr;
#[cfg(unix)]
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;

use super::Stream;
use crate::config::Address;

/// A socket that takes connections. A file that it made goes with it.
pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Starts to listen.
    ///
    /// # Errors
    /// If the address is in use, or not one of this machine.
    pub(crate) async fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp(address) => TcpListener::bind(address).await.map(Listener::Tcp),
            #[cfg(unix)]
            Address::Unix(path) => {
                remove_unused(path)?;
                UnixListener::bind(path).map(|listener| Listener::Unix(listener, path.clone()))
            }
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Where it listens, with the port that it took.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            #[cfg(unix)]
            Listener::Unix(_, path) => Ok(Address::Unix(path.clone())),
        }
    }

    /// Whether connections may come from other machines.
    pub(super) fn is_tcp(&self) -> bool {
        matches!(self, Listener::Tcp(_))
    }

    /// The next connection, and the address of its client if that is another machine.
    ///
    /// # Errors
    /// If the client is gone, or the system has no descriptor for it.
    pub(super) async fn accept(&self) -> io::Result<(Box<dyn Stream>, Option<IpAddr>)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // A socket that is gone already fails when it is read.
                let _ = stream.set_nodelay(true);
                let address = peer.ip().to_canonical();
                Ok((Box::new(stream), (!address.is_loopback()).then_some(address)))
            }
            #[cfg(unix)]
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Box::new(stream), None))
            }
        }
    }
}

#[cfg(unix)]
impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the socket of a server that ended without doing so; one that is in use stays.
#[cfg(unix)]
fn remove_unused(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::UnixStream;

    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let is_unused =
        || UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_socket && is_unused() { std::fs::remove_file(path) } else { Ok(()) }
}
