//! Step 3.5 and 3.7: experts next to one that every token gets, a gate behind attention, bounded gates, and layers with a
//! window, which have more query heads and a rope of their own.

use graph::ops::RopeStyle;
use serde_json::{Map, Value, json};
use weights::MetaValue;

use super::Architecture;
use super::glm4_moe::{self, SHARED_EXPERT_NAMES, routed_experts};
use super::llama::{LLAMA, NAMES as LLAMA_NAMES, llama, rms_norm, windowed};
use super::mellum::listed_windows;
use super::qwen2_moe::{self, EXPERT_NAMES};
use super::qwen3::{QK_NORM_NAMES, normalized};
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::names::NameTable;
use crate::{
    AttentionGate, CenteredNorms, Channel, Config, Decoder, Error, GateLimit, Rope, RopeConfig, WeightTypes,
};

/// StepFun's Step 3.5 Flash.
pub(crate) const STEP3P5: Architecture = Architecture {
    hugging_face: "Step3p5ForCausalLM",
    examples: &["stepfun-ai/Step-3.5-Flash"],
    gguf: Some("step35"),
    model_type: "step3p5",
    keys: &[
        "attention_bias",
        "attention_other_setting",
        "head_dim",
        "layer_types",
        "mlp_bias",
        "mlp_layer_types",
        "moe_intermediate_size",
        "moe_layers_enum",
        "moe_num_experts",
        "moe_router_scaling_factor",
        "moe_top_k",
        "n_routed_experts",
        "num_attention_groups",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_local_experts",
        "num_mtp_layers",
        "num_nextn_predict_layers",
        "num_sliding_attention_heads",
        "partial_rotary_factors",
        "per_layer_config",
        "query_pre_attn_scalar",
        "rms_norm_eps",
        "rope_parameters.partial_rotary_factor",
        "share_expert_dim",
        "share_expert_dims",
        "sliding_window",
        "swiglu_limits",
        "swiglu_limits_shared",
    ],
    complete,
    gguf_quirks,
    gguf_keys,
    names: &[NAMES, SHARED_EXPERT_NAMES, EXPERT_NAMES, QK_NORM_NAMES, LLAMA_NAMES],
    gguf_rope: RopeStyle::HalfSplit,
    centered_norms: CenteredNorms::All,
    decoder: step3p5,
    ..LLAMA
};

/// Step 3.7, which sees, and of which we run the text part.
pub(crate) const STEP3P7: Architecture = Architecture {
    hugging_face: "Step3p7ForConditionalGeneration",
    examples: &["stepfun-ai/Step-3.7-Flash"],
    model_type: "step3p7",
    ..STEP3P5
};

/// As files are published.
const NAMES: NameTable = &[
    ("layers.#.self_attn.g_proj", "blk.#.attn_gate"),
    ("layers.#.moe.gate", "blk.#.ffn_gate_inp"),
    ("layers.#.moe.router_bias", "blk.#.exp_probs_b.bias"),
    ("layers.#.moe.gate_proj", "blk.#.ffn_gate_exps"),
    ("layers.#.moe.up_proj", "blk.#.ffn_up_exps"),
    ("layers.#.moe.down_proj", "blk.#.ffn_down_exps"),
    ("layers.#.share_expert.gate_proj", "blk.#.ffn_gate_shexp"),
    ("layers.#.share_expert.up_proj", "blk.#.ffn_up_shexp"),
    ("layers.#.share_expert.down_proj", "blk.#.ffn_down_shexp"),
];

/// Lists with a value for each layer, which may go on with the layers that predict tokens further ahead.
const LISTS: &[&str] = &[
    "layer_types",
    "mlp_layer_types",
    "partial_rotary_factors",
    "rope_theta",
    "swiglu_limits",
    "swiglu_limits_shared",
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    for (own, shared) in [
        ("num_attention_groups", "num_key_value_heads"),
        ("moe_num_experts", "n_routed_experts"),
        ("moe_top_k", "num_experts_per_tok"),
        ("moe_router_scaling_factor", "routed_scaling_factor"),
        ("num_mtp_layers", "num_nextn_predict_layers"),
        ("share_expert_dims", "share_expert_dim"),
        ("share_expert_dim", "shared_expert_intermediate_size"),
    ] {
        keys.rename(own, shared);
    }
    routed_experts(
        keys,
        json!({
            "n_routed_experts": 288, "num_experts_per_tok": 8, "moe_intermediate_size": 1280,
            "shared_expert_intermediate_size": 1280, "scoring_func": "sigmoid",
        }),
    );
    keys.add(json!({
        "vocab_size": 128_815, "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 128_000,
        "rms_norm_eps": 1e-5,
    }));
    let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
    for key in LISTS {
        if let Some(Value::Array(mut values)) = keys.get(key).cloned() {
            values.truncate(layers);
            values.iter_mut().filter(|value| value.is_null()).for_each(|value| *value = 0.0.into());
            keys.set(key, values);
        }
    }
    if !keys.has("layer_types") {
        keys.set("layer_types", vec!["full_attention"; layers]);
    }
    complete_experts(keys, layers)?;
    complete_heads(keys);
    complete_ropes(keys);
    rms_norm(keys)
}

/// Which layers have experts: those listed, or all but the first three.
fn complete_experts(keys: &mut ConfigKeys, layers: usize) -> Result<(), String> {
    let listed = keys.remove("moe_layers_enum").filter(|listed| !listed.is_null());
    if keys.has("mlp_layer_types") {
        return Ok(());
    }
    let numbers = match &listed {
        None => Some((3..layers).collect()),
        Some(Value::String(text)) => {
            let numbers = text.split(',').map(str::trim).filter(|number| !number.is_empty());
            numbers.map(|number| number.parse().ok()).collect::<Option<Vec<usize>>>()
        }
        Some(other) => serde_json::from_value(other.clone()).ok(),
    };
    let Some(numbers) = numbers else {
        return Err(format!(
            "`moe_layers_enum` is {}, expected numbers of layers",
            listed.unwrap_or_default()
        ));
    };
    let kind = |layer| if numbers.contains(&layer) { "sparse" } else { "dense" };
    keys.set("mlp_layer_types", (0..layers).map(kind).collect::<Vec<_>>());
    Ok(())
}

/// The query heads of each layer: those of layers with a window may be others.
fn complete_heads(keys: &mut ConfigKeys) {
    let usual = keys.count("num_attention_heads").unwrap_or(0);
    let key = "num_attention_heads";
    let count = |own: &Value| own.get(key).and_then(Value::as_u64).map(|heads| heads as usize);
    let other = keys.get("attention_other_setting").and_then(count);
    let windowed = keys.count("num_sliding_attention_heads").or(other).unwrap_or(usual);
    let layers = keys.get("per_layer_config").and_then(Value::as_object);
    let of_layer = |(index, kind): (usize, &Value)| match layers {
        Some(layers) => layers.get(&index.to_string()).and_then(count).unwrap_or(usual),
        None if kind == "sliding_attention" => windowed,
        None => usual,
    };
    let heads: Vec<usize> =
        keys.list("layer_types").unwrap_or_default().iter().enumerate().map(of_layer).collect();
    keys.set("num_attention_heads_per_layer", heads);
}

/// The ropes of both kinds of layers. Those that are published have lists of bases and shares, of which layers of a kind have
/// the same, and stretch positions in layers without a window alone.
fn complete_ropes(keys: &mut ConfigKeys) {
    let theta = keys.remove("rope_theta").unwrap_or(1e4.into());
    let shares = keys.remove("partial_rotary_factors");
    let stated = keys.remove("rope_parameters").unwrap_or_default();
    let kinds = keys.list("layer_types").unwrap_or_default();
    let first = |kind: &str| kinds.iter().position(|own| own == kind);
    let mut ropes = Map::new();
    for kind in ["full_attention", "sliding_attention"] {
        let Some(layer) = first(kind) else { continue };
        if stated.get(kind).is_some_and(Value::is_object) {
            ropes.insert(kind.into(), stated[kind].clone());
            continue;
        }
        let mut rope = Map::new();
        let theta = theta.get(layer).filter(|_| theta.is_array()).unwrap_or(&theta);
        rope.insert("rope_theta".into(), theta.clone());
        if let Some(share) = shares.as_ref().and_then(|shares| shares.get(layer)) {
            rope.insert("partial_rotary_factor".into(), share.clone());
        }
        if let (Value::Object(scaling), "full_attention") = (&stated, kind) {
            rope.extend(scaling.clone());
        }
        ropes.insert(kind.into(), rope.into());
    }
    keys.set("rope_parameters", ropes);
}

/// Scores are sigmoids, and shares sum to 1 only if the file says it. Layers without a window rotate half as many dims as others.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    qwen2_moe::gguf_quirks(keys, config)?;
    glm4_moe::gguf_quirks(keys, config)?;
    if config.attention.window.is_some() {
        let plain = RopeConfig { scaling: None, ..config.rope.clone() };
        config.local_rope.get_or_insert(plain);
    }
    config.rope.dims /= 2;
    Ok(())
}

fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let size = |size: usize| MetaValue::from(u32::try_from(size).unwrap_or(u32::MAX));
    let local = config.local_rope.as_ref().map(|local| ("rope.dimension_count_swa", size(local.dims)));
    let own = ("rope.dimension_count", size(2 * config.rope.dims));
    listed_windows(config).into_iter().chain(local).chain([own]).collect()
}

fn step3p5(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let decoder = normalized(llama(config, ropes, weights), config);
    let mut decoder = windowed(decoder, config, |_| false);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        if let Some(attention) = layer.mixer.attention_mut() {
            attention.gate = Some(AttentionGate::Projected { softplus: false, per_head: true });
        }
        let limit = |limits: &Option<Vec<f32>>| {
            let size = limits.as_ref().map(|limits| limits[index]).filter(|&size| size > 0.0);
            size.map(|size| GateLimit { size, after: true })
        };
        let others = limit(&config.lists.shared_gate_limits);
        match &mut layer.channel {
            Channel::Experts(experts) => {
                experts.limit = limit(&config.lists.gate_limits);
                experts.shared.iter_mut().for_each(|shared| shared.limit = others);
            }
            Channel::Gated(gated) => gated.limit = others,
            _ => {}
        }
    }
    decoder
}
