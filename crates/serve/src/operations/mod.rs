//! Routes for those who run the server: whether it lives and is ready, what it does, and which version it is.

pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod version;
