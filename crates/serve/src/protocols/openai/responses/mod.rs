//! `/v1/responses`: answers that the server keeps, so that later requests can go on from them.

pub(crate) mod create;
mod events;
mod input;
pub(crate) mod input_tokens;
mod object;
mod partial_input;
mod prompt;
mod store;
pub(crate) mod stored;
mod tools;

pub(crate) use store::ResponseStore;
