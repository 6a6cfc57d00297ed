//! What is known of a model whose weights are still on a hub: sizes from its list of files, the rest from `config.json`.

use models::Network;
use tensor::DType;

use super::check::{Problems, check};
use super::{Machine, PipelineConfig};
use crate::Error;
use crate::config::{HuggingFaceRepo, SupportedEncoding, WeightsFormat};
use crate::hub::PlannedFile;
use crate::memory_plan::MemoryRequest;

/// A model of a hub before its weights are fetched.
#[derive(Debug)]
pub struct Unfetched {
    /// The configuration, with the files and the encoding of the weights decided.
    pub config: PipelineConfig,
    /// The files of weights.
    pub files: Vec<PlannedFile>,
    /// Bytes of all of them; `None` where the hub does not say.
    pub bytes: Option<u64>,
    /// Architecture and model of `config.json`. GGUF files have their configuration inside, which is known when they
    /// are here.
    pub model: Option<(String, Network)>,
    /// What would be asked of memory, as far as both are known.
    pub memory: Option<MemoryRequest>,
    /// What is worth a warning.
    pub warnings: Vec<String>,
}

impl Unfetched {
    /// What the KV cache will keep.
    pub fn cache_dtype(&self) -> DType {
        self.config.cache_dtype()
    }

    /// Bytes of the files that are not here, as far as the hub says.
    pub fn bytes_to_fetch(&self) -> u64 {
        let lacking = self.files.iter().filter(|file| !file.cached);
        lacking.filter_map(|file| file.size).fold(0, u64::saturating_add)
    }
}

impl PipelineConfig {
    /// Looks at a model without fetching its weights; `None` if they are all here, so that they can be opened. Of a
    /// hub, the list of files is asked for, and `config.json`.
    ///
    /// # Errors
    /// All that is wrong with the configuration, or if there is no such model.
    pub fn look_ahead(&self, machine: Machine<'_>) -> Result<Option<Unfetched>, Error> {
        let mut problems = Problems::default();
        check(self, self.strategy(), &mut problems);
        if !problems.0.is_empty() {
            return Err(Error::Config(problems.0));
        }
        let mut config = self.clone();
        config.locate_weights()?;
        if config.weight_path.iter().all(|path| path.exists()) {
            return Ok(None);
        }
        let repo = config.huggingface_weights_repo()?;
        let files = config.planned_files(&repo)?;
        if files.iter().all(|file| file.cached) {
            return Ok(None);
        }
        let bytes = config.weights_size()?;
        config.quantization_encoding = config.quantization_encoding.or_else(|| encoding_of(&repo, &files));
        let mut unfetched =
            Unfetched { config, files, bytes, model: None, memory: None, warnings: Vec::new() };
        if unfetched.config.weights_format()? != WeightsFormat::Gguf {
            unfetched.describe(machine)?;
        }
        Ok(Some(unfetched))
    }

    fn planned_files(&self, repo: &HuggingFaceRepo) -> Result<Vec<PlannedFile>, Error> {
        let file = |path: &std::path::PathBuf| {
            let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
            let name = parts.join("/");
            if let Ok(metadata) = path.metadata() {
                return Ok(PlannedFile { name, size: Some(metadata.len()), cached: true });
            }
            let (size, cached) = (repo.size_of(&name)?, repo.cached(&name)?.is_some());
            Ok(PlannedFile { name, size, cached })
        };
        self.weight_path.iter().map(file).collect()
    }
}

impl Unfetched {
    /// Adds what `config.json` says.
    fn describe(&mut self, machine: Machine<'_>) -> Result<(), Error> {
        let Unfetched { config, bytes, model, memory, warnings, .. } = self;
        let source = format!("config.json of {}", config.huggingface_repo_id);
        let json = config.huggingface_config()?.to_string();
        let (described, network) = Network::from_config_json(&source, &json, config.architecture.as_deref())?;
        let mut problems = Problems::default();
        config.resolve_devices(machine.devices, &mut problems);
        config.resolve_length(network.context_length(), &mut problems, warnings);
        if !problems.0.is_empty() {
            return Err(Error::Config(problems.0));
        }
        let on_host = config.device_specs.first().is_none_or(|spec| spec.is_host());
        *memory = bytes.map(|bytes| config.memory_request(&network, bytes, machine.free_memory, on_host));
        *model = Some((described.architecture, network));
        Ok(())
    }
}

/// The encoding of the weights, where the hub or a file's name tells it.
fn encoding_of(repo: &HuggingFaceRepo, files: &[PlannedFile]) -> Option<SupportedEncoding> {
    repo.encoding_for_file(&files.first()?.name).ok()
}
