//! The `peri` command as its users meet it: the real binary, its output, its exit codes.

mod bench;
mod chat;
mod config;
mod doctor;
mod encode;
mod eval;
mod failures;
#[cfg(target_os = "linux")]
mod faults;
mod generate;
#[cfg(unix)]
mod gpu;
mod help;
mod hub;
#[cfg(target_os = "linux")]
mod huggingface;
mod inspect;
#[cfg(unix)]
mod interrupt;
mod list;
mod made;
mod models;
mod plan;
mod pull;
#[cfg(unix)]
mod pulled;
mod quantize;
mod render;
mod resolve;
mod scoring;
mod serve;
#[cfg(unix)]
mod server;
mod support;
mod terminal;
mod tokenize;
mod warm_cache;
