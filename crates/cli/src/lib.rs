//! The `peri` command as a function, for its binary and for the Python package: parses arguments, picks devices and
//! passes both down.

#![forbid(unsafe_code)]

mod advice;
mod artifact;
mod command_profile;
mod commands;
mod completion;
mod conversation;
mod exit;
mod interrupt;
mod lines;
mod model;
mod model_name;
mod output;
mod parse;
mod progress;
mod sampling;
mod scoring;
mod settings;
mod state_folder;
mod structured_output;
mod transfer;
mod verb_hints;
mod version;

use std::ffi::OsString;
use std::io::Write;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Runs language models on this machine
#[derive(Parser)]
#[command(
    name = "peri",
    version = version::SHORT,
    long_version = version::long(),
    after_long_help = exit::CODES,
    max_term_width = 100
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Chat with a model, or answer one prompt
    Run(commands::chat::RunArguments),
    /// Chat with a model
    Chat(commands::chat::Arguments),
    /// Continue prompts
    Generate(commands::generate::Arguments),
    /// Answer requests over HTTP
    Serve(Box<commands::serve::Arguments>),
    /// Make an API key for clients of a server
    Key(commands::key::Arguments),
    /// Turn texts into vectors
    Encode(commands::encode::Arguments),
    /// Sort documents by how well they answer a query
    Rerank(commands::rerank::Arguments),
    /// Label texts
    Classify(commands::classify::Arguments),
    /// Download a model from a hub
    Pull(commands::pull::Arguments),
    /// List, show and remove the models on this machine
    Models(commands::models::Arguments),
    /// Show a model's architecture, tensors, memory, tokenizer and plan
    Inspect(commands::inspect::Arguments),
    /// Check whether a model fits into memory, without loading it
    Plan(commands::plan::Arguments),
    /// Measure prompt processing, generation and batched generation
    Bench(commands::bench::Arguments),
    /// Measure a model's perplexity and its divergence from saved logits
    Eval(commands::eval::Arguments),
    /// Turn text into token ids, or token ids into text
    Tokenize(commands::tokenize::Arguments),
    /// Print the prompt that a chat template makes of a conversation
    Render(commands::render::Arguments),
    /// Download, compile and pack a model, so that it starts faster later
    WarmCache(commands::warm_cache::Arguments),
    /// Write a model with weights of fewer bits, as a GGUF file or an artifact
    Quantize(commands::quantize::Arguments),
    /// Show or check the configuration of a model
    Config(commands::config::Arguments),
    /// List supported architectures, encodings and file formats
    List(commands::list::Arguments),
    /// Check this machine: processor, memory, caches
    Doctor(commands::doctor::Arguments),
    /// Print a shell completion script
    Completions(commands::completions::Arguments),
    /// Print or write manual pages
    Man(commands::man::Arguments),
}

/// Runs a command line, which starts with the name of the program, and returns its exit code.
///
/// The command writes to the standard streams of the process, handles its signals, and ends it if a second one comes.
/// `return_memory` has the allocator of the process return freed memory to the system.
pub fn run(command_line: &[OsString], return_memory: fn()) -> u8 {
    let code = dispatch(command_line, return_memory);
    // Only a program of Rust flushes this when it ends. If the reader is gone, the command has said so.
    let _ = std::io::stdout().flush();
    code
}

fn dispatch(command_line: &[OsString], return_memory: fn()) -> u8 {
    if let Some(code) = completion::answer(command_line) {
        return code;
    }
    let matches = command().try_get_matches_from(command_line);
    let arguments = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return exit::usage(&error, &named_command(command_line)),
    };
    if let Some(problem) = settings::detached_value(command_line) {
        return exit::code(Err(problem.into()));
    }
    // The server shows its logs in the form that its settings say.
    if !matches!(arguments.command, Command::Serve(_))
        && let Err(error) = engine::show_logs()
    {
        return exit::code(Err(exit::Usage(error.to_string()).into()));
    }
    exit::code(match arguments.command {
        Command::Run(arguments) => commands::chat::run_model(&arguments),
        Command::Generate(arguments) => commands::generate::run(&arguments),
        Command::Chat(arguments) => commands::chat::run(&arguments),
        Command::Models(arguments) => commands::models::run(&arguments),
        Command::Render(arguments) => commands::render::run(&arguments),
        // The program and the command come first.
        Command::Serve(arguments) => commands::serve::run(*arguments, &command_line[2..], return_memory),
        Command::Key(arguments) => commands::key::run(&arguments),
        Command::Encode(arguments) => commands::encode::run(&arguments),
        Command::Rerank(arguments) => commands::rerank::run(&arguments),
        Command::Classify(arguments) => commands::classify::run(&arguments),
        Command::Inspect(arguments) => commands::inspect::run(&arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments),
        Command::Tokenize(arguments) => commands::tokenize::run(&arguments),
        Command::Plan(arguments) => commands::plan::run(&arguments),
        Command::Eval(arguments) => commands::eval::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::WarmCache(arguments) => commands::warm_cache::run(&arguments),
        Command::Quantize(arguments) => commands::quantize::run(&arguments),
        Command::Config(arguments) => commands::config::run(&arguments),
        Command::List(arguments) => commands::list::run(&arguments),
        Command::Pull(arguments) => commands::pull::run(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments),
    })
}

/// The whole command line.
fn command() -> clap::Command {
    // Left alone, clap writes colours to a dumb terminal if the variable `CI` is set.
    let color = if output::is_dumb_terminal() { clap::ColorChoice::Never } else { clap::ColorChoice::Auto };
    Arguments::command().color(color)
}

/// The command whose arguments are wrong, or `peri` if that is unknown.
fn named_command(command_line: &[OsString]) -> String {
    match command_line.get(1).and_then(|name| command().find_subcommand(name).cloned()) {
        Some(command) => format!("peri {}", command.get_name()),
        None => "peri".to_string(),
    }
}
