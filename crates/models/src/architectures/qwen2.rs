//! Qwen2: Mistral with biases on queries, keys and values, which the weights show.

use graph::ops::RopeStyle;

use super::Architecture;
use super::mistral::mistral;

/// Qwen 1.5 to 2.5.
pub(crate) const QWEN2: Architecture = Architecture {
    hugging_face: "Qwen2ForCausalLM",
    gguf: "qwen2",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: false,
    decoder: mistral,
};
