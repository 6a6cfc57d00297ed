//! Files of settings: TOML, or JSON if they are named so, with the place of everything that is wrong.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::PipelineConfig;
use super::field::Field;
use super::origin::Origin;
use crate::Error;
use crate::error::InvalidField;

/// A field that a file sets, and the line where it does.
pub(super) struct FileSetting {
    pub(super) field: &'static Field,
    pub(super) value: Value,
    pub(super) line: usize,
}

/// A table of a file of settings, such as `[server]`, or one of several in an array.
#[derive(Debug, Clone)]
pub struct SettingsTable {
    /// Its name.
    pub name: String,
    /// In the order of the file.
    pub settings: Vec<TableSetting>,
    path: PathBuf,
    line: usize,
}

/// A key of a table, with its value.
#[derive(Debug, Clone)]
pub struct TableSetting {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    line: usize,
    column: usize,
}

/// The contents of a settings file.
pub(super) struct File {
    pub(super) settings: Vec<FileSetting>,
    pub(super) tables: Vec<SettingsTable>,
    /// All that is wrong with it.
    pub(super) wrong: Vec<Error>,
}

impl SettingsTable {
    /// The error of a setting, or of the table as a whole, with its place.
    pub fn error(&self, setting: Option<&TableSetting>, problem: impl Into<String>) -> Error {
        let (line, column) = setting.map_or((self.line, 1), |setting| (setting.line, setting.column));
        Error::ConfigFile { path: self.path.clone(), line, column, problem: problem.into(), field: None }
    }

    /// Where a setting was made.
    pub(super) fn origin(&self, setting: &TableSetting) -> Origin {
        Origin::File { path: self.path.clone(), line: setting.line }
    }
}

/// The settings of a file, in its order, and its tables with these names.
///
/// # Errors
/// If it cannot be read as what it is named.
pub(super) fn read(path: &Path, tables: &[&str]) -> Result<File, Error> {
    let text = read_text(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
    parse(path, &text, tables)
}

/// A key with its value, as they stand in a text.
struct Entry {
    key: String,
    /// `None` for what no field can be: tables, dates, numbers beyond 64 bits.
    value: Option<Value>,
    /// The entries of the table, or of each table of the array, that it is.
    tables: Vec<Vec<Entry>>,
    key_at: Range<usize>,
    value_at: Range<usize>,
}

/// What no format allows, and where.
struct Malformed {
    line: usize,
    column: usize,
    problem: String,
}

/// The text of a file. Pipes are read only below `/dev`, where shells put them; others may never be written.
fn read_text(path: &Path) -> std::io::Result<String> {
    let bytes = if path.starts_with("/dev") { std::fs::read(path) } else { weights::read_file(path) }?;
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

/// The settings of a file's text.
pub(super) fn parse(path: &Path, text: &str, tables: &[&str]) -> Result<File, Error> {
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let entries = if is_json { json_entries(text) } else { toml_entries(text) };
    let entries = entries.map_err(|Malformed { line, column, problem }| {
        let path = path.to_path_buf();
        Error::ConfigFile { path, line, column, problem, field: None }
    })?;
    let mut file = File { settings: Vec::new(), tables: Vec::new(), wrong: Vec::new() };
    for entry in entries {
        // A setting may have the name of a table, such as `model`.
        let is_setting = entry.tables.is_empty() && Field::find(&entry.key).is_ok();
        if tables.contains(&&entry.key[..]) && !is_setting {
            file.add_tables(path, text, entry);
            continue;
        }
        let is_table = !entry.tables.is_empty();
        let Entry { key, value, key_at, value_at, .. } = entry;
        let (settings, wrong) = (&mut file.settings, &mut file.wrong);
        let line = position(text, key_at.start).0;
        let given = || text.get(value_at.clone()).unwrap_or_default().to_string();
        let field = match Field::find(&key) {
            Ok(field) => field,
            Err(error) => {
                let table = sources::nearest(&key, tables.iter().copied()).filter(|_| is_table);
                let problem = match table {
                    Some(name) => format!("there is no table `{key}`: did you mean `{name}`?"),
                    None => error.to_string(),
                };
                wrong.push(at(path, text, key_at.start, problem, None));
                continue;
            }
        };
        if let Some(earlier) = settings.iter().find(|earlier| earlier.field.name == field.name) {
            let fix = format!("it is set in line {} already", earlier.line);
            let problem = format!("`{key}`: {} is set in line {} already", field.name, earlier.line);
            let invalid = InvalidField { field: field.name, value: given(), fix };
            wrong.push(at(path, text, key_at.start, problem, Some(invalid)));
            continue;
        }
        match check(field, value) {
            Ok(value) => settings.push(FileSetting { field, value, line }),
            Err(fix) => {
                let invalid = InvalidField { field: field.name, value: given(), fix };
                wrong.push(at(path, text, value_at.start, invalid.to_string(), Some(invalid)));
            }
        }
    }
    Ok(file)
}

impl File {
    fn add_tables(&mut self, path: &Path, text: &str, entry: Entry) {
        if entry.tables.is_empty() {
            let problem = format!("`{}` is a table: write [{}] before its settings", entry.key, entry.key);
            self.wrong.push(at(path, text, entry.key_at.start, problem, None));
        }
        for entries in entry.tables {
            let start = entries.first().map_or(&entry.key_at, |first| &first.key_at).start;
            let mut settings = Vec::new();
            for Entry { key, value, key_at, .. } in entries {
                let (line, column) = position(text, key_at.start);
                match value {
                    Some(value) => settings.push(TableSetting { key, value, line, column }),
                    None => {
                        let problem = format!("`{key}`: give a single value or a list");
                        self.wrong.push(at(path, text, key_at.start, problem, None));
                    }
                }
            }
            let (name, line) = (entry.key.clone(), position(text, start).0);
            self.tables.push(SettingsTable { name, settings, path: path.to_path_buf(), line });
        }
    }
}

/// The value of a field, or what to give instead.
fn check(field: &Field, value: Option<Value>) -> Result<Value, String> {
    let value = value.ok_or("give a single value or a list")?;
    field.set(&mut PipelineConfig::default(), &value)?;
    Ok(value)
}

fn at(path: &Path, text: &str, offset: usize, problem: String, field: Option<InvalidField>) -> Error {
    let (line, column) = position(text, offset);
    let (path, field) = (PathBuf::from(path), field.map(Box::new));
    Error::ConfigFile { path, line, column, problem, field }
}

/// The entries of a TOML table, in their order.
fn toml_entries(text: &str) -> Result<Vec<Entry>, Malformed> {
    let table = DeTable::parse(text).map_err(|error| {
        let (line, column) = position(text, error.span().map_or(0, |span| span.start));
        Malformed { line, column, problem: error.message().to_string() }
    })?;
    Ok(entries_of(table.get_ref()))
}

fn entries_of(table: &DeTable<'_>) -> Vec<Entry> {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| Entry {
        key: String::from(AsRef::<str>::as_ref(key.get_ref())),
        value: json(value.get_ref()),
        tables: tables_of(value.get_ref()),
        key_at: key.span(),
        value_at: value.span(),
    };
    let mut entries: Vec<Entry> = table.iter().map(|(key, value)| entry((key, value))).collect();
    entries.sort_by_key(|entry| entry.key_at.start);
    entries
}

/// The tables that a value is; none if it is something else.
fn tables_of(value: &DeValue<'_>) -> Vec<Vec<Entry>> {
    match value {
        DeValue::Table(table) => vec![entries_of(table)],
        DeValue::Array(values) => {
            let table = |value: &toml::Spanned<DeValue<'_>>| match value.get_ref() {
                DeValue::Table(table) => Some(entries_of(table)),
                _ => None,
            };
            values.iter().map(table).collect::<Option<_>>().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// The entries of a JSON object, in their order; several may have one key.
fn json_entries(text: &str) -> Result<Vec<Entry>, Malformed> {
    let malformed = |error: serde_json::Error| {
        let message = error.to_string();
        let problem = message.split(" at line ").next().unwrap_or_default().to_string();
        Malformed { line: error.line().max(1), column: error.column().max(1), problem }
    };
    serde_json::from_str::<Map<String, Value>>(text).map_err(malformed)?;
    let skip = |at: usize, separator: char| {
        let rest = text[at..].trim_start();
        text.len() - rest.strip_prefix(separator).unwrap_or(rest).trim_start().len()
    };
    let mut entries = Vec::new();
    let mut at = skip(0, '{');
    while !text[at..].starts_with('}') {
        let (key, key_at) = json_value::<String>(text, at).map_err(malformed)?;
        let start = skip(key_at.end, ':');
        let (value, value_at) = json_value::<Value>(text, start).map_err(malformed)?;
        at = skip(value_at.end, ',');
        let value = Some(value).filter(|value| !value.is_object());
        entries.push(Entry { key, value, tables: Vec::new(), key_at, value_at });
    }
    Ok(entries)
}

/// The value that begins at an offset, and where it is.
fn json_value<T: DeserializeOwned>(text: &str, start: usize) -> serde_json::Result<(T, Range<usize>)> {
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter();
    let value = values.next().unwrap_or_else(|| Err(serde::de::Error::custom("the object has no end")))?;
    Ok((value, start..start + values.byte_offset()))
}

/// A TOML value as JSON; `None` for tables, dates, and numbers beyond 64 bits.
fn json(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::String(text) => Some(Value::from(&text[..])),
        DeValue::Integer(number) => {
            i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok().map(Value::from)
        }
        DeValue::Float(number) => number.as_str().replace('_', "").parse::<f64>().ok().map(Value::from),
        DeValue::Boolean(value) => Some(Value::from(*value)),
        DeValue::Array(values) => values.iter().map(|value| json(value.get_ref())).collect(),
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// Line and column of an offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    (line, before.rsplit('\n').next().unwrap_or_default().chars().count() + 1)
}
