//! The models of the server: found by name, loaded, and kept while requests use them.

mod loaded;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use engine::InferenceSession;
use engine::devices::Platform;
use pipelines::TextGenerator;
use pipelines::config::PipelineConfig;

pub(crate) use loaded::LoadedModel;

use crate::Error;
use crate::error::ApiError;

/// A model to serve.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// The name by which requests choose it.
    pub id: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// Which of the server's routes it answers; `None` follows from its architecture.
    pub kind: Option<ModelKind>,
    /// Which files, and how they run.
    pub config: PipelineConfig,
}

impl ModelConfig {
    /// A model under its own name: that of its file without the extension, of its folder, or of its repo.
    pub fn new(config: PipelineConfig) -> ModelConfig {
        let path = Path::new(&config.huggingface_repo_id);
        let id = if config.is_built_in() {
            storyteller::NAME.to_string()
        } else if path.is_file() {
            path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
        } else if path.is_dir() || config.huggingface_repo_id.is_empty() {
            config.short_name()
        } else {
            config.huggingface_repo_id.clone()
        };
        ModelConfig { id, aliases: Vec::new(), kind: None, config }
    }
}

/// What a model makes of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// More text.
    Text,
    /// Vectors.
    Embedding,
}

/// The models of a server.
pub(crate) struct Models {
    entries: Vec<Arc<Entry>>,
}

/// A model that requests can name.
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) aliases: Vec<String>,
    /// Seconds since 1970.
    pub(crate) created: u64,
    pub(crate) loaded: LoadedModel,
}

impl Models {
    /// Loads all models.
    ///
    /// # Errors
    /// If two have the same name, or one cannot be loaded.
    pub(crate) fn load(
        configs: Vec<ModelConfig>,
        session: &InferenceSession,
        platform: &Platform,
    ) -> Result<Models, Error> {
        check_names(&configs)?;
        let entries = configs.into_iter().map(|model| {
            let ModelConfig { id, aliases, kind, config } = model;
            let loaded = LoadedModel::load(&config, kind, session, platform)
                .map_err(|source| Error::Model { name: id.clone(), source: Box::new(source) })?;
            let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            Ok(Arc::new(Entry { id, aliases, created, loaded }))
        });
        Ok(Models { entries: entries.collect::<Result<_, Error>>()? })
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// The only model that makes text, and its name.
    ///
    /// # Errors
    /// If there are others or none.
    pub(crate) fn only_generator(&self) -> Result<(&str, &TextGenerator), Error> {
        let generators =
            self.entries.iter().filter_map(|entry| Some((&entry.id[..], entry.loaded.generator().ok()?)));
        match generators.collect::<Vec<_>>()[..] {
            [only] => Ok(only),
            _ => Err(Error::NoSingleGenerator),
        }
    }

    /// The model with an id, an alias, or an id that ends in `/name`. Without a name, the only model there is.
    ///
    /// # Errors
    /// If there is none, or several fit.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<&Arc<Entry>, ApiError> {
        let Some(name) = name else {
            return match &self.entries[..] {
                [only] => Ok(only),
                _ => Err(ApiError::invalid("model", format!("name one of the models: {}", self.names()))),
            };
        };
        let exact = |entry: &&Arc<Entry>| entry.id == name || entry.aliases.iter().any(|alias| alias == name);
        if let Some(entry) = self.entries.iter().find(exact) {
            return Ok(entry);
        }
        let ends =
            |entry: &&Arc<Entry>| entry.id.strip_suffix(name).is_some_and(|start| start.ends_with('/'));
        let mut matches = self.entries.iter().filter(ends);
        match (matches.next(), matches.next()) {
            (Some(entry), None) => Ok(entry),
            _ => Err(ApiError {
                param: Some("model".to_string()),
                ..ApiError::new(
                    StatusCode::NOT_FOUND,
                    "model_not_found",
                    format!("there is no model `{name}`; the models are {}", self.names()),
                )
            }),
        }
    }

    fn names(&self) -> String {
        self.entries.iter().map(|entry| &entry.id[..]).collect::<Vec<_>>().join(", ")
    }
}

fn check_names(configs: &[ModelConfig]) -> Result<(), Error> {
    let mut names: Vec<&String> =
        configs.iter().flat_map(|model| model.aliases.iter().chain([&model.id])).collect();
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::DuplicateName { name: pair[0].clone() }),
        None => Ok(()),
    }
}
