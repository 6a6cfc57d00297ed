//! Which hub, which cache, and whether the network may be used: from the environment, as other tools read it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;

/// The hub that is asked unless another is named.
const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// A hub, and the cache on this machine of what came from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hub {
    /// The folder with a folder for each repository.
    pub cache: PathBuf,
    /// The address, without a slash at its end.
    pub endpoint: String,
    /// Who is asking.
    pub token: Option<Token>,
    /// Never touch the network.
    pub offline: bool,
    /// Certificates, in PEM, of those who vouch for the hub; unset, those that browsers trust.
    pub certificates: Option<PathBuf>,
    /// How long to wait before something that failed is tried for the second time; doubles each time.
    pub retry_delay: Duration,
}

/// A secret that opens private and gated repositories. Does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The token of a text, if it has one.
    ///
    /// # Errors
    /// If it could not be sent.
    pub fn new(text: &str) -> Result<Option<Token>, Error> {
        let text = text.trim();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let problem = "a token is one word of plain characters";
            return Err(Error::Setting { variable: "HF_TOKEN", value: "(hidden)".into(), problem });
        }
        Ok(Some(Token(text.to_string())).filter(|token| !token.0.is_empty()))
    }

    /// The value of the header that is sent to the hub, and to no other host.
    #[cfg(feature = "hub")]
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl Hub {
    /// What the environment says: `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`; `HF_ENDPOINT`; `HF_TOKEN`,
    /// `HF_TOKEN_PATH`, or the token that was saved in `HF_HOME`; `HF_HUB_OFFLINE`; `SSL_CERT_FILE`,
    /// `REQUESTS_CA_BUNDLE`. (`HTTPS_PROXY` and its like are read when connecting.)
    ///
    /// # Errors
    /// If a variable makes no sense, or there is no home folder to have a cache in.
    pub fn from_env() -> Result<Hub, Error> {
        Hub::from_variables(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
    }

    /// A hub's cache that is used as it is: the network is never touched.
    pub fn offline(cache: impl Into<PathBuf>) -> Hub {
        Hub { offline: true, ..Hub::new(cache, DEFAULT_ENDPOINT) }
    }

    /// A cache, and the hub that fills it.
    pub fn new(cache: impl Into<PathBuf>, endpoint: &str) -> Hub {
        Hub {
            cache: cache.into(),
            endpoint: endpoint.trim_end_matches('/').to_string(),
            token: None,
            offline: false,
            certificates: None,
            retry_delay: Duration::from_secs(1),
        }
    }

    /// Bytes that are free where the cache is, or will be. `None` where the system does not say.
    pub fn free_space(&self) -> Option<u64> {
        let folder = self.cache.ancestors().find(|folder| folder.exists())?;
        fs4::available_space(folder).ok()
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Hub, Error> {
        let first = |names: &[&str]| names.iter().find_map(|name| variable(name));
        let user = first(&["HOME", "USERPROFILE"]).map(PathBuf::from);
        let path = |text: String| match (text.strip_prefix("~/"), &user) {
            (Some(rest), Some(user)) => user.join(rest),
            _ => PathBuf::from(text),
        };
        let caches = variable("XDG_CACHE_HOME").map(path).or_else(|| Some(user.as_ref()?.join(".cache")));
        let home = variable("HF_HOME").map(path).or_else(|| Some(caches?.join("huggingface")));
        let cache = first(&["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]).map(path);
        let cache = cache.or_else(|| Some(home.as_ref()?.join("hub"))).ok_or(Error::Setting {
            variable: "HOME",
            value: String::new(),
            problem: "there is no home folder: set HF_HOME to the folder that models are kept in",
        })?;
        let on = |name| variable(name).is_some_and(|value| is_on(&value));
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_string());
        check_endpoint(&endpoint)?;
        let token = match first(&["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]) {
            Some(token) => Token::new(&token)?,
            None if on("HF_HUB_DISABLE_IMPLICIT_TOKEN") => None,
            None => {
                let file = variable("HF_TOKEN_PATH").map(path).or_else(|| Some(home?.join("token")));
                file.map_or(Ok(None), |file| saved_token(&file))?
            }
        };
        let offline = on("HF_HUB_OFFLINE") || on("TRANSFORMERS_OFFLINE");
        let certificates = first(&["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"]).map(path);
        Ok(Hub { token, offline, certificates, ..Hub::new(cache, endpoint.trim()) })
    }
}

fn is_on(value: &str) -> bool {
    ["1", "on", "yes", "true"].iter().any(|on| value.trim().eq_ignore_ascii_case(on))
}

fn check_endpoint(endpoint: &str) -> Result<(), Error> {
    let rest = endpoint.trim().strip_prefix("https://").or_else(|| endpoint.trim().strip_prefix("http://"));
    if rest.is_some_and(|host| !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Ok(());
    }
    let problem = "give an address such as https://huggingface.co";
    Err(Error::Setting { variable: "HF_ENDPOINT", value: endpoint.to_string(), problem })
}

/// The token that a login left, if it did.
fn saved_token(file: &Path) -> Result<Option<Token>, Error> {
    match std::fs::read_to_string(file) {
        Ok(text) => Token::new(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(file)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(variables: &[(&str, &str)]) -> Result<Hub, Error> {
        let find = |name: &str| variables.iter().find(|row| row.0 == name).map(|row| row.1.to_string());
        Hub::from_variables(find)
    }

    #[test]
    fn the_cache_is_where_other_tools_have_it() {
        let cache = |variables: &[(&str, &str)]| hub(variables).unwrap().cache;
        let home = ("HOME", "/home/ada");
        assert_eq!(cache(&[home]), Path::new("/home/ada/.cache/huggingface/hub"));
        assert_eq!(cache(&[home, ("XDG_CACHE_HOME", "/x")]), Path::new("/x/huggingface/hub"));
        assert_eq!(cache(&[home, ("HF_HOME", "~/models")]), Path::new("/home/ada/models/hub"));
        assert_eq!(cache(&[("HF_HOME", "/models"), ("HF_HUB_CACHE", "/hub")]), Path::new("/hub"));
        assert!(hub(&[]).unwrap_err().to_string().contains("set HF_HOME"));
    }

    #[test]
    fn the_environment_says_which_hub_and_whether() {
        let home = ("HOME", "/nonexistent");
        let plain = hub(&[home]).unwrap();
        assert_eq!(
            (plain.endpoint.as_str(), plain.offline, plain.token),
            ("https://huggingface.co", false, None)
        );
        let set = hub(&[home, ("HF_ENDPOINT", "http://[::1]:80/"), ("HF_HUB_OFFLINE", "YES")]).unwrap();
        assert_eq!((set.endpoint.as_str(), set.offline), ("http://[::1]:80", true));
        assert!(!hub(&[home, ("HF_HUB_OFFLINE", "0")]).unwrap().offline);
        for endpoint in ["huggingface.co", "ftp://x", "https://", "https://a b"] {
            assert!(hub(&[home, ("HF_ENDPOINT", endpoint)]).is_err(), "{endpoint}");
        }
    }

    #[test]
    fn tokens_are_found_and_hidden() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "hf_saved\n").unwrap();
        let home = ("HF_HOME", folder.path().to_str().unwrap());
        let token = |variables: &[(&str, &str)]| hub(variables).unwrap().token;
        assert_eq!(token(&[home]), Token::new("hf_saved").unwrap());
        assert_eq!(token(&[home, ("HF_TOKEN", " hf_set ")]), Token::new("hf_set").unwrap());
        assert_eq!(token(&[home, ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        let shown = format!("{:?} {}", hub(&[home]), hub(&[home, ("HF_TOKEN", "hf_\r\nx")]).unwrap_err());
        assert!(!shown.contains("hf_"), "{shown}");
    }
}
