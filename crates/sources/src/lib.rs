//! From the name of a model to its files: paths on this machine, repositories of a hub, and the hub's cache.
//!
//! What the cache holds is used without asking a hub. With `HF_HUB_OFFLINE=1` the network is never touched. Names
//! from users and hubs are checked before they become paths. Downloads are the cargo feature `hub`.

#![forbid(unsafe_code)]

mod bytes;
mod choose;
mod content;
mod encoding;
mod error;
mod hub;
mod named;
mod nearest;
mod pull;
mod repo;

pub use bytes::MemoryBytes;
pub use choose::{Choice, Several, choose};
pub use content::Content;
pub use encoding::{QuantizationEncoding, SupportedEncoding};
pub use error::Error;
pub use hub::{
    CacheContents, CachedRepo, Hub, ModelInfo, Progress, Repo, RepoFile, Snapshot, Token, file_path,
    index_of, is_repo_id, parts_of, sets,
};
pub use named::{RepoType, UnknownName, WeightsFormat};
pub use nearest::nearest;
pub use pull::{
    Beside, CONFIG, LocalModel, PlannedFile, Pull, Wanted, companions, is_beside_weights, resolve,
};
pub use repo::{FilesByFormat, HuggingFaceRepo, ModelFiles, RepoOptions};
