//! The configuration of a pipeline: one table of fields, from which the struct, files, flags and help come.

mod auto;
mod cached;
mod check;
mod defaults;
mod enums;
mod field;
mod file;
mod files;
mod huggingface;
mod layers;
mod methods;
mod origin;
mod problems;
mod serialize;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use engine::Device;
pub use engine::Reproducible;
use models::Mix;
use serde_json::Value;
use tensor::DeviceSpec;

pub use self::auto::Auto;
pub use self::cached::Cached;
pub(crate) use self::check::check;
use self::defaults::LIBRARY;
pub use self::defaults::UseCase;
pub use self::enums::{FloatType, KVCacheStrategy, PipelineEngine, RopeType};
use self::field::Setting;
pub use self::field::{Field, Item, Kind};
pub use self::file::{SettingsTable, TableSetting};
pub use self::layers::{Layers, UnknownVariable};
pub use self::methods::WeightsConverter;
pub(crate) use self::methods::{ONE_DEVICE, names};
pub use self::origin::Origin;
pub(crate) use self::problems::Problems;
pub use crate::error::UnknownField;
pub use sources::{
    FilesByFormat, HuggingFaceRepo, QuantizationEncoding, RepoOptions, RepoType, SupportedEncoding,
    UnknownName, WeightsFormat,
};

/// The struct, its defaults, its setters and the table of its fields. The first line of a field's documentation is
/// its help.
macro_rules! fields {
    ($(
        #[doc = $help:literal]
        $(#[doc = $more:literal])*
        $name:ident: $ty:ty = $default:expr, aliases [$($alias:literal),*];
    )*) => {
        /// What model to run, on which devices, within which limits. Plain data: what it says is checked, all of it
        /// at once, by [`PipelineConfig::validate`] and [`PipelineConfig::plan`].
        ///
        /// ```
        /// use perihelion_pipelines::config::{KVCacheStrategy, PipelineConfig};
        ///
        /// let config = PipelineConfig::new("meta-llama/Llama-3.2-1B")
        ///     .cache_strategy(KVCacheStrategy::Paged)
        ///     .max_length(4096)
        ///     .max_cache_batch_size(8);
        /// assert_eq!(config.kv_cache_page_size, 512);
        /// ```
        ///
        /// Files say the same, in TOML or JSON, and may use the names that later versions of the interface have:
        ///
        /// ```
        /// # use perihelion_pipelines::config::PipelineConfig;
        /// let config: PipelineConfig = toml::from_str("model_path = 'tiny/'\nmax_batch_size = 8").unwrap();
        /// assert_eq!((&config.huggingface_repo_id[..], config.max_cache_batch_size), ("tiny/", 8.into()));
        /// let error = toml::from_str::<PipelineConfig>("max_lenght = 8").unwrap_err();
        /// assert!(error.message().contains("did you mean `max_length`?"));
        /// ```
        #[derive(Debug, Clone, PartialEq)]
        pub struct PipelineConfig {
            $(
                #[doc = $help]
                $(#[doc = $more])*
                pub $name: $ty,
            )*
            /// `config.json` of the repo, once it was read; or what is given in its place.
            pub _huggingface_config: Cached<String, Arc<Value>>,
            /// The devices of `device_specs`, once they were opened.
            pub _devices: Cached<Vec<DeviceSpec>, Vec<Arc<dyn Device>>>,
            /// Gives the tensors of a checkpoint the names that its architecture knows.
            pub _weights_converter: Option<WeightsConverter>,
            /// The repo that `weight_path` is of, where it is another one than the model's.
            pub _weights_repo_id: Option<String>,
            /// The label of the weights' files that `quantization_encoding` was read from, such as `Q4_K_S`.
            pub _weights_label: Option<String>,
        }

        impl Default for PipelineConfig {
            fn default() -> PipelineConfig {
                PipelineConfig {
                    $($name: $default,)*
                    _huggingface_config: Cached::default(),
                    _devices: Cached::default(),
                    _weights_converter: None,
                    _weights_repo_id: None,
                    _weights_label: None,
                }
            }
        }

        /// Each field can be set in a chain.
        impl PipelineConfig {
            $(
                #[doc = concat!("Sets `", stringify!($name), "`.")]
                #[must_use]
                pub fn $name(mut self, value: impl Into<$ty>) -> PipelineConfig {
                    self.$name = value.into();
                    self
                }
            )*
        }

        /// Every field that users set, in the order of the page; then our own.
        pub const FIELDS: &[Field] = &[$(
            Field {
                name: stringify!($name),
                aliases: &[$($alias),*],
                kind: <$ty as Setting>::KIND,
                help: $help,
                get: |config| config.$name.value(),
                set: |config, value| {
                    config.$name = <$ty as Setting>::read(value)?;
                    Ok(())
                },
            },
        )*];
    };
}

fields! {
    /// The model: a repo of a hub, a folder, or a GGUF file.
    huggingface_repo_id: String = String::new(), aliases ["model_path", "model"];
    /// Run the model with max (Perihelion itself) or with huggingface (Transformers in a Python process, for other architectures).
    engine: Option<PipelineEngine> = None, aliases [];
    /// The architecture, if the model's configuration names none or the wrong one.
    architecture: Option<String> = None, aliases [];
    /// Read weights from these files instead of the model's own: local paths, `org/repo/file`, or addresses on a hub.
    ///
    /// A path that exists is a local file. In a path of three or more parts, the first two name a repo if it has the file
    /// that the rest names. Any other path is a file of the model's own repo or folder. An address of a server other than
    /// the hub's (`https://host/x.gguf`) is downloaded into the hub's cache; with `#sha256=DIGEST` it must have that digest.
    weight_path: Vec<PathBuf> = Vec::new(), aliases ["weights"];
    /// The device to run on: cpu, or gpu for the first accelerator, gpu:1 for the second. Without a name, the CPU.
    device_specs: Vec<DeviceSpec> = Vec::new(), aliases ["devices", "device"];
    /// The encoding of the weights, which the files must have; none takes the encoding that they have.
    quantization_encoding: Option<SupportedEncoding> = None, aliases [];
    /// A file that save_to_serialized_model_path wrote; the model starts from it without compiling and packing.
    serialized_model_path: Option<PathBuf> = None, aliases ["precompiled_mefs"];
    /// Write the compiled model and its packed weights to this file.
    save_to_serialized_model_path: Option<PathBuf> = None, aliases ["export_mefs"];
    /// The most tokens of a sequence, prompt and answer together; auto takes what model and memory allow.
    ///
    /// The default is lowered, with a warning, if the model's context is shorter.
    max_length: Auto = LIBRARY.max_length, aliases [];
    /// The most tokens of an answer; -1 allows all up to max_length.
    max_new_tokens: i64 = LIBRARY.max_new_tokens, aliases [];
    /// The most sequences in the cache at once; auto is 1 on a CPU (64 if paged), and what the memory allows elsewhere.
    max_cache_batch_size: Auto = LIBRARY.max_cache_batch_size, aliases ["max_batch_size"];
    /// The most prompts in one step; max_cache_batch_size limits them too.
    max_ce_batch_size: usize = 32, aliases [];
    /// How the cache gives pages to sequences: naive, continuous, paged, or the architecture's choice.
    cache_strategy: KVCacheStrategy = LIBRARY.cache_strategy, aliases [];
    /// Tokens that each sequence generates before new sequences may start; -1 leaves the number to the device.
    max_num_steps: i64 = 1, aliases [];
    /// The naive cache strategy pads prompts to a multiple of this.
    pad_to_multiple_of: usize = 2, aliases [];
    /// Tokens in a page of the cache: a power of two, at least 16.
    kv_cache_page_size: usize = LIBRARY.kv_cache_page_size, aliases [];
    /// Let sequences with the same first tokens share pages of the paged cache.
    enable_prefix_caching: bool = LIBRARY.enable_prefix_caching, aliases [];
    /// The share of free memory to use for weights and cache, such as 0.9.
    gpu_memory_utilization: f64 = 0.9, aliases ["device_memory_utilization"];
    /// Sample from the K likeliest tokens, or 0 for all; none follows generation_config.json or GGUF metadata, or else decodes greedily.
    top_k: Option<i64> = None, aliases [];
    /// Let the engine huggingface run the Python code of the model's repo, with your rights; max never runs any.
    trust_remote_code: bool = false, aliases [];
    /// Download files again that are in the cache.
    force_download: bool = false, aliases [];
    /// Compute the logits of prompts, so that requests can ask for the log-probabilities of prompt tokens.
    enable_echo: bool = LIBRARY.enable_echo, aliases [];
    /// How a GGUF file orders the rows of queries and keys that rotate: normal pairs neighbours, neox pairs halves, none follows the architecture.
    rope_type: Option<RopeType> = None, aliases [];
    /// The branch, tag or commit of the repo. Without one: the revision in the name (`org/name@v1`), or main.
    revision: Option<String> = None, aliases ["huggingface_model_revision"];
    /// The most tokens in a step, of prompts and answers; longer prompts run in chunks. auto is 512, or 4096 for embeddings.
    ///
    /// The default does not count as set, so embedders take 4096.
    max_batch_tokens: Auto = LIBRARY.max_batch_tokens, aliases ["max_batch_input_tokens", "target_num_new_tokens"];
    /// Limit a step to this many milliseconds while sequences generate, by running fewer prompt tokens in it; 0 sets no limit.
    ///
    /// Keeps the pauses in answers short while long prompts are read, which takes longer then. No result depends on it.
    max_step_ms: usize = LIBRARY.max_step_ms, aliases [];
    /// Cast weights that are not quantized to f32, bf16 or f16 as they are read; none keeps them as stored.
    weights_dtype: Option<FloatType> = None, aliases ["dtype"];
    /// The type of keys and values in the cache: f32, bf16 or f16; none takes the dtype of the weights, or f16 if they are quantized.
    cache_dtype: Option<FloatType> = None, aliases [];
    /// Quantize weights to this format or mix as they are read, such as q4_k_m; none keeps them as stored.
    quantize: Option<&'static Mix> = None, aliases [];
    /// Give the same bits on any machine, or only on machines like this one, with its faster bf16 products; none leaves it to the session.
    ///
    /// With `machine`, inputs of bf16 weights are rounded to bf16 if the processor multiplies pairs of bf16.
    reproducible: Option<Reproducible> = None, aliases [];
    /// Multiply quantized weights with inputs as they are, instead of inputs rounded to 8 bits: closer to the weights, and slower.
    exact_activations: bool = false, aliases [];
    /// Run the engine huggingface with this Python interpreter, which needs torch and transformers; none takes the running one, or python3.
    python: Option<PathBuf> = None, aliases [];
}
