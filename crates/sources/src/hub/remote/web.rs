//! Files of the web outside of hubs: sizes, headers and downloads.

use std::fs;

use ureq::http::Method;
use weights::FileHeader;

use super::Remote;
use super::download::{Content, replace};
use super::header::place;
use super::request::{Span, Subject};
use crate::Error;
use crate::hub::cache::INCOMPLETE;
use crate::hub::{Progress, WebFile};

/// What a server says of a file before sending it.
struct WebHead {
    size: u64,
    /// Its ETag, or when it was changed last.
    version: Option<String>,
}

impl Remote {
    /// The size of a file.
    pub(crate) fn web_size(&self, file: &WebFile) -> Result<u64, Error> {
        Ok(self.web_head(file, &|_| ())?.size)
    }

    /// The header of a file of weights.
    pub(crate) fn web_header(&self, file: &WebFile) -> Result<FileHeader, Error> {
        self.header(file.url(), file.url(), Subject::Web)
    }

    /// Fetches a file, unless it is in the cache.
    pub(crate) fn fetch_web(
        &self,
        file: &WebFile,
        force: bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<(), Error> {
        let folder = file.folder().file_name().and_then(|name| name.to_str()).expect("a folder of the cache");
        let _lock = self.lock(folder, file.name(), file.name(), progress)?;
        // The process that held the lock may have fetched it.
        if !force && file.is_here()? {
            return Ok(());
        }
        let WebHead { size: total, version } = self.web_head(file, progress)?;
        fs::create_dir_all(file.folder()).map_err(Error::io(file.folder()))?;
        let (path, version_path) = (file.path(), file.version_path());
        // Without a version, a digest tells whether the part is of the same content.
        let resumes = match (&version, fs::read_to_string(&version_path)) {
            (Some(now), Ok(then)) => *now == then,
            _ => file.demanded().is_some(),
        };
        if !resumes {
            let _ = fs::remove_file(path.with_added_extension(INCOMPLETE));
        }
        let version_text = version.as_deref().unwrap_or_default();
        replace(&version_path, |temporary| fs::write(temporary, version_text))?;
        let content = Content {
            url: file.url(),
            subject: Subject::Web,
            origin: self.hub.endpoint.clone(),
            name: file.name(),
            total,
            expected: file.demanded(),
            version: version.as_deref(),
        };
        let (partial, digest) = self.receive(&content, &path, progress)?;
        let line = format!("{digest}  {}\n", file.name());
        replace(&file.digest_path(), |temporary| fs::write(temporary, line))?;
        partial.finish(&path)?;
        let _ = fs::remove_file(&version_path);
        progress(Progress::Done { file: file.name(), total });
        Ok(())
    }

    /// Asks for the first byte: servers that sign addresses for `GET` refuse `HEAD`.
    fn web_head(&self, file: &WebFile, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<WebHead, Error> {
        let name = file.name();
        let mut report = |wait, problem: &str| progress(Progress::Retrying { file: name, wait, problem });
        let answer = self.agent.retry(file.url(), &mut report, || {
            self.agent.send(Method::GET, file.url(), Span::Between(0, 1), Subject::Web)
        })?;
        let protocol = |problem| Error::Protocol { url: file.url().to_string(), problem };
        let (_, size) = place(&answer, 0).map_err(protocol)?;
        Ok(WebHead { size, version: answer.version() })
    }
}
