//! `/v1/responses`: answers that the server keeps, so that later requests can go on from them.

pub(crate) mod create;
mod events;
mod input;
mod object;
mod store;
pub(crate) mod stored;

pub(crate) use store::ResponseStore;
