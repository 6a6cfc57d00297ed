//! The `peri` command as its users meet it: the real binary, its output, its exit codes.

mod bench;
mod chat;
mod config;
mod encode;
mod failures;
mod generate;
mod inspect;
mod interrupt;
mod list;
mod pull;
mod render;
mod support;
mod tokenize;
