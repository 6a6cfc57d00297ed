//! How data rests on disk: GGUF, safetensors, PyTorch archives.
//!
//! ```no_run
//! # fn main() -> Result<(), perihelion_weights::Error> {
//! use perihelion_weights::Weights;
//!
//! let weights = Weights::open("model.gguf".as_ref())?;
//! let layers = weights.metadata().usize("llama.block_count")?;
//! for (name, tensor) in weights.tensors() {
//!     println!("{name} {}{}", tensor.dtype(), tensor.shape());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Files are hostile until checked: whatever they hold, opening them gives weights or an [`Error`], runs nothing,
//! and allocates in proportion to their size.

#![forbid(unsafe_code)]

mod allowed;
mod contents;
mod error;
mod file;
mod file_header;
pub mod file_name;
mod format;
mod gguf;
mod gptq;
mod json;
mod metadata;
mod pickle;
mod pytorch;
mod quantization_config;
mod safetensors;
mod source;
mod weights;

pub use error::Error;
pub use file::{WeightFile, read_file};
pub use file_header::FileHeader;
pub use format::Format;
pub use gguf::GgufWriter;
pub use gptq::GptqConfig;
pub use json::from_json;
pub use metadata::{FromMeta, MetaArray, MetaValue, Metadata, Strings};
pub use quantization_config::QuantizationConfig;
pub use source::shards;
pub use weights::Weights;
