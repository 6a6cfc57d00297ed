//! The subcommands, one file each: arguments, and what they do.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod encode;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod list;
pub(crate) mod pull;
pub(crate) mod tokenize;
