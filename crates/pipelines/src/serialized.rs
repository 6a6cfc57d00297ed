//! Compiled models with packed weights, as files that know what they were made from.

use std::path::Path;

use engine::{Artifact, CompiledModel, ExportOptions, InferenceSession, WeightsRegistry};
use graph::Graph;
use models::{Checkpoint, Network};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::compiled::{CacheLayout, Task};
use crate::error::InvalidField;

/// What a compiled model depends on. Two models of one identity compute the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    architecture: String,
    task: Task,
    encoding: String,
    /// Of the cache, where there is one.
    page_size: Option<usize>,
    cache: Option<String>,
    graph: String,
    weights: String,
}

/// Bytes of each tensor that its fingerprint reads, at the start and in the middle: models trained apart differ
/// everywhere.
const SAMPLE: usize = 256;

impl Identity {
    /// The identity of a checkpoint's model of that graph. Reads a little of each weight.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        encoding: String,
        cache: CacheLayout,
        task: Task,
        graph: &Graph,
    ) -> Identity {
        let cache = matches!(checkpoint.network, Network::Decoder(_)).then_some(cache);
        Identity {
            architecture: checkpoint.config.architecture.clone(),
            task,
            encoding,
            page_size: cache.map(|cache| cache.page_size),
            cache: cache.map(|cache| cache.dtype.to_string()),
            graph: blake3::hash(graph.to_string().as_bytes()).to_hex().to_string(),
            weights: fingerprint(checkpoint),
        }
    }

    /// The model of a file.
    ///
    /// # Errors
    /// If it cannot be read, or was made from something else: from what, and what is needed.
    pub(crate) fn load(&self, session: &InferenceSession, path: &Path) -> Result<CompiledModel, Error> {
        let artifact = Artifact::open(path)?;
        let refuse = |fix: String| {
            let value = path.display().to_string();
            Error::Config(vec![InvalidField { field: "serialized_model_path", value, fix }])
        };
        let found: Identity = serde_json::from_str(artifact.key()).map_err(|_| {
            refuse("it is no saved model of a pipeline: save one with save_to_serialized_model_path".into())
        })?;
        let differences = self.differences(&found);
        if !differences.is_empty() {
            let differences = differences.join(", ");
            return Err(refuse(format!(
                "it was made from other things ({differences}): save it again, or leave it out"
            )));
        }
        Ok(session.compile(path)?)
    }

    /// Writes a compiled model and its packed weights.
    pub(crate) fn save(
        &self,
        compiled: &CompiledModel,
        weights: &dyn WeightsRegistry,
        path: &Path,
        progress: &mut dyn FnMut(engine::Progress),
    ) -> Result<(), Error> {
        let key = serde_json::to_string(self).expect("an identity is numbers and text");
        let options = ExportOptions { weights: Some(weights), key: &key, progress: Some(progress) };
        Ok(compiled.export_mef_with(path, options)?)
    }

    /// What differs, in words: what it has, and what is needed.
    fn differences(&self, found: &Identity) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, found: &dyn ToString, needed: &dyn ToString| {
            let (found, needed) = (found.to_string(), needed.to_string());
            if found != needed {
                differences.push(format!("{what} {found} instead of {needed}"));
            }
        };
        compare("the architecture", &found.architecture, &self.architecture);
        compare("a model that", &found.task.does(), &self.task.does());
        compare("the encoding", &found.encoding, &self.encoding);
        // Of one architecture all have a cache, or none has.
        if let (Some(found), Some(needed)) = (found.page_size, self.page_size) {
            compare("kv_cache_page_size", &found, &needed);
        }
        if let (Some(found), Some(needed)) = (&found.cache, &self.cache) {
            compare("a cache of", found, needed);
        }
        if differences.is_empty() && found.weights != self.weights {
            differences.push("other weights".to_string());
        }
        if differences.is_empty() && found.graph != self.graph {
            differences.push("another graph, as rope_type or another version builds it".to_string());
        }
        differences
    }
}

/// A digest of the names, types and shapes of all weights, and of samples of their bytes.
fn fingerprint(checkpoint: &Checkpoint) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, tensor) in checkpoint.weights().tensors() {
        hasher.update(format!("{name} {}{}\n", tensor.dtype(), tensor.shape()).as_bytes());
        if !tensor.is_contiguous() {
            continue;
        }
        let bytes = tensor.bytes();
        for start in [0, bytes.len() / 2] {
            hasher.update(&bytes[start..bytes.len().min(start + SAMPLE)]);
        }
    }
    hasher.finalize().to_hex().to_string()
}
