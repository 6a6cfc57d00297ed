//! What a pipeline is configured with: engines, formats, encodings, strategies, and where models come from.

mod enums;
mod pipeline;

pub use enums::{FloatType, KVCacheStrategy, PipelineEngine, RopeType};
pub(crate) use pipeline::MIN_PAGE_SIZE;
pub use pipeline::{
    Auto, Cached, Described, DescribedByConfig, FIELDS, Field, Item, Kind, Layers, Machine, Origin,
    PipelineConfig, ResolvedConfig, Unfetched, UnknownField, UnknownVariable, WeightsConverter,
};
pub use sources::{
    FilesByFormat, HuggingFaceRepo, QuantizationEncoding, RepoOptions, RepoType, SupportedEncoding,
    UnknownName, WeightsFormat,
};
