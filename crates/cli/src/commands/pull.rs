//! `peri pull`: downloads a model from a hub into the cache shared by Hugging Face tools.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use indicatif::HumanBytes;
use sources::{
    Error, Hub, HuggingFaceRepo, Pull, RepoOptions, RepoType, SupportedEncoding, UnknownName, Wanted,
    WeightsFormat,
};

use crate::exit::one_line;
use crate::parse;
use crate::progress::Progress;
use crate::transfer::Transfer;

const EXAMPLES: &str = "\
Examples:
  peri pull Qwen/Qwen3-0.6B
  peri pull Qwen/Qwen3-0.6B-GGUF --quantization-encoding q8_0
  peri pull Qwen/Qwen3-0.6B-GGUF '*Q8_0.gguf'";

const DETAILS: &str = "\
An interrupted download resumes on the next run.

Environment variables: HF_HOME or HF_HUB_CACHE sets the cache, HF_TOKEN opens private and gated repositories, \
HF_ENDPOINT names another hub, HF_HUB_OFFLINE=1 forbids the network.

JSON: repo, commit, folder, bytes_to_fetch, bytes_free, files[{name, bytes, cached, path}].";

/// Arguments of `peri pull`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = super::details(DETAILS, EXAMPLES))]
pub(crate) struct Arguments {
    /// The repository: owner/name
    repo: String,
    /// Only these files: names or patterns with * and ? [default: one model with its configuration and tokenizer]
    files: Vec<String>,
    /// The encoding to download, if there are several
    #[arg(
        long,
        value_name = "ENCODING",
        conflicts_with = "files",
        hide_possible_values = true,
        value_parser = parse::Named { names: encodings, parse: encoding }
    )]
    quantization_encoding: Option<SupportedEncoding>,
    /// The file format to download, if there are several
    #[arg(
        long,
        value_name = "FORMAT",
        conflicts_with = "files",
        value_parser = parse::Named { names: formats, parse: format }
    )]
    weights_format: Option<WeightsFormat>,
    /// A branch, tag or commit
    #[arg(long, default_value = "main")]
    revision: String,
    /// Download again what is in the cache
    #[arg(long)]
    force_download: bool,
    /// Print what would be downloaded, and download nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

fn encodings() -> Vec<&'static str> {
    SupportedEncoding::ALL.iter().map(|encoding| encoding.name()).collect()
}

fn encoding(name: &str) -> Result<SupportedEncoding, String> {
    name.parse().map_err(|error: UnknownName| error.to_string())
}

fn formats() -> Vec<&'static str> {
    WeightsFormat::ALL.iter().map(|format| format.name()).collect()
}

fn format(name: &str) -> Result<WeightsFormat, String> {
    name.parse().map_err(|error: UnknownName| error.to_string())
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let hub = Hub::from_env().map_err(pipelines::Error::from)?;
    let pull = plan(arguments, &hub).map_err(pipelines::Error::from)?;
    let mut out = std::io::stdout().lock();
    if !arguments.json {
        out.write_all(lines(&pull, &hub).as_bytes()).context("cannot write to standard output")?;
    }
    let mut paths = Vec::new();
    if !arguments.dry_run {
        pull.check_space(&hub).map_err(pipelines::Error::from)?;
        let progress = Progress::new(arguments.quiet);
        let transfer = Transfer::with_lines(&progress, arguments.quiet);
        let fetched = pull.fetch(&|event| transfer.report(event));
        progress.clear();
        paths = fetched.map_err(pipelines::Error::from)?;
    }
    let end = if arguments.json {
        json(&pull, &hub, &paths).to_string()
    } else if arguments.dry_run {
        "nothing was downloaded (--dry-run)".to_string()
    } else {
        format!("in {}", pull.repo().folder().unwrap_or_default().display())
    };
    writeln!(out, "{end}").context("cannot write to standard output")
}

/// Compares the hub's newest commit with the cache.
fn plan(arguments: &Arguments, hub: &Hub) -> Result<Pull, Error> {
    let options = RepoOptions {
        repo_type: Some(RepoType::Online),
        // The name may have one: org/name@v1.
        revision: Some(arguments.revision.clone()).filter(|revision| revision != "main"),
        hub: Some(hub.clone()),
        refresh: true,
        ..RepoOptions::default()
    };
    let wanted = Wanted {
        encoding: arguments.quantization_encoding,
        format: arguments.weights_format,
        files: arguments.files.clone(),
        force_download: arguments.force_download,
        ..Wanted::default()
    };
    Pull::plan(HuggingFaceRepo::open(&arguments.repo, options)?, &wanted)
}

/// The files with their sizes, and the total.
fn lines(pull: &Pull, hub: &Hub) -> String {
    let commit = pull.repo().commit().unwrap_or_default();
    let mut text = format!("{} at {}\n", pull.repo(), &commit[..commit.len().min(12)]);
    let width = pull.files().iter().map(|file| file.name.chars().count()).max().unwrap_or(0);
    for file in pull.files() {
        let size = file.size.map_or_else(|| "unknown size".to_string(), |size| HumanBytes(size).to_string());
        let here = match file.arrived {
            _ if file.cached => "  cached".to_string(),
            0 => String::new(),
            arrived => format!("  {} are here", HumanBytes(arrived)),
        };
        text += &format!("  {:<width$}  {size:>12}{here}\n", one_line(&file.name));
    }
    let free = hub.free_space().map_or_else(String::new, |free| format!(", {} free", HumanBytes(free)));
    text + &format!("{} to download{free}\n", HumanBytes(pull.bytes()))
}

fn json(pull: &Pull, hub: &Hub, paths: &[PathBuf]) -> serde_json::Value {
    let files: Vec<serde_json::Value> = pull
        .files()
        .iter()
        .enumerate()
        .map(|(index, file)| {
            let path = paths.get(index);
            serde_json::json!({"name": file.name, "bytes": file.size, "cached": file.cached, "path": path})
        })
        .collect();
    serde_json::json!({
        "repo": pull.repo().repo_id(),
        "commit": pull.repo().commit(),
        "folder": pull.repo().folder(),
        "bytes_to_fetch": pull.bytes(),
        "bytes_free": hub.free_space(),
        "files": files,
    })
}
