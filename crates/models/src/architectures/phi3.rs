//! Phi-3: Mistral whose checkpoints stack matrices, which are taken apart when they are opened.

use graph::ops::RopeStyle;

use super::Architecture;
use super::mistral::mistral;

/// Phi-3 and Phi-4.
pub(crate) const PHI3: Architecture = Architecture {
    hugging_face: "Phi3ForCausalLM",
    gguf: "phi3",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: false,
    decoder: mistral,
};
