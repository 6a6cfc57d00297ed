//! Granite MoE: Granite with experts.

use graph::ops::RopeStyle;

use super::Architecture;
use super::granite::granite;

/// Granite 3 with experts.
pub(crate) const GRANITE_MOE: Architecture = Architecture {
    hugging_face: "GraniteMoeForCausalLM",
    gguf: "granitemoe",
    gguf_rope: RopeStyle::Interleaved,
    zero_centered_norms: false,
    decoder: granite,
};
