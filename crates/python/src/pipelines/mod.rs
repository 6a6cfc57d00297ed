//! Language models and embeddings: handles for the classes in `python/perihelion/pipelines`.

mod answers;
mod config;
mod embedder;
mod error;
mod generator;
mod repo;
mod request;
mod waiting;
mod wakeups;

pub(crate) use answers::Answers;
pub(crate) use config::{Config, config_fields, encoding_of_name, encodings};
pub(crate) use embedder::Embedder;
pub(crate) use error::{ConfigError, PromptTooLong, add_attributes};
pub(crate) use generator::Generator;
pub(crate) use repo::Repo;
pub(crate) use wakeups::{Wakeups, stop_attaching};
