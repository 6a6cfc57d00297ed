//! What a pipeline is configured with: engines, formats, encodings, strategies, and where models come from.

mod encoding;
mod enums;
mod nearest;

pub use encoding::{QuantizationEncoding, SupportedEncoding};
pub use enums::{KVCacheStrategy, PipelineEngine, RepoType, RopeType, UnknownName, WeightsFormat};
