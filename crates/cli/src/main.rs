//! The `peri` command: reads arguments, chooses devices, hands both down.

#![forbid(unsafe_code)]

mod commands;
mod exit;
mod interrupt;
mod model;
mod progress;

use clap::{Parser, Subcommand};

/// Weights and KV pages are large and short-lived arrays many; mimalloc returns both to the system quickly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 something went wrong while running; 2 wrong arguments; \
3 the model cannot be opened (missing, damaged or unsupported); 4 not enough memory; 130 interrupted.";

/// Runs language models on this machine.
#[derive(Parser)]
#[command(name = "peri", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Continue prompts
    Generate(commands::generate::Arguments),
    /// Show what a model is: architecture, tensors, memory, tokenizer, plan
    Inspect(commands::inspect::Arguments),
    /// Measure prompt processing, generation and batched generation
    Bench(commands::bench::Arguments),
    /// Turn text from standard input into token ids, or back
    Tokenize(commands::tokenize::Arguments),
    /// List the architectures and encodings that are supported
    List(commands::list::Arguments),
}

fn main() -> std::process::ExitCode {
    let result = match Arguments::parse().command {
        Command::Generate(arguments) => commands::generate::run(&arguments),
        Command::Inspect(arguments) => commands::inspect::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Tokenize(arguments) => commands::tokenize::run(&arguments),
        Command::List(arguments) => commands::list::run(&arguments),
    };
    exit::code(result)
}
