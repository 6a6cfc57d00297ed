//! Compiled models with packed weights, as files that know what they were made from.

use std::path::Path;
use std::time::{Duration, SystemTime};

use engine::{Artifact, CompiledModel, ExportOptions, InferenceSession, WeightsRegistry};
use graph::Graph;
use models::{Checkpoint, Network};
use serde::{Deserialize, Serialize};
use tensor::Tensor;
use weights::{Beginning, Format, GgufWriter, Metadata, WeightFile, Weights};

use crate::Error;
use crate::compiled::{CacheLayout, Task};
use crate::config::SupportedEncoding;
use crate::error::InvalidField;

/// What a saved model was made from. Two of one identity compute the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Identity {
    recipe: Recipe,
    /// The files of weights, in the order they were read.
    files: Vec<FileIdentity>,
}

/// What a compiled model depends on, but for the bytes of its weights.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Recipe {
    settings: Settings,
    task: Task,
    /// A digest of its text.
    graph: String,
}

/// What of that is known before anything is built.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Settings {
    architecture: String,
    encoding: String,
    /// Of the cache, where there is one.
    page_size: Option<usize>,
    cache: Option<String>,
    /// A digest of the names, types and shapes of all tensors.
    tensors: String,
}

/// A file of weights as it was when a model was saved.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FileIdentity {
    bytes: u64,
    /// When it was written last, in nanoseconds since 1970; `None` where that does not tell it from a later version.
    modified: Option<u64>,
    /// The checksum of all its bytes.
    content: String,
}

/// A file that was written less than this before it is looked at may be written again without a later time: some file
/// systems count in steps of two seconds.
const FRESH: Duration = Duration::from_secs(2);

impl Identity {
    /// The identity that a file was saved with.
    ///
    /// # Errors
    /// In words, if it cannot be read or is no saved model.
    pub(crate) fn read(path: &Path) -> Result<Identity, String> {
        let fix = "give a file that save_to_serialized_model_path wrote";
        // The path stands before it.
        let why = |error| match error {
            engine::Error::File { message, .. } => message,
            engine::Error::Artifact { fault, .. } => fault.to_string(),
            other => other.to_string(),
        };
        let artifact = Artifact::open(path).map_err(|error| format!("{}: {fix}", why(error)))?;
        serde_json::from_str(artifact.key())
            .map_err(|_| format!("it is no saved model of a pipeline of this version: {fix}"))
    }

    /// Why a model of this identity is not for these settings, or for weights of other lengths: all that is known
    /// before anything is built or read.
    pub(crate) fn refusal(&self, needed: &Settings, path: &Path, weights: &Weights) -> Option<String> {
        let mut differences = needed.differences(&self.recipe.settings);
        if !are_of_artifact(weights, path) {
            differences.extend(other_lengths(&self.files, weights.files()));
        }
        refusal(&differences)
    }
}

impl Recipe {
    /// Of the model of a graph.
    pub(crate) fn new(settings: Settings, task: Task, graph: &Graph) -> Recipe {
        let graph = blake3::hash(graph.to_string().as_bytes()).to_hex().to_string();
        Recipe { settings, task, graph }
    }

    /// The model of a file. Weights that were written since it was saved are read whole, and must be the same.
    ///
    /// # Errors
    /// If it cannot be read, or was made from something else: from what, and what is needed.
    pub(crate) fn load(
        &self,
        session: &InferenceSession,
        path: &Path,
        weights: &Weights,
    ) -> Result<CompiledModel, Error> {
        match Identity::read(path).map(|found| refusal(&self.differences(&found, path, weights))) {
            Ok(None) => Ok(session.compile(path)?),
            Ok(Some(fix)) | Err(fix) => {
                let value = path.display().to_string();
                Err(Error::Config(vec![InvalidField { field: "serialized_model_path", value, fix }]))
            }
        }
    }

    /// Writes a compiled model and its packed weights. The files of weights are read whole, to know them again.
    pub(crate) fn save(
        &self,
        compiled: &CompiledModel,
        weights: (&Weights, &dyn WeightsRegistry),
        path: &Path,
        progress: &mut dyn FnMut(engine::Progress),
    ) -> Result<(), Error> {
        let (weights, registry) = weights;
        let files = weights.files().iter().map(FileIdentity::of).collect();
        let identity = Identity { recipe: self.clone(), files };
        let key = serde_json::to_string(&identity).expect("an identity is numbers and text");
        let description = describe(weights);
        let attachment = description.as_deref();
        let options =
            ExportOptions { weights: Some(registry), key: &key, attachment, progress: Some(progress) };
        Ok(compiled.export_mef_with(path, options)?)
    }

    /// What differs, in words: what it has, and what is needed. The dearest comparison comes last, and only where
    /// nothing differs so far.
    fn differences(&self, found: &Identity, path: &Path, weights: &Weights) -> Vec<String> {
        let Identity { recipe, files } = found;
        let mut differences = Vec::new();
        if recipe.task != self.task {
            let (found, needed) = (recipe.task.does(), self.task.does());
            differences.push(format!("a model that {found} instead of one that {needed}"));
        }
        differences.extend(self.settings.differences(&recipe.settings));
        let now = if are_of_artifact(weights, path) { &[] } else { weights.files() };
        if !now.is_empty() {
            differences.extend(other_lengths(files, now));
        }
        if differences.is_empty() && recipe.graph != self.graph {
            differences.push("another graph, as rope_type or another version builds it".to_string());
        }
        if differences.is_empty() {
            differences.extend(files.iter().zip(now).filter_map(|(file, now)| file.altered(now)));
        }
        differences
    }
}

impl Settings {
    /// Of a checkpoint's model with such a cache.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        encoding: Option<SupportedEncoding>,
        cache: CacheLayout,
    ) -> Settings {
        let cache = matches!(checkpoint.network, Network::Decoder(_)).then_some(cache);
        let encoding = encoding.map_or_else(String::new, |encoding| encoding.to_string());
        Settings {
            architecture: checkpoint.config.architecture.clone(),
            encoding: match checkpoint.cast() {
                None => encoding,
                Some(dtype) => format!("{encoding} as {dtype}"),
            },
            page_size: cache.map(|cache| cache.page_size),
            cache: cache.map(|cache| cache.dtype.to_string()),
            tensors: tensors(checkpoint.weights()),
        }
    }

    /// What differs, in words: what it has, and what is needed.
    fn differences(&self, found: &Settings) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, found: &dyn ToString, needed: &dyn ToString| {
            let (found, needed) = (found.to_string(), needed.to_string());
            if found != needed {
                differences.push(format!("{what} {found} instead of {needed}"));
            }
        };
        compare("the architecture", &found.architecture, &self.architecture);
        compare("the encoding", &found.encoding, &self.encoding);
        // Of one architecture all have a cache, or none has.
        if let (Some(found), Some(needed)) = (found.page_size, self.page_size) {
            compare("kv_cache_page_size", &found, &needed);
        }
        if let (Some(found), Some(needed)) = (&found.cache, &self.cache) {
            compare("a cache of", found, needed);
        }
        if differences.is_empty() && found.tensors != self.tensors {
            differences.push("weights with other tensors".to_string());
        }
        differences
    }
}

impl FileIdentity {
    fn of(file: &WeightFile) -> FileIdentity {
        let old = |time: &SystemTime| SystemTime::now().duration_since(*time).is_ok_and(|age| age > FRESH);
        let modified = file.modified().filter(old);
        FileIdentity {
            bytes: file.len() as u64,
            modified: modified.and_then(nanoseconds),
            content: content(file),
        }
    }

    /// How a file of the same length differs, in words. One that was not written since is not read.
    fn altered(&self, file: &WeightFile) -> Option<String> {
        if self.modified.is_some() && file.modified().and_then(nanoseconds) == self.modified {
            return None;
        }
        let now = content(file);
        (now != self.content).then(|| {
            let name = file.path().display();
            format!("weights of the checksum {} instead of {now}, which {name} has", self.content)
        })
    }
}

/// The advice about what differs; none where nothing does.
fn refusal(differences: &[String]) -> Option<String> {
    let made_from = || differences.join(", ");
    (!differences.is_empty())
        .then(|| format!("it was made from other things ({}): save it again, or leave it out", made_from()))
}

/// The files of weights that are more, fewer, or of other lengths than they were, in words.
fn other_lengths(then: &[FileIdentity], now: &[WeightFile]) -> Vec<String> {
    if then.len() != now.len() {
        return vec![format!("{} files of weights instead of {}", then.len(), now.len())];
    }
    let pairs = then.iter().zip(now).filter(|(then, now)| then.bytes != now.len() as u64);
    let differ = |(then, now): (&FileIdentity, &WeightFile)| {
        format!("weights of {} bytes instead of {}, as {} has", then.bytes, now.len(), now.path().display())
    };
    pairs.map(differ).collect()
}

/// A digest of the names, types and shapes of all tensors.
fn tensors(weights: &Weights) -> String {
    let line = |(name, tensor): (&str, &Tensor)| format!("{name} {}{}\n", tensor.dtype(), tensor.shape());
    let mut lines: Vec<String> = weights.tensors().map(line).collect();
    lines.sort();
    blake3::hash(lines.concat().as_bytes()).to_hex().to_string()
}

/// The model of a saved file without another file beside it: its metadata, its tensors, and the values of its vectors.
///
/// # Errors
/// If it cannot be read, is damaged, or was saved from other weights than GGUF files.
pub(crate) fn weights_of_artifact(path: &Path) -> Result<Weights, Error> {
    let refuse = |fix: &str| {
        let (field, value) = ("huggingface_repo_id", path.display().to_string());
        Err(Error::Config(vec![InvalidField { field, value, fix: fix.to_string() }]))
    };
    let Some(description) = Artifact::open(path)?.attachment()? else {
        return refuse(
            "this artifact has no tokenizer: give the model that it was saved from, and the artifact as \
             serialized_model_path",
        );
    };
    let Some((size, first)) = description.split_first_chunk() else {
        return refuse("this artifact has a damaged attachment: save it again");
    };
    let mut beginning = Beginning::new(path.display().to_string(), u64::from_le_bytes(*size));
    beginning.push(first);
    Ok(Weights::of_files(vec![beginning.into_file()?])?)
}

/// Whether weights are those that [`weights_of_artifact`] reads.
fn are_of_artifact(weights: &Weights, path: &Path) -> bool {
    weights.files().iter().all(|file| !file.is_whole() && file.path() == path)
}

/// What [`weights_of_artifact`] reads: the bytes that a GGUF file would have, as a u64, and the file up to the values of
/// its matrices, which come last. `None` of other weights.
fn describe(weights: &Weights) -> Option<Vec<u8>> {
    if weights.format() != Format::Gguf {
        return None;
    }
    let mut metadata = Metadata::new();
    for (key, value) in weights.metadata().iter().filter(|(key, _)| !key.starts_with("split.")) {
        metadata.insert(key, value.clone());
    }
    let is_vector = |(_, tensor): &(&str, &Tensor)| tensor.shape().rank() < 2 && !tensor.dtype().is_block();
    let (vectors, matrices): (Vec<_>, Vec<_>) = weights.tensors().partition(is_vector);
    let record = |(name, tensor): &(&str, &Tensor)| (name.to_string(), tensor.dtype(), *tensor.shape());
    let records: Vec<_> = vectors.iter().chain(&matrices).map(record).collect();
    let mut first = Vec::new();
    let mut file = GgufWriter::new(&mut first, &metadata, &records).ok()?;
    for (_, tensor) in &vectors {
        file.write_all(tensor.bytes()).ok()?;
    }
    let alignment = metadata.optional::<u64>("general.alignment").ok().flatten().unwrap_or(32);
    let size =
        |(_, tensor): &(&str, &Tensor)| tensor.dtype().bytes_for_shape(tensor.shape()).unwrap_or(0) as u64;
    let sizes = matrices.iter().map(size).map(|size| size.next_multiple_of(alignment));
    let size = first.len() as u64 + sizes.sum::<u64>();
    Some([&size.to_le_bytes()[..], &first].concat())
}

/// The checksum of all bytes of a file, by several threads.
fn content(file: &WeightFile) -> String {
    format!("{:032x}", engine::checksum(file))
}

fn nanoseconds(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos()).ok()
}
