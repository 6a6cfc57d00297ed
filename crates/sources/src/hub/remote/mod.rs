//! Asking a hub: what a repository has, and its files.

mod digest;
mod download;
mod header;
mod request;
mod web;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::http::Method;
use weights::FileHeader;

use super::names::is_commit;
use super::{Hub, ModelInfo, Progress, Repo};
use crate::Error;
use request::{Agent, Span, Subject};

/// Files that arrive at once.
const AT_ONCE: usize = 8;
/// The largest description of a repository that is read.
const MAX_INFO: u64 = 64 << 20;
/// Characters that URLs keep unescaped.
const IN_ADDRESSES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A connection to a hub.
pub(crate) struct Remote {
    hub: Hub,
    agent: Agent,
}

/// What a hub says of a file before sending it.
struct FileHead {
    /// The name of the content: its digest, where the hub has one.
    etag: String,
    size: Option<u64>,
}

impl Remote {
    /// A connection to a hub, if the network may be used to get `what`. Nothing is sent yet.
    pub(crate) fn for_hub(hub: &Hub, what: &str) -> Result<Remote, Error> {
        if hub.offline {
            return Err(Error::Offline { what: what.to_string(), cache: hub.cache.clone() });
        }
        Ok(Remote { hub: hub.clone(), agent: Agent::new(hub)? })
    }

    /// What the hub says of a repository at its revision.
    pub(crate) fn info(&self, repo: &Repo) -> Result<ModelInfo, Error> {
        let revision = utf8_percent_encode(repo.revision(), IN_ADDRESSES);
        let url = format!("{}/api/models/{}/revision/{revision}?blobs=true", self.hub.endpoint, repo.id());
        let subject = Subject::Repo(repo);
        let json = self.agent.retry(&url, &mut |_, _| (), || {
            let answer = self.agent.send(Method::GET, &url, Span::Whole, subject)?;
            answer.body_up_to(MAX_INFO)
        })?;
        ModelInfo::from_json(&url, &json)
    }

    /// The size of a file, if the hub says it.
    pub(crate) fn size_of(&self, repo: &Repo, name: &str) -> Result<Option<u64>, Error> {
        Ok(self.head(repo, name, &|_| ())?.size)
    }

    /// Fetches files, several at once, and notes the commit under the name that was asked for.
    pub(crate) fn download(
        &self,
        repo: &Repo,
        reference: &str,
        names: &[&str],
        force: bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Vec<PathBuf>, Error> {
        let paths = side_by_side(names, |name| self.fetch(repo, name, force, progress))?;
        self.write_ref(repo, reference)?;
        Ok(paths)
    }

    /// The headers of weights files, several at once.
    pub(crate) fn headers(&self, repo: &Repo, names: &[&str]) -> Result<Vec<FileHeader>, Error> {
        side_by_side(names, |name| {
            let label = format!("{repo}/{name}");
            self.header(&self.url(repo, name), &label, Subject::File(repo, name))
        })
    }

    /// The address of a file.
    fn url(&self, repo: &Repo, name: &str) -> String {
        let parts: Vec<String> =
            name.split('/').map(|part| utf8_percent_encode(part, IN_ADDRESSES).to_string()).collect();
        let revision = utf8_percent_encode(repo.revision(), IN_ADDRESSES);
        format!("{}/{}/resolve/{revision}/{}", self.hub.endpoint, repo.id(), parts.join("/"))
    }

    fn head(
        &self,
        repo: &Repo,
        name: &str,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<FileHead, Error> {
        super::file_path(name)?;
        let url = self.url(repo, name);
        let subject = Subject::File(repo, name);
        let mut report = |wait, problem: &str| progress(Progress::Retrying { file: name, wait, problem });
        let answer = self
            .agent
            .retry(&url, &mut report, || self.agent.send(Method::HEAD, &url, Span::Whole, subject))?;
        let protocol = |problem: String| Error::Protocol { url: url.clone(), problem };
        if let Some(commit) = answer.header("x-repo-commit")
            && is_commit(repo.revision())
            && commit != repo.revision()
        {
            let problem =
                format!("the file is of commit {}, expected {}", commit.escape_debug(), repo.revision());
            return Err(protocol(problem));
        }
        let etag = answer.header("x-linked-etag").or_else(|| answer.last_header("etag")).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"').to_string();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if etag.is_empty() || etag.len() > 128 || !etag.bytes().all(plain) {
            return Err(protocol(format!(
                "unexpected ETag `{}` (expected a content hash)",
                etag.escape_debug()
            )));
        }
        // A redirect states its own length, not the file's.
        let length = answer.last_header("content-length").filter(|_| answer.status.is_success());
        let size = answer.header("x-linked-size").or(length);
        Ok(FileHead { etag, size: size.and_then(|size| size.parse().ok()) })
    }
}

/// Runs `work` on several files at once until one fails. Results are in the order of `names`.
fn side_by_side<T: Send>(
    names: &[&str],
    work: impl Fn(&str) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new((0..names.len()).map(|_| None).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(names.len()) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed)
                    && let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(name) = names.get(index)
                {
                    let result = work(name);
                    // The other threads finish their current file and take no further one.
                    stop.fetch_or(result.is_err(), Ordering::Relaxed);
                    results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().flatten().collect()
}
