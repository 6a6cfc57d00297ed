//! Mixtral: Mistral with experts.

use graph::ops::RopeStyle;

use super::Architecture;
use super::mistral::mistral;

/// Mixtral. In GGUF files it calls itself a Llama.
pub(crate) const MIXTRAL: Architecture = Architecture {
    hugging_face: "MixtralForCausalLM",
    gguf: "llama",
    gguf_rope: RopeStyle::Interleaved,
    zero_centered_norms: false,
    decoder: mistral,
};
