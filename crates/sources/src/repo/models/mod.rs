//! Decides which files of a repository are its models; every other module asks here.

mod choose;
mod encoding;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use indexmap::{IndexMap, IndexSet};
use weights::Format;
use weights::file_name::{
    are_one_set, format_of_index, index_of_shard, is_complete, is_training_state, missing_shard,
    remove_copies, shard_sets,
};

pub use self::choose::Wanted;
pub(crate) use self::choose::{Several, choose};
use super::{HuggingFaceRepo, RepoLocation};
use crate::companions::Companions;
use crate::content::Content;
use crate::hub::RepoFile;
use crate::named::WEIGHTS_SUFFIXES;
use crate::{Error, SupportedEncoding, WeightsFormat};

/// Names of files by the format of their weights, in the order of preference.
pub type FilesByFormat<Name> = IndexMap<WeightsFormat, Vec<Name>>;

/// How names of GGUF files begin that hold something else than a language model: encoders of images and sounds, and
/// statistics for quantization.
const OTHER_GGUF: [&str; 2] = ["mmproj", "imatrix"];

/// The files of one model, and, once they were looked into, its encoding or why it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelFiles {
    /// How they store weights.
    pub(crate) format: WeightsFormat,
    /// At least one.
    pub(crate) files: Vec<String>,
    /// The file that lists which tensor is in which of them.
    pub(crate) index: Option<String>,
    /// A file that belongs to them and is not there.
    pub(crate) missing: Option<String>,
    /// The encoding of most matrices.
    pub(crate) encoding: Option<SupportedEncoding>,
    /// Why the files cannot be read or are not supported.
    pub(crate) problem: Option<String>,
    /// Of a model that was chosen: the files that were not taken because they cannot be read, each with the reason.
    pub(crate) passed_over: Vec<String>,
}

impl ModelFiles {
    fn new(
        format: WeightsFormat,
        files: Vec<String>,
        index: Option<String>,
        missing: Option<String>,
    ) -> Self {
        ModelFiles { format, files, index, missing, encoding: None, problem: None, passed_over: Vec::new() }
    }

    /// The folder of its files, below the root; empty at the top level.
    pub(crate) fn folder(&self) -> &str {
        self.files[0].rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl HuggingFaceRepo {
    /// The files of weights by format, below the root and sorted; safetensors first, then GGUF, then PyTorch.
    ///
    /// GGUF files count in folders too, safetensors and PyTorch files only if there are no weights at the top level. Of
    /// several files in a format, `consolidated` copies do not count, nor do the leavings of training, nor what is no
    /// language model.
    ///
    /// # Errors
    /// If the files cannot be listed.
    pub fn weight_files(&self) -> Result<FilesByFormat<String>, Error> {
        Ok(self.weight_files_among(&self.files()?))
    }

    /// The formats there are, in the order of [`HuggingFaceRepo::weight_files`].
    ///
    /// # Errors
    /// If the files cannot be listed.
    pub fn formats_available(&self) -> Result<Vec<WeightsFormat>, Error> {
        Ok(self.weight_files()?.into_keys().collect())
    }

    /// The encodings there are, in the order of [`HuggingFaceRepo::weight_files`]: read from the files, where they
    /// are on this machine; else what the hub knows of safetensors, what names of GGUF files suggest, and
    /// the dtype in `config.json` for PyTorch files.
    ///
    /// # Errors
    /// If the files cannot be listed. A file that cannot be read, or that no kernel runs, does not count.
    pub fn supported_encodings(&self) -> Result<Vec<SupportedEncoding>, Error> {
        let encodings: IndexSet<_> = self.models()?.iter().filter_map(|model| model.encoding).collect();
        Ok(encodings.into_iter().collect())
    }

    /// The files of weights in an encoding, by format: GGUF first, then safetensors, then PyTorch. Without any, and
    /// if no format was asked for, those in the alternate encoding.
    ///
    /// # Errors
    /// If the files cannot be listed.
    pub fn files_for_encoding(
        &self,
        encoding: SupportedEncoding,
        weights_format: Option<WeightsFormat>,
        alternate_encoding: Option<SupportedEncoding>,
    ) -> Result<FilesByFormat<PathBuf>, Error> {
        let found = self.files_in(encoding, weights_format)?;
        match alternate_encoding {
            Some(alternate) if found.is_empty() && weights_format.is_none() => {
                tracing::warn!("{self} has no weights in {encoding}: taking those in {alternate}");
                self.files_in(alternate, None)
            }
            _ => Ok(found),
        }
    }

    /// The encoding of a file below the root.
    ///
    /// # Errors
    /// If it is not there, is no file of weights, has an encoding that does not run, or one that its name
    /// contradicts.
    pub fn encoding_for_file(&self, file: impl AsRef<Path>) -> Result<SupportedEncoding, Error> {
        let name = file.as_ref().to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/");
        let unknown = |problem: String| Error::UnknownEncoding { file: name.clone(), problem };
        if WeightsFormat::from_file_name(&name).is_none() {
            return Err(unknown(format!("not a weights file ({WEIGHTS_SUFFIXES})")));
        }
        if let Some(path) = self.cached(&name)? {
            return Ok(Content::open(&[path])?.encoding_of_file(&name)?.0);
        }
        if !self.file_exists(&name)? {
            return Err(self.missing(&name));
        }
        let model = self.models()?.iter().find(|model| model.files.contains(&name));
        model.and_then(|model| model.encoding).ok_or_else(|| unknown("its encoding is unknown".into()))
    }

    /// The names of the files next to the weights, at the top level and in `folder`: those on the hub if `ask` is set,
    /// else the cached ones. They are downloaded before the weights, so weights in the cache mean that nothing else is
    /// missing.
    pub(crate) fn companions(
        &self,
        companions: Companions,
        ask: bool,
        folder: &str,
    ) -> Result<Vec<String>, Error> {
        let files = if ask {
            self.all_files()?
        } else if self.trust_remote_code() {
            // Code may be missing, of a model whose weights were downloaded without it.
            self.all_files().or_else(|_| self.known_files())?
        } else {
            self.known_files()?
        };
        let in_folder = |name: &str| {
            let inner = name.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
            inner.is_some_and(|inner| companions.include(inner))
        };
        let is_code = |name: &str| self.trust_remote_code() && name.ends_with(".py");
        let is_companion = |name: &String| {
            companions.include(name) || is_code(name) || !folder.is_empty() && in_folder(name)
        };
        Ok(files.into_iter().map(|file| file.name).filter(is_companion).collect())
    }

    /// Which of the files are weights, by format. Those in folders count below the folder that the repository's name
    /// means, and where there are none at the top level.
    pub(crate) fn weight_files_among(&self, files: &[RepoFile]) -> FilesByFormat<String> {
        let names = || files.iter().map(|file| file.name.as_str());
        let at_the_top = weight_files(names(), false);
        match self.inside() {
            Some(inside) => weight_files(names().filter(|name| is_meant(name, inside)), true),
            None if at_the_top.is_empty() => weight_files(names(), true),
            None => at_the_top,
        }
    }

    /// The files in the cache of a hub that was not asked, if they are a model of which no shard is missing.
    pub(super) fn cached_model(&self) -> Result<Option<Vec<RepoFile>>, Error> {
        let RepoLocation::Online(online) = &self.place else { return Ok(None) };
        Ok(online.cached_files()?.filter(|files| {
            let names = files.iter().map(|file| file.name.as_str());
            let sets = shard_sets(names.filter(|name| WeightsFormat::from_file_name(name).is_some()));
            !sets.is_empty() && sets.iter().all(|set| is_complete(set))
        }))
    }

    /// The models among files, in the order of the formats; they are not looked into.
    fn models_among(&self, files: &[RepoFile]) -> Result<Vec<ModelFiles>, Error> {
        let mut models = self.indexed_models(files)?;
        for (format, names) in &self.weight_files_among(files) {
            let listed = |name: &&str| models.iter().any(|model| model.files.iter().any(|file| file == name));
            let rest: Vec<&str> = names.iter().map(String::as_str).filter(|name| !listed(name)).collect();
            for set in shard_sets(rest) {
                let index =
                    index_of_shard(set[0]).filter(|index| files.iter().any(|file| file.name == *index));
                let names = set.iter().map(|name| name.to_string()).collect();
                models.push(ModelFiles::new(*format, names, index, missing_shard(&set)));
            }
        }
        if let Some(inside) = self.inside() {
            models.retain(|model| model.files.iter().any(|name| is_meant(name, inside)));
        }
        models.sort_by_key(|model| formats().position(|format| format == model.format));
        Ok(models)
    }

    /// The models that indexes at the top level list, as far as these are on this machine. An index that cannot be read
    /// is a model of its own, with that problem, unless the names of shards tell what it should list.
    fn indexed_models(&self, files: &[RepoFile]) -> Result<Vec<ModelFiles>, Error> {
        let is_there = |name: &str| files.iter().any(|file| file.name == name);
        let mut models: Vec<ModelFiles> = Vec::new();
        for (format, index) in indexes(files) {
            let Some(path) = self.cached(index)? else { continue };
            // Those that are named after it belong to it, whether it lists them or not.
            let shards = files.iter().map(|file| file.name.as_str());
            let shards = shards.filter(|name| index_of_shard(name).as_deref() == Some(index));
            let mut listed: BTreeSet<String> = shards.map(str::to_string).collect();
            let problem = match weights::shards(&path) {
                Ok(shards) => {
                    let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_string());
                    listed.extend(shards.iter().filter_map(name));
                    None
                }
                Err(error) => Some(error.to_string()),
            };
            let (mut here, missing): (Vec<String>, Vec<String>) =
                listed.into_iter().partition(|name| is_there(name));
            let is_one_file = matches!(&self.place, RepoLocation::Local { file: Some(_), .. });
            if is_one_file && here.is_empty() {
                continue;
            }
            if here.is_empty() {
                here.push(index.to_string());
            }
            let missing = missing.into_iter().next();
            let model = ModelFiles::new(format, here, Some(index.to_string()), missing);
            models.push(ModelFiles { problem, ..model });
        }
        Ok(models)
    }

    /// The models among files, looked into.
    fn models_of(&self, files: &[RepoFile]) -> Result<Vec<ModelFiles>, Error> {
        let mut models = self.models_among(files)?;
        for model in &mut models {
            self.look_into(model)?;
            if let Some(problem) = &model.problem {
                tracing::warn!("{self}: `{}` is ignored: {problem}", model.files[0]);
            }
        }
        Ok(models)
    }

    /// The models among the files, and their encodings; looked at once.
    fn models(&self) -> Result<&[ModelFiles], Error> {
        if let Some(models) = self.models.get() {
            return Ok(models);
        }
        let models = self.models_of(&self.files()?)?;
        Ok(self.models.get_or_init(|| models))
    }

    /// The files of the models in an encoding, by format: of those that [`HuggingFaceRepo::files`] lists or, if none of
    /// them fits, of those on the hub, as the cache may have a part of what the hub has.
    fn files_in(
        &self,
        encoding: SupportedEncoding,
        weights_format: Option<WeightsFormat>,
    ) -> Result<FilesByFormat<PathBuf>, Error> {
        let fits = |model: &ModelFiles| {
            model.encoding == Some(encoding) && weights_format.is_none_or(|format| format == model.format)
        };
        let mut models = self.models()?.to_vec();
        if !models.iter().any(fits) && self.may_have_more() && self.cached_model()?.is_some() {
            models = self.models_of(&self.all_files()?)?;
        }
        let mut files = FilesByFormat::new();
        for model in models.into_iter().filter(fits) {
            let paths = model.files.into_iter().map(PathBuf::from);
            files.entry(model.format).or_insert_with(Vec::new).extend(paths);
        }
        files.sort_unstable_keys();
        Ok(files)
    }
}

/// The formats, in the order in which a repository that has several is read.
fn formats() -> impl Iterator<Item = WeightsFormat> {
    Format::BY_PREFERENCE.into_iter().map(WeightsFormat::from)
}

/// Whether a file is the one that is meant, a shard of the same model, or below the folder that is meant.
fn is_meant(name: &str, meant: &str) -> bool {
    let is_below = name.strip_prefix(meant).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_below || are_one_set(name, meant)
}

/// Which of the files are weights.
fn weight_files<'a>(names: impl IntoIterator<Item = &'a str>, in_folders: bool) -> FilesByFormat<String> {
    let mut files: FilesByFormat<String> = formats().map(|format| (format, Vec::new())).collect();
    for name in names {
        if let Some(format) = WeightsFormat::from_file_name(name)
            && is_weights(format, name, in_folders)
        {
            files[&format].push(name.to_string());
        }
    }
    for found in files.values_mut() {
        remove_copies(found, |name| name);
        found.sort();
    }
    files.retain(|_, found| !found.is_empty());
    files
}

/// The indexes of sharded checkpoints at the top level.
fn indexes(files: &[RepoFile]) -> Vec<(WeightsFormat, &str)> {
    let names = files.iter().map(|file| file.name.as_str()).filter(|name| !name.contains('/'));
    let mut indexes: Vec<_> = names.filter_map(|name| Some((format_of_index(name)?.into(), name))).collect();
    remove_copies(&mut indexes, |(_, name)| name);
    indexes
}

/// Whether a file of a format is a language model's, and not a checkpoint of its training.
fn is_weights(format: WeightsFormat, name: &str, in_folders: bool) -> bool {
    let (folder, base) = name.rsplit_once('/').unwrap_or(("", name));
    let is_checkpoint = folder.split('/').any(|part| part.starts_with("checkpoint-"));
    match format {
        WeightsFormat::Gguf => !is_checkpoint && !OTHER_GGUF.iter().any(|start| base.starts_with(start)),
        _ => (folder.is_empty() || in_folders && !is_checkpoint) && !is_training_state(base),
    }
}
