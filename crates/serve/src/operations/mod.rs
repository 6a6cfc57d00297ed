//! Routes for those who run the server: whether it lives and is ready, and which version it is.

pub(crate) mod health;
pub(crate) mod version;
