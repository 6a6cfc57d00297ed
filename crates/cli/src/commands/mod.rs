//! The subcommands, one file each.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod classify;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod encode;
pub(crate) mod eval;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod key;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod models;
pub(crate) mod plan;
pub(crate) mod pull;
pub(crate) mod quantize;
pub(crate) mod render;
pub(crate) mod rerank;
pub(crate) mod serve;
pub(crate) mod tokenize;
pub(crate) mod warm_cache;

/// What `--help` prints after the flags.
fn details(details: &str, examples: &str) -> String {
    format!("{details}\n\n{examples}")
}
