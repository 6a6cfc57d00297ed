//! DeepSeek V2 and V3: Llama with latent attention, and experts in addition to those that every token gets.

use graph::ops::RopeStyle;
use serde_json::{Value, json};

use super::glm4_moe::{SHARED_EXPERT_NAMES, routed_experts};
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama, rms_norm};
use super::qwen2_moe::{self, EXPERT_NAMES};
use super::{Architecture, joined};
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::names::NameTable;
use crate::{
    Channel, Config, Decoder, Error, ExpertGroups, Indexer, IndexerConfig, LatentAttention, LatentConfig,
    Mixer, Reach, Rope, Scaling, Scores, WeightTypes,
};

/// `eps` of the norms of latents, which configurations do not say.
const LATENT_EPS: f32 = 1e-6;

/// DeepSeek V2, V2 Lite and V2.5.
pub(crate) const DEEPSEEK_V2: Architecture = Architecture {
    hugging_face: "DeepseekV2ForCausalLM",
    examples: &["deepseek-ai/DeepSeek-V2-Lite-Chat"],
    gguf: Some("deepseek2"),
    model_type: "deepseek_v2",
    keys: KEYS,
    complete: complete_v2,
    gguf_quirks,
    names: &[NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, LLAMA_NAMES],
    layout: |layout, config| layout.split_latents(config),
    gguf_layout: |layout, config| layout.split_latents(config),
    rope: RopeStyle::Interleaved,
    decoder: deepseek,
    ..LLAMA
};

/// DeepSeek V3, V3.1 and R1. Kimi K2 is one too.
pub(crate) const DEEPSEEK_V3: Architecture = Architecture {
    hugging_face: "DeepseekV3ForCausalLM",
    examples: &["deepseek-ai/DeepSeek-V3.1", "moonshotai/Kimi-K2-Instruct"],
    model_type: "deepseek_v3",
    complete: complete_v3,
    ..DEEPSEEK_V2
};

/// Kimi K2.5 and K2.6, of which we run the text half.
pub(crate) const KIMI_K25: Architecture = Architecture {
    hugging_face: "KimiK25ForConditionalGeneration",
    // As `transformers` calls it.
    alias: Some("Kimi_K25ForConditionalGeneration"),
    examples: &["moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2.6"],
    model_type: "kimi_k25",
    ..DEEPSEEK_V3
};

/// Kimi-VL, of which we run the text half.
pub(crate) const KIMI_VL: Architecture = Architecture {
    hugging_face: "KimiVLForConditionalGeneration",
    examples: &["moonshotai/Kimi-VL-A3B-Instruct"],
    model_type: "kimi_vl",
    ..DEEPSEEK_V3
};

/// GLM-4.7-Flash.
pub(crate) const GLM4_MOE_LITE: Architecture = Architecture {
    hugging_face: "Glm4MoeLiteForCausalLM",
    examples: &["zai-org/GLM-4.7-Flash"],
    model_type: "glm4_moe_lite",
    complete: complete_glm,
    ..DEEPSEEK_V2
};

/// DeepSeek V3.2.
pub(crate) const DEEPSEEK_V32: Architecture = Architecture {
    hugging_face: "DeepseekV32ForCausalLM",
    examples: &["deepseek-ai/DeepSeek-V3.2"],
    gguf: Some("deepseek32"),
    model_type: "deepseek_v32",
    keys: ALL_KEYS,
    complete: complete_v32,
    decoder: deepseek_v32,
    ..DEEPSEEK_V2
};

/// GLM-5.
pub(crate) const GLM_MOE_DSA: Architecture = Architecture {
    hugging_face: "GlmMoeDsaForCausalLM",
    examples: &["zai-org/GLM-5"],
    gguf: Some("glm-dsa"),
    model_type: "glm_moe_dsa",
    keys: ALL_KEYS,
    complete: complete_glm_dsa,
    ..DEEPSEEK_V2
};

const KEYS: &[&str] = &[
    "attention_bias",
    "first_k_dense_replace",
    "hidden_act",
    "kv_lora_rank",
    "mlp_bias",
    "mlp_layer_types",
    "moe_intermediate_size",
    "n_group",
    "n_routed_experts",
    "n_shared_experts",
    "norm_topk_prob",
    "num_experts",
    "num_experts_per_tok",
    "num_key_value_heads",
    "num_local_experts",
    "num_mtp_layers",
    "num_nextn_predict_layers",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "rms_norm_eps",
    "rope_interleave",
    "routed_scaling_factor",
    "topk_group",
    "topk_method",
    "v_head_dim",
];

/// With those of indexers.
const ALL_KEYS: &[&str] = &joined::<{ KEYS.len() + INDEXER_KEYS.len() }>(KEYS, INDEXER_KEYS);

const INDEXER_KEYS: &[&str] = &[
    "index_head_dim",
    "index_n_heads",
    "index_skip_topk_offset",
    "index_topk",
    "index_topk_freq",
    "index_topk_pattern",
    "indexer_types",
    "layer_types",
];

pub(super) const NAMES: NameTable = &[
    ("layers.#.self_attn.q_a_proj", "blk.#.attn_q_a"),
    ("layers.#.self_attn.q_a_layernorm", "blk.#.attn_q_a_norm"),
    ("layers.#.self_attn.q_b_proj", "blk.#.attn_q_b"),
    ("layers.#.self_attn.kv_a_proj_with_mqa", "blk.#.attn_kv_a_mqa"),
    ("layers.#.self_attn.kv_a_layernorm", "blk.#.attn_kv_a_norm"),
    ("layers.#.self_attn.kv_b_proj", "blk.#.attn_kv_b"),
    ("layers.#.self_attn.indexer.wq_b", "blk.#.indexer.attn_q_b"),
    ("layers.#.self_attn.indexer.wk", "blk.#.indexer.attn_k"),
    ("layers.#.self_attn.indexer.k_norm", "blk.#.indexer.k_norm"),
    ("layers.#.self_attn.indexer.weights_proj", "blk.#.indexer.proj"),
];

fn complete_v2(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.remove("rope_interleave");
    // Shares are as they are, whatever the file says.
    keys.set("norm_topk_prob", false);
    keys.rename("num_experts", "n_routed_experts");
    routed_experts(
        keys,
        json!({
            "n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407,
            "first_k_dense_replace": 0, "topk_method": "greedy",
        }),
    );
    keys.add(json!({ "q_lora_rank": 1536 }));
    latent(keys)
}

fn complete_v3(keys: &mut ConfigKeys) -> Result<(), String> {
    // The corrections of scores, and the sums of two that rank groups, are what `transformers` always has.
    keys.set("topk_method", "noaux_tc");
    keys.set("scoring_func", "sigmoid");
    keys.rename("num_mtp_layers", "num_nextn_predict_layers");
    routed_experts(
        keys,
        json!({
            "n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048,
            "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3,
            "routed_scaling_factor": 2.5,
        }),
    );
    keys.add(json!({
        "max_position_embeddings": 4096, "q_lora_rank": 1536, "num_nextn_predict_layers": 1,
    }));
    latent(keys)
}

fn complete_glm(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.set("topk_method", "noaux_tc");
    keys.set("scoring_func", "sigmoid");
    routed_experts(
        keys,
        json!({
            "n_routed_experts": 64, "n_shared_experts": 1, "moe_intermediate_size": 1536,
            "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.8,
            "first_k_dense_replace": 1,
        }),
    );
    keys.add(json!({
        "max_position_embeddings": 202_752, "q_lora_rank": 768, "qk_nope_head_dim": 192, "v_head_dim": 256,
        "rms_norm_eps": 1e-5, "num_nextn_predict_layers": 1,
    }));
    latent(keys)
}

fn complete_v32(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64, "max_position_embeddings": 163_840 }));
    // Keys of GLM-5 and V3.
    for key in ["indexer_types", "index_topk_pattern", "index_topk_freq", "rope_interleave"] {
        keys.remove(key);
    }
    all_indexed(keys)?;
    complete_v3(keys)
}

/// All layers choose positions, which files say of each.
fn all_indexed(keys: &mut ConfigKeys) -> Result<(), String> {
    let Some(Value::Array(kinds)) = keys.remove("layer_types") else { return Ok(()) };
    match kinds.iter().find(|kind| kind.as_str() != Some("indexed_attention")) {
        Some(other) => {
            Err(format!("layers of the type {other} are not supported; known: \"indexed_attention\""))
        }
        None => Ok(()),
    }
}

fn complete_glm_dsa(keys: &mut ConfigKeys) -> Result<(), String> {
    all_indexed(keys)?;
    keys.remove("rope_interleave");
    keys.add(json!({
        "n_group": 1, "topk_group": 1, "q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 202_752, "index_topk": 2048, "index_head_dim": 128,
        "index_n_heads": 32,
    }));
    if !keys.has("indexer_types") {
        let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
        let every = keys.count("index_topk_freq").unwrap_or(1).max(1);
        let offset = keys.count("index_skip_topk_offset").unwrap_or(2);
        let pattern = keys.text("index_topk_pattern").map(str::to_string);
        let is_full = |layer: usize| match &pattern {
            Some(letters) => letters.as_bytes().get(layer) == Some(&b'F'),
            None => (layer + 1).saturating_sub(offset).is_multiple_of(every),
        };
        let kind = |layer| if is_full(layer) { "full" } else { "shared" };
        keys.set("indexer_types", (0..layers).map(kind).collect::<Vec<_>>());
    }
    complete_v3(keys)
}

/// The keys of latent attention: the size of heads, and the factor on scores, which grows with the stretch of positions.
pub(super) fn latent(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    }));
    let count = |key: &str| keys.count(key).ok_or(format!("`{key}` is no number of dims"));
    let head_dim = count("qk_nope_head_dim")?.saturating_add(count("qk_rope_head_dim")?);
    let growth = keys.yarn_growth("mscale_all_dim");
    keys.set("head_dim", head_dim);
    if growth != 1.0 {
        keys.set("attention_multiplier", growth * growth / (head_dim as f64).sqrt());
    }
    rms_norm(keys)
}

/// Files say by how much scores grow with the stretch of positions; rotated vectors then do not. Of shares, they say only
/// that they sum to 1.
pub(super) fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    qwen2_moe::gguf_quirks(keys, config)?;
    let log = keys.optional::<f32>("rope.scaling.yarn_log_multiplier")?.filter(|&log| log != 0.0);
    if let (Some(Scaling::Yarn { factor, attention_factor, .. }), Some(log)) = (&mut config.rope.scaling, log)
    {
        *attention_factor = keys.optional::<f32>("rope.scaling.attn_factor")?.unwrap_or(1.0).into();
        let growth = 1.0 + f64::from(log) * factor.ln();
        let scale = growth * growth / (config.attention.head_dim as f64).sqrt();
        config.multipliers.attention.get_or_insert(scale as f32);
    }
    Ok(())
}

/// The indexers of V3.2 pair dims that are half of those that turn apart.
fn deepseek_v32(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = deepseek(config, ropes, weights);
    let Some(rope) = decoder.ropes.first().cloned() else { return decoder };
    decoder.ropes.push(Rope { style: RopeStyle::HalfSplit, ..rope });
    for layer in &mut decoder.layers {
        if let Mixer::Latent(LatentAttention { reach: Reach::Indexed(indexer), .. }) = &mut layer.mixer {
            indexer.rope = 1;
        }
    }
    decoder
}

pub(super) fn deepseek(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    let Some(LatentConfig { rank, query_rank, value_dims, indexer }) = config.latent else { return decoder };
    let has = |name: &str| weights.dtype(&format!("blk.0.{name}.bias")).is_some();
    let attention = LatentAttention {
        heads: config.attention.heads,
        rank,
        query_rank,
        plain_dims: config.attention.head_dim - config.rope.dims,
        rotated_dims: config.rope.dims,
        value_dims,
        latent_scale: 1.0,
        scale: config.multipliers.attention.unwrap_or(1.0 / (config.attention.head_dim as f32).sqrt()),
        eps: LATENT_EPS,
        latent_bias: has("attn_kv_a_mqa"),
        output_bias: has("attn_output"),
        rope: 0,
        reach: Reach::All,
    };
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        let is_indexed = config.lists.indexed.as_ref().is_none_or(|layers| layers[index]);
        let reach = match indexer {
            None => Reach::All,
            Some(IndexerConfig { heads, dims, positions }) if is_indexed => {
                Reach::Indexed(Indexer { heads, dims, positions, rope: 0 })
            }
            Some(_) => Reach::Shared,
        };
        layer.mixer = Mixer::Latent(LatentAttention { reach, ..attention });
        // Scores are sigmoids where they are corrected, which old GGUF files do not say.
        if let Channel::Experts(experts) = &mut layer.channel
            && experts.routing.correction
        {
            experts.routing.scores = Scores::Sigmoid;
            experts.routing.groups = experts.routing.groups.map(|groups| ExpertGroups { best: 2, ..groups });
        }
    }
    decoder
}
