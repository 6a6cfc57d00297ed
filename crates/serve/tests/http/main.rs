//! The server over real connections, with the built-in model and small models of the test data.

mod access;
mod admin;
mod anthropic;
mod body;
mod chat;
mod chat_fields;
mod completions;
mod drain;
mod embeddings;
mod faults;
mod form;
mod http2;
mod kv_events;
mod llama_cpp;
mod metrics;
mod models;
mod ollama;
mod operations;
mod platforms;
mod presets;
mod protocol;
mod raw;
mod responses;
mod scoring;
mod server;
mod service;
mod text;
mod tls;
mod tools;
#[cfg(feature = "otlp")]
mod traces;
