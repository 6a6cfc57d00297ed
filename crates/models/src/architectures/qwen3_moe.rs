//! Qwen3-MoE: Qwen3 with experts.

use graph::ops::RopeStyle;

use super::Architecture;
use super::qwen3::qwen3;

/// Qwen3 with experts.
pub(crate) const QWEN3_MOE: Architecture = Architecture {
    hugging_face: "Qwen3MoeForCausalLM",
    gguf: "qwen3moe",
    gguf_rope: RopeStyle::HalfSplit,
    zero_centered_norms: false,
    decoder: qwen3,
};
