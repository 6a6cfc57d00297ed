//! Which files of a repository are weights, and which of them belong to one model.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{FilesByFormat, HuggingFaceRepo, RepoLocation};
use crate::content::Content;
use crate::hub::{RepoFile, index_of, missing_part, sets};
use crate::{Error, SupportedEncoding, WeightsFormat};

/// Files that training writes and that look like weights.
const NO_WEIGHTS: &[&str] = &["training_args", "optimizer", "scheduler", "scaler", "rng_state"];

/// GGUF files that are no language models: encoders of images and sounds, and statistics for quantization.
const NO_MODELS: &[&str] = &["mmproj", "imatrix"];

/// The original authors' own copies of a model that is there in the usual layout too.
const CONSOLIDATED: &str = "consolidated";

/// What the name of an index adds to that of the file which it stands for.
const INDEX: &str = ".index.json";

/// The files of one model, and its encoding once they were looked into, if that runs.
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
}

impl ModelFiles {
    /// The folder of its files, below the root; empty at the top level.
    pub(crate) fn folder(&self) -> &str {
        self.files[0].rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl HuggingFaceRepo {
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

    /// The models among files, in the order of the formats; they are not looked into.
    pub(crate) fn models_among(&self, files: &[RepoFile]) -> Result<Vec<ModelFiles>, Error> {
        let mut models = self.indexed_models(files)?;
        let weights = self.weight_files_among(files);
        for (format, names) in &weights {
            let listed = |name: &&str| models.iter().any(|model| model.files.iter().any(|file| file == name));
            let rest: Vec<&str> = names.iter().map(String::as_str).filter(|name| !listed(name)).collect();
            for set in sets(rest) {
                let index = index_of(set[0]).filter(|index| files.iter().any(|file| file.name == *index));
                models.push(ModelFiles {
                    format: *format,
                    files: set.iter().map(|name| name.to_string()).collect(),
                    index,
                    missing: missing_part(&set),
                    encoding: None,
                    problem: None,
                });
            }
        }
        if let Some(inside) = self.inside() {
            models.retain(|model| model.files.iter().any(|name| is_meant(name, inside)));
        }
        models.sort_by_key(|model| FORMATS.iter().position(|format| *format == model.format));
        Ok(models)
    }

    /// Adds the encoding of a model: read from its files or, where they are not here, from what is known without them.
    /// Or why it has none.
    pub(crate) fn look_into(&self, model: &mut ModelFiles) -> Result<(), Error> {
        if model.problem.is_some() || model.encoding.is_some() {
            return Ok(());
        }
        let first = &model.files[0];
        if model.missing.is_some() && model.format == WeightsFormat::Gguf {
            // Parts of a split file open together or not at all.
            model.encoding = SupportedEncoding::guess_from_file_name(first);
            return Ok(());
        }
        let mut paths = Vec::new();
        for name in &model.files {
            paths.extend(self.cached(name)?);
        }
        if let RepoLocation::Online(online) = &self.place
            && paths.len() < model.files.len()
        {
            match online.guess_encoding(model.format, first) {
                Err(Error::UnknownEncoding { problem, .. }) => model.problem = Some(problem),
                guess => model.encoding = guess?,
            }
            return Ok(());
        }
        match Content::open(&paths) {
            Ok(content) => (model.encoding, model.problem) = (content.encoding, content.problem()),
            Err(error) => model.problem = Some(error.to_string()),
        }
        Ok(())
    }

    /// The models among files, looked into.
    pub(super) fn models_of(&self, files: &[RepoFile]) -> Result<Vec<ModelFiles>, Error> {
        let mut models = self.models_among(files)?;
        for model in &mut models {
            self.look_into(model)?;
            if let Some(problem) = &model.problem {
                tracing::warn!("{self}: `{}` is ignored: {problem}", model.files[0]);
            }
        }
        Ok(models)
    }

    /// The models that indexes at the top level list, as far as these are on this machine. An index that cannot be read
    /// is a model of its own, with that problem, unless the names of parts tell what it should list.
    fn indexed_models(&self, files: &[RepoFile]) -> Result<Vec<ModelFiles>, Error> {
        let is_there = |name: &str| files.iter().any(|file| file.name == name);
        let mut models: Vec<ModelFiles> = Vec::new();
        for (format, index) in indexes(files) {
            let Some(path) = self.cached(index)? else { continue };
            // Those that are named after it belong to it, whether it lists them or not.
            let parts = files.iter().map(|file| file.name.as_str());
            let parts = parts.filter(|name| index_of(name).as_deref() == Some(index));
            let mut listed: BTreeSet<String> = parts.map(str::to_string).collect();
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
            models.push(ModelFiles {
                format,
                files: here,
                index: Some(index.to_string()),
                missing: missing.into_iter().next(),
                encoding: None,
                problem,
            });
        }
        Ok(models)
    }
}

/// The formats, in the order in which a place that has several is read.
const FORMATS: [WeightsFormat; 3] = [WeightsFormat::Safetensors, WeightsFormat::Gguf, WeightsFormat::Pytorch];

/// Whether a file is the one that is meant, a part of the same set, or below the folder that is meant.
fn is_meant(name: &str, meant: &str) -> bool {
    let is_below = name.strip_prefix(meant).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_below || sets([name, meant]).len() == 1
}

/// Which of the files are weights.
fn weight_files<'a>(names: impl IntoIterator<Item = &'a str>, in_folders: bool) -> FilesByFormat<String> {
    let mut files: FilesByFormat<String> = FORMATS.into_iter().map(|format| (format, Vec::new())).collect();
    for name in names {
        if let Some(format) = WeightsFormat::from_file_name(name)
            && is_weights(format, name, in_folders)
        {
            files[&format].push(name.to_string());
        }
    }
    for found in files.values_mut() {
        without_copies(found, |name| name);
        found.sort();
    }
    files.retain(|_, found| !found.is_empty());
    files
}

/// The indexes of sharded checkpoints at the top level.
fn indexes(files: &[RepoFile]) -> Vec<(WeightsFormat, &str)> {
    let index = |file: &'_ RepoFile| {
        let stem = file.name.strip_suffix(INDEX).filter(|stem| !stem.contains('/'))?;
        WeightsFormat::from_file_name(stem).filter(|format| *format != WeightsFormat::Gguf)
    };
    let mut indexes: Vec<(WeightsFormat, &str)> =
        files.iter().filter_map(|file| Some((index(file)?, file.name.as_str()))).collect();
    without_copies(&mut indexes, |(_, name)| name);
    indexes
}

/// Leaves out the authors' own copies, where there is something else.
fn without_copies<T>(found: &mut Vec<T>, name: impl Fn(&T) -> &str) {
    let is_copy = |file: &T| name(file).contains(CONSOLIDATED);
    if found.iter().any(|file| !is_copy(file)) {
        found.retain(|file| !is_copy(file));
    }
}

/// Whether a file of a format is a language model's, and not a checkpoint of its training.
fn is_weights(format: WeightsFormat, name: &str, in_folders: bool) -> bool {
    let (folder, base) = name.rsplit_once('/').unwrap_or(("", name));
    let begins = |starts: &[&str]| starts.iter().any(|start| base.starts_with(start));
    let is_checkpoint = folder.split('/').any(|part| part.starts_with("checkpoint-"));
    match format {
        WeightsFormat::Gguf => !is_checkpoint && !begins(NO_MODELS),
        _ => (folder.is_empty() || in_folders && !is_checkpoint) && !begins(NO_WEIGHTS),
    }
}
