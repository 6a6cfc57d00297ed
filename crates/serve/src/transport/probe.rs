//! Asks another server whether it takes requests, for health checks.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
};

use crate::config::TlsFiles;

/// Whether the server at the other end takes requests. With the files of its encryption, the connection is encrypted. Its
/// certificate is not checked, since it names another host than the one that is asked, and nothing secret is sent.
///
/// # Errors
/// If nothing that speaks HTTP answers, or a file is wrong.
pub fn is_ready(stream: impl Read + Write, tls: Option<&TlsFiles>) -> io::Result<bool> {
    let Some(files) = tls else { return ask(stream) };
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
    // A server that asks for certificates may take its own.
    let config = if files.client_ca.is_some() {
        let (certificates, key) = files.identity().map_err(io::Error::other)?;
        builder.with_client_auth_cert(certificates, key).map_err(io::Error::other)?
    } else {
        builder.with_no_client_auth()
    };
    let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    ask(StreamOwned::new(connection, stream))
}

fn ask(mut stream: impl Read + Write) -> io::Result<bool> {
    stream.write_all(b"GET /ready HTTP/1.0\r\n\r\n")?;
    let mut status = [0; 12];
    stream.read_exact(&mut status)?;
    if !status.starts_with(b"HTTP/") {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is not one of HTTP"));
    }
    Ok(status.ends_with(b" 200"))
}

/// Takes each certificate whose key the other end has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
