//! The subcommands, one file each: arguments, and what they do.

pub mod bench;
pub mod generate;
pub mod inspect;
pub mod list;
pub mod tokenize;
