//! Encrypted connections: certificates and keys from files that can be read again while the server runs.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::Error;
use crate::config::TlsFiles;

/// The encryption of new connections, if they are encrypted. It can change while the server runs.
pub(crate) struct Tls(RwLock<Option<Arc<ServerConfig>>>);

impl Tls {
    /// Encryption with the certificates in files.
    ///
    /// # Errors
    /// If a file cannot be read, or the key does not belong to the certificate.
    pub(crate) fn new(files: Option<&TlsFiles>) -> Result<Tls, Error> {
        Tls::read(files).map(|config| Tls(RwLock::new(config)))
    }

    /// Reads the files again, for [`Tls::set`].
    ///
    /// # Errors
    /// As [`Tls::new`].
    pub(crate) fn read(files: Option<&TlsFiles>) -> Result<Option<Arc<ServerConfig>>, Error> {
        files.map(TlsFiles::read).transpose()
    }

    /// Encrypts new connections in this way.
    pub(crate) fn set(&self, config: Option<Arc<ServerConfig>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// The encryption of new connections.
    pub(super) fn current(&self) -> Option<Arc<ServerConfig>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TlsFiles {
    /// The configuration of new connections.
    ///
    /// # Errors
    /// If a file cannot be read, or the key does not belong to the certificate.
    fn read(&self) -> Result<Arc<ServerConfig>, Error> {
        let (certificates, key) = self.identity()?;
        let provider = Arc::new(default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|problem| error(&self.certificate, problem))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|problem| error(path, problem))?)
            }
        };
        let mut config =
            builder.with_single_cert(certificates, key).map_err(|problem| error(&self.key, problem))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The certificates and the key of the server.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn identity(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
        let certificates = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|problem| error(&self.key, problem))?;
        Ok((certificates, key))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|problem| error(path, problem))?;
    if certificates.is_empty() {
        return Err(error(path, "no certificate in it"));
    }
    Ok(certificates)
}

fn roots(path: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|problem: rustls::Error| error(path, problem))?;
    }
    Ok(roots)
}

fn error(path: &Path, problem: impl ToString) -> Error {
    Error::Tls { path: path.to_path_buf(), problem: problem.to_string() }
}
