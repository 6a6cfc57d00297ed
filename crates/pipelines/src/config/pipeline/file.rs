//! Files of settings: TOML, with the place of everything that is wrong.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Field, PipelineConfig};
use crate::Error;
use crate::error::InvalidField;

/// A field that a file sets, and the line where it does.
pub(super) struct FileSetting {
    pub(super) field: &'static Field,
    pub(super) value: Value,
    pub(super) line: usize,
}

/// The settings of a file, in its order, and all that is wrong with it.
///
/// # Errors
/// If it cannot be read as TOML.
pub(super) fn read(path: &Path) -> Result<(Vec<FileSetting>, Vec<Error>), Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
    parse(path, &text)
}

/// The settings of a file's text.
pub(super) fn parse(path: &Path, text: &str) -> Result<(Vec<FileSetting>, Vec<Error>), Error> {
    let table = DeTable::parse(text).map_err(|error| {
        at(path, text, error.span().map_or(0, |span| span.start), error.message().to_string(), None)
    })?;
    let mut entries: Vec<(&Spanned<_>, &Spanned<DeValue<'_>>)> = table.get_ref().iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let (mut settings, mut wrong): (Vec<FileSetting>, _) = (Vec::new(), Vec::new());
    for (name, value) in entries {
        let start = name.span().start;
        let line = position(text, start).0;
        let given = || text.get(value.span()).unwrap_or_default().to_string();
        let field = match Field::find(name.get_ref()) {
            Ok(field) => field,
            Err(error) => {
                wrong.push(at(path, text, start, error.to_string(), None));
                continue;
            }
        };
        if let Some(earlier) = settings.iter().find(|earlier| earlier.field.name == field.name) {
            let fix = format!("it is set in line {} already", earlier.line);
            let problem =
                format!("`{}`: {} is set in line {} already", name.get_ref(), field.name, earlier.line);
            let invalid = InvalidField { field: field.name, value: given(), fix };
            wrong.push(at(path, text, start, problem, Some(invalid)));
            continue;
        }
        match read_value(field, value.get_ref()) {
            Ok(value) => settings.push(FileSetting { field, value, line }),
            Err(fix) => {
                let invalid = InvalidField { field: field.name, value: given(), fix };
                wrong.push(at(path, text, value.span().start, invalid.to_string(), Some(invalid)));
            }
        }
    }
    Ok((settings, wrong))
}

/// The value of a field, or what to give instead.
fn read_value(field: &Field, value: &DeValue<'_>) -> Result<Value, String> {
    let value = json(value).ok_or("give a single value or a list")?;
    field.set(&mut PipelineConfig::default(), &value)?;
    Ok(value)
}

fn at(path: &Path, text: &str, offset: usize, problem: String, field: Option<InvalidField>) -> Error {
    let (line, column) = position(text, offset);
    let (path, field) = (PathBuf::from(path), field.map(Box::new));
    Error::ConfigFile { path, line, column, problem, field }
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
