//! What can be asked of a configuration: its model's files, names, dtypes and devices.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use engine::Device;
use engine::devices::Platform;
use tensor::{DType, DeviceSpec};

use super::{FIELDS, FloatType, KVCacheStrategy, PipelineConfig, SupportedEncoding, WeightsFormat};
use crate::Error;
use crate::sampling::SamplingOptions;

/// Gives a tensor of a checkpoint the name that its architecture knows; `None` keeps the name it has.
#[derive(Clone)]
pub struct WeightsConverter(Arc<Rename>);

/// From the name in the files to another one.
type Rename = dyn Fn(&str) -> Option<String> + Send + Sync;

impl WeightsConverter {
    /// A converter of names.
    pub fn new(rename: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> WeightsConverter {
        WeightsConverter(Arc::new(rename))
    }

    /// The name that a tensor is known by.
    pub fn name(&self, stored: &str) -> Option<String> {
        (self.0)(stored)
    }
}

impl fmt::Debug for WeightsConverter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeightsConverter")
    }
}

impl PartialEq for WeightsConverter {
    fn eq(&self, other: &WeightsConverter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PipelineConfig {
    /// The defaults, for a model: a repo of a hub, a folder, or a GGUF file.
    pub fn new(huggingface_repo_id: impl Into<String>) -> PipelineConfig {
        PipelineConfig { huggingface_repo_id: huggingface_repo_id.into(), ..PipelineConfig::default() }
    }

    /// What each field does, in a line or two.
    pub fn help() -> BTreeMap<&'static str, &'static str> {
        FIELDS.iter().map(|field| (field.name, field.help())).collect()
    }

    /// Whether no model is named, which [`PipelineConfig::plan_or_built_in`] reads as the built-in one.
    pub fn is_built_in(&self) -> bool {
        self.huggingface_repo_id.is_empty() && self.weight_path.is_empty()
    }

    /// What to call the model in messages: the last part of its name, or of its weights'.
    pub fn short_name(&self) -> String {
        let last = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let weights = || self.weight_path.first().and_then(|path| last(path));
        last(Path::new(&self.huggingface_repo_id)).or_else(weights).unwrap_or_else(|| "model".to_string())
    }

    /// What the configuration says of how tokens are chosen where requests leave it open: among the `top_k` most
    /// probable, if it is set.
    pub fn sampling_defaults(&self) -> SamplingOptions {
        let top_k = self.top_k.map(|k| usize::try_from(k).unwrap_or(0));
        SamplingOptions { top_k, ..SamplingOptions::default() }
    }

    /// The cache strategy, with that of every decoder for [`KVCacheStrategy::ModelDefault`].
    pub(crate) fn strategy(&self) -> KVCacheStrategy {
        match self.cache_strategy {
            KVCacheStrategy::ModelDefault => KVCacheStrategy::Paged,
            strategy => strategy,
        }
    }

    /// The dtype of the KV cache: `cache_dtype` if it is set, otherwise f16 for quantized weights and the dtype of others.
    pub(crate) fn kept_dtype(&self) -> DType {
        let of_mix = self.quantize.and_then(|mix| SupportedEncoding::from_dtype(mix.dtype));
        let stored = || self.quantization_encoding.map_or(DType::F32, SupportedEncoding::cache_dtype);
        let is_plain = self.quantization_encoding.is_none_or(|encoding| !encoding.stored_dtype().is_block());
        let of_weights = self.weights_dtype.filter(|_| is_plain).map(FloatType::dtype);
        let of_mix = of_mix.map(SupportedEncoding::cache_dtype);
        self.cache_dtype.map(FloatType::dtype).or(of_mix).or(of_weights).unwrap_or_else(stored)
    }

    /// The dtype of the weights as graphs see them.
    ///
    /// # Errors
    /// If no encoding is set yet; planning sets that of the files.
    pub fn dtype(&self) -> Result<DType, Error> {
        let unset = || problem("quantization_encoding", "none", "set it, or ask the resolved configuration");
        self.quantization_encoding.map(|encoding| encoding.dtype()).ok_or_else(unset)
    }

    /// The format that the suffixes of all of `weight_path` promise.
    ///
    /// # Errors
    /// If there are no weights yet, a suffix is none of a format, or there are several formats.
    pub fn weights_format(&self) -> Result<WeightsFormat, Error> {
        Ok(sources::weights_format(&self.weight_path)?)
    }

    /// The devices of `device_specs`, or the CPU, opened once. Needs the [`Platform`] of a door, since
    /// pipelines know no devices.
    ///
    /// # Errors
    /// If one is not there, with the number of those that are.
    pub fn devices_of(&self, platform: &Platform) -> Result<Vec<Arc<dyn Device>>, Error> {
        let specs = self.specs();
        let open = || platform.load_devices(&specs).map_err(engine::Error::from);
        Ok(self._devices.get_or_try(specs.clone(), open)?)
    }

    /// The one device of `device_specs`.
    ///
    /// # Errors
    /// As [`PipelineConfig::devices_of`], and if there are several.
    pub fn device_of(&self, platform: &Platform) -> Result<Arc<dyn Device>, Error> {
        match &self.devices_of(platform)?[..] {
            [device] => Ok(Arc::clone(device)),
            _ => Err(problem("device_specs", names(&self.specs()), ONE_DEVICE)),
        }
    }

    /// The devices that are meant: those given, or the CPU.
    pub(crate) fn specs(&self) -> Vec<DeviceSpec> {
        if self.device_specs.is_empty() { vec![DeviceSpec::cpu()] } else { self.device_specs.clone() }
    }

    /// The accelerator on which the model runs; `None` is the host.
    pub fn accelerator(&self) -> Option<DeviceSpec> {
        self.device_specs.first().copied().filter(|spec| !spec.is_host())
    }
}

/// What to do about several devices.
pub(crate) const ONE_DEVICE: &str = "a model runs on one device: give one";

/// Devices by name.
pub(crate) fn names(specs: &[DeviceSpec]) -> String {
    specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// One field that is wrong.
pub(super) fn problem(field: &'static str, value: impl ToString, fix: impl Into<String>) -> Error {
    Error::Config(vec![crate::error::InvalidField { field, value: value.to_string(), fix: fix.into() }])
}
