//! The hub connection of builds without downloads: opening one is an error.

use std::path::PathBuf;

use super::{Hub, ModelInfo, Progress, Repo, WebFile};
use crate::Error;

/// A connection to a hub; in this build there are none.
pub(crate) enum Remote {}

impl Remote {
    pub(crate) fn for_hub(hub: &Hub, what: &str) -> Result<Remote, Error> {
        let (what, cache) = (what.to_string(), hub.cache.clone());
        match hub.offline {
            true => Err(Error::Offline { what, cache }),
            false => Err(Error::NoDownloads { what, cache }),
        }
    }

    pub(crate) fn info(&self, _: &Repo) -> Result<ModelInfo, Error> {
        match *self {}
    }

    pub(crate) fn size_of(&self, _: &Repo, _: &str) -> Result<Option<u64>, Error> {
        match *self {}
    }

    pub(crate) fn headers(&self, _: &Repo, _: &[&str]) -> Result<Vec<weights::FileHeader>, Error> {
        match *self {}
    }

    pub(crate) fn download(
        &self,
        _: &Repo,
        _: &str,
        _: &[&str],
        _: bool,
        _: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Vec<PathBuf>, Error> {
        match *self {}
    }

    pub(crate) fn web_size(&self, _: &WebFile) -> Result<u64, Error> {
        match *self {}
    }

    pub(crate) fn web_header(&self, _: &WebFile) -> Result<weights::FileHeader, Error> {
        match *self {}
    }

    pub(crate) fn fetch_web(
        &self,
        _: &WebFile,
        _: bool,
        _: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<(), Error> {
        match *self {}
    }
}
