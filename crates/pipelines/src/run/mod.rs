//! Runs batches of sequences within limits that are plain values: what it runs for, and how the limits came about, it
//! does not know.

pub(crate) mod batch;
pub(crate) mod generator;
pub(crate) mod huggingface;
pub(crate) mod isolation;
pub(crate) mod kv_cache;
pub(crate) mod runner;
pub mod sampler;
pub(crate) mod scheduler;
