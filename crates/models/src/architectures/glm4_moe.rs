//! GLM-4.5: GLM-4 with half-split pairs, and experts that are chosen by the sigmoids of their scores.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::llama::{LLAMA, NAMES, llama, rms_norm};
use super::qwen2_moe::EXPERT_NAMES;
use super::qwen3::QK_NORM_NAMES;
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::names::NameTable;
use crate::{Config, Decoder, Error, Norm, QkNorm, Rope, Scores, WeightTypes};

/// GLM-4.5, GLM-4.5-Air, GLM-4.6 and GLM-4.7.
pub(crate) const GLM4_MOE: Architecture = Architecture {
    hugging_face: "Glm4MoeForCausalLM",
    examples: &["zai-org/GLM-4.5-Air"],
    gguf: Some("glm4moe"),
    model_type: "glm4_moe",
    keys: &[
        "attention_bias",
        "first_k_dense_replace",
        "head_dim",
        "hidden_act",
        "moe_intermediate_size",
        "n_group",
        "n_routed_experts",
        "n_shared_experts",
        "norm_topk_prob",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "num_mtp_layers",
        "num_nextn_predict_layers",
        "partial_rotary_factor",
        "rms_norm_eps",
        "routed_scaling_factor",
        "topk_group",
    ],
    complete,
    gguf_quirks,
    names: &[PREDICTION_NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, QK_NORM_NAMES, NAMES],
    gguf_names: |_| &[("blk.#.post_attention_norm", "blk.#.ffn_norm")],
    gguf_rope: RopeStyle::HalfSplit,
    decoder: glm4_moe,
    ..LLAMA
};

/// GLM-4.5V and GLM-4.6V, of which we run the text half.
pub(crate) const GLM4_MOE_VISION: Architecture = Architecture {
    hugging_face: "Glm4vMoeForConditionalGeneration",
    examples: &["zai-org/GLM-4.5V", "zai-org/GLM-4.6V"],
    model_type: "glm4v_moe_text",
    ..GLM4_MOE
};

/// Experts that every token gets, in one, and the correction of scores.
pub(super) const SHARED_EXPERT_NAMES: NameTable = &[
    ("layers.#.mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b"),
    ("layers.#.mlp.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"),
    ("layers.#.mlp.shared_experts.up_proj", "blk.#.ffn_up_shexp"),
    ("layers.#.mlp.shared_experts.down_proj", "blk.#.ffn_down_shexp"),
];

/// What layers that predict tokens further ahead have in addition, for families whose GGUF files hold them.
pub(super) const PREDICTION_NAMES: NameTable = &[
    ("layers.#.eh_proj", "blk.#.nextn.eh_proj"),
    ("layers.#.enorm", "blk.#.nextn.enorm"),
    ("layers.#.hnorm", "blk.#.nextn.hnorm"),
    ("layers.#.embed_tokens", "blk.#.nextn.embed_tokens"),
    ("layers.#.shared_head.head", "blk.#.nextn.shared_head_head"),
    ("layers.#.shared_head.norm", "blk.#.nextn.shared_head_norm"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("num_mtp_layers", "num_nextn_predict_layers");
    keys.add(json!({
        "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 131_072,
        "partial_rotary_factor": 0.5, "num_nextn_predict_layers": 1,
    }));
    routed_experts(
        keys,
        json!({
            "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
            "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
        }),
    );
    rms_norm(keys)
}

/// Puts the keys of experts as DeepSeek has them into the words that all families share.
pub(super) fn routed_experts(keys: &mut ConfigKeys, defaults: serde_json::Value) {
    keys.rename("num_local_experts", "n_routed_experts");
    keys.add(defaults);
    if let (Some(count), Some(width)) = (keys.count("n_shared_experts"), keys.count("moe_intermediate_size"))
    {
        keys.set("shared_expert_intermediate_size", count.saturating_mul(width));
    }
    keys.rename("n_routed_experts", "num_experts");
}

/// Scores are sigmoids unless files say it otherwise.
pub(super) fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    if let (Some(experts), None) = (&mut config.experts, keys.optional::<usize>("expert_gating_func")?) {
        experts.routing.scores = Scores::Sigmoid;
    }
    Ok(())
}

fn glm4_moe(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    if weights.dtype("blk.0.attn_q_norm.weight").is_some() {
        let norm = QkNorm::PerHead(Norm::Rms { eps: config.norm_eps });
        decoder.attentions_mut().for_each(|attention| attention.qk_norm = Some(norm));
    }
    decoder
}
