//! The HTTP server: routes in the shapes of OpenAI, Anthropic and Ollama over text generators, embedders and classifiers.
//!
//! Each protocol turns its requests into [`pipelines::Request`]s, and the events of their answers into its own objects.
//! No protocol calls the handlers of another. The models run on threads of their own; handlers wait for them without
//! blocking the runtime.

#![forbid(unsafe_code)]

mod access;
mod access_log;
mod admission;
mod anthropic;
mod blocking;
mod body;
mod context;
mod conversation;
mod dry_run;
mod error;
mod error_shape;
mod excerpt;
mod foreign_fields;
mod form;
mod generation;
mod infill;
mod json;
mod kserve;
mod kv_events;
mod listener;
mod llama_cpp;
mod models;
mod ollama;
mod opaque_reasoning;
mod openai;
mod openapi;
mod operations;
mod page;
mod requests;
mod router;
mod sagemaker;
mod sampling;
mod scoring;
mod server;
mod sse;
mod stamp;
mod text;
mod texts;
mod timings;
#[cfg_attr(not(feature = "otlp"), path = "no_traces.rs")]
mod traces;
mod truncation;

pub use access::{KeyLimits, Keys};
pub use access_log::{LogFormat, json_log_line, show_logs};
pub use error::Error;
pub use kv_events::{KvEventsConfig, KvEventsFormat, KvEventsHash, VLLM_SEED};
pub use listener::{Address, TlsFiles, is_ready};
pub use models::{KeepAlive, ModelConfig, ModelKind, ModelSettings};
pub use server::{Server, ServerConfig, ServerHandle};
pub use traces::TraceConfig;
