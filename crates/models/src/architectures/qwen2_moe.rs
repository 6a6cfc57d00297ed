//! Qwen2-MoE: Qwen2 with experts, and one that every token gets.

use graph::ops::RopeStyle;

use super::Architecture;
use super::mistral::mistral;

/// Qwen 1.5 and 2 with experts.
pub(crate) const QWEN2_MOE: Architecture = Architecture {
    hugging_face: "Qwen2MoeForCausalLM",
    gguf: "qwen2moe",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: false,
    decoder: mistral,
};
