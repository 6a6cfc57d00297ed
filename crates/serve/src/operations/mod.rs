//! Routes for those who run the server: its health, metrics, models, requests, memory and version.

pub(crate) mod admin;
pub(crate) mod health;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod requests;
pub(crate) mod version;
