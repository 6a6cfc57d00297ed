//! What models are used for: to write, to embed and to score texts, each on a thread of its own behind a handle.

pub(crate) mod chat_turn;
pub(crate) mod classification_model;
pub(crate) mod classifier;
pub(crate) mod compiled;
mod dense;
pub(crate) mod embedder;
pub(crate) mod embedding_model;
pub(crate) mod handle;
mod planned_generator;
pub(crate) mod quantize;
pub(crate) mod scorer;
pub(crate) mod text_generator;
pub(crate) mod text_model;
mod texts;
pub(crate) mod vectors;
mod worker;
