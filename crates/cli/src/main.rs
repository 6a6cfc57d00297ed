//! The `peri` command: reads arguments, chooses devices, hands both down.

#![forbid(unsafe_code)]

mod advice;
mod artifact;
mod commands;
mod conversation;
mod exit;
mod interrupt;
mod model;
mod output;
mod parse;
mod progress;
mod purpose;
mod sampling;
mod settings;
mod transfer;

use clap::{CommandFactory, Parser, Subcommand};

/// Weights and KV pages are large and short-lived arrays many; mimalloc returns both to the system quickly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs language models on this machine.
#[derive(Parser)]
#[command(name = "peri", version, after_help = exit::CODES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Continue prompts
    Generate(commands::generate::Arguments),
    /// Talk with a model
    Chat(commands::chat::Arguments),
    /// Make prompts of conversations with a chat template
    Render(commands::render::Arguments),
    /// Turn texts into vectors
    Encode(commands::encode::Arguments),
    /// Show what a model is: architecture, tensors, memory, tokenizer, plan
    Inspect(commands::inspect::Arguments),
    /// Measure prompt processing, generation and batched generation
    Bench(commands::bench::Arguments),
    /// Turn text from standard input into token ids, or back
    Tokenize(commands::tokenize::Arguments),
    /// Say what a model takes and whether it fits, before anything is loaded
    Plan(commands::plan::Arguments),
    /// Score texts: perplexity, and divergence from saved logits
    Eval(commands::eval::Arguments),
    /// Check this machine: what it can do, and whether what models need is in order
    Doctor(commands::doctor::Arguments),
    /// Fetch, compile and pack a model, so that what runs it later starts faster
    WarmCache(commands::warm_cache::Arguments),
    /// Show settings and who set them
    Config(commands::config::Arguments),
    /// List the architectures, encodings and files that are supported
    List(commands::list::Arguments),
    /// Fetch a model from a hub
    Pull(commands::pull::Arguments),
    /// Print what a shell needs to complete commands and flags
    Completions(commands::completions::Arguments),
    /// Print or write manual pages
    Man(commands::man::Arguments),
}

fn main() -> std::process::ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::usage(&error, &named_command()),
    };
    if let Some(problem) = settings::detached_value(std::env::args_os()) {
        return exit::code(Err(problem.into()));
    }
    if let Err(error) = engine::show_logs() {
        return exit::code(Err(exit::Usage(error.to_string()).into()));
    }
    exit::code(match arguments.command {
        Command::Generate(arguments) => commands::generate::run(&arguments),
        Command::Chat(arguments) => commands::chat::run(&arguments),
        Command::Render(arguments) => commands::render::run(&arguments),
        Command::Encode(arguments) => commands::encode::run(&arguments),
        Command::Inspect(arguments) => commands::inspect::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Tokenize(arguments) => commands::tokenize::run(&arguments),
        Command::Plan(arguments) => commands::plan::run(&arguments),
        Command::Eval(arguments) => commands::eval::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::WarmCache(arguments) => commands::warm_cache::run(&arguments),
        Command::Config(arguments) => commands::config::run(&arguments),
        Command::List(arguments) => commands::list::run(&arguments),
        Command::Pull(arguments) => commands::pull::run(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments),
    })
}

/// The whole command line, for what is made from it.
fn command() -> clap::Command {
    Arguments::command()
}

/// The command whose arguments are wrong, as far as it is known.
fn named_command() -> String {
    let name = std::env::args().nth(1).unwrap_or_default();
    match command().find_subcommand(&name) {
        Some(command) => format!("peri {}", command.get_name()),
        None => "peri".to_string(),
    }
}
