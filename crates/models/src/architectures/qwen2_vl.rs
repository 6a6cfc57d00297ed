//! Qwen2-VL and Qwen2.5-VL: Qwen2 that sees, of which we run the text half.

use serde_json::json;

use super::qwen2::{QWEN2, complete as complete_qwen2};
use super::{Architecture, rope_sections};
use crate::config::ConfigKeys;

/// Qwen2-VL, whose published configurations have the keys of the text half among the others.
pub(crate) const QWEN2_VL: Architecture = Architecture {
    hugging_face: "Qwen2VLForConditionalGeneration",
    examples: &["Qwen/Qwen2-VL-2B-Instruct", "Qwen/Qwen2-VL-7B-Instruct"],
    gguf: Some("qwen2vl"),
    model_type: "qwen2_vl_text",
    complete,
    gguf_keys: |config| rope_sections(config, [16, 24, 24]),
    ..QWEN2
};

/// Qwen2.5-VL.
pub(crate) const QWEN2_5_VL: Architecture = Architecture {
    hugging_face: "Qwen2_5_VLForConditionalGeneration",
    examples: &["Qwen/Qwen2.5-VL-3B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct"],
    model_type: "qwen2_5_vl_text",
    ..QWEN2_VL
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(
        json!({ "num_key_value_heads": 8, "max_window_layers": 80, "rms_norm_eps": 1e-5, "rope_theta": 1e6 }),
    );
    complete_qwen2(keys)
}
