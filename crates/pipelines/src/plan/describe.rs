//! What a model is, by its files: located, and described by their headers, or fetched and opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use models::{Checkpoint, CheckpointOptions, Model, QuantizeOptions, Quantizer};
use sources::{FileSet, Progress};
use weights::{Format, Weights};

use super::{Description, Outline};
use crate::Error;
use crate::error::InvalidField;
use crate::plan::config::{FloatType, PipelineConfig, PipelineEngine, RopeType, SupportedEncoding};
use crate::plan::model_files::sentence_transformers::score_tokens;
use crate::plan::model_files::transformers::TransformersFacts;
use crate::sampling::SamplingOptions;

impl PipelineConfig {
    /// Finds the model's files, and describes it by their headers. A hub is asked for headers only if the settings are
    /// valid.
    pub(super) fn describe(&mut self, is_valid: bool) -> Result<Description, Error> {
        let files = self.locate()?;
        let fetches_again = self.force_download && files.are_of_network();
        if self.engine == Some(PipelineEngine::HuggingFace) {
            return if !is_valid {
                // The caller adds what is wrong.
                Err(Error::Config(Vec::new()))
            } else if files.are_here()? && !fetches_again {
                self.fetch_for_transformers(&files, &|_| ())
            } else {
                self.describe_for_transformers(files)
            };
        }
        if files.are_here()? && !fetches_again {
            return self.open(&files, &|_| ());
        }
        if !is_valid {
            // The caller adds what is wrong.
            return Err(Error::Config(Vec::new()));
        }
        match files.headers() {
            Ok(Some((weights, folder))) => {
                self.keep_config(&folder);
                let (checkpoint, more) = self.open_weights(weights, &folder)?;
                let warnings = files.warnings().iter().cloned().chain(more).collect();
                Ok(Description { remote: Some(files), ..self.description(checkpoint, folder, warnings)? })
            }
            Ok(None) => self.describe_by_config(files),
            // This hub serves whole files only.
            Err(sources::Error::Protocol { .. }) => self.open(&files, &|_| ()),
            Err(error) => Err(error.into()),
        }
    }

    /// Describes a model that Transformers is to run by its `config.json`, and fetches no weights.
    fn describe_for_transformers(&mut self, files: FileSet) -> Result<Description, Error> {
        let headers = match files.headers() {
            Ok(headers) => headers,
            // This hub serves whole files only.
            Err(sources::Error::Protocol { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let config = files.config_json()?;
        let folder = config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let weights = headers.as_ref().map(|(weights, _)| weights);
        let model = self.outline_for_transformers(&files, folder, weights)?;
        Ok(Description { folder: PathBuf::new(), remote: Some(files), ..model })
    }

    /// Fetches a model that Transformers is to run, and describes it.
    pub(super) fn fetch_for_transformers(
        &mut self,
        files: &FileSet,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Description, Error> {
        let local = files.fetch(progress)?;
        // Transformers may read files that we do not, and says what is wrong with others.
        self.outline_for_transformers(files, &local.folder, local.open().ok().as_ref())
    }

    fn outline_for_transformers(
        &self,
        files: &FileSet,
        folder: &Path,
        weights: Option<&Weights>,
    ) -> Result<Description, Error> {
        self.keep_config(folder);
        let facts = TransformersFacts::new(&*self.huggingface_config()?, weights)?;
        if weights.is_some_and(|weights| weights.format() == Format::Gguf) {
            let field = "huggingface_repo_id";
            let fix =
                "the huggingface engine reads no GGUF files, and the model has no others: use the engine max";
            let (value, fix) = (self.huggingface_repo_id.clone(), fix.to_string());
            return Err(Error::Config(vec![InvalidField { field, value, fix }]));
        }
        let stored = weights.map(Weights::bytes).or(files.bytes()?);
        let cast = self.weights_dtype.map(|dtype| dtype.dtype().block().bytes as u64);
        let read = cast.zip(facts.parameters).map(|(bytes, count)| bytes.saturating_mul(count as u64));
        Ok(Description {
            remote: None,
            checkpoint: None,
            architecture: facts.architecture.clone(),
            weight_bytes: read.or(stored),
            recommended: SamplingOptions::from_generation_config(&folder.join("generation_config.json"))?,
            warnings: files.warnings().to_vec(),
            outline: Outline::Transformers(facts),
            folder: folder.to_path_buf(),
        })
    }

    /// Describes a model whose files have no headers by its `config.json`.
    fn describe_by_config(&mut self, files: FileSet) -> Result<Description, Error> {
        self.quantization_encoding = self.quantization_encoding.or_else(|| files.expected_encoding());
        let source = format!("config.json of {}", self.huggingface_repo_id);
        if let Some(folder) = files.config_json()?.as_deref().and_then(Path::parent) {
            self.keep_config(folder);
        }
        let json = self.huggingface_config()?.to_string();
        let (config, model) = Model::from_config_json(&source, &json, self.architecture.as_deref())?;
        Ok(Description {
            checkpoint: None,
            outline: Outline::Graph(Arc::new(model)),
            weight_bytes: files.bytes()?.map(|bytes| self.bytes_as_read(bytes)),
            folder: PathBuf::new(),
            recommended: SamplingOptions::default(),
            warnings: files.warnings().iter().cloned().chain(config.warning()).collect(),
            architecture: config.architecture,
            remote: Some(files),
        })
    }

    /// Fetches and opens the model.
    pub(super) fn open(
        &mut self,
        files: &FileSet,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Description, Error> {
        let local = self.fetch(files, progress)?;
        self.keep_config(&local.folder);
        let (checkpoint, more) = self.open_weights(local.open()?, &local.folder)?;
        let warnings = files.warnings().iter().cloned().chain(more).collect();
        self.description(checkpoint, local.folder, warnings)
    }

    /// The model of weights that are open, whose configuration is in `folder` unless they carry it.
    fn open_weights(&mut self, weights: Weights, folder: &Path) -> Result<(Checkpoint, Vec<String>), Error> {
        let weights = self.converted(weights)?;
        let mut warnings = Vec::new();
        if weights.format() == Format::Gguf && self._huggingface_config.given().is_some() {
            let why = "a GGUF file has its configuration inside";
            warnings.push(format!("_huggingface_config has no effect: {why}"));
        }
        // A GGUF file names its architecture itself.
        if weights.format() != Format::Gguf && self.huggingface_config().is_ok() {
            warnings.extend(self.update_architecture()?);
        }
        Ok((self.checkpoint(weights, folder)?, warnings))
    }

    /// Opens a checkpoint on weights, with the options of the configuration.
    pub(super) fn checkpoint(&self, weights: Weights, folder: &Path) -> Result<Checkpoint, Error> {
        let options = CheckpointOptions {
            gguf_rope: self.rope_type.and_then(RopeType::style),
            max_length: self.max_length.given(),
            architecture: self.architecture.as_deref().and_then(models::known_name),
            dtype: self.weights_dtype.map(FloatType::dtype),
            // GGUF files have rows for scores instead.
            score_tokens: match weights.format() {
                Format::Gguf => None,
                _ => score_tokens(folder)?,
            },
            config_json: self._huggingface_config.given().map(|given| given.to_string().into()),
        };
        let config_json = folder.join("config.json");
        let checkpoint = Checkpoint::from_weights(weights, &config_json, options);
        let Some(mix) = self.quantize else { return Ok(checkpoint?) };
        let refuse = |fix: String| {
            let field = InvalidField { field: "quantize", value: mix.name.to_string(), fix };
            Err(Error::Config(vec![field]))
        };
        let again = |file: &str, found: &str| {
            refuse(format!("{file} is quantized already, as {found}: give weights in f32, bf16 or f16"))
        };
        let checkpoint = match checkpoint {
            Err(models::Error::Scheme { file, scheme, .. }) => return again(&file, scheme),
            other => other?,
        };
        if let Some(found) = checkpoint.stored_quantization() {
            return again(&checkpoint.weights().files()[0].path().display().to_string(), found.name());
        }
        match checkpoint.quantized(&config_json, &QuantizeOptions::new(mix)) {
            // Something that GGUF files cannot say.
            Err(error @ models::Error::Config { .. }) => {
                refuse(format!("weights are quantized in the layout of GGUF files, but {error}"))
            }
            other => Ok(other?),
        }
    }

    /// What a checkpoint says of its model.
    pub(super) fn description(
        &self,
        checkpoint: Checkpoint,
        folder: PathBuf,
        mut warnings: Vec<String>,
    ) -> Result<Description, Error> {
        warnings.extend(unused(&checkpoint));
        warnings.extend(checkpoint.config.warning());
        warnings.extend(checkpoint.quantizer().into_iter().flat_map(Quantizer::warnings));
        Ok(Description {
            remote: None,
            architecture: checkpoint.config.architecture.clone(),
            outline: Outline::Graph(Arc::clone(&checkpoint.model)),
            weight_bytes: Some(checkpoint.bytes()),
            recommended: recommended_sampling(&checkpoint, &folder, self.names_no_folder())?,
            checkpoint: Some(Arc::new(checkpoint)),
            folder,
            warnings,
        })
    }

    /// Bytes in memory of weights that have `bytes` as stored, most of them in matrices of the encoding.
    fn bytes_as_read(&self, bytes: u64) -> u64 {
        let of_mix = self.quantize.map(|mix| mix.dtype);
        let stored = self.quantization_encoding.map(SupportedEncoding::stored_dtype);
        match (
            of_mix.or(self.weights_dtype.map(FloatType::dtype)),
            stored.filter(|stored| !stored.is_block()),
        ) {
            (Some(read), Some(stored)) => {
                let weights = bytes / stored.block().bytes as u64;
                weights.saturating_mul(read.block().bytes as u64) / read.block().elements as u64
            }
            _ => bytes,
        }
    }

    /// Whether the model is a file, or weights alone.
    fn names_no_folder(&self) -> bool {
        let model = self.huggingface_repo_id.trim();
        model.is_empty() || Path::new(model).is_file()
    }
}

/// How many tensors that are left out are named.
const NAMED: usize = 3;

/// That a model does without some of its tensors: adapters for tasks, and others, which it should not.
fn unused(checkpoint: &Checkpoint) -> Vec<String> {
    let is_adapter = |name: &&String| name.ends_with(".lora_A") || name.ends_with(".lora_B");
    let (adapters, unused): (Vec<&String>, Vec<&String>) = checkpoint.unused().iter().partition(is_adapter);
    let adapters = (!adapters.is_empty())
        .then(|| "the adapters (LoRA) are left out: the model runs as it does without a task".to_string());
    adapters.into_iter().chain(without_place(checkpoint, &unused)).collect()
}

/// That some tensors have no place in a model.
fn without_place(checkpoint: &Checkpoint, unused: &[&String]) -> Option<String> {
    let (named, rest) = unused.split_at(unused.len().min(NAMED));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    (!named.is_empty()).then(|| {
        format!(
            "{} of the weights have no place in {}, and are left out: the model may be of another architecture",
            named.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ") + &more,
            checkpoint.config.architecture
        )
    })
}

/// What a model's files say of how its tokens are to be chosen. Of a GGUF file, that is its own metadata, and what lies
/// next to it if a folder or a repo was named: next to a single file there may be other models.
fn recommended_sampling(
    checkpoint: &Checkpoint,
    folder: &Path,
    is_file: bool,
) -> Result<SamplingOptions, Error> {
    let weights = checkpoint.weights();
    let beside = || SamplingOptions::from_generation_config(&folder.join("generation_config.json"));
    if weights.format() != Format::Gguf {
        return beside();
    }
    let own = SamplingOptions::from_gguf(weights.metadata()).map_err(|error| {
        let path = weights.files().first().map_or(folder, |file| file.path()).to_path_buf();
        Error::GenerationConfig { path, problem: error.to_string() }
    })?;
    // Of headers alone there is no folder.
    Ok(if is_file || folder.as_os_str().is_empty() { own } else { beside()?.or(own) })
}
