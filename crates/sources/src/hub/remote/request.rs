//! One request to a hub: redirects, refusals, and trying again.

use std::io::Read;
use std::time::Duration;

use ureq::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Body, BodyReader};

use crate::Error;
use crate::hub::{Hub, Repo, Token};

/// How often a request is tried: at once, then after 1, 2, 4, 8 and 16 times the first delay.
const TRIES: u32 = 6;
/// The longest wait that a hub may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How far delays stray from that, so that those who failed together do not return together.
const JITTER: f64 = 0.25;
/// Hops from the hub to where the content is.
const MAX_REDIRECTS: usize = 10;
/// How long a connection may take to be made, and then be silent.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends requests, with the token to the hub alone.
pub(super) struct Agent {
    agent: ureq::Agent,
    endpoint: String,
    origin: Origin,
    token: Option<Token>,
    delay: Duration,
}

/// What a request is about, for messages.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    /// A repository of a hub.
    Repo(&'a Repo),
    /// A file in one.
    File(&'a Repo, &'a str),
    /// A file of the web.
    Web,
}

/// The bytes of a file that are asked for.
#[derive(Clone, Copy)]
pub(super) enum Span {
    Whole,
    /// From a byte on.
    From(u64),
    /// From the first of two bytes up to the second, which is not among them.
    Between(u64, u64),
}

/// Why a request failed.
pub(super) enum Failure {
    /// It may succeed the next time. `progress`: something new has arrived.
    Passing { problem: String, progress: bool },
    /// The hub takes no more requests for now, and may say for how long.
    Limited { error: Box<Error>, wait: Option<Duration> },
    /// It will not.
    Final(Error),
}

/// An answer that is no refusal.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Of the redirects within the hub, and of the last answer.
    headers: Vec<HeaderMap>,
    body: Body,
}

/// Scheme, host and port: those who share it share secrets.
#[derive(PartialEq, Eq)]
struct Origin(String, String, u16);

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Final(error)
    }
}

impl Agent {
    pub(super) fn new(hub: &Hub) -> Result<Agent, Error> {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE))
            .user_agent(concat!("perihelion/", env!("CARGO_PKG_VERSION")));
        if let Some(file) = &hub.certificates {
            let pem = std::fs::read(file).map_err(Error::io(file))?;
            let certificates = parse_pem(&pem).filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            });
            let certificates: Vec<Certificate<'static>> = certificates.collect();
            let roots = RootCerts::new_with_certs(&certificates);
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        let origin = hub.endpoint.parse().ok().as_ref().and_then(Origin::from_uri).ok_or(Error::Setting {
            variable: "HF_ENDPOINT",
            value: hub.endpoint.clone(),
            problem: "give an address such as https://huggingface.co",
        })?;
        Ok(Agent {
            agent: config.build().new_agent(),
            endpoint: hub.endpoint.clone(),
            origin,
            token: hub.token.clone(),
            delay: hub.retry_delay,
        })
    }

    /// Tries until it succeeds, fails for good, or has failed too often without anything arriving.
    pub(super) fn retry<T>(
        &self,
        url: &str,
        report: &mut dyn FnMut(Duration, &str),
        mut attempt: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let (mut tries, mut failed) = (0, 0);
        loop {
            tries += 1;
            let (problem, asked, error) = match attempt() {
                Ok(done) => return Ok(done),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing { problem, progress }) => {
                    failed = if progress { 1 } else { failed + 1 };
                    (problem.clone(), None, Error::Network { url: url.to_string(), problem, tries })
                }
                Err(Failure::Limited { error, wait }) => {
                    failed += 1;
                    (error.to_string(), wait, *error)
                }
            };
            if failed == TRIES || asked.is_some_and(|asked| asked > LONGEST_WAIT) {
                return Err(error);
            }
            let jitter = 1.0 + JITTER * (2.0 * fastrand::f64() - 1.0);
            let wait = (self.delay * (1 << (failed - 1))).mul_f64(jitter).max(asked.unwrap_or_default());
            report(wait, &problem);
            std::thread::sleep(wait);
        }
    }

    /// Sends a request, for some bytes of a file, and follows redirects: of `HEAD` within the hub only,
    /// since it is the hub that describes the file.
    pub(super) fn send(
        &self,
        method: Method,
        url: &str,
        span: Span,
        subject: Subject<'_>,
    ) -> Result<Answer, Failure> {
        let protocol = |problem: &str| Error::Protocol { url: url.to_string(), problem: problem.to_string() };
        let mut uri: Uri = url.parse().map_err(|_| protocol("is no address"))?;
        let mut headers = Vec::new();
        for _ in 0..MAX_REDIRECTS {
            let response = self.send_once(&method, &uri, span)?;
            let at_hub = Origin::from_uri(&uri).as_ref() == Some(&self.origin);
            let status = response.status();
            if status.is_redirection() {
                let next =
                    redirected(&uri, response.headers()).ok_or_else(|| protocol("redirects nowhere"))?;
                let origin = Origin::from_uri(&next)
                    .ok_or_else(|| protocol("the redirect does not lead to a web address"))?;
                if self.origin.0 == "https" && origin.0 != "https" {
                    return Err(protocol("the redirect leads to an address without encryption").into());
                }
                headers.extend(at_hub.then(|| response.headers().clone()));
                if method == Method::HEAD && origin != self.origin {
                    return Ok(Answer { status, headers, body: response.into_body() });
                }
                uri = next;
                continue;
            }
            if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
                return Err(Failure::Passing {
                    problem: format!("status {}", status.as_u16()),
                    progress: false,
                });
            }
            // A range that cannot be had is for the caller to understand.
            if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
                headers.push(response.headers().clone());
                return Ok(Answer { status, headers, body: response.into_body() });
            }
            if status == StatusCode::TOO_MANY_REQUESTS {
                let seconds = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
                let wait = seconds.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
                let error =
                    Box::new(Error::RateLimited { endpoint: self.endpoint.clone(), retry_after: wait });
                return Err(Failure::Limited { error, wait });
            }
            return Err(self.refusal(url, at_hub, &response, subject).into());
        }
        Err(protocol("redirects without end").into())
    }

    fn send_once(&self, method: &Method, uri: &Uri, span: Span) -> Result<Response<Body>, Failure> {
        let mut request =
            Request::builder().method(method).uri(uri).header(header::ACCEPT_ENCODING, "identity");
        if let Some(range) = span.header() {
            request = request.header(header::RANGE, range);
        }
        if let Some(token) = &self.token
            && Origin::from_uri(uri).as_ref() == Some(&self.origin)
        {
            request = request.header(header::AUTHORIZATION, token.header());
        }
        let protocol = |problem: String| Failure::Final(Error::Protocol { url: uri.to_string(), problem });
        let request = request.body(()).map_err(|error| protocol(error.to_string()))?;
        self.agent.run(request).map_err(|error| match error {
            ureq::Error::Io(error) if is_about_trust(&error) => {
                Failure::Final(Error::Untrusted { url: uri.to_string(), problem: error.to_string() })
            }
            ureq::Error::HostNotFound => unknown_host(uri, error.to_string()),
            ureq::Error::Io(ref lookup) if is_about_a_name(lookup) => unknown_host(uri, error.to_string()),
            ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::ConnectionFailed
            | ureq::Error::Protocol(_) => Failure::Passing { problem: error.to_string(), progress: false },
            other => protocol(other.to_string()),
        })
    }

    /// What a refusal means. The hub names its reasons in a header; others have only the status.
    fn refusal(&self, url: &str, at_hub: bool, response: &Response<Body>, subject: Subject<'_>) -> Error {
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let status = response.status().as_u16();
        let (repo, file) = match subject {
            Subject::Repo(repo) => (repo, None),
            Subject::File(repo, file) => (repo, Some(file)),
            Subject::Web => {
                let problem = match status {
                    401 | 403 => format!(
                        "the server refuses it (status {status}): download the file and give its path"
                    ),
                    404 | 410 => format!("the server has no such file (status {status})"),
                    _ => format!("status {status}"),
                };
                return Error::Protocol { url: url.to_string(), problem };
            }
        };
        let (id, endpoint) = (repo.to_string(), self.endpoint.clone());
        if !at_hub {
            return Error::Protocol {
                url: url.to_string(),
                problem: format!("the server of its content answered with status {status}"),
            };
        }
        match (text("x-error-code").unwrap_or_default(), status, file) {
            ("GatedRepo", ..) | ("", 401 | 403, _) => {
                Error::Gated { repo: id, status, with_token: self.token.is_some() }
            }
            ("EntryNotFound", _, Some(file)) | ("", 404, Some(file)) => {
                Error::MissingFile { repo: id, file: file.to_string(), nearest: None }
            }
            ("RevisionNotFound", ..) => {
                Error::MissingRevision { repo: id, revision: repo.revision().to_string() }
            }
            ("RepoNotFound", ..) | ("", 404, None) => Error::MissingRepo { repo: id, endpoint },
            _ => Error::Protocol { url: url.to_string(), problem: format!("status {status}") },
        }
    }
}

impl Span {
    fn header(self) -> Option<String> {
        match self {
            Span::Whole | Span::From(0) => None,
            Span::From(start) => Some(format!("bytes={start}-")),
            Span::Between(start, end) => Some(format!("bytes={start}-{}", end - 1)),
        }
    }
}

impl Answer {
    /// A header, of the first of the answers that has it.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|headers| headers.get(name)?.to_str().ok())
    }

    /// The version of the file that the last answer states: its ETag or, without one, the time of the last change.
    pub(super) fn version(&self) -> Option<String> {
        let etag = self.last_header("etag").filter(|etag| !etag.starts_with("W/"));
        Some(etag.or_else(|| self.last_header("last-modified"))?.to_string())
    }

    /// A header of the last answer.
    pub(super) fn last_header(&self, name: &str) -> Option<&str> {
        self.headers.last()?.get(name)?.to_str().ok()
    }

    /// The whole content, which must be small.
    pub(super) fn body_up_to(self, limit: u64) -> Result<Vec<u8>, Failure> {
        let mut content = Vec::new();
        let read = self.reader().take(limit + 1).read_to_end(&mut content);
        match read {
            Err(error) => Err(Failure::Passing { problem: error.to_string(), progress: false }),
            Ok(length) if length as u64 > limit => Err(Failure::Passing {
                problem: format!("the answer has more than {limit} bytes"),
                progress: false,
            }),
            Ok(_) => Ok(content),
        }
    }

    pub(super) fn reader(self) -> BodyReader<'static> {
        self.body.into_reader()
    }
}

/// Whether a name has no address: a machine without a network says so at once, and a second later again.
fn is_about_a_name(error: &std::io::Error) -> bool {
    error.to_string().starts_with("failed to lookup address")
}

fn unknown_host(uri: &Uri, problem: String) -> Failure {
    Failure::Final(Error::Network { url: uri.to_string(), problem, tries: 1 })
}

/// Whether a connection failed because the server's certificate is not trusted, which trying again does not change.
fn is_about_trust(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::InvalidData && error.to_string().contains("certificate")
}

impl Origin {
    fn from_uri(uri: &Uri) -> Option<Origin> {
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let port = match scheme.as_str() {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        Some(Origin(scheme, uri.host()?.to_ascii_lowercase(), uri.port_u16().unwrap_or(port)))
    }
}

/// Where an answer sends us.
fn redirected(from: &Uri, headers: &HeaderMap) -> Option<Uri> {
    let location = headers.get(header::LOCATION)?.to_str().ok()?;
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let absolute = match location {
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        _ => location.to_string(),
    };
    absolute.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_not_tried_again() {
        use std::io::{Error, ErrorKind};
        let error = |kind, text: &str| is_about_trust(&Error::new(kind, text.to_string()));
        assert!(error(ErrorKind::InvalidData, "invalid peer certificate: UnknownIssuer"));
        assert!(!error(ErrorKind::InvalidData, "received corrupt message"));
        assert!(!error(ErrorKind::ConnectionReset, "connection reset by peer"));
    }

    #[test]
    fn names_without_an_address_are_told_from_other_failures() {
        use std::net::ToSocketAddrs;
        let error = ("nobody.invalid", 80).to_socket_addrs().unwrap_err();
        assert!(is_about_a_name(&error), "{error}");
        assert!(!is_about_a_name(&std::io::Error::other("connection reset by peer")));
    }

    #[test]
    fn redirects_are_relative_or_not() {
        let from: Uri = "https://hub.co:8443/a/resolve/main/x".parse().unwrap();
        let to = |location: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, location.parse().unwrap());
            redirected(&from, &headers).map(|uri| uri.to_string())
        };
        assert_eq!(to("/b?x=1").unwrap(), "https://hub.co:8443/b?x=1");
        assert_eq!(to("//cdn.co/b").unwrap(), "https://cdn.co/b");
        assert_eq!(to("https://cdn.co/b").unwrap(), "https://cdn.co/b");
        assert_eq!(redirected(&from, &HeaderMap::new()), None);
        let origin = |uri: &str| Origin::from_uri(&uri.parse().unwrap());
        assert!(origin("https://hub.co/x") == origin("https://HUB.co:443/y"));
        assert!(origin("https://hub.co/x") != origin("https://cdn.hub.co/x"));
        assert!(origin("http://hub.co/x") != origin("https://hub.co/x"));
        assert!(origin("ftp://hub.co/x").is_none());
    }
}
