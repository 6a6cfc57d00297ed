//! `peri config`: the settings that a pipeline would run with, and who set them.

use std::io::Write;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use pipelines::config::{Field, Layers, Origin};
use serde_json::Value;

use crate::exit::{one_line, warn};
use crate::model::Source;
use crate::progress::Progress;
use crate::settings::ModelFlags;

const AFTER_HELP: &str = "\
Later ones win: defaults, the file of --config or PERI_CONFIG, the environment (PERI_MAX_LENGTH=4096), flags.

JSON of show: for each field its value, and its origin in words.

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
    settings: ModelFlags,
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
    settings: ModelFlags,
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
            let layers = show.settings.layers()?;
            put(&if show.json { json(&layers, show.origin) } else { lines(&layers, show.origin) })
        }
        Command::Check(check) => {
            let resolved = Source::new(check.settings.layers()?).resolve(&Progress::new(false))?;
            resolved.warnings().iter().for_each(|warning| warn(warning));
            put(&resolved.memory().to_string())
        }
    }
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
        let facts =
            serde_json::json!({ "value": field.value(layers.config()), "origin": origin.to_string() });
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
