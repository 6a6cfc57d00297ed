//! Flags for every field of a pipeline's configuration, made from its table; the environment and files beside them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::builder::{TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, ValueHint};
use pipelines::Error;
use pipelines::config::{FIELDS, Field, Item, Layers, Origin};
use serde_json::Value;

use crate::exit::Usage;
use crate::model::Source;
use crate::purpose::{self, Purpose};

/// The model as a flag, where prompts are the positional arguments.
pub(crate) struct ModelFlags<P>(Given, PhantomData<P>);

/// The model as a positional argument.
pub(crate) struct ModelPath<P>(Given, PhantomData<P>);

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
/// The start of the names of variables that set fields.
const ENVIRONMENT_PREFIX: &str = "PERI_";
/// Above the flags in the help of a command.
const HEADING: &str = "Model and pipeline";

/// What an empty value is answered with.
const EMPTY: &str = "give one that is not empty, or leave it out";

/// Fields as flags: dashes for underscores.
static FLAGS: LazyLock<HashMap<&'static str, String>> = LazyLock::new(|| {
    let names = FIELDS.iter().flat_map(|field| field.aliases.iter().chain([&field.name]));
    names.map(|&name| (name, name.replace('_', "-"))).collect()
});

impl<P: Purpose> ModelFlags<P> {
    /// The model that is meant.
    ///
    /// # Errors
    /// If the file of settings or the environment cannot be understood.
    pub(crate) fn source(&self) -> anyhow::Result<Source> {
        self.layers().map(Source::new)
    }

    /// All settings, and who set them.
    ///
    /// # Errors
    /// As [`ModelFlags::source`].
    pub(crate) fn layers(&self) -> anyhow::Result<Layers> {
        self.0.layers::<P>()
    }
}

impl<P: Purpose> ModelPath<P> {
    /// The model that is meant.
    ///
    /// # Errors
    /// As [`ModelFlags::source`].
    pub(crate) fn source(&self) -> anyhow::Result<Source> {
        self.0.layers::<P>().map(Source::new)
    }

    /// The path, if it names compiled models rather than a checkpoint.
    pub(crate) fn artifact(&self) -> Option<&Path> {
        let (_, value) = self.0.values.iter().find(|(field, _)| *field == MODEL)?;
        let path = Path::new(value.as_str()?);
        path.extension().is_some_and(|extension| extension == "mef").then_some(path)
    }
}

/// What is wrong where a word follows a flag as if it were its value, which such flags take behind `=` alone.
pub(crate) fn detached_value(arguments: impl IntoIterator<Item = OsString>) -> Option<Usage> {
    let words = arguments.into_iter().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.take_while(|word| word != "--").collect();
    let is_switch = |flag: &str| {
        let field = flag.strip_prefix("--").and_then(|name| Field::find(name).ok());
        field.is_some_and(|field| matches!(field.kind.item, Item::Bool))
    };
    let found = words.windows(2).find(|pair| {
        is_switch(&pair[0]) && ["true", "false"].iter().any(|word| pair[1].eq_ignore_ascii_case(word))
    })?;
    let (flag, word) = (&found[0], &found[1]);
    Some(Usage(format!(
        "`{flag} {word}` is a flag and a text: write {flag}={word}, or the text before the flag"
    )))
}

impl Given {
    fn layers<P: Purpose>(&self) -> anyhow::Result<Layers> {
        let defaults = purpose::defaults::<P>();
        let (mut layers, mut wrong) = (defaults.clone(), Vec::new());
        let named = std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(path) = self.file.as_ref().or(named.as_ref()) {
            match layers.file(path) {
                Err(Error::Read { source, .. }) => return Err(unreadable(path, &source).into()),
                result => wrong.extend(result.err()),
            }
        }
        match layers.environment(variables()?) {
            Ok(unknown) => unknown.iter().for_each(|unknown| crate::exit::warn(&unknown.to_string())),
            Err(error) => wrong.push(error),
        }
        // Others may share the file and the environment.
        let obeyed: Vec<&str> = purpose::obeyed::<P>().map(|field| field.name).collect();
        for field in FIELDS.iter().filter(|field| !obeyed.contains(&field.name)) {
            layers.set(field.name, &field.value(defaults.config()), Origin::Command)?;
        }
        for (field, value) in &self.values {
            wrong.extend(layers.set(field, value, Origin::Argument).err());
        }
        Error::check_all(wrong)?;
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

/// The environment, but for the name of the file.
fn variables() -> Result<Vec<(String, String)>, Usage> {
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.into_string().ok().filter(|name| name != FILE_VARIABLE) else { continue };
        match value.into_string() {
            Ok(value) => variables.push((name, value)),
            Err(_) if name.starts_with(ENVIRONMENT_PREFIX) => {
                return Err(Usage(format!("{name} is not UTF-8: give a text that is")));
            }
            Err(_) => {}
        }
    }
    Ok(variables)
}

/// A file of settings that cannot be read is no model that cannot be read.
fn unreadable(path: &Path, error: &std::io::Error) -> Usage {
    Usage(format!(
        "cannot read the settings {}: {error}; check the path that --{FILE} or {FILE_VARIABLE} names",
        path.display()
    ))
}

/// The items of a list, or the one that is given alone.
fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        value => vec![value],
    }
}

/// Adds a flag for each field that a command obeys.
fn add_flags<P: Purpose>(command: Command, model: Arg) -> Command {
    let file = Arg::new(FILE)
        .long(FILE)
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Settings in TOML or JSON (.json), under the names of these flags; the environment (PERI_MAX_LENGTH) comes before, flags first [env: PERI_CONFIG]")
        .help_heading(HEADING);
    let command = command.arg(model).arg(file);
    let fields = purpose::obeyed::<P>().filter(|field| field.name != MODEL);
    fields.fold(command, |command, field| command.arg(flag::<P>(field)))
}

fn flag<P: Purpose>(field: &'static Field) -> Arg {
    let arg = Arg::new(field.name)
        .long(&*FLAGS[field.name])
        .visible_aliases(field.aliases.iter().map(|alias| &*FLAGS[alias]))
        .value_parser(parser(field))
        .value_name(value_name(field))
        .help(help::<P>(field))
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
fn model<P: Purpose>(arg: Arg) -> Arg {
    let field = Field::find(MODEL).expect("the table has it");
    let arg = arg.value_parser(parser(field)).value_name("MODEL").value_hint(ValueHint::AnyPath);
    arg.help_heading(HEADING).help(P::MODEL)
}

fn parser(field: &'static Field) -> ValueParser {
    let parse = move |text: String| match field.parse(&text)? {
        Value::String(text) if text.trim().is_empty() => Err(EMPTY.to_string()),
        Value::Array(values) if values.is_empty() => Err(EMPTY.to_string()),
        value => Ok(value),
    };
    let parser = clap::builder::StringValueParser::new().try_map(parse);
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

/// What the field does, its values and its default with the command.
fn help<P: Purpose>(field: &Field) -> String {
    let mut help = field.help().trim_end_matches('.').to_string();
    if let Item::Choice(names) = field.kind.item {
        help += &format!(" [possible values: {}]", names().join(", "));
    }
    let default = purpose::default_text::<P>(field);
    if !["", "none", "false"].contains(&&default[..]) {
        help += &format!(" [default: {default}]");
    }
    help
}

impl<P: Purpose> clap::Args for ModelFlags<P> {
    fn augment_args(command: Command) -> Command {
        add_flags::<P>(
            command,
            model::<P>(Arg::new(MODEL).long("model").visible_aliases(["model-path", "huggingface-repo-id"])),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        ModelFlags::<P>::augment_args(command)
    }
}

impl<P: Purpose> clap::Args for ModelPath<P> {
    fn augment_args(command: Command) -> Command {
        add_flags::<P>(command, model::<P>(Arg::new(MODEL)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ModelPath::<P>::augment_args(command)
    }
}

impl<P> FromArgMatches for ModelFlags<P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ModelFlags<P>, clap::Error> {
        Ok(ModelFlags(Given::read(matches), PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ModelFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<P> FromArgMatches for ModelPath<P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ModelPath<P>, clap::Error> {
        Ok(ModelPath(Given::read(matches), PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ModelPath::from_arg_matches(matches)?;
        Ok(())
    }
}
