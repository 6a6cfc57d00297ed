//! What a pipeline is configured with: engines, formats, encodings, strategies, and where models come from.

mod content;
mod encoding;
mod enums;
mod nearest;
mod pipeline;
mod repo;

pub use encoding::{QuantizationEncoding, SupportedEncoding};
pub use enums::{KVCacheStrategy, PipelineEngine, RepoType, RopeType, UnknownName, WeightsFormat};
pub(crate) use pipeline::MIN_PAGE_SIZE;
pub use pipeline::{
    Auto, Cached, Described, DescribedByConfig, FIELDS, Field, Item, Kind, Layers, Machine, Origin,
    PipelineConfig, ResolvedConfig, Unfetched, UnknownField, WeightsConverter,
};
pub use repo::{FilesByFormat, HuggingFaceRepo, RepoOptions};

pub(crate) use repo::ModelFiles;
