//! Encrypted connections: certificates and keys from files that can be read again while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::Error;

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

impl TlsFiles {
    /// The configuration of new connections.
    ///
    /// # Errors
    /// If a file cannot be read, or the key does not belong to the certificate.
    pub(crate) fn read(&self) -> Result<Arc<ServerConfig>, Error> {
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
