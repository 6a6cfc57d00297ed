//! Configuration flags, generated from the fields of `PipelineConfig`, merged with files and the environment.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, ValueHint};
use clap_complete::ArgValueCompleter;
use pipelines::Error;
use pipelines::config::{FIELDS, Field, Item, Layers, Origin, SettingsTable, TableSetting};
use serde_json::Value;

use crate::command_profile::{self, CommandProfile};
use crate::exit::Usage;
use crate::model::ModelSource;
use crate::model_name;

/// The configuration flags with the model as `-m`, for commands whose positional arguments are texts.
pub(crate) struct ModelFlags<P>(Given, PhantomData<P>);

/// The configuration flags with the model as a positional argument or as `-m`.
pub(crate) struct ModelPath<P>(Given, PhantomData<P>);

/// The model and the texts of a command line.
pub(crate) struct ModelAndTexts {
    /// The model.
    pub(crate) source: ModelSource,
    /// The positional arguments, without the model.
    pub(crate) texts: Vec<String>,
    /// The positional argument that was taken for a hub repo, which it only looks like.
    pub(crate) guess: Option<String>,
}

/// What the command line sets.
#[derive(Debug, Clone)]
struct Given {
    values: Vec<(&'static str, Value)>,
    file: Option<PathBuf>,
}

/// The field that names the model.
const MODEL: &str = "huggingface_repo_id";
/// The id of the positional argument that names the model.
const POSITIONAL: &str = "MODEL";
/// The flag that names a configuration file.
const FILE: &str = "config";
/// The environment variable that names a configuration file.
const FILE_VARIABLE: &str = "PERI_CONFIG";
/// The environment variable with a key of the server, which is no field.
pub(crate) const API_KEY_VARIABLE: &str = "PERI_API_KEY";
/// The prefix of environment variables that set fields.
const ENVIRONMENT_PREFIX: &str = "PERI_";
/// The help heading of the flags that exist because the configuration has such a field; `--help` alone shows them.
const PIPELINE: &str = "Pipeline configuration";
/// The help heading of flags that choose tokens.
pub(crate) const SAMPLING: &str = "Sampling";

/// The error for an empty value.
const EMPTY: &str = "give one that is not empty, or leave it out";

/// Flags that `-h` shows too, with their letters and short help.
const SHORT_HELP: &[(&str, Option<char>, &str)] = &[
    ("max_new_tokens", Some('n'), "Most tokens per answer"),
    ("max_length", Some('c'), "Context length in tokens"),
    ("top_k", None, "Draw from the K likeliest tokens"),
];

/// The flag of each field name and alias, with dashes for underscores.
static FLAGS: LazyLock<HashMap<&'static str, String>> = LazyLock::new(|| {
    let names = FIELDS.iter().flat_map(|field| field.aliases.iter().chain([&field.name]));
    names.map(|&name| (name, name.replace('_', "-"))).collect()
});

impl<P: CommandProfile> ModelFlags<P> {
    /// The tables of the configuration file, of those that the command reads.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn tables(&self) -> anyhow::Result<Vec<SettingsTable>> {
        let mut layers = Layers::for_use(P::USE_CASE);
        let (tables, wrong) = self.0.read_file::<P>(&mut layers)?;
        Error::check_all(wrong)?;
        Ok(tables)
    }

    /// The model at a path with the settings of a table, which flags override; the built-in model without a path.
    ///
    /// # Errors
    /// If a configuration file or the environment cannot be read.
    pub(crate) fn source_of_table(
        &self,
        path: Option<&str>,
        table: &SettingsTable,
        settings: &[&TableSetting],
    ) -> anyhow::Result<ModelSource> {
        let mut given = self.0.clone();
        given.values.retain(|(field, _)| *field != MODEL);
        given.values.extend(path.map(|path| (MODEL, path.into())));
        let set = |layers: &mut Layers| {
            let results = settings.iter().map(|setting| layers.table_setting(table, setting));
            results.filter_map(Result::err).collect()
        };
        given.layers_with::<P>(set).map(ModelSource::new)
    }

    /// The model and the texts of positional arguments. The first word is the model if `is_model` and `-m` is not given;
    /// all others are texts.
    ///
    /// # Errors
    /// If a configuration file or the environment cannot be read, or another word is the path of a model.
    pub(crate) fn model_and_texts(
        &self,
        words: &[String],
        is_model: impl Fn(&str) -> bool,
    ) -> anyhow::Result<ModelAndTexts> {
        let (mut given, mut texts, mut guess) = (self.0.clone(), words.to_vec(), None);
        let has_flag = given.values.iter().any(|(field, _)| *field == MODEL);
        if !has_flag && texts.first().is_some_and(|word| is_model(word)) {
            let model = texts.remove(0);
            guess = Some(model.clone()).filter(|model| !model_name::is_model_path(model));
            given.values.push((MODEL, model.into()));
        }
        if let Some(stray) = texts.iter().find(|text| model_name::is_model_path(text)) {
            return Err(Usage(format!(
                "`{stray}` names a model where a text is expected: put one model first, or name it with --model"
            ))
            .into());
        }
        Ok(ModelAndTexts { source: given.layers::<P>().map(ModelSource::new)?, texts, guess })
    }
}

impl<P: CommandProfile> ModelPath<P> {
    /// The model.
    ///
    /// # Errors
    /// If a configuration file or the environment cannot be read.
    pub(crate) fn source(&self) -> anyhow::Result<ModelSource> {
        self.layers().map(ModelSource::new)
    }

    /// All settings, with their origins.
    ///
    /// # Errors
    /// As [`ModelPath::source`].
    pub(crate) fn layers(&self) -> anyhow::Result<Layers> {
        self.0.layers::<P>()
    }

    /// The path of the model if it is an artifact rather than a checkpoint.
    pub(crate) fn artifact(&self) -> Option<&Path> {
        let (_, value) = self.0.values.iter().find(|(field, _)| *field == MODEL)?;
        let path = Path::new(value.as_str()?);
        path.extension().is_some_and(|extension| extension == "mef").then_some(path)
    }
}

impl ModelAndTexts {
    /// Explains an error about a model whose name only looks like one.
    pub(crate) fn explain(guess: Option<String>, error: anyhow::Error) -> anyhow::Error {
        match guess {
            Some(name) => {
                error.context(format!("`{name}` is read as a hub repo (if it is a text, write -p)"))
            }
            None => error,
        }
    }
}

/// The error for `--flag true`: such flags take a value only as `--flag=true`.
pub(crate) fn detached_value(command_line: &[OsString]) -> Option<Usage> {
    let words = command_line.iter().map(|word| word.to_string_lossy().into_owned());
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
        "`{flag} {word}` is a flag followed by a text: write {flag}={word}, or put the text before the flag"
    )))
}

impl Given {
    fn layers<P: CommandProfile>(&self) -> anyhow::Result<Layers> {
        self.layers_with::<P>(|_| Vec::new())
    }

    /// Adds the settings of the configuration file. Gives its tables, and what is wrong with it.
    fn read_file<P: CommandProfile>(
        &self,
        layers: &mut Layers,
    ) -> anyhow::Result<(Vec<SettingsTable>, Vec<Error>)> {
        let named = std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let Some(path) = self.file.as_ref().or(named.as_ref()) else { return Ok((Vec::new(), Vec::new())) };
        match layers.file_with_tables(path, P::TABLES) {
            Err(Error::Read { source, .. }) => Err(unreadable(path, &source).into()),
            Err(error) => Ok((Vec::new(), vec![error])),
            Ok(tables) => Ok((tables, Vec::new())),
        }
    }

    /// All settings, with those that `set` makes above the file and the environment, and below flags.
    fn layers_with<P: CommandProfile>(
        &self,
        set: impl FnOnce(&mut Layers) -> Vec<Error>,
    ) -> anyhow::Result<Layers> {
        let defaults = Layers::for_use(P::USE_CASE);
        let mut layers = defaults.clone();
        let (_, mut wrong) = self.read_file::<P>(&mut layers)?;
        match layers.environment(variables()?) {
            Ok(unknown) => unknown.iter().for_each(|unknown| crate::exit::warn(&unknown.to_string())),
            Err(error) => wrong.push(error),
        }
        // The file and the environment may set fields that other commands use.
        let obeyed: Vec<&str> = command_profile::fields::<P>().map(|field| field.name).collect();
        for field in FIELDS.iter().filter(|field| !obeyed.contains(&field.name)) {
            layers.set(field.name, &field.value(defaults.config()), Origin::Command)?;
        }
        wrong.extend(set(&mut layers));
        for (field, value) in &self.values {
            wrong.extend(layers.set(field, value, Origin::Argument).err());
        }
        Error::check_all(wrong)?;
        layers.fit_defaults();
        Ok(layers)
    }

    fn read(matches: &ArgMatches) -> Given {
        let mut values = Vec::new();
        if let Ok(Some(model)) = matches.try_get_one::<Value>(POSITIONAL) {
            values.push((MODEL, model.clone()));
        }
        for field in FIELDS {
            let given = matches.try_get_many::<Value>(field.name).ok().flatten();
            let Some(given) = given else { continue };
            let mut given: Vec<Value> = given.cloned().collect();
            let value = if field.kind.list {
                given.into_iter().flat_map(items).collect()
            } else {
                given.pop().expect("a given flag has a value")
            };
            values.push((field.name, value));
        }
        Given { values, file: matches.get_one::<PathBuf>(FILE).cloned() }
    }
}

/// Environment variables that set configuration fields.
fn variables() -> Result<Vec<(String, String)>, Usage> {
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        let is_field = |name: &String| name != FILE_VARIABLE && name != API_KEY_VARIABLE;
        let Some(name) = name.into_string().ok().filter(is_field) else { continue };
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

/// The error for an unreadable configuration file, which must not read like one about the model.
fn unreadable(path: &Path, error: &std::io::Error) -> Usage {
    Usage(format!(
        "cannot read the configuration {}: {error}; check --{FILE} or {FILE_VARIABLE}",
        path.display()
    ))
}

/// The items of a list; a single value is a list of one.
fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        value => vec![value],
    }
}

/// Adds `-m` and a flag for each field the command uses: those that `-h` shows first.
fn add_flags<P: CommandProfile>(command: Command) -> Command {
    let file = Arg::new(FILE)
        .long(FILE)
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .value_parser(clap::value_parser!(PathBuf))
        .help("Read settings from a TOML or JSON file. Its keys are these flags with underscores. Environment variables (PERI_MAX_LENGTH) override it, flags override both [env: PERI_CONFIG]")
        .help_heading(PIPELINE)
        .hide_short_help(true);
    let flags = || command_profile::fields::<P>().filter(|field| field.name != MODEL);
    let common = |field: &&Field| SHORT_HELP.iter().any(|(name, ..)| *name == field.name);
    let shown = SHORT_HELP.iter().filter_map(|(name, ..)| flags().find(|field| field.name == *name));
    let command = command.args(shown.map(flag::<P>)).arg(file);
    command.args(flags().filter(|field| !common(field)).map(flag::<P>))
}

fn flag<P: CommandProfile>(field: &'static Field) -> Arg {
    let help = help::<P>(field, field.help());
    let arg = Arg::new(field.name)
        .long(&*FLAGS[field.name])
        .visible_aliases(field.aliases.iter().map(|alias| &*FLAGS[alias]))
        .value_parser(FieldParser(field))
        .value_name(value_name(field))
        .hide_possible_values(true)
        .help(&help);
    let arg = match SHORT_HELP.iter().find(|(name, ..)| *name == field.name) {
        Some((_, None, short)) => {
            arg.help(help_with_default::<P>(field, short)).long_help(help).help_heading(SAMPLING)
        }
        Some((_, Some(letter), short)) => {
            arg.short(*letter).help(help_with_default::<P>(field, short)).long_help(help)
        }
        None => arg.help_heading(PIPELINE).hide_short_help(true),
    };
    let arg = if matches!(field.kind.item, Item::Path) { arg.value_hint(ValueHint::AnyPath) } else { arg };
    match field.kind.item {
        Item::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Item::Integer | Item::Number => arg.allow_negative_numbers(true),
        _ if field.kind.list => arg.action(ArgAction::Append),
        _ => arg,
    }
}

/// The model as an argument, which completes names of models on this machine.
fn model<P: CommandProfile>(arg: Arg) -> Arg {
    let field = Field::find(MODEL).expect("the configuration has a model");
    let arg = arg.value_parser(FieldParser(field)).value_name("MODEL").value_hint(ValueHint::AnyPath);
    arg.help(P::SHORT_MODEL).long_help(P::MODEL).add(ArgValueCompleter::new(crate::completion::models))
}

/// The model as `-m`.
fn model_flag<P: CommandProfile>() -> Arg {
    let arg = Arg::new(MODEL).short('m').long("model").aliases(["model-path", "huggingface-repo-id"]);
    model::<P>(arg)
}

/// Parses and checks the value of a field; completions offer its possible values.
#[derive(Clone)]
struct FieldParser(&'static Field);

impl TypedValueParser for FieldParser {
    type Value = Value;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Value, clap::Error> {
        let field = self.0;
        let parse = move |text: String| match field.parse(&text)? {
            Value::String(text) if text.trim().is_empty() => Err(EMPTY.to_string()),
            Value::Array(values) if values.is_empty() => Err(EMPTY.to_string()),
            value => Ok(value),
        };
        StringValueParser::new().try_map(parse).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values: Vec<&'static str> = match self.0.kind.item {
            Item::Choice(names) => names(),
            Item::Bool => vec!["true", "false"],
            Item::Device => vec!["cpu"],
            _ => return None,
        };
        Some(Box::new(values.into_iter().map(PossibleValue::new)))
    }
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

/// A help text with the field's possible values and the command's default.
fn help<P: CommandProfile>(field: &Field, text: &str) -> String {
    let mut help = text.trim_end_matches('.').to_string();
    if let Item::Choice(names) = field.kind.item {
        help += &format!(" [possible values: {}]", names().join(", "));
    }
    help_with_default::<P>(field, &help)
}

/// A help text with the command's default.
fn help_with_default<P: CommandProfile>(field: &Field, text: &str) -> String {
    match &command_profile::default_text::<P>(field)[..] {
        "" | "none" | "false" => text.to_string(),
        default => format!("{text} [default: {default}]"),
    }
}

impl<P: CommandProfile> clap::Args for ModelFlags<P> {
    fn augment_args(command: Command) -> Command {
        add_flags::<P>(command.arg(model_flag::<P>()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ModelFlags::<P>::augment_args(command)
    }
}

impl<P: CommandProfile> clap::Args for ModelPath<P> {
    fn augment_args(command: Command) -> Command {
        let positional = model::<P>(Arg::new(POSITIONAL));
        let flag = model_flag::<P>().conflicts_with(POSITIONAL).help("The same as MODEL").long_help(
            "The same as MODEL, also under the names --model-path and --huggingface-repo-id of the configuration",
        );
        add_flags::<P>(command.arg(positional).arg(flag))
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
