//! A hub, and the cache on this machine of what came from it.

mod cache;
mod contents;
mod info;
mod names;
mod online;
mod progress;
#[cfg(not(feature = "hub"))]
#[path = "no_remote.rs"]
mod remote;
#[cfg(feature = "hub")]
mod remote;
mod settings;
#[cfg(all(test, feature = "hub"))]
mod tests;
mod web;

pub use cache::{RepoFile, Snapshot};
pub use contents::{CacheContents, CachedRepo};
pub use info::ModelInfo;
pub(crate) use names::decoded;
pub use names::{Repo, file_path, is_repo_id};
pub use progress::Progress;
pub use settings::{Hub, Token};

pub(crate) use cache::{MAX_DEPTH, list_files};
pub(crate) use online::Online;
pub(crate) use web::WebFile;
