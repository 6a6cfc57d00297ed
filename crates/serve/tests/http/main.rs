//! The server over real connections, with the built-in model and small models of the test data.

mod anthropic;
mod body;
mod chat;
mod completions;
mod embeddings;
mod operations;
mod server;
mod text;
