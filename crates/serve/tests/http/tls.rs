//! Encrypted connections: who is answered, and how certificates and keys change under way.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use serde_json::json;
use serve::{Keys, ServerConfig, TlsFiles};
use tempfile::TempDir;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::raw::exchange;
use crate::server::{TestServer, storyteller};

/// A certificate that vouches for itself, and its key, in PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Identity {
    fn new() -> Identity {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
        Identity { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    fn write(&self, folder: &Path) {
        fs::write(folder.join("certificate"), &self.certificate).unwrap();
        fs::write(folder.join("key"), &self.key).unwrap();
    }

    fn root(&self) -> Certificate<'static> {
        Certificate::from_pem(self.certificate.as_bytes()).unwrap()
    }
}

fn files(folder: &Path, client_ca: bool) -> TlsFiles {
    TlsFiles {
        certificate: folder.join("certificate"),
        key: folder.join("key"),
        client_ca: client_ca.then(|| folder.join("clients")),
    }
}

/// A client that trusts a server, and shows who it is.
fn client(server: &Identity, own: Option<&Identity>) -> ureq::Agent {
    let roots = RootCerts::new_with_certs(&[server.root()]);
    let own = own.map(|own| {
        ClientCert::new_with_certs(&[own.root()], PrivateKey::from_pem(own.key.as_bytes()).unwrap())
    });
    let tls = TlsConfig::builder().root_certs(roots).client_cert(own).build();
    ureq::Agent::config_builder().tls_config(tls).http_status_as_error(false).build().into()
}

fn url(server: &TestServer, path: &str) -> String {
    format!("https://localhost:{}{path}", server.address().port())
}

fn status(agent: &ureq::Agent, server: &TestServer) -> Option<u16> {
    agent.get(url(server, "/v1/models")).call().ok().map(|response| response.status().as_u16())
}

fn start(identity: &Identity, client_ca: Option<&Identity>) -> (TestServer, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    identity.write(folder.path());
    if let Some(clients) = client_ca {
        fs::write(folder.path().join("clients"), &clients.certificate).unwrap();
    }
    let tls = Some(files(folder.path(), client_ca.is_some()));
    let keys = folder.path().join("keys");
    fs::write(&keys, Keys::line("alice", "infer", "secret")).unwrap();
    let keys = Keys::default().with_file(&keys).unwrap();
    (TestServer::new(ServerConfig { tls, keys, ..ServerConfig::default() }, vec![storyteller()]), folder)
}

#[test]
fn clients_that_trust_the_certificate_are_answered() {
    let identity = Identity::new();
    let (server, _folder) = start(&identity, None);
    assert_eq!(status(&client(&identity, None), &server), Some(401));
    assert_eq!(status(&client(&Identity::new(), None), &server), None);
    assert!(!exchange(server.address(), "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP"));
}

#[test]
fn clients_without_a_certificate_that_is_asked_for_are_not_answered() {
    let (identity, clients) = (Identity::new(), Identity::new());
    let (server, _folder) = start(&identity, Some(&clients));
    assert_eq!(status(&client(&identity, Some(&clients)), &server), Some(401));
    assert_eq!(status(&client(&identity, None), &server), None);
    assert_eq!(status(&client(&identity, Some(&Identity::new())), &server), None);
}

#[test]
fn probes_speak_the_language_of_the_server() {
    let identity = Identity::new();
    let probe = |server: &TestServer, files: Option<&TlsFiles>| {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        serve::is_ready(stream, files)
    };
    let (server, folder) = start(&identity, None);
    let own = files(folder.path(), false);
    assert!(probe(&server, Some(&own)).unwrap(), "it needs no key");
    assert!(probe(&server, None).is_err(), "the connection is not encrypted");
    // The files may be newer than what the server has read.
    Identity::new().write(folder.path());
    assert!(probe(&server, Some(&own)).unwrap());
    let plain = TestServer::storyteller();
    assert!(probe(&plain, None).unwrap());
    assert!(probe(&plain, Some(&own)).is_err(), "the server does not encrypt");

    let (asking, folder) = start(&identity, Some(&identity));
    let own = files(folder.path(), true);
    assert!(probe(&asking, Some(&own)).unwrap(), "the server's certificate is one that it takes");
    assert!(probe(&asking, Some(&files(folder.path(), false))).is_err());
    let (other, folder) = start(&identity, Some(&Identity::new()));
    assert!(probe(&other, Some(&files(folder.path(), true))).is_err());
    std::fs::remove_file(folder.path().join("key")).unwrap();
    let missing = probe(&other, Some(&files(folder.path(), true))).unwrap_err().to_string();
    assert!(missing.contains("key: "), "{missing}");
}

#[test]
fn files_that_are_wrong_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let check = |part: &str| {
        let config = ServerConfig { tls: Some(files(folder.path(), false)), ..ServerConfig::default() };
        let error = crate::server::start(config, Vec::new()).err().unwrap().to_string();
        assert!(error.starts_with(&*folder.path().to_string_lossy()) && error.contains(part), "{error}");
    };
    check("certificate: ");
    let identity = Identity::new();
    identity.write(folder.path());
    fs::write(folder.path().join("certificate"), "no certificate").unwrap();
    check("certificate: no certificate in it");
    identity.write(folder.path());
    fs::write(folder.path().join("key"), Identity::new().key).unwrap();
    check("key: ");
}

#[test]
fn certificates_and_keys_are_read_again_under_64_streams() {
    let identity = Identity::new();
    let (server, folder) = start(&identity, None);
    let agent = client(&identity, None);
    let body = json!({"prompt": "Once", "max_tokens": 100, "ignore_eos": true, "stream": true, "seed": 7});
    let url = url(&server, "/v1/completions");
    let begun = Barrier::new(65);
    let stream = |begun: Option<&Barrier>| {
        let request =
            agent.post(&url).header("x-api-key", "secret").header("Content-Type", "application/json");
        let response = request.send(body.to_string()).unwrap();
        assert_eq!(response.status(), 200);
        begun.map(Barrier::wait);
        let lines = BufReader::new(response.into_body().into_reader()).lines();
        lines.map(Result::unwrap).filter(|line| line.starts_with("data: ")).count()
    };
    let expected = stream(None);
    let (key, certificate) = (folder.path().join("key"), folder.path().join("certificate"));
    let mut latest = Identity::new();
    std::thread::scope(|scope| {
        let streams: Vec<_> = (0..64).map(|_| scope.spawn(|| stream(Some(&begun)))).collect();
        begun.wait();
        for round in 0..100 {
            if round % 4 == 3 {
                fs::write(&key, "no key").unwrap();
                let error = server.handle().reload().unwrap_err().to_string();
                assert!(error.starts_with(&*key.to_string_lossy()), "{error}");
                latest.write(folder.path());
            } else {
                latest = Identity::new();
                latest.write(folder.path());
                server.handle().reload().unwrap();
            }
        }
        for stream in streams {
            assert_eq!(stream.join().unwrap(), expected);
        }
    });
    assert_eq!(status(&client(&latest, None), &server), Some(401));
    assert_eq!(status(&client(&identity, None), &server), None);
    fs::remove_file(&certificate).unwrap();
    assert!(server.handle().reload().is_err());
    assert_eq!(status(&client(&latest, None), &server), Some(401));
    assert!(TcpStream::connect(server.address()).is_ok());
}
