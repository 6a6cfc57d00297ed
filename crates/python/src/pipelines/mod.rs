//! Language models and embeddings: handles for the classes in `python/perihelion/pipelines`.

mod answers;
mod classifier;
mod config;
mod embedder;
mod error;
mod generator;
mod parts;
mod progress;
mod quantization;
mod repo;
mod request;
mod turn;
mod waiting;
mod wakeups;

pub(crate) use answers::Answers;
pub(crate) use classifier::Classifier;
pub(crate) use config::{
    Config, config_defaults, config_fields, encoding_of_name, encodings, name_interpreter,
};
pub(crate) use embedder::Embedder;
pub(crate) use error::{ConfigError, PromptTooLong, add_attributes, open_error, raise};
pub(crate) use generator::{Generator, new_session};
pub(crate) use quantization::quantize;
pub(crate) use repo::Repo;
pub(crate) use request::Params;
pub(crate) use turn::Turn;
pub(crate) use waiting::{wait, wait_for_thread};
pub(crate) use wakeups::{Wakeups, stop_attaching};
