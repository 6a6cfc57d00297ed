//! `peri config`: the settings that a pipeline would run with, and who set them.

use std::io::Write;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use pipelines::config::{Field, Layers, Origin, ResolvedConfig};
use pipelines::error::InvalidField;
use serde_json::{Value, json};

use crate::advice;
use crate::exit::{one_line, warn};
use crate::model::Source;
use crate::progress::Progress;
use crate::purpose;
use crate::settings::ModelFlags;

const AFTER_HELP: &str = "\
Later ones win: defaults, the file of --config or PERI_CONFIG, the environment (PERI_MAX_LENGTH=4096), flags.

JSON of show: for each field its value, and its origin in words. JSON of check: ok, problems, warnings[], memory, which
is null where it is not known, else {weights_bytes, cache_bytes, cache_tokens, free_bytes, max_length,
max_cache_batch_size}. If anything is wrong, both print problems[{field, value, message, fix}], of which all but the
message may be null, and end with the code of the first.

Examples:
  peri config show --config peri.toml --max-length 4096
  peri config show --origin file --json
  peri config check --config peri.toml";

/// Arguments of `peri config`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print each value as a file may have it, and who set it
    #[command(after_help = AFTER_HELP)]
    Show(Show),
    /// Check all values against each other, the model and this machine, and print what memory they take
    #[command(after_help = AFTER_HELP)]
    Check(Check),
}

#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    settings: ModelFlags<purpose::Config>,
    /// Only values that were set there
    #[arg(long, value_name = "WHERE")]
    origin: Option<Place>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Check {
    #[command(flatten)]
    settings: ModelFlags<purpose::Config>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Where a value can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// Nowhere
    Default,
    /// In the file of --config or PERI_CONFIG
    File,
    /// In an environment variable
    Environment,
    /// On the command line
    Argument,
}

/// Shows or checks settings.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Show(show) => {
            let layers = match show.settings.layers() {
                Err(error) if show.json => {
                    put(&format!("{:#}", json!({ "problems": problems(&error) })))?;
                    return Err(error);
                }
                layers => layers?,
            };
            put(&if show.json { json(&layers, show.origin) } else { lines(&layers, show.origin) })
        }
        Command::Check(check) => {
            let resolved = check.settings.layers().and_then(|layers| {
                // Nothing but JSON may follow what is shown.
                Source::new(layers).resolve(&Progress::new(check.json))
            });
            if check.json {
                put(&format!("{:#}", verdict(&resolved)))?;
            }
            let resolved = resolved?;
            resolved.warnings().iter().for_each(|warning| warn(warning));
            if check.json { Ok(()) } else { put(&resolved.memory().to_string()) }
        }
    }
}

/// What `check --json` prints.
fn verdict(resolved: &anyhow::Result<ResolvedConfig>) -> Value {
    let memory = resolved.as_ref().ok().map(|resolved| {
        let memory = resolved.memory();
        json!({
            "weights_bytes": memory.weights,
            "cache_bytes": memory.cache,
            "cache_tokens": memory.cache_tokens,
            "free_bytes": memory.free,
            "max_length": memory.max_length,
            "max_cache_batch_size": memory.max_batch,
        })
    });
    json!({
        "ok": resolved.is_ok(),
        "problems": resolved.as_ref().err().map_or_else(Vec::new, problems),
        "warnings": resolved.as_ref().map_or(&[][..], ResolvedConfig::warnings),
        "memory": memory,
    })
}

/// What is wrong, one by one.
fn problems(error: &anyhow::Error) -> Vec<Value> {
    match error.downcast_ref::<pipelines::Error>() {
        Some(error) => problems_of(error),
        None => vec![problem(None, format!("{error:#}"), None)],
    }
}

fn problems_of(error: &pipelines::Error) -> Vec<Value> {
    use pipelines::Error;
    let field = |field: &InvalidField, message: String| {
        problem(Some((field.field, &field.value)), message, Some(&field.fix))
    };
    match error {
        Error::Several(errors) => errors.iter().flat_map(problems_of).collect(),
        Error::Config(fields) => fields.iter().map(|wrong| field(wrong, wrong.to_string())).collect(),
        Error::ConfigFile { field: Some(wrong), .. } => vec![field(wrong, error.to_string())],
        Error::Environment { field, value, expected, .. } => {
            vec![problem(Some((field, value)), error.to_string(), Some(expected))]
        }
        _ => vec![problem(None, error.to_string(), advice::of(error).1)],
    }
}

/// A problem: with the field and its value, a message, and what to do, as far as these are known.
fn problem(field: Option<(&str, &String)>, message: String, fix: Option<&str>) -> Value {
    let (field, value) = field.unzip();
    json!({ "field": field, "value": value, "message": message, "fix": fix })
}

/// The fields that were set somewhere.
fn fields(layers: &Layers, place: Option<Place>) -> impl Iterator<Item = (&'static Field, &Origin)> {
    layers.fields().filter(move |(_, origin)| place.is_none_or(|place| place == Place::of(origin)))
}

/// A line for each field, as TOML.
fn lines(layers: &Layers, place: Option<Place>) -> String {
    let line = |(field, origin): (&'static Field, &Origin)| {
        // JSON's numbers, texts and arrays are TOML's as well.
        let setting = match field.value(layers.config()) {
            Value::Null => format!("# {} is not set", field.name),
            value => format!("{} = {value}", field.name),
        };
        format!("{setting:<48} # {}", one_line(&origin.to_string()))
    };
    fields(layers, place).map(line).collect::<Vec<_>>().join("\n")
}

fn json(layers: &Layers, place: Option<Place>) -> String {
    let object = |(field, origin): (&'static Field, &Origin)| {
        let facts = json!({ "value": field.value(layers.config()), "origin": origin.to_string() });
        (field.name.to_string(), facts)
    };
    format!("{:#}", Value::Object(fields(layers, place).map(object).collect()))
}

impl Place {
    fn of(origin: &Origin) -> Place {
        match origin {
            Origin::Default | Origin::Command => Place::Default,
            Origin::File { .. } => Place::File,
            Origin::Environment(_) => Place::Environment,
            Origin::Argument => Place::Argument,
        }
    }
}

fn put(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if text.is_empty() { Ok(()) } else { writeln!(out, "{text}").context("cannot write to standard output") }
}
