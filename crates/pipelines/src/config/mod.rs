//! The configuration of a pipeline: one table of fields, from which the struct, files, flags and help come.

mod cached;
mod check;
mod enums;
mod field;
mod file;
mod files;
mod layers;
mod methods;
mod serialize;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use engine::Device;
use models::Mix;
use serde_json::Value;
use tensor::DeviceSpec;

pub use self::cached::Cached;
pub(crate) use self::check::{MIN_PAGE_SIZE, Problems, check, native};
pub use self::enums::{FloatType, KVCacheStrategy, PipelineEngine, RopeType};
use self::field::Setting;
pub use self::field::{Auto, Field, Item, Kind, UnknownField};
pub use self::layers::{Layers, Origin, UnknownVariable};
pub use self::methods::WeightsConverter;
pub(crate) use self::methods::{ONE_DEVICE, names};
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
            /// `config.json` of the repo, once it was read.
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
    /// What runs the model: `max` is this engine; `huggingface`, the fallback, is refused with what there is instead.
    engine: Option<PipelineEngine> = None, aliases [];
    /// The architecture, where the model's own configuration names none or another one.
    architecture: Option<String> = None, aliases [];
    /// The weights, if not those of the model: files, or files of a repo (`org/repo/file`).
    ///
    /// A file on this machine is taken as it is. Of three or more parts, the first two name a repo if there is such a
    /// file in it. Anything else is a file of the model's own repo or folder.
    weight_path: Vec<PathBuf> = Vec::new(), aliases ["weights"];
    /// Devices to run on: cpu, gpu:0; where none is named, every accelerator, else the CPU.
    device_specs: Vec<DeviceSpec> = Vec::new(), aliases ["devices"];
    /// The encoding of the weights; none is that of the files, which must have it.
    quantization_encoding: Option<SupportedEncoding> = None, aliases [];
    /// A file to start from, instead of compiling and packing the weights: what save_to_serialized_model_path wrote.
    serialized_model_path: Option<PathBuf> = None, aliases ["precompiled_mefs"];
    /// A file to write the compiled model with its packed weights to.
    save_to_serialized_model_path: Option<PathBuf> = None, aliases ["export_mefs"];
    /// The most tokens of a sequence, prompt and answer together; auto is what the model and the memory allow.
    ///
    /// The default is lowered, with a warning, if the model's context is shorter.
    max_length: Auto = Auto::Usual(512), aliases [];
    /// The most tokens of an answer; -1 is up to max_length.
    max_new_tokens: i64 = -1, aliases [];
    /// Sequences that are in the cache at once; auto is 1 on a CPU, elsewhere what the memory allows.
    max_cache_batch_size: Auto = Auto::At(1), aliases ["max_batch_size"];
    /// Prompts that are processed in one step, at most max_cache_batch_size.
    max_ce_batch_size: usize = 32, aliases [];
    /// How keys and values are kept: naive, continuous, paged, or the architecture's own choice.
    cache_strategy: KVCacheStrategy = KVCacheStrategy::Continuous, aliases [];
    /// Tokens that each sequence makes before others are let in; -1 lets the device choose.
    max_num_steps: i64 = 1, aliases [];
    /// Prompts are padded to a multiple of this, by the naive cache strategy.
    pad_to_multiple_of: usize = 2, aliases [];
    /// Tokens in a page of the paged cache: a power of two, at least 16.
    kv_cache_page_size: usize = 512, aliases [];
    /// Whether sequences that begin alike share pages of the paged cache.
    enable_prefix_caching: bool = false, aliases [];
    /// The part of the free memory to use: the cache has this much less the weights.
    gpu_memory_utilization: f64 = 0.9, aliases ["device_memory_utilization"];
    /// Draw among the K likeliest tokens; none is greedy, 0 draws among all.
    top_k: Option<i64> = None, aliases [];
    /// Allows repos with code of their own. Their code is never run here, so there is nothing that this allows.
    trust_remote_code: bool = false, aliases [];
    /// Downloads files again that are in the cache already.
    force_download: bool = false, aliases [];
    /// Computes the logits of prompts too, so that requests can ask for their log-probabilities.
    enable_echo: bool = false, aliases [];
    /// How rotated rows of queries and keys pair up in GGUF files: none is as they are stored, normal neighbours, neox halves.
    rope_type: Option<RopeType> = None, aliases [];
    /// The branch, tag or commit of the repo; none is that of the model's name (`org/name@v1`), else main.
    revision: Option<String> = None, aliases ["huggingface_model_revision"];
    /// Most tokens in a step, prompts and answers together; longer prompts run in chunks. auto is 512, or 4096 to embed.
    ///
    /// The default does not count as set, so embedders take 4096.
    max_batch_tokens: Auto = Auto::Usual(512), aliases ["max_batch_input_tokens", "target_num_new_tokens"];
    /// What weights that are not quantized are cast to as they are read: f32, bf16 or f16; none is as they are stored.
    weights_dtype: Option<FloatType> = None, aliases ["dtype"];
    /// What the KV cache keeps: f32, bf16 or f16; none is bf16 for weights of that, else f32.
    cache_dtype: Option<FloatType> = None, aliases [];
    /// What weights that are not quantized are quantized to as they are read: a format or mix; none is as they are stored.
    quantize: Option<&'static Mix> = None, aliases [];
}
