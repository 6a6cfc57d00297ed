//! The HTTP server: routes in the shapes of OpenAI, Anthropic and Ollama over text generators, embedders and classifiers.
//!
//! Each protocol turns its requests into [`pipelines::Request`]s, and the events of their answers into its own objects.
//! No protocol calls the handlers of another. The models run on threads of their own; handlers wait for them without
//! blocking the runtime.

#![forbid(unsafe_code)]

mod access;
mod api_error;
mod blocking;
mod body;
mod config;
mod error;
mod excerpt;
mod fields;
mod generation;
mod kv_events;
mod models;
mod operations;
mod protocols;
mod sampling;
mod server;
mod service;
mod sse;
mod stamp;
mod state;
mod telemetry;
mod transport;
mod ui;

pub use access::{KeyLimits, Keys};
pub use config::{Address, KeepAlive, ModelConfig, ModelKind, ModelSettings, ServerConfig, TlsFiles};
pub use error::Error;
pub use kv_events::{KvEventsConfig, KvEventsFormat, KvEventsHash, VLLM_SEED};
pub use server::{Server, ServerHandle};
pub use service::Service;
pub use telemetry::{LogFormat, TraceConfig, json_log_line, show_logs};
pub use transport::is_ready;
