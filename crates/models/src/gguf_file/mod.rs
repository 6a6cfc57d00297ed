//! GGUF files in the making: their metadata, and tensors that are made row by row, as they are or quantized.

mod quantizer;
mod tensors;

use weights::Metadata;

pub use self::quantizer::{Importance, QuantizeOptions, Quantizer};
pub(crate) use self::tensors::{ExportTensor, pair_rows, split_latents, stack, tile};
use crate::mix::order;
use crate::{Config, MixModel};

/// A GGUF file in the making. Nothing but vectors is read before it is asked for.
#[derive(Debug)]
pub(crate) struct GgufFile {
    /// What the file says of the model. Of other checkpoints than GGUF files, what it says of the tokenizer is missing.
    pub(crate) metadata: Metadata,
    /// The tensors, those of no layer first, then layer by layer, by name.
    pub(crate) tensors: Vec<ExportTensor>,
    /// The GGUF name of the architecture.
    pub(crate) architecture: String,
    /// What the choice of dtypes depends on.
    pub(crate) sizes: [usize; 4],
}

impl GgufFile {
    /// The file of a model, with its tensors in the order of llama.cpp.
    pub(crate) fn new(
        metadata: Metadata,
        mut tensors: Vec<ExportTensor>,
        architecture: String,
        config: &Config,
    ) -> GgufFile {
        tensors.sort_by(|a, b| order(&a.name).cmp(&order(&b.name)));
        let experts = config.experts.map_or(0, |experts| experts.count);
        let sizes = [config.layers, config.attention.heads, config.attention.kv_heads, experts];
        GgufFile { metadata, tensors, architecture, sizes }
    }

    /// What the choice of dtypes depends on.
    fn model(&self, importance: bool, pure: bool) -> MixModel<'_> {
        let [layers, heads, kv_heads, experts] = self.sizes;
        MixModel { architecture: &self.architecture, layers, heads, kv_heads, experts, importance, pure }
    }
}
