//! The tables `[server]` and `[[model]]` of a file of settings.

use std::ffi::OsString;
use std::path::Path;

use pipelines::config::{FIELDS, Field, SettingsTable, TableSetting};
use pipelines::{ChatTemplate, SamplingOptions};
use serde_json::Value;
use serve::{KeepAlive, ModelKind};

use super::parser;
use crate::conversation::find_template;
use crate::sampling;

/// The table of the server's own settings.
pub(super) const SERVER: &str = "server";
/// The tables of models.
pub(super) const MODEL: &str = "model";

/// The keys of a `[[model]]` table that are no fields of the configuration.
const MODEL_KEYS: [&str; 7] = ["path", "id", "aliases", "kind", "keep_alive", "pin", "template"];
/// The keys that say how tokens are chosen where requests do not: their checks, and where they belong.
type SamplingKey = (&'static str, fn(&str) -> Result<f32, String>, fn(&mut SamplingOptions, f32));
const SAMPLING_KEYS: [SamplingKey; 6] = [
    ("temperature", sampling::temperature, |options, value| options.temperature = Some(value)),
    ("top_p", sampling::top_p, |options, value| options.top_p = Some(value)),
    ("min_p", sampling::min_p, |options, value| options.min_p = Some(value)),
    ("repetition_penalty", sampling::repetition_penalty, |options, value| {
        options.repetition_penalty = Some(value);
    }),
    ("frequency_penalty", sampling::frequency_penalty, |options, value| {
        options.frequency_penalty = Some(value);
    }),
    ("presence_penalty", sampling::presence_penalty, |options, value| {
        options.presence_penalty = Some(value);
    }),
];
/// Flags that a file cannot set.
const NOT_IN_FILES: [&str; 3] = ["config", "help", "quiet"];

/// The settings of a `[[model]]` table beyond the configuration.
#[derive(Debug, Default)]
pub(super) struct ModelTable {
    pub(super) path: String,
    pub(super) id: Option<String>,
    pub(super) aliases: Vec<String>,
    pub(super) kind: Option<ModelKind>,
    pub(super) keep_alive: Option<KeepAlive>,
    pub(super) pin: bool,
    pub(super) template: Option<ChatTemplate>,
    pub(super) sampling: SamplingOptions,
}

impl ModelTable {
    /// Reads the table's own keys, and returns the other settings, which may be fields of the configuration.
    ///
    /// # Errors
    /// If a key has a value that it cannot have, is misspelled, or there is no path.
    pub(super) fn read(table: &SettingsTable) -> anyhow::Result<(ModelTable, Vec<&TableSetting>)> {
        let (mut model, mut fields) = (ModelTable::default(), Vec::new());
        for setting in &table.settings {
            let wrong = |problem: String| table.error(Some(setting), format!("{}: {problem}", setting.key));
            match &setting.key[..] {
                "path" => model.path = text(&setting.value).map_err(wrong)?,
                "id" => model.id = Some(text(&setting.value).map_err(wrong)?),
                "aliases" => model.aliases = texts(&setting.value).map_err(wrong)?,
                "kind" => model.kind = Some(kind(&setting.value).map_err(wrong)?),
                "keep_alive" => {
                    let value = serde_json::from_value(setting.value.clone());
                    model.keep_alive = Some(value.map_err(|error| wrong(error.to_string()))?);
                }
                "pin" => {
                    let pin = setting.value.as_bool().ok_or_else(|| "give true or false".to_string());
                    model.pin = pin.map_err(wrong)?;
                }
                "template" => {
                    let path = text(&setting.value).map_err(wrong)?;
                    let template = find_template(Path::new(&path));
                    model.template = Some(template.map_err(|error| wrong(error.to_string()))?);
                }
                key if let Some((_, check, set)) = SAMPLING_KEYS.iter().find(|(name, ..)| *name == key) => {
                    let value = check(&setting.value.to_string()).map_err(wrong)?;
                    set(&mut model.sampling, value);
                }
                key if Field::find(key).is_ok() => fields.push(setting),
                key => {
                    let sampling = SAMPLING_KEYS.into_iter().map(|(name, ..)| name);
                    let names =
                        MODEL_KEYS.into_iter().chain(sampling).chain(FIELDS.iter().map(|field| field.name));
                    return Err(table.error(Some(setting), unknown(key, names)).into());
                }
            }
        }
        if model.path.is_empty() {
            return Err(table.error(None, "the model has no `path`").into());
        }
        Ok((model, fields))
    }
}

/// The flags that the `[server]` tables of a file stand for.
///
/// # Errors
/// If a key is not a flag of the server, or its value is not one of the flag's.
pub(super) fn server_flags(tables: &[SettingsTable]) -> anyhow::Result<Vec<OsString>> {
    let mut flags = Vec::new();
    for table in tables.iter().filter(|table| table.name == SERVER) {
        for setting in &table.settings {
            let words = flag(setting).map_err(|problem| table.error(Some(setting), problem))?;
            let line = std::iter::once(OsString::from("serve")).chain(words.iter().cloned());
            if let Err(error) = parser().try_get_matches_from(line) {
                let problem = error.render().to_string();
                let problem = problem.lines().next().unwrap_or_default().trim_start_matches("error: ");
                return Err(table.error(Some(setting), problem).into());
            }
            flags.extend(words);
        }
    }
    Ok(flags)
}

/// A setting of the server as words of the command line.
fn flag(setting: &TableSetting) -> Result<Vec<OsString>, String> {
    let name = setting.key.replace('_', "-");
    let command = parser();
    let is_own = |flag: &&str| !NOT_IN_FILES.contains(flag) && Field::find(flag).is_err();
    let own: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).filter(is_own).collect();
    if !own.contains(&&name[..]) {
        return Err(match Field::find(&name) {
            Ok(field) => format!("`{}` is a setting of models: write it before [{SERVER}]", field.name),
            Err(_) => unknown(&setting.key, own),
        });
    }
    let word = |value: &Value| match value {
        Value::String(text) => OsString::from(format!("--{name}={text}")),
        other => OsString::from(format!("--{name}={other}")),
    };
    Ok(match &setting.value {
        Value::Bool(true) => vec![format!("--{name}").into()],
        Value::Bool(false) => Vec::new(),
        Value::Array(values) => values.iter().map(word).collect(),
        value => vec![word(value)],
    })
}

fn unknown<'n>(key: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.replace('-', "_")).collect();
    let nearest = sources::nearest(key, names.iter().map(String::as_str));
    let hint = nearest.map_or_else(String::new, |name| format!(": did you mean `{name}`?"));
    format!("there is no setting `{key}`{hint}")
}

fn text(value: &Value) -> Result<String, String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_string).ok_or_else(|| "give a text".to_string())
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    let texts = value.as_array().and_then(|values| values.iter().map(|value| text(value).ok()).collect());
    texts.ok_or_else(|| "give a list of texts".to_string())
}

fn kind(value: &Value) -> Result<ModelKind, String> {
    match value.as_str() {
        Some("text") => Ok(ModelKind::Text),
        Some("embedding") => Ok(ModelKind::Embedding),
        Some("classifier") => Ok(ModelKind::Classifier),
        _ => Err("give \"text\", \"embedding\" or \"classifier\"".to_string()),
    }
}
