//! From the name of a model to its files: paths on this machine, repositories of a hub, and the hub's cache.
//!
//! What the cache holds is used without asking a hub. With `HF_HUB_OFFLINE=1` the network is never touched. Names
//! from users and hubs are checked before they become paths. Downloads are the cargo feature `hub`.

#![forbid(unsafe_code)]

mod bytes;
mod companions;
mod content;
mod encoding;
mod error;
mod file_set;
mod hub;
mod locate;
mod name;
mod named;
mod nearest;
mod pull;
mod repo;

pub use bytes::MemoryBytes;
pub use companions::{is_beside_weights, is_settings};
pub use content::Content;
pub use encoding::{QuantizationEncoding, SupportedEncoding};
pub use error::Error;
pub use file_set::{FileSet, LocalFiles, weights_format};
pub use hub::{
    CacheContents, CachedRepo, Hub, ModelInfo, Progress, Repo, RepoFile, Snapshot, Token, file_path,
    is_repo_id,
};
pub use locate::{ModelRequest, locate};
pub use name::{ModelName, RepoName};
pub use named::{RepoType, UnknownName, WeightsFormat};
pub use nearest::nearest;
pub use pull::{PlannedFile, Pull};
pub use repo::{FilesByFormat, HuggingFaceRepo, RepoOptions, Wanted};
