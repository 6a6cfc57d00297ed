//! Where models come from: a hub, the cache of what was downloaded from it, and paths on this machine.
//!
//! What the cache holds is used without asking anybody. With `HF_HUB_OFFLINE=1` the network is never touched. Names
//! from users and hubs are checked before they become paths. Downloads are the cargo feature `hub`.

mod cache;
mod choose;
mod contents;
mod error;
mod info;
mod names;
mod online;
mod progress;
#[cfg(not(feature = "hub"))]
#[path = "no_remote.rs"]
mod remote;
#[cfg(feature = "hub")]
mod remote;
mod resolve;
mod settings;
mod shards;
#[cfg(all(test, feature = "hub"))]
pub(crate) mod tests;

pub use cache::{RepoFile, Snapshot};
pub use contents::CacheContents;
pub use error::HubError;
pub use info::ModelInfo;
pub use names::{Repo, file_path, is_repo_id};
pub use progress::Progress;
pub use resolve::{LocalModel, PlannedFile, Pull, Wanted, resolve};
pub use settings::{Hub, Token};

pub(crate) use cache::{MAX_DEPTH, list_files};
pub(crate) use choose::{Choice, Several, choose};
pub(crate) use online::Online;
pub(crate) use resolve::{Beside, CONFIG, companions, is_beside_weights};
pub(crate) use shards::{index_of, missing_part, parts_of, sets};
