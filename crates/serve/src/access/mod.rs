//! Who may ask: the names that the server answers to, the pages that may call it, and the keys of clients.

mod host;
mod keys;
mod limits;

pub(crate) use host::{Hosts, Origin};
pub use keys::Keys;
pub(crate) use keys::{Access, Key, Scope};
pub use limits::KeyLimits;
pub(crate) use limits::{KeyPermit, KeyUsage};

/// Whether a path is one of a model, and not of those who run the server.
pub(crate) fn is_work(path: &str) -> bool {
    Access::for_path(path) == Access::Scope(Scope::Infer)
}
