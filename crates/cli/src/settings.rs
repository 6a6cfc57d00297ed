//! Flags for every field of a pipeline's configuration, made from its table; the environment and files beside them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::builder::{TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, ValueHint};
use pipelines::config::{FIELDS, Field, Item, Layers, Origin};
use serde_json::Value;

use crate::model::Source;

/// A field and its value, as a command has it where nobody says otherwise.
pub(crate) type Defaults<'a> = &'a [(&'static str, Value)];

/// The model as a flag, where prompts are the positional arguments.
#[derive(Debug, Clone)]
pub(crate) struct ModelFlags(Given);

/// The model as a positional argument.
#[derive(Debug, Clone)]
pub(crate) struct ModelPath(Given);

/// What the command line sets.
#[derive(Debug, Clone)]
struct Given {
    values: Vec<(&'static str, Value)>,
    file: Option<PathBuf>,
}

/// The field that says which model.
const MODEL: &str = "huggingface_repo_id";
/// The flag that names a file of settings.
const FILE: &str = "config";
/// The environment variable for the same.
const FILE_VARIABLE: &str = "PERI_CONFIG";
/// Above the flags in the help of a command.
const HEADING: &str = "Model and pipeline";

/// Fields as flags: dashes for underscores.
static FLAGS: LazyLock<HashMap<&'static str, String>> = LazyLock::new(|| {
    let names = FIELDS.iter().flat_map(|field| field.aliases.iter().chain([&field.name]));
    names.map(|&name| (name, name.replace('_', "-"))).collect()
});

impl ModelFlags {
    /// The model that is meant.
    ///
    /// # Errors
    /// If the file of settings or the environment cannot be understood.
    pub(crate) fn source(&self, defaults: Defaults<'_>) -> anyhow::Result<Source> {
        self.0.layers(defaults).map(Source::new)
    }

    /// All settings, and who set them.
    pub(crate) fn layers(&self) -> anyhow::Result<Layers> {
        self.0.layers(&[])
    }
}

impl ModelPath {
    /// The model that is meant.
    ///
    /// # Errors
    /// As [`ModelFlags::source`].
    pub(crate) fn source(&self, defaults: Defaults<'_>) -> anyhow::Result<Source> {
        self.0.layers(defaults).map(Source::new)
    }

    /// The path, if it names compiled models rather than a checkpoint.
    pub(crate) fn artifact(&self) -> Option<&Path> {
        let (_, value) = self.0.values.iter().find(|(field, _)| *field == MODEL)?;
        let path = Path::new(value.as_str()?);
        path.extension().is_some_and(|extension| extension == "mef").then_some(path)
    }
}

impl Given {
    fn layers(&self, defaults: Defaults<'_>) -> anyhow::Result<Layers> {
        let mut layers = Layers::default();
        for (field, value) in defaults {
            layers.set(field, value, Origin::Command)?;
        }
        let mut wrong = Vec::new();
        let named = std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(path) = self.file.as_ref().or(named.as_ref()) {
            wrong.extend(layers.file(path).err());
        }
        let text = |text: OsString| text.into_string().ok();
        let variables = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        match layers.environment(variables.filter(|(name, _)| name != FILE_VARIABLE)) {
            Ok(unknown) => unknown.iter().for_each(|unknown| crate::exit::warn(&unknown.to_string())),
            Err(error) => wrong.push(error),
        }
        for (field, value) in &self.values {
            wrong.extend(layers.set(field, value, Origin::Argument).err());
        }
        pipelines::Error::check_all(wrong)?;
        Ok(layers)
    }

    fn read(matches: &ArgMatches) -> Given {
        let mut values = Vec::new();
        for field in FIELDS {
            let given = matches.try_get_many::<Value>(field.name).ok().flatten();
            let Some(given) = given else { continue };
            let mut given: Vec<Value> = given.cloned().collect();
            let value = match field.kind.list {
                true => given.into_iter().flat_map(items).collect(),
                false => given.pop().expect("a flag that is given has a value"),
            };
            values.push((field.name, value));
        }
        Given { values, file: matches.get_one::<PathBuf>(FILE).cloned() }
    }
}

/// The items of a list, or the one that is given alone.
fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        value => vec![value],
    }
}

/// Adds a flag for each field.
fn add_flags(command: Command, model: Arg) -> Command {
    let file = Arg::new(FILE)
        .long(FILE)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Settings in TOML, under the names of these flags; the environment (PERI_MAX_LENGTH) comes before, flags first [env: PERI_CONFIG]")
        .help_heading(HEADING);
    let command = command.arg(model).arg(file);
    FIELDS.iter().filter(|field| field.name != MODEL).fold(command, |command, field| command.arg(flag(field)))
}

fn flag(field: &'static Field) -> Arg {
    let arg = Arg::new(field.name)
        .long(&*FLAGS[field.name])
        .visible_aliases(field.aliases.iter().map(|alias| &*FLAGS[alias]))
        .value_parser(parser(field))
        .value_name(value_name(field))
        .help(help(field))
        .help_heading(HEADING);
    let arg = if matches!(field.kind.item, Item::Path) { arg.value_hint(ValueHint::AnyPath) } else { arg };
    match field.kind.item {
        Item::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Item::Integer | Item::Number => arg.allow_negative_numbers(true),
        _ if field.kind.list => arg.action(ArgAction::Append),
        _ => arg,
    }
}

/// The model, as a flag or not.
fn model(arg: Arg) -> Arg {
    let field = Field::find(MODEL).expect("the table has it");
    arg.value_parser(parser(field)).value_name("MODEL").value_hint(ValueHint::AnyPath).help_heading(HEADING).help(
        "A GGUF file, a folder with config.json and weights, or a repo of a hub [default: a small storyteller, built in]",
    )
}

fn parser(field: &'static Field) -> ValueParser {
    let parser = clap::builder::StringValueParser::new().try_map(move |text| field.parse(&text));
    ValueParser::new(parser)
}

fn value_name(field: &Field) -> &'static str {
    match field.kind.item {
        Item::Bool => "BOOL",
        Item::Integer if field.name == "top_k" => "K",
        Item::Integer => "N",
        Item::Number => "X",
        Item::Text => "NAME",
        Item::Path => "PATH",
        Item::Device => "DEVICE",
        Item::Choice(_) => "NAME",
    }
}

/// What the field does, its values and its default.
fn help(field: &Field) -> String {
    let mut help = field.help().trim_end_matches('.').to_string();
    if let Item::Choice(names) = field.kind.item {
        help += &format!(" [possible values: {}]", names().join(", "));
    }
    let default = field.text(&pipelines::config::PipelineConfig::default());
    if !default.is_empty() && field.kind.none != Some(&*default) && !matches!(field.kind.item, Item::Bool) {
        help += &format!(" [default: {default}]");
    }
    help
}

impl clap::Args for ModelFlags {
    fn augment_args(command: Command) -> Command {
        add_flags(
            command,
            model(Arg::new(MODEL).long("model").visible_aliases(["model-path", "huggingface-repo-id"])),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        ModelFlags::augment_args(command)
    }
}

impl clap::Args for ModelPath {
    fn augment_args(command: Command) -> Command {
        add_flags(command, model(Arg::new(MODEL)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ModelPath::augment_args(command)
    }
}

impl FromArgMatches for ModelFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ModelFlags, clap::Error> {
        Ok(ModelFlags(Given::read(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ModelFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl FromArgMatches for ModelPath {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ModelPath, clap::Error> {
        Ok(ModelPath(Given::read(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ModelPath::from_arg_matches(matches)?;
        Ok(())
    }
}
