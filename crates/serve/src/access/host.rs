//! The `Host` and `Origin` headers: whether a request was meant for this server, and by whom.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};

use crate::api_error::ApiError;

/// The names of a server, and the pages that may call it.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// `None` if clients have keys: a page of another name does not know one.
    names: Option<Names>,
    origins: Vec<Origin>,
}

/// Names that a server without keys answers to, in addition to the loopback names.
#[derive(Debug)]
struct Names {
    addresses: Vec<IpAddr>,
    others: Vec<String>,
}

/// Pages that may call the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// All pages.
    Any,
    /// Pages from this machine, on any port.
    Localhost,
    /// Pages of one origin.
    One(String),
}

impl Hosts {
    /// The rules of a server that listens on `addresses`.
    pub(crate) fn new(
        addresses: &[IpAddr],
        allowed_hosts: &[String],
        origins: &[String],
        has_keys: bool,
    ) -> Hosts {
        let names = Names {
            addresses: addresses.to_vec(),
            others: allowed_hosts.iter().map(|name| plain(name)).collect(),
        };
        let origins = origins.iter().map(|text| Origin::new(text)).collect();
        Hosts { names: (!has_keys).then_some(names), origins }
    }

    /// Checks the headers of a request.
    ///
    /// # Errors
    /// If it is for another server, or from a page that may not call this one.
    pub(crate) fn check(&self, version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let host = host(version, uri, headers)?;
        if let (Some(names), Some(host)) = (&self.names, &host)
            && !names.contain(host)
        {
            let name = host.host();
            return Err(forbidden(format!(
                "this server does not answer to the name `{name}`: allow it with --allowed-host {name}, or set a key"
            )));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let allowed = || self.origins.iter().any(|allowed| allowed.allows(origin));
        if origins.next().is_none() && (is_same(origin, host.as_ref()) || allowed()) {
            return Ok(());
        }
        let origin = origin.escape_default();
        Err(forbidden(format!("pages of {origin} may not call this server: allow them with --cors-origin")))
    }
}

impl Names {
    fn contain(&self, host: &Authority) -> bool {
        let name = plain(host.host());
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match address {
            // A page of another site has a name. An address in its place is the address that the browser connects to.
            Ok(address) => {
                let is_ours = |bound: &IpAddr| bound.is_unspecified() || *bound == address;
                address.is_loopback() || self.addresses.iter().any(is_ours) || self.others.contains(&name)
            }
            Err(_) => is_local_name(&name) || self.others.contains(&name),
        }
    }
}

impl Origin {
    /// `*`, `localhost`, or an origin such as `https://example.com`.
    pub(crate) fn new(text: &str) -> Origin {
        match text {
            "*" => Origin::Any,
            "localhost" => Origin::Localhost,
            other => Origin::One(other.trim_end_matches('/').to_ascii_lowercase()),
        }
    }

    pub(crate) fn allows(&self, origin: &str) -> bool {
        match self {
            Origin::Any => true,
            Origin::One(allowed) => origin.eq_ignore_ascii_case(allowed),
            Origin::Localhost => authority(origin).is_some_and(|(_, host)| {
                let name = plain(host.host());
                let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
                is_local_name(&name) || address.is_ok_and(|address| address.is_loopback())
            }),
        }
    }
}

/// The name that a request gives the server. Only HTTP/1.0 may leave it out; browsers never do.
fn host(version: Version, uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, ApiError> {
    let wrong = |problem: &str| ApiError::bad_request(format!("the Host header is {problem}"));
    let mut hosts = headers.get_all(header::HOST).iter();
    let (header, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(wrong("given twice"));
    }
    let parse = |text: &str| match text.parse::<Authority>() {
        Ok(host) if !text.contains('@') => Ok(host),
        _ => Err(wrong("not a name")),
    };
    let header = header.map(|host| parse(host.to_str().unwrap_or_default())).transpose()?;
    match (header, uri.authority()) {
        (Some(host), Some(target)) if !host.as_str().eq_ignore_ascii_case(target.as_str()) => {
            Err(wrong("not that of the request's target"))
        }
        (None, Some(target)) => Ok(Some(parse(target.as_str())?)),
        (None, None) if version > Version::HTTP_10 => Err(wrong("missing")),
        (header, _) => Ok(header),
    }
}

/// Whether a page is of the server that it calls.
fn is_same(origin: &str, host: Option<&Authority>) -> bool {
    let (Some((scheme, page)), Some(host)) = (authority(origin), host) else { return false };
    let default = if scheme == "https" { 443 } else { 80 };
    plain(page.host()) == plain(host.host())
        && page.port_u16().unwrap_or(default) == host.port_u16().unwrap_or(default)
}

/// The parts of an origin. Sandboxed pages have the origin `null`, which has none.
fn authority(origin: &str) -> Option<(&str, Authority)> {
    let (scheme, rest) = origin.split_once("://")?;
    Some((scheme, rest.parse().ok()?))
}

/// A name without differences that have no meaning.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn is_local_name(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

fn forbidden(message: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "permission_denied", message)
}
