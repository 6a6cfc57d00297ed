//! `peri config`: the settings a pipeline would run with, and where each comes from.

use clap::{Subcommand, ValueEnum};
use pipelines::Plan;
use pipelines::config::{Field, Layers, Origin};
use pipelines::error::InvalidField;
use serde_json::{Value, json};

use crate::advice;
use crate::command_profile;
use crate::exit::{one_line, warn};
use crate::model::ModelSource;
use crate::output;
use crate::progress::Progress;
use crate::settings::ModelPath;

const AFTER_HELP: &str = "\
Flags override environment variables (PERI_MAX_LENGTH=4096), which override the file of --config or PERI_CONFIG, which overrides defaults.

JSON of show: value and origin of each field. JSON of check: ok, problems, warnings[], and memory{weights_bytes, \
cache_bytes, cache_tokens, free_bytes, max_length, max_cache_batch_size} or null. On errors, both print \
problems[{field, value, message, fix}], where all but the message may be null, and exit with the code of the first.

Examples:
  peri config show --config peri.toml --max-length 4096
  peri config show --origin file --json
  peri config check llama.gguf --config peri.toml";

/// Arguments of `peri config`.
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print each setting in TOML, with its origin
    #[command(after_long_help = AFTER_HELP)]
    Show(Show),
    /// Check the settings against the model and this machine, and print the memory they need
    #[command(after_long_help = AFTER_HELP)]
    Check(Check),
}

#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    settings: ModelPath<command_profile::Config>,
    /// Print only settings of this origin
    #[arg(long, value_name = "WHERE")]
    origin: Option<OriginKind>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Check {
    #[command(flatten)]
    settings: ModelPath<command_profile::Config>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The origin of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OriginKind {
    /// Not set
    Default,
    /// In the file of --config or PERI_CONFIG
    File,
    /// In an environment variable
    Environment,
    /// On the command line
    Argument,
}

/// Runs the command.
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
                // The progress line would mix with the JSON.
                ModelSource::new(layers).plan_and_fetch(&Progress::new(check.json))
            });
            if check.json {
                put(&format!("{:#}", verdict(&resolved)))?;
            }
            let plan = resolved?;
            warnings(&plan).iter().for_each(|warning| warn(warning));
            if check.json { Ok(()) } else { put(&plan.memory()?.to_string()) }
        }
    }
}

/// The object of `check --json`.
fn verdict(resolved: &anyhow::Result<Plan>) -> Value {
    let memory = resolved.as_ref().ok().and_then(|plan| plan.memory().ok()).map(|memory| {
        json!({
            "weights_bytes": memory.weights,
            "cache_bytes": memory.cache,
            "cache_tokens": memory.cache_tokens,
            "state_slots": memory.state_slots,
            "states_bytes": memory.states,
            "free_bytes": memory.free,
            "max_length": memory.max_length,
            "max_cache_batch_size": memory.max_batch,
        })
    });
    json!({
        "ok": resolved.is_ok(),
        "problems": resolved.as_ref().err().map_or_else(Vec::new, problems),
        "warnings": resolved.as_ref().map_or_else(|_| Vec::new(), warnings),
        "memory": memory,
    })
}

/// All warnings.
fn warnings(plan: &Plan) -> Vec<String> {
    let of_memory = plan.memory().map_or(&[][..], |memory| &memory.warnings);
    [plan.warnings(), of_memory].concat()
}

/// Each problem.
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

/// A problem, with its field, value and fix if known.
fn problem(field: Option<(&str, &String)>, message: String, fix: Option<&str>) -> Value {
    let (field, value) = field.unzip();
    json!({ "field": field, "value": value, "message": message, "fix": fix })
}

/// The fields with their origins, all or of one kind of origin.
fn fields(layers: &Layers, kind: Option<OriginKind>) -> impl Iterator<Item = (&'static Field, &Origin)> {
    layers.fields().filter(move |(_, origin)| kind.is_none_or(|kind| kind == OriginKind::from_origin(origin)))
}

/// A line for each field, as TOML.
fn lines(layers: &Layers, kind: Option<OriginKind>) -> String {
    let line = |(field, origin): (&'static Field, &Origin)| {
        // JSON's numbers, texts and arrays are TOML's as well.
        let setting = match field.value(layers.config()) {
            Value::Null => format!("# {} is not set", field.name),
            value => format!("{} = {value}", field.name),
        };
        format!("{setting:<48} # {}", one_line(&origin.to_string()))
    };
    fields(layers, kind).map(line).collect::<Vec<_>>().join("\n")
}

fn json(layers: &Layers, kind: Option<OriginKind>) -> String {
    let object = |(field, origin): (&'static Field, &Origin)| {
        let facts = json!({ "value": field.value(layers.config()), "origin": origin.to_string() });
        (field.name.to_string(), facts)
    };
    format!("{:#}", Value::Object(fields(layers, kind).map(object).collect()))
}

impl OriginKind {
    fn from_origin(origin: &Origin) -> OriginKind {
        match origin {
            Origin::Default | Origin::Command => OriginKind::Default,
            Origin::File { .. } => OriginKind::File,
            Origin::Environment(_) => OriginKind::Environment,
            Origin::Argument => OriginKind::Argument,
        }
    }
}

fn put(text: &str) -> anyhow::Result<()> {
    if text.is_empty() { Ok(()) } else { output::print(format!("{text}\n")) }
}
