//! Compiled models with packed weights, as files that know what they were made from: which are accepted, and where they
//! may be written.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use engine::{Artifact, CompiledModel, ExportOptions, Reproducible, WeightsRegistry};
use graph::Graph;
use models::Checkpoint;
use serde::{Deserialize, Serialize};
use sources::{Content, is_beside_weights};
use tensor::Tensor;
use weights::{FileHeader, Format, Metadata, WeightFile, Weights};

use super::Task;
use crate::Error;
use crate::error::InvalidField;
use crate::plan::config::{PipelineConfig, Problems};
use crate::plan::model_files::gguf::other_metadata;

/// The field that names a file to start from.
const SERIALIZED: &str = "serialized_model_path";

/// What a saved model was made from. Models with equal identities compute equal results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Identity {
    architecture: String,
    encoding: String,
    /// Tokens in a page of the cache, and its dtype; `None` of encoders, which have no cache.
    cache: Option<(usize, String)>,
    /// Where results have the same bits, if that was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reproducible: Option<Reproducible>,
    /// Whether quantized weights are multiplied with inputs as they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    exact_activations: bool,
    /// A digest of the names, types and shapes of all tensors.
    tensors: String,
    /// The task and a digest of the graph's text, which are known when the model is compiled.
    graph: Option<(Task, String)>,
    /// The files of weights, in the order they were read.
    files: Vec<FileIdentity>,
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
    fn read(path: &Path) -> Result<Identity, String> {
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

    /// The identity of a checkpoint's model under a configuration with every field decided.
    pub(crate) fn new(config: &PipelineConfig, checkpoint: &Checkpoint) -> Identity {
        let has_cache = checkpoint.model.runs_in_steps();
        let weights = checkpoint.loaded_weights();
        let encoding = match checkpoint.quantizer() {
            // As of the GGUF file that would hold them.
            Some(_) => Content::from_weights([weights], &[] as &[&Path]).encoding,
            None => config.quantization_encoding,
        };
        let encoding = encoding.map_or_else(String::new, |encoding| encoding.to_string());
        Identity {
            architecture: architecture(checkpoint),
            encoding: match checkpoint.cast() {
                None => encoding,
                Some(dtype) => format!("{encoding} as {dtype}"),
            },
            cache: has_cache.then(|| (config.kv_cache_page_size, config.kept_dtype().to_string())),
            reproducible: config.reproducible,
            exact_activations: config.exact_activations,
            tensors: tensors(weights),
            graph: None,
            files: Vec::new(),
        }
    }

    /// The same for a task and its graph.
    pub(crate) fn with_graph(self, task: Task, graph: &Graph) -> Identity {
        let digest = blake3::hash(graph.to_string().as_bytes()).to_hex().to_string();
        Identity { graph: Some((task, digest)), ..self }
    }

    /// The same for a model that was compiled so.
    pub(crate) fn with_kernels(self, reproducible: Reproducible, exact_activations: bool) -> Identity {
        Identity { reproducible: Some(reproducible), exact_activations, ..self }
    }

    /// Where results have the same bits.
    pub(crate) fn reproducible(&self) -> Reproducible {
        self.reproducible.unwrap_or_default()
    }

    /// Whether quantized weights are multiplied with inputs as they are.
    pub(crate) fn exact_activations(&self) -> bool {
        self.exact_activations
    }

    /// Writes a compiled model and its packed weights, those of the registry. The files of weights are read whole, to know
    /// them again.
    pub(crate) fn save(
        mut self,
        compiled: &CompiledModel,
        (checkpoint, folder, registry): (&Checkpoint, &Path, &dyn WeightsRegistry),
        path: &Path,
        progress: &mut dyn FnMut(engine::Progress),
    ) -> Result<(), Error> {
        // With the importance of columns, files alone do not make the same weights again.
        let is_of_files = checkpoint.quantizer().is_none_or(|quantizer| !quantizer.has_importance());
        let files = checkpoint.weights().files().iter().filter(|_| is_of_files);
        self.files = files.map(FileIdentity::from_file).collect();
        let key = serde_json::to_string(&self).expect("an identity is numbers and text");
        let description = describe(checkpoint, folder);
        let attachment = description.as_deref();
        let options =
            ExportOptions { weights: Some(registry), key: &key, attachment, progress: Some(progress) };
        Ok(compiled.export_mef_with(path, options)?)
    }

    /// Why a saved model of this identity is not the `needed` one. The dearest comparison comes last, and only if
    /// nothing else differs: weights that were written since are read whole.
    pub(crate) fn refusal(&self, needed: &Identity, path: &Path, weights: &Weights) -> Option<String> {
        let mut differences = Vec::new();
        if let (Some((found, _)), Some((task, _))) = (&self.graph, &needed.graph)
            && found != task
        {
            let (found, needed) = (found.does(), task.does());
            differences.push(format!("a model that {found} instead of one that {needed}"));
        }
        differences.extend(self.setting_differences(needed));
        // An artifact that is a model by itself has no other files.
        let now = if are_of_artifact(weights, path) { &[] } else { weights.files() };
        if !now.is_empty() {
            differences.extend(other_lengths(&self.files, now));
        }
        if needed.graph.is_some() {
            if differences.is_empty() && self.graph != needed.graph {
                differences.push("another graph, as rope_type or another version builds it".to_string());
            }
            if differences.is_empty() {
                let files = self.files.iter().zip(now);
                differences.extend(files.filter_map(|(file, now)| file.altered(now)));
            }
        }
        let made_from = differences.join(", ");
        (!differences.is_empty())
            .then(|| format!("it was made from other things ({made_from}): save it again, or leave it out"))
    }

    /// Settings that differ, in words: those of this identity, and those needed.
    fn setting_differences(&self, needed: &Identity) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, found: &dyn ToString, needed: &dyn ToString| {
            let (found, needed) = (found.to_string(), needed.to_string());
            if found != needed {
                differences.push(format!("{what} {found} instead of {needed}"));
            }
        };
        compare("the architecture", &self.architecture, &needed.architecture);
        compare("the encoding", &self.encoding, &needed.encoding);
        // Of one architecture all have a cache, or none has.
        if let (Some((page_size, dtype)), Some((needed_size, needed_dtype))) = (&self.cache, &needed.cache) {
            compare("kv_cache_page_size", page_size, needed_size);
            compare("a cache of", dtype, needed_dtype);
        }
        if let Some(needed) = needed.reproducible {
            compare("reproducible", &self.reproducible(), &needed);
        }
        if needed.exact_activations {
            compare("exact_activations", &self.exact_activations, &needed.exact_activations);
        }
        if differences.is_empty() && self.tensors != needed.tensors {
            differences.push("weights with other tensors".to_string());
        }
        differences
    }
}

/// Checks that a file to start from is one, which it returns, and that one to write can be.
pub(super) fn check_paths(config: &PipelineConfig, problems: &mut Problems) -> Option<Identity> {
    if let Some(path) = &config.serialized_model_path {
        let identity = Identity::read(path);
        return identity.map_err(|problem| problems.add(SERIALIZED, path.display(), problem)).ok();
    }
    let path = config.save_to_serialized_model_path.as_ref()?;
    if let Some(fix) = unwritable(path) {
        problems.add("save_to_serialized_model_path", path.display(), fix);
    }
    None
}

/// Checks that a file to start from was made with the configuration's settings, and that one to write is not one of the
/// model's own.
pub(super) fn check_model(
    config: &PipelineConfig,
    checkpoint: &Checkpoint,
    folder: &Path,
    saved: Option<&Identity>,
    problems: &mut Problems,
) {
    if let Some(path) = &config.serialized_model_path {
        let needed = Identity::new(config, checkpoint);
        // If it could not be read, that is told already.
        if let Some(fix) = saved.and_then(|found| found.refusal(&needed, path, checkpoint.weights())) {
            problems.add(SERIALIZED, path.display(), fix);
        }
    } else if let Some(path) = &config.save_to_serialized_model_path
        && let Some(own) = own_files(config, folder).find(|own| is_same(own, path))
    {
        let fix = format!("{} is one of the model's own files: choose another path", own.display());
        problems.add("save_to_serialized_model_path", path.display(), fix);
    }
}
impl FileIdentity {
    fn from_file(file: &WeightFile) -> FileIdentity {
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

/// The model of a saved file without another file next to it: its metadata, its tensors, and the values of its vectors.
///
/// # Errors
/// If it cannot be read, is damaged, or was saved from other weights than GGUF files.
pub(super) fn weights_of_artifact(path: &Path) -> Result<Weights, Error> {
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
    let mut header = FileHeader::new(path.display().to_string(), u64::from_le_bytes(*size));
    header.push(first);
    Ok(Weights::from_files(vec![header.into_file()?])?)
}

/// Whether weights are those that [`weights_of_artifact`] reads.
fn are_of_artifact(weights: &Weights, path: &Path) -> bool {
    weights.files().iter().all(|file| !file.is_whole() && file.path() == path)
}

/// What [`weights_of_artifact`] reads: the bytes that a GGUF file would have, as a u64, and the file up to the values of
/// its matrices, which come last. `None` of weights that are not in such a file, nor would be.
fn describe(checkpoint: &Checkpoint, folder: &Path) -> Option<Vec<u8>> {
    let weights = checkpoint.loaded_weights();
    if weights.format() != Format::Gguf {
        return None;
    }
    let metadata = match checkpoint.quantizer() {
        Some(quantizer) => quantizer.metadata(&other_metadata(quantizer, checkpoint, folder).ok()?),
        None => {
            let mut metadata = Metadata::new();
            for (key, value) in weights.metadata().iter().filter(|(key, _)| !key.starts_with("split.")) {
                metadata.insert(key, value.clone());
            }
            metadata
        }
    };
    let describe = |(name, tensor): (&str, &Tensor)| {
        let values = (tensor.shape().rank() < 2).then(|| tensor.clone());
        (name.to_string(), tensor.dtype(), *tensor.shape(), values)
    };
    let header = FileHeader::from_gguf("", &metadata, weights.tensors().map(describe).collect()).ok()?;
    Some([&header.size().to_le_bytes()[..], header.bytes()].concat())
}

/// The architecture as the files of an artifact name it.
fn architecture(checkpoint: &Checkpoint) -> String {
    match checkpoint.quantizer() {
        Some(quantizer) => quantizer.architecture().to_string(),
        None => checkpoint.config.architecture.clone(),
    }
}

/// The checksum of all bytes of a file, by several threads.
fn content(file: &WeightFile) -> String {
    format!("{:032x}", engine::checksum(file))
}

fn nanoseconds(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// Why a file cannot be written, as far as that is known before, and what to do.
fn unwritable(path: &Path) -> Option<String> {
    if path.is_dir() || path.file_name().is_none() {
        return Some("it is a folder: give a file".to_string());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match folder.metadata() {
        Ok(metadata) if !metadata.is_dir() => {
            Some(format!("{} is a file, not a folder: give another path", folder.display()))
        }
        Ok(metadata) if metadata.permissions().readonly() => {
            Some(format!("{} is not writable: give another file", folder.display()))
        }
        Ok(_) => None,
        Err(error) => {
            Some(format!("its folder {}: {error}: make it, or give another file", folder.display()))
        }
    }
}

/// The files of the model: its weights, and the files next to them.
fn own_files(config: &PipelineConfig, folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().filter_map(Result::ok);
    let beside = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_beside_weights));
    config.weight_path.iter().cloned().chain(beside.map(|entry| entry.path()))
}

/// Whether two paths lead to one file, by whatever links.
fn is_same(one: &Path, other: &Path) -> bool {
    // Opening a named pipe would wait for its writer.
    one.is_file() && other.is_file() && same_file::is_same_file(one, other).unwrap_or(false)
}
