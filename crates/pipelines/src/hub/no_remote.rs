//! Builds without downloads: there is no way to ask a hub, and whoever wants one is told so.

use std::path::PathBuf;

use super::{Hub, HubError, ModelInfo, Progress, Repo};

/// A connection to a hub; in this build there are none.
pub(crate) enum Remote {}

impl Remote {
    pub(crate) fn of(hub: &Hub, what: &str) -> Result<Remote, HubError> {
        let (what, cache) = (what.to_string(), hub.cache.clone());
        match hub.offline {
            true => Err(HubError::Offline { what, cache }),
            false => Err(HubError::NoDownloads { what, cache }),
        }
    }

    pub(crate) fn info(&self, _: &Repo) -> Result<ModelInfo, HubError> {
        match *self {}
    }

    pub(crate) fn size_of(&self, _: &Repo, _: &str) -> Result<Option<u64>, HubError> {
        match *self {}
    }

    pub(crate) fn beginnings(&self, _: &Repo, _: &[&str]) -> Result<Vec<weights::Beginning>, HubError> {
        match *self {}
    }

    pub(crate) fn download(
        &self,
        _: &Repo,
        _: &str,
        _: &[&str],
        _: bool,
        _: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Vec<PathBuf>, HubError> {
        match *self {}
    }
}
