//! Files of settings: TOML, with the place of everything that is wrong.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Field, PipelineConfig};
use crate::Error;

/// A field that a file sets, and the line where it does.
pub(super) struct FileSetting {
    pub(super) field: &'static Field,
    pub(super) value: Value,
    pub(super) line: usize,
}

/// The settings of a file, in its order.
pub(super) fn read(path: &Path) -> Result<Vec<FileSetting>, Error> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
    parse(path, &text)
}

/// The settings of a file's text.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<FileSetting>, Error> {
    let at = |offset: usize, problem: String| {
        let (line, column) = position(text, offset);
        Error::ConfigFile { path: PathBuf::from(path), line, column, problem }
    };
    let table = DeTable::parse(text)
        .map_err(|error| at(error.span().map_or(0, |span| span.start), error.message().to_string()))?;
    let mut entries: Vec<(&Spanned<_>, &Spanned<DeValue<'_>>)> = table.get_ref().iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let mut settings: Vec<FileSetting> = Vec::new();
    for (name, value) in entries {
        let start = name.span().start;
        let field = Field::find(name.get_ref()).map_err(|error| at(start, error.to_string()))?;
        let line = position(text, start).0;
        if let Some(earlier) = settings.iter().find(|earlier| earlier.field.name == field.name) {
            let problem =
                format!("`{}`: {} is set in line {} already", name.get_ref(), field.name, earlier.line);
            return Err(at(start, problem));
        }
        let wrong = |expected: String| {
            let given = text.get(value.span()).unwrap_or_default();
            at(value.span().start, format!("{} is {given}: {expected}", field.name))
        };
        let value = json(value.get_ref()).ok_or_else(|| wrong("give a single value or a list".into()))?;
        field.set(&mut PipelineConfig::default(), &value).map_err(wrong)?;
        settings.push(FileSetting { field, value, line });
    }
    Ok(settings)
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
