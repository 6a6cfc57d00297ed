//! The binary `peri`.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

/// Weights and KV pages are large, and most other arrays short-lived; mimalloc returns both to the system quickly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command_line: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(cli::run(&command_line))
}
