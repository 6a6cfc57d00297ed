//! Where the values of a configuration come from: defaults, a file, the environment, the command line; later ones win.

use std::path::Path;

use serde_json::Value;

use super::defaults::UseCase;
use super::enums::{KVCacheStrategy, PipelineEngine};
use super::field::Field;
use super::file::{File, SettingsTable, TableSetting};
use super::origin::Origin;
use super::{FIELDS, PipelineConfig, file};
use crate::Error;

/// The start of the names of environment variables: `PERI_MAX_LENGTH` sets `max_length`.
pub(crate) const ENVIRONMENT_PREFIX: &str = "PERI_";

/// A configuration, and who set each of its values. Later values win, so layers are added from the weakest.
#[derive(Debug, Clone)]
pub struct Layers {
    config: PipelineConfig,
    /// In the order of [`FIELDS`].
    origins: Vec<Origin>,
}

/// A variable that begins as those that set fields do, and sets none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} sets nothing{}", .nearest.as_ref().map_or_else(String::new, |name| format!(": did you mean {name}?")))]
pub struct UnknownVariable {
    /// Its name.
    pub name: String,
    /// The variable most like it.
    pub nearest: Option<String>,
}

impl UnknownVariable {
    fn new(name: String) -> UnknownVariable {
        let fields = FIELDS.iter().flat_map(|field| field.aliases.iter().chain([&field.name]));
        let field = name.strip_prefix(ENVIRONMENT_PREFIX).unwrap_or(&name);
        let nearest = sources::nearest(field, fields.copied().chain(["config"]));
        let nearest = nearest.map(|field| format!("{ENVIRONMENT_PREFIX}{}", field.to_uppercase()));
        UnknownVariable { name, nearest }
    }
}

impl Default for Layers {
    fn default() -> Layers {
        Layers { config: PipelineConfig::default(), origins: vec![Origin::Default; FIELDS.len()] }
    }
}

impl Layers {
    /// The defaults for a use.
    pub fn for_use(use_case: UseCase) -> Layers {
        let (config, plain) = (use_case.config(), PipelineConfig::default());
        let is_plain = |field: &Field| field.value(&config) == field.value(&plain);
        let origin = |field| if is_plain(field) { Origin::Default } else { Origin::Command };
        Layers { origins: FIELDS.iter().map(origin).collect(), config }
    }

    /// Takes back a default that other settings rule out: prefix caching, if sequences share no pages.
    pub fn fit_defaults(&mut self) {
        let pages = self.config.strategy() == KVCacheStrategy::Paged;
        let shares = pages && self.config.engine != Some(PipelineEngine::HuggingFace);
        if !shares && !self.is_set("enable_prefix_caching") {
            self.config.enable_prefix_caching = false;
        }
    }

    /// Sets a field.
    ///
    /// # Errors
    /// If there is no such field, or the value is of another kind.
    pub fn set(&mut self, name: &str, value: &Value, origin: Origin) -> Result<(), Error> {
        let field = Field::find(name)?;
        let wrong = |fix| {
            Error::Config(vec![crate::error::InvalidField {
                field: field.name,
                value: value.to_string(),
                fix,
            }])
        };
        field.set(&mut self.config, value).map_err(wrong)?;
        let index = FIELDS.iter().position(|other| other.name == field.name).expect("found among them");
        self.origins[index] = origin;
        Ok(())
    }

    /// Adds the settings of a file: TOML, or JSON if its name ends in `.json`.
    ///
    /// # Errors
    /// If it cannot be read, and wherever it names a field that there is not, or gives one a value of another kind; with
    /// the place. Those that are right are set.
    pub fn file(&mut self, path: &Path) -> Result<(), Error> {
        self.file_with_tables(path, &[]).map(|_| ())
    }

    /// As [`Layers::file`], of a TOML file that may have tables with these names besides. Gives them, in its order.
    ///
    /// # Errors
    /// As [`Layers::file`].
    pub fn file_with_tables(&mut self, path: &Path, tables: &[&str]) -> Result<Vec<SettingsTable>, Error> {
        let File { settings, tables, wrong } = file::read(path, tables)?;
        for setting in settings {
            let origin = Origin::File { path: path.to_path_buf(), line: setting.line };
            self.set(setting.field.name, &setting.value, origin)?;
        }
        Error::check_all(wrong)?;
        Ok(tables)
    }

    /// Sets the field that a setting of a table names.
    ///
    /// # Errors
    /// If there is no such field, or the value is of another kind; with the place.
    pub fn table_setting(&mut self, table: &SettingsTable, setting: &TableSetting) -> Result<(), Error> {
        let problem = match self.set(&setting.key, &setting.value, table.origin(setting)) {
            Ok(()) => return Ok(()),
            Err(Error::Config(fields)) => fields.iter().map(ToString::to_string).collect(),
            Err(error) => error.to_string(),
        };
        Err(table.error(Some(setting), problem))
    }

    /// Adds the variables that begin with `PERI_`; an empty one counts as unset. Gives those that
    /// name no field.
    ///
    /// # Errors
    /// Wherever a value is not one of its field, or another variable says otherwise. Those that are right are set.
    pub fn environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Vec<UnknownVariable>, Error> {
        let mut variables: Vec<(String, String)> = variables.into_iter().collect();
        variables.sort();
        let (mut unknown, mut wrong) = (Vec::new(), Vec::new());
        let mut known: Vec<(&str, String, Value)> = Vec::new();
        for (variable, text) in variables {
            let Some(name) = variable.strip_prefix(ENVIRONMENT_PREFIX).filter(|_| !text.is_empty()) else {
                continue;
            };
            match Field::find(&name.to_ascii_lowercase()) {
                Ok(field) => match field.parse(&text).and_then(|value| agreed(field, value, &known)) {
                    Ok(value) => {
                        self.set(field.name, &value, Origin::Environment(variable.clone()))?;
                        known.push((field.name, variable, value));
                    }
                    Err(expected) => {
                        wrong.push(Error::Environment { variable, field: field.name, value: text, expected });
                    }
                },
                Err(_) => unknown.push(UnknownVariable::new(variable)),
            }
        }
        Error::check_all(wrong)?;
        Ok(unknown)
    }

    /// The configuration.
    pub fn config(&self) -> &PipelineConfig {
        &self.config
    }

    /// Every field, and who set it.
    pub fn fields(&self) -> impl Iterator<Item = (&'static Field, &Origin)> {
        FIELDS.iter().zip(&self.origins)
    }

    /// Whether someone else than the defaults and the command set a field.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn is_set(&self, name: &str) -> bool {
        let (_, origin) = self.fields().find(|(field, _)| field.name == name).expect("a name of the table");
        !matches!(origin, Origin::Default | Origin::Command)
    }
}

/// The value of a field, unless a variable that means the same field has another one.
fn agreed(field: &Field, value: Value, known: &[(&str, String, Value)]) -> Result<Value, String> {
    match known.iter().find(|(name, _, other)| *name == field.name && *other != value) {
        Some((_, other, _)) => Err(format!("{} is set by {other} already: unset one of them", field.name)),
        None => Ok(value),
    }
}
