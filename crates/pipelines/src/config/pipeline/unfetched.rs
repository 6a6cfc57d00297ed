//! What is known of a model whose weights are still on a hub: all that the headers of its files say or, where files
//! have none, what `config.json` says.

use std::path::Path;

use models::Network;
use sources::{FileSet, PlannedFile};
use tensor::DType;

use super::check::Problems;
use super::{Machine, PipelineConfig, ResolvedConfig};
use crate::config::{FloatType, SupportedEncoding};
use crate::memory_plan::MemoryRequest;
use crate::{Error, OutOfMemory};

/// A model of a hub before its weights are fetched.
#[derive(Debug)]
pub struct Unfetched {
    /// The files of weights.
    pub files: Vec<PlannedFile>,
    /// Bytes of all of them; `None` where the hub does not say.
    pub bytes: Option<u64>,
    /// The model.
    pub described: Described,
}

/// What is known of a model without its weights.
#[derive(Debug)]
pub enum Described {
    /// All but the values of weights: GGUF and safetensors files begin with headers.
    ByHeaders(Box<ResolvedConfig>),
    /// What follows from `config.json`: PyTorch files have no header.
    ByConfig(Box<DescribedByConfig>),
}

/// What follows from `config.json` alone.
#[derive(Debug)]
pub struct DescribedByConfig {
    /// The configuration, with the files and the encoding of the weights decided.
    pub config: PipelineConfig,
    /// The architecture.
    pub architecture: String,
    /// The model.
    pub network: Network,
    /// What would be asked of memory; `None` where the hub does not say how many bytes the weights have.
    pub memory: Option<MemoryRequest>,
    /// What is worth a warning.
    pub warnings: Vec<String>,
}

impl DescribedByConfig {
    /// What the KV cache will keep.
    pub fn cache_dtype(&self) -> DType {
        self.config.kept_dtype()
    }
}

impl Unfetched {
    /// Bytes of the files that are not here, as far as the hub says.
    pub fn bytes_to_fetch(&self) -> u64 {
        let lacking = self.files.iter().filter(|file| !file.cached);
        lacking.filter_map(|file| file.size).fold(0, u64::saturating_add)
    }

    /// Says no where weights and cache will not fit. Where headers are known, that was said already.
    pub(super) fn check(&self) -> Result<(), OutOfMemory> {
        match &self.described {
            Described::ByConfig(model) => model.memory.map_or(Ok(()), |memory| memory.plan().map(drop)),
            Described::ByHeaders(_) => Ok(()),
        }
    }
}

impl PipelineConfig {
    /// Looks at a model without fetching its weights; `None` if they are all here, so that they can be opened. Of a
    /// hub, the list of files is asked for, `config.json`, and the headers of the files of weights.
    ///
    /// # Errors
    /// As [`PipelineConfig::resolve`].
    pub fn look_ahead(&self, machine: Machine<'_>) -> Result<Option<Unfetched>, Error> {
        if self.artifact().is_some() {
            return Ok(None);
        }
        let mut problems = Problems::default();
        let mut config = self.prepare(machine.devices, &mut problems);
        if !problems.0.is_empty() {
            return Err(Error::Config(problems.0));
        }
        let files = config.locate()?;
        if files.are_here()? { Ok(None) } else { config.ahead(&files, machine).map(Some) }
    }

    /// Describes a model before its files are fetched, from their headers, or from `config.json` if they have none. The
    /// caller has prepared and checked the configuration.
    pub(super) fn ahead(&self, files: &FileSet, machine: Machine<'_>) -> Result<Unfetched, Error> {
        let mut config = self.clone();
        config.weight_path = files.weight_path();
        let described = match files.headers()? {
            Some((weights, folder)) => {
                config.keep_config(&folder);
                let weights = config.converted(weights)?;
                let (checkpoint, mut warnings) = config.open_weights(weights, &folder)?;
                let mut resolved = config.resolve_with(checkpoint, &folder, machine, Problems::default())?;
                warnings.splice(0..0, files.warnings().iter().cloned());
                resolved.warnings.splice(0..0, warnings);
                Described::ByHeaders(Box::new(resolved))
            }
            None => Described::ByConfig(Box::new(config.described_by_config(files, machine)?)),
        };
        let bytes = files.bytes()?;
        Ok(Unfetched { files: files.files()?, bytes, described })
    }

    fn described_by_config(
        mut self,
        files: &FileSet,
        machine: Machine<'_>,
    ) -> Result<DescribedByConfig, Error> {
        self.quantization_encoding = self.quantization_encoding.or_else(|| files.expected_encoding());
        let source = format!("config.json of {}", self.huggingface_repo_id);
        if let Some(folder) = files.config_json()?.as_deref().and_then(Path::parent) {
            self.keep_config(folder);
        }
        let json = self.huggingface_config()?.to_string();
        let (described, network) = Network::from_config_json(&source, &json, self.architecture.as_deref())?;
        let (mut problems, mut warnings) = (Problems::default(), Vec::from_iter(described.warning()));
        self.resolve_length(network.context_length(), &mut problems, &mut warnings);
        if !problems.0.is_empty() {
            return Err(Error::Config(problems.0));
        }
        let on_host = self.device_specs.first().is_none_or(|spec| spec.is_host());
        let bytes = files.bytes()?.map(|bytes| self.bytes_as_cast(bytes));
        let memory = bytes.map(|bytes| self.memory_request(&network, bytes, machine.free_memory, on_host));
        Ok(DescribedByConfig {
            architecture: described.architecture,
            config: self,
            network,
            memory,
            warnings,
        })
    }
    /// How many bytes weights take that are so many as they are stored, most of them in matrices of the encoding.
    fn bytes_as_cast(&self, bytes: u64) -> u64 {
        let stored = self.quantization_encoding.map(SupportedEncoding::stored_dtype);
        match (self.weights_dtype, stored.filter(|stored| !stored.is_block())) {
            (Some(dtype), Some(stored)) => {
                bytes.saturating_mul(FloatType::dtype(dtype).block().bytes as u64)
                    / stored.block().bytes as u64
            }
            _ => bytes,
        }
    }
}
