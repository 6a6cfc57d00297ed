//! Keys of clients, of which the server knows only the hashes.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, StatusCode, header};

use super::limits::KeyLimits;
use crate::Error;
use crate::api_error::ApiError;

/// Bytes of a hash, in hexadecimal digits.
const HASH_DIGITS: usize = 2 * blake3::OUT_LEN;
/// The longest name of a key.
const MAX_NAME: usize = 64;

/// The keys of clients. Without any, the server answers everyone.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// Those that do not change while the server runs.
    fixed: Vec<Key>,
    /// Where the others are listed.
    file: Option<PathBuf>,
    listed: Vec<Key>,
}

/// A key of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    scopes: Vec<Scope>,
    hash: blake3::Hash,
    pub(crate) limits: KeyLimits,
}

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Requests to models.
    Infer,
    /// Reading metrics.
    Metrics,
    /// Changing what the server does, and seeing what others do.
    Admin,
}

/// What a path asks of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing.
    Open,
    /// Any key.
    AnyKey,
    /// A key with a scope.
    Scope(Scope),
}

impl Keys {
    /// Adds a key that allows everything, under the name `default`.
    #[must_use]
    pub fn with_key(mut self, secret: &str) -> Keys {
        let hash = blake3::hash(secret.as_bytes());
        let (name, limits) = ("default".to_string(), KeyLimits::default());
        self.fixed.push(Key { name, scopes: Scope::ALL.to_vec(), hash, limits });
        self
    }

    /// Adds the keys of a file. Each line has a name, its scopes (`infer`, `metrics`, `admin`, with commas between
    /// them) and the BLAKE3 hash of the key in hexadecimal digits, with colons between them: `alice:infer:9a…`. Limits may
    /// follow, such as `requests_per_minute=60,tokens_per_minute=10000,concurrent_requests=4`. Lines that are empty or
    /// start with `#` are ignored. Several lines may have one name; then they share limits, and have the same.
    ///
    /// # Errors
    /// If the file cannot be read, a line is not of this form, or two lines of a name have different limits.
    pub fn with_file(self, path: &Path) -> Result<Keys, Error> {
        let error = |problem| Error::Keys { path: path.to_path_buf(), problem };
        let text = std::fs::read_to_string(path).map_err(|source| error(source.to_string()))?;
        let mut listed: Vec<Key> = Vec::new();
        for (index, line) in text.lines().map(str::trim).enumerate() {
            if !line.is_empty() && !line.starts_with('#') {
                let key =
                    Key::parse(line).map_err(|problem| error(format!("line {}: {problem}", index + 1)))?;
                let is_other = |other: &&Key| other.name == key.name && other.limits != key.limits;
                if let Some(other) = listed.iter().find(is_other) {
                    let shown = |key: &Key| format!("\"{}\"", key.limits);
                    let (own, before) = (shown(&key), shown(other));
                    let problem = format!("`{}` has the limits {own}, and {before} above", key.name);
                    return Err(error(format!("line {}: {problem}", index + 1)));
                }
                listed.push(key);
            }
        }
        Ok(Keys { file: Some(path.to_path_buf()), listed, ..self })
    }

    /// A new random key, and its line in a file of keys.
    ///
    /// # Errors
    /// If the name or a scope cannot stand in such a line.
    pub fn generate(name: &str, scopes: &str, limits: &KeyLimits) -> Result<(String, String), String> {
        let random = || uuid::Uuid::new_v4().simple().to_string();
        let secret = format!("peri-{}{}", random(), random());
        let line = Keys::line(name, scopes, &secret);
        let line = if limits.are_open() { line } else { format!("{line}:{limits}") };
        Key::parse(&line)?;
        Ok((secret, line))
    }

    /// The line of a key without limits in a file of keys.
    pub fn line(name: &str, scopes: &str, secret: &str) -> String {
        let mut line = format!("{name}:{scopes}:");
        // Writing to a string cannot fail.
        let _ = write!(line, "{}", blake3::hash(secret.as_bytes()));
        line
    }

    /// The same keys, with those of the file as it is now.
    ///
    /// # Errors
    /// As [`Keys::with_file`].
    pub(crate) fn read_again(&self) -> Result<Keys, Error> {
        match &self.file {
            Some(path) => self.clone().with_file(path),
            None => Ok(self.clone()),
        }
    }

    /// Whether clients need one. An empty file shuts everyone out.
    pub(crate) fn are_needed(&self) -> bool {
        !self.fixed.is_empty() || self.file.is_some()
    }

    /// The key that a request has, if it needs one.
    ///
    /// # Errors
    /// If it has none, one that is not known, or one that does not allow the request.
    pub(crate) fn check(&self, headers: &HeaderMap, access: Access) -> Result<Option<&Key>, ApiError> {
        if !self.are_needed() || access == Access::Open {
            return Ok(None);
        }
        let key = secrets(headers).find_map(|secret| self.find(secret));
        let Some(key) = key else {
            let message = match secrets(headers).next() {
                Some(_) => "the API key is not known to this server",
                None => "an API key is needed: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`",
            };
            return Err(ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message));
        };
        match access {
            Access::Scope(scope) if !key.scopes.contains(&scope) => {
                let message = format!("the API key `{}` lacks the scope `{}`", key.name, scope.name());
                Err(ApiError::new(StatusCode::FORBIDDEN, "permission_denied", message))
            }
            _ => Ok(Some(key)),
        }
    }

    /// Compares with all keys, each in constant time, so that the time says nothing about them.
    fn find(&self, secret: &str) -> Option<&Key> {
        let hash = blake3::hash(secret.as_bytes());
        let keys = self.fixed.iter().chain(&self.listed);
        keys.fold(None, |found, key| if key.hash == hash { Some(key) } else { found })
    }
}

impl Key {
    fn parse(line: &str) -> Result<Key, String> {
        let parts: Vec<&str> = line.split(':').collect();
        let (name, scopes, hash, limits) = match parts[..] {
            [name, scopes, hash] => (name, scopes, hash, KeyLimits::default()),
            [name, scopes, hash, limits] => (name, scopes, hash, KeyLimits::parse(limits)?),
            _ => {
                return Err(format!(
                    "{} fields, expected name:scopes:hash or name:scopes:hash:limits",
                    parts.len()
                ));
            }
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Err(format!("the name has to be 1 to {MAX_NAME} letters, digits, or `-_.@`"));
        }
        let scopes = scopes.split(',').map(|scope| Scope::parse(scope.trim()));
        let scopes = scopes.collect::<Result<_, String>>()?;
        let hash = blake3::Hash::from_hex(hash)
            .map_err(|_| format!("the hash is not {HASH_DIGITS} hexadecimal digits"))?;
        Ok(Key { name: name.to_string(), scopes, hash, limits })
    }
}

impl Scope {
    const ALL: [Scope; 3] = [Scope::Infer, Scope::Metrics, Scope::Admin];

    fn parse(text: &str) -> Result<Scope, String> {
        let scope = Scope::ALL.into_iter().find(|scope| scope.name() == text);
        scope.ok_or_else(|| format!("unknown scope: {text:?} (infer, metrics or admin)"))
    }

    fn name(self) -> &'static str {
        match self {
            Scope::Infer => "infer",
            Scope::Metrics => "metrics",
            Scope::Admin => "admin",
        }
    }
}

impl Access {
    /// A path that no rule names is one of a model.
    pub(crate) fn for_path(path: &str) -> Access {
        let is_under = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        match path {
            "/live" | "/" => Access::Open,
            // Probes have no key. What else these routes know is shown to clients with one.
            "/ready" | "/health" | "/v1/health" | "/ping" | "/v2/health/live" | "/v2/health/ready" => {
                Access::Open
            }
            "/version" | "/openapi.json" => Access::AnyKey,
            "/metrics" => Access::Scope(Scope::Metrics),
            "/api/pull" | "/api/copy" | "/api/create" | "/api/delete" => Access::Scope(Scope::Admin),
            _ if is_under("/ui") => Access::Open,
            _ if is_under("/admin") || is_under("/debug") => Access::Scope(Scope::Admin),
            _ => Access::Scope(Scope::Infer),
        }
    }
}

/// The keys that a request gives: of OpenAI's clients, then of Anthropic's.
fn secrets(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
    });
    let plain = headers.get("x-api-key").and_then(|value| value.to_str().ok());
    bearer.into_iter().chain(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_keys_parse_or_say_what_is_wrong() {
        let key = Key::parse(&Keys::line("alice", "infer,metrics", "secret")).unwrap();
        assert_eq!((&key.name[..], &key.scopes[..]), ("alice", &[Scope::Infer, Scope::Metrics][..]));
        let hash = "0".repeat(64);
        for (line, problem) in [
            ("alice:infer".to_string(), "2 fields, expected name:scopes:hash or name:scopes:hash:limits"),
            (format!(":infer:{hash}"), "the name has to be 1 to 64 letters, digits, or `-_.@`"),
            (format!("a b:infer:{hash}"), "the name has to be 1 to 64 letters, digits, or `-_.@`"),
            (format!("a:root:{hash}"), "unknown scope: \"root\" (infer, metrics or admin)"),
            ("a:infer:00".to_string(), "the hash is not 64 hexadecimal digits"),
            (
                format!("a:infer:{hash}:tokens_per_minute=x"),
                "tokens_per_minute is \"x\": give a number from 1",
            ),
        ] {
            assert_eq!(Key::parse(&line).unwrap_err(), problem, "{line}");
        }
    }

    #[test]
    fn generated_key_is_that_of_its_line_and_never_the_same() {
        let none = &KeyLimits::default();
        let (secret, line) = Keys::generate("alice", "infer,metrics", none).unwrap();
        let key = Key::parse(&line).unwrap();
        assert_eq!(key.limits, *none);
        let limits = KeyLimits { concurrent_requests: Some(2), ..*none };
        let (_, limited) = Keys::generate("bob", "infer", &limits).unwrap();
        assert_eq!(Key::parse(&limited).unwrap().limits, limits);
        assert_eq!(key.hash, blake3::hash(secret.as_bytes()));
        assert!(!line.contains(&secret) && secret.len() == 69, "{secret}");
        assert_ne!(Keys::generate("alice", "infer", none).unwrap().0, secret);
        assert!(Keys::generate("a b", "infer", none).unwrap_err().starts_with("the name has to be"));
        assert!(Keys::generate("a", "root", none).unwrap_err().starts_with("unknown scope"));
        assert!(Keys::generate("a:b", "infer", none).is_err());
    }

    #[test]
    fn paths_beside_a_folder_are_not_in_it() {
        assert_eq!(Access::for_path("/admin/load"), Access::Scope(Scope::Admin));
        assert_eq!(Access::for_path("/api/pull"), Access::Scope(Scope::Admin));
        assert_eq!(Access::for_path("/api/chat"), Access::Scope(Scope::Infer));
        assert_eq!(Access::for_path("/uix"), Access::Scope(Scope::Infer));
        assert_eq!(Access::for_path("/live/"), Access::Scope(Scope::Infer));
    }
}
