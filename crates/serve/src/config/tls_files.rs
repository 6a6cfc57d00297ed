//! The files of encrypted connections.

use std::path::PathBuf;

/// The files of encrypted connections, in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate of the server, and those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of which one must vouch for each client's.
    pub client_ca: Option<PathBuf>,
}
