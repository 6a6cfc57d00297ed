//! A file of weights at an address of the web that is on no hub, and its place in the cache:
//!
//! ```text
//! web--HOST--ID/FILE             the content; ID stands for the address without the file's name
//! web--HOST--ID/FILE.sha256      its SHA-256, as `sha256sum` writes and checks it
//! web--HOST--ID/FILE.incomplete  a download that has not ended
//! web--HOST--ID/FILE.version     the ETag, or the date, of what is in that
//! ```

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};
use weights::WeightFile;
use weights::file_name::shards_of;

use super::cache::INCOMPLETE;
use super::names::{decoded, file_path};
use super::remote::Remote;
use super::{Hub, Progress};
use crate::named::WEIGHTS_SUFFIXES;
use crate::{Error, WeightsFormat};

/// What names of folders with files of the web begin with.
pub(super) const PREFIX: &str = "web--";

/// A file of weights at an `http` or `https` address.
#[derive(Debug, Clone)]
pub(crate) struct WebFile {
    /// Whose cache is used, with the address of the file's server and no token.
    hub: Hub,
    /// Without what follows `#`.
    url: String,
    /// The last part of the address's path.
    name: String,
    /// In the cache.
    folder: PathBuf,
    /// The SHA-256 that the content must have, from `#sha256=…`.
    sha256: Option<String>,
    /// As the server said it.
    size: OnceLock<u64>,
}

impl WebFile {
    /// The file at an address.
    ///
    /// # Errors
    /// If the address names no file of weights, has a user or a password in it, or a digest that is none.
    pub(crate) fn new(hub: &Hub, address: &str) -> Result<WebFile, Error> {
        let refuse = |fix: &str| {
            let (field, fix) = ("weight_path", fix.to_string());
            Err(Error::Field { field, value: without_password(address), fix })
        };
        let (url, fragment) =
            address.split_once('#').map_or((address, None), |(url, rest)| (url, Some(rest)));
        let Some((scheme, rest)) = url.split_once("://") else { return refuse("give an address") };
        let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let Some((server, path)) = path.split_once('/') else {
            return refuse("the address names no file: give the address of a weights file");
        };
        if server.contains('@') {
            return refuse(
                "addresses with a user name or password are not supported: download the file and give its path",
            );
        }
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let name = decoded(name);
        if WeightsFormat::from_file_name(&name).is_none() {
            return refuse(&format!("the address must end in {WEIGHTS_SUFFIXES}"));
        }
        file_path(&name)?;
        if name.contains('/') {
            return refuse("the file's name has a `/` in it");
        }
        let sha256 = match fragment.and_then(|fragment| fragment.strip_prefix("sha256=")) {
            Some(digest) if digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Some(digest.to_ascii_lowercase())
            }
            Some(_) => return refuse("the 64 hexadecimal digits of a SHA-256 must follow sha256="),
            None => None,
        };
        let scheme = scheme.to_ascii_lowercase();
        let server = server.to_ascii_lowercase();
        let id = Sha256::digest(format!("{scheme}://{server}/{folder}{query}"));
        let id: String = id[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let host: String = server.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let folder = hub.cache.join(format!("{PREFIX}{host}--{id}"));
        let hub = Hub { endpoint: format!("{scheme}://{server}"), token: None, ..hub.clone() };
        let url = format!("{scheme}://{server}/{path}{query}");
        Ok(WebFile { hub, url, name, folder, sha256, size: OnceLock::new() })
    }

    /// All files of the set that this one is a part of, in order.
    pub(crate) fn parts(self) -> Vec<WebFile> {
        let (path, query) = self.url.split_at(self.url.find('?').unwrap_or(self.url.len()));
        // The name with its escapes.
        let (folder, own) = path.rsplit_once('/').unwrap_or(("", path));
        let part = |part: String| WebFile {
            url: format!("{folder}/{part}{query}"),
            name: decoded(&part),
            sha256: self.sha256.clone().filter(|_| part == own),
            size: OnceLock::new(),
            ..self.clone()
        };
        shards_of(own).into_iter().map(part).collect()
    }

    /// Where the cache has the file, or will have it.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// The file's name in messages: its address.
    #[cfg(feature = "hub")]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the cache has the file, with the digest that it must have.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub(crate) fn is_here(&self) -> Result<bool, Error> {
        if !self.path().is_file() {
            return Ok(false);
        }
        let Some(expected) = &self.sha256 else { return Ok(true) };
        Ok(self.recorded()?.as_ref() == Some(expected))
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// If it is not in the cache and the server cannot be asked.
    pub(crate) fn bytes(&self) -> Result<u64, Error> {
        if self.is_here()? {
            return Ok(self.path().metadata().map_err(Error::io(&self.path()))?.len());
        }
        match self.size.get() {
            Some(size) => Ok(*size),
            None => {
                let size = self.remote()?.web_size(self)?;
                Ok(*self.size.get_or_init(|| size))
            }
        }
    }

    /// The bytes that an interrupted download left.
    pub(crate) fn arrived(&self) -> u64 {
        self.incomplete().metadata().map_or(0, |found| found.len())
    }

    /// The file in the cache; if it is not there, its header, which is fetched, and no more.
    ///
    /// # Errors
    /// If it is damaged or cannot be fetched.
    pub(crate) fn header(&self) -> Result<WeightFile, Error> {
        if self.is_here()? {
            return Ok(WeightFile::open(&self.path())?);
        }
        Ok(self.remote()?.web_header(self)?.into_file()?)
    }

    /// Fetches the file, unless it is in the cache or `force` is set; gives its path.
    ///
    /// # Errors
    /// If it cannot be fetched, or has another digest than the address says.
    pub(crate) fn fetch(
        &self,
        force: bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<PathBuf, Error> {
        if force || !self.is_here()? {
            let remote = self.remote()?;
            progress(Progress::Started { files: 1, bytes: self.size.get().copied().unwrap_or(0) });
            remote.fetch_web(self, force, progress)?;
        }
        Ok(self.path())
    }

    /// The SHA-256 that the address demands.
    #[cfg(feature = "hub")]
    pub(super) fn demanded(&self) -> Option<&str> {
        self.sha256.as_deref()
    }

    /// The file's name without its folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The folder in the cache.
    #[cfg(feature = "hub")]
    pub(super) fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Where the digest of the content is.
    pub(super) fn digest_path(&self) -> PathBuf {
        self.path().with_added_extension("sha256")
    }

    /// Where the version is of which a part has arrived.
    #[cfg(feature = "hub")]
    pub(super) fn version_path(&self) -> PathBuf {
        self.path().with_added_extension("version")
    }

    fn incomplete(&self) -> PathBuf {
        self.path().with_added_extension(INCOMPLETE)
    }

    /// The digest that was kept when the file had arrived.
    fn recorded(&self) -> Result<Option<String>, Error> {
        let path = self.digest_path();
        match fs::read_to_string(&path) {
            Ok(line) => Ok(line.split_whitespace().next().map(str::to_string)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&path)(error)),
        }
    }

    fn remote(&self) -> Result<Remote, Error> {
        Remote::for_hub(&self.hub, &self.url)
    }
}

impl PartialEq for WebFile {
    fn eq(&self, other: &WebFile) -> bool {
        self.url == other.url
    }
}

impl Eq for WebFile {}

impl fmt::Display for WebFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.url)
    }
}

/// An address without the user and the password that it may have.
fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_string() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (server, path) = rest.split_at(end);
    format!("{scheme}://{}{path}", server.rsplit('@').next().unwrap_or(server))
}
