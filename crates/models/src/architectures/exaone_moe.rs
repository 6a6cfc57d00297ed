//! K-EXAONE: EXAONE 4 with norms in front of its blocks, and the experts of DeepSeek V3.

use serde_json::json;

use super::Architecture;
use super::exaone4::{EXAONE4, exaone4};
use super::glm4_moe::{self, SHARED_EXPERT_NAMES};
use super::llama::{NAMES as LLAMA_NAMES, rms_norm};
use super::qwen2_moe::EXPERT_NAMES;
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{Config, Decoder, Norm, Norms, Rope, WeightTypes};

/// K-EXAONE.
pub(crate) const EXAONE_MOE: Architecture = Architecture {
    hugging_face: "ExaoneMoeForCausalLM",
    // As files were published first.
    alias: Some("ExaoneMoEForCausalLM"),
    examples: &["LGAI-EXAONE/K-EXAONE-236B-A23B"],
    gguf: Some("exaone-moe"),
    model_type: "exaone_moe",
    keys: &[
        "first_k_dense_replace",
        "head_dim",
        "hidden_act",
        "layer_types",
        "mlp_layer_types",
        "moe_intermediate_size",
        "n_group",
        "norm_topk_prob",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_nextn_predict_layers",
        "num_shared_experts",
        "rms_norm_eps",
        "routed_scaling_factor",
        "sliding_window",
        "sliding_window_pattern",
        "topk_group",
    ],
    complete,
    gguf_quirks: glm4_moe::gguf_quirks,
    names: &[NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, QK_NORM_NAMES, LLAMA_NAMES],
    decoder: exaone_moe,
    ..EXAONE4
};

/// The correction of scores, as files were published first.
const NAMES: NameTable = &[("layers.#.mlp.e_score_correction_bias", "blk.#.exp_probs_b")];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("num_shared_experts", "n_shared_experts");
    keys.add(json!({
        "vocab_size": 102_400, "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32,
        "num_attention_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096, "sliding_window_pattern": 4,
    }));
    glm4_moe::routed_experts(
        keys,
        json!({
            "num_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1024,
            "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
        }),
    );
    rms_norm(keys)
}

fn exaone_moe(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = exaone4(config, ropes, weights);
    let norm = Norm::Rms { eps: config.norm_eps };
    decoder.layers.iter_mut().for_each(|layer| layer.norms = Norms::Pre(norm));
    decoder
}
