//! The catalog: models that requests pulled, and presets that they made, in a file that other servers may share.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::preset::{Preset, PresetSpec};
use crate::Error;
use crate::api_error::ApiError;

/// The catalog of a server.
pub(super) struct Catalog {
    /// `None` keeps it until the server ends.
    path: Option<PathBuf>,
    entries: Mutex<Entries>,
}

/// The entries of a catalog, ready for requests.
#[derive(Default)]
struct Entries {
    models: Vec<String>,
    presets: Vec<Arc<Preset>>,
}

/// The entries of a catalog, as its file stores them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CatalogFile {
    /// Names of repositories, sorted.
    pub(super) models: Vec<String>,
    /// By name.
    pub(super) presets: Vec<PresetSpec>,
}

impl Catalog {
    /// Reads a catalog. One that is not there is empty.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a catalog.
    pub(super) fn open(path: Option<PathBuf>) -> Result<Catalog, Error> {
        let file = path.as_deref().map(CatalogFile::read).transpose()?.unwrap_or_default();
        let entries = match (Entries::new(&file), &path) {
            (Ok(entries), _) => entries,
            (Err(error), Some(path)) => return Err(wrong(path, error.message)),
            (Err(_), None) => Entries::default(),
        };
        Ok(Catalog { path, entries: Mutex::new(entries) })
    }

    /// The names of the models that requests pulled.
    pub(super) fn models(&self) -> Vec<String> {
        self.lock().models.clone()
    }

    /// The presets, by name. Their models need not be listed by this server.
    pub(super) fn presets(&self) -> Vec<Arc<Preset>> {
        self.lock().presets.clone()
    }

    /// Changes the catalog as its file is now, which another server may have changed. Blocks while one does.
    ///
    /// # Errors
    /// If the change is refused, or the file cannot be written; all stays as it was.
    pub(super) fn change(
        &self,
        change: impl FnOnce(&mut CatalogFile) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let mut entries = self.lock();
        let (mut file, _lock) = match &self.path {
            None => (entries.to_file(), None),
            Some(path) => {
                let lock = lock(path).map_err(unwritable)?;
                (CatalogFile::read(path).map_err(unwritable)?, Some(lock))
            }
        };
        change(&mut file)?;
        let changed = Entries::new(&file)?;
        self.path.iter().try_for_each(|path| file.write(path)).map_err(unwritable)?;
        *entries = changed;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn new(file: &CatalogFile) -> Result<Entries, ApiError> {
        let presets = file.presets.iter().map(|spec| Ok(Arc::new(Preset::new(spec.clone())?)));
        Ok(Entries { models: file.models.clone(), presets: presets.collect::<Result<_, ApiError>>()? })
    }

    fn to_file(&self) -> CatalogFile {
        let presets = self.presets.iter().map(|preset| preset.spec().clone()).collect();
        CatalogFile { models: self.models.clone(), presets }
    }
}

impl CatalogFile {
    /// Adds a model, unless it is there.
    pub(super) fn add_model(&mut self, name: String) {
        if let Err(place) = self.models.binary_search(&name) {
            self.models.insert(place, name);
        }
    }

    /// Adds a preset, in place of one with its name.
    pub(super) fn add_preset(&mut self, preset: PresetSpec) {
        self.presets.retain(|other| other.name != preset.name);
        self.presets.push(preset);
        self.presets.sort_by(|a, b| a.name.cmp(&b.name));
    }

    fn read(path: &Path) -> Result<CatalogFile, Error> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(CatalogFile::default()),
            text => text.map_err(|error| wrong(path, error.to_string()))?,
        };
        serde_json::from_slice(&text).map_err(|error| wrong(path, error.to_string()))
    }

    /// Writes the whole file next to its place, and then moves it there.
    fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).expect("the objects have text keys");
        let unfinished = path.with_added_extension("new");
        let write = || {
            let mut file =
                private(OpenOptions::new().write(true).create(true).truncate(true)).open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, path)
        };
        write().map_err(|error| wrong(path, error.to_string()))
    }
}

/// Waits until no other process changes a catalog. The lock is released when the file is closed.
fn lock(path: &Path) -> Result<File, Error> {
    let lock = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let path = path.with_added_extension("lock");
        let file = private(OpenOptions::new().write(true).create(true).truncate(false)).open(path)?;
        file.lock()?;
        std::io::Result::Ok(file)
    };
    lock().map_err(|error| wrong(path, error.to_string()))
}

/// System prompts concern their users alone.
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

fn wrong(path: &Path, problem: String) -> Error {
    Error::Catalog { path: path.to_path_buf(), problem }
}

/// The error of a request whose change cannot be kept.
fn unwritable(error: Error) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> PresetSpec {
        PresetSpec { name: name.to_string(), from: "storyteller".to_string(), ..PresetSpec::default() }
    }

    #[test]
    fn changes_of_two_servers_are_both_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/models.json");
        let open = || Catalog::open(Some(path.clone())).unwrap();
        let (one, two) = (open(), open());
        let add = |catalog: &Catalog, name: &str| {
            catalog.change(|file| {
                file.add_preset(spec(name));
                file.add_model(format!("ada/{name}"));
                Ok(())
            })
        };
        std::thread::scope(|scope| {
            for (catalog, names) in [(&one, ["b", "a", "c"]), (&two, ["e", "d", "a"])] {
                scope.spawn(move || names.iter().for_each(|name| add(catalog, name).unwrap()));
            }
        });
        let names = |catalog: &Catalog| {
            catalog.presets().iter().map(|preset| preset.name().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&open()), ["a", "b", "c", "d", "e"]);
        assert_eq!(open().models(), ["ada/a", "ada/b", "ada/c", "ada/d", "ada/e"]);
        let refusal = one.change(|_| Err(ApiError::bad_request("no"))).unwrap_err();
        assert_eq!((refusal.message, names(&open()).len()), ("no".to_string(), 5));
    }

    #[test]
    fn a_file_that_is_no_catalog_is_an_error_with_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("models.json");
        let error = |text: &str| {
            fs::write(&path, text).unwrap();
            Catalog::open(Some(path.clone())).err().unwrap().to_string()
        };
        assert!(error("{\"models\": 1}").contains("models.json: invalid type: integer `1`"));
        assert!(error("{\"modles\": []}").contains("unknown field `modles`"));
        let preset = r#"{"presets": [{"name": "../x", "from": "y", "created": 0}]}"#;
        assert!(error(preset).contains("the name `../x` cannot be used"));
    }
}
