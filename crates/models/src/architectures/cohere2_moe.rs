//! Command A+: Command R7B with experts, perhaps after some dense layers, which all turn positions.

use serde_json::{Value, json};
use weights::MetaValue;

use super::Architecture;
use super::cohere::{COHERE, cohere};
use super::glm4_moe::SHARED_EXPERT_NAMES;
use super::llama::{NAMES, windowed};
use super::qwen2_moe::EXPERT_NAMES;
use crate::config::ConfigKeys;
use crate::key::{GgufKeys, MAX_LAYERS};
use crate::{Channel, Config, Decoder, Error, Mixer, Norm, Norms, Rope, Scores, WeightTypes};

/// Command A+ and North Mini Code.
pub(crate) const COHERE2_MOE: Architecture = Architecture {
    hugging_face: "Cohere2MoeForCausalLM",
    examples: &["CohereLabs/command-a-plus-05-2026", "CohereLabs/North-Mini-Code-1.0"],
    gguf: Some("cohere2moe"),
    model_type: "cohere2_moe",
    keys: &[
        "attention_bias",
        "expert_selection_fn",
        "first_k_dense_replace",
        "head_dim",
        "hidden_act",
        "layer_norm_eps",
        "layer_types",
        "logit_scale",
        "mlp_layer_types",
        "norm_topk_prob",
        "num_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_nextn_predict_layers",
        "num_shared_experts",
        "prefix_dense_intermediate_size",
        "prefix_dense_sliding_window_pattern",
        "rms_norm_eps",
        "shared_expert_combination_strategy",
        "sliding_window",
        "sliding_window_pattern",
    ],
    complete,
    gguf_quirks,
    names: &[SHARED_EXPERT_NAMES, EXPERT_NAMES, NAMES],
    gguf_keys,
    decoder: cohere2_moe,
    ..COHERE
};

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 256_000, "hidden_size": 8192, "intermediate_size": 22528, "logit_scale": 0.0625,
        "num_hidden_layers": 40, "num_attention_heads": 64, "head_dim": 128, "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5, "tie_word_embeddings": true, "sliding_window": 4096, "sliding_window_pattern": 4,
        "num_experts": 8, "num_experts_per_tok": 2, "num_shared_experts": 0, "expert_selection_fn": "softmax",
        "shared_expert_combination_strategy": "average", "prefix_dense_sliding_window_pattern": 1,
    }));
    keys.set("rms_norms", keys.has("rms_norm_eps"));
    let eps = if keys.has("rms_norm_eps") { "rms_norm_eps" } else { "layer_norm_eps" };
    keys.rename(eps, "norm_eps");
    list_layers(keys);
    let width = keys.count("intermediate_size").unwrap_or(0);
    keys.set("moe_intermediate_size", width);
    if let Some(count) = keys.count("num_shared_experts") {
        keys.set("shared_expert_intermediate_size", count.saturating_mul(width));
    }
    if keys.has("prefix_dense_intermediate_size") {
        keys.rename("prefix_dense_intermediate_size", "intermediate_size");
    }
    // The softmax is that of the chosen experts.
    if keys.text("expert_selection_fn") == Some("softmax") {
        keys.set("norm_topk_prob", true);
    }
    keys.rename("expert_selection_fn", "scoring_func");
    match keys.text("shared_expert_combination_strategy") {
        Some("average") => keys.set("average_experts", true),
        Some("sum") => {}
        other => {
            return Err(format!(
                "`shared_expert_combination_strategy` is {other:?}, expected average or sum"
            ));
        }
    }
    Ok(())
}

/// Says of each layer whether it is dense, has the window and turns positions. Dense layers come first and have a pattern
/// of windows of their own; if it says that they have none, they turn positions all the same.
fn list_layers(keys: &mut ConfigKeys) {
    let layers = keys.count("num_hidden_layers").unwrap_or(0).min(MAX_LAYERS);
    let dense = keys.count("first_k_dense_replace").unwrap_or(0).min(layers);
    let every = |key: &str| keys.count(key).unwrap_or(0);
    let patterns = [every("prefix_dense_sliding_window_pattern"), every("sliding_window_pattern")];
    let windowed = |index: usize, every: usize| every == 0 || !(index + 1).is_multiple_of(every);
    if !keys.has("layer_types") {
        let prefix = (0..dense).map(|index| windowed(index, patterns[0]));
        let rest = (0..layers - dense).map(|index| windowed(index, patterns[1]));
        let kind = |windowed| if windowed { "sliding_attention" } else { "full_attention" };
        keys.set("layer_types", prefix.chain(rest).map(kind).collect::<Vec<_>>());
    }
    if !keys.has("mlp_layer_types") {
        let kind = |index| if index < dense { "dense" } else { "sparse" };
        keys.set("mlp_layer_types", (0..layers).map(kind).collect::<Vec<_>>());
    }
    let is = |key: &str, kind: &str| -> Vec<bool> {
        keys.list(key).unwrap_or_default().iter().map(|own| own.as_str() == Some(kind)).collect()
    };
    let turns_dense = patterns[0] == 1;
    let flags = is("layer_types", "sliding_attention").into_iter().zip(is("mlp_layer_types", "dense"));
    let rotated = flags.map(|(windowed, dense)| u32::from(windowed || dense && turns_dense));
    keys.set("no_rope_layers", rotated.map(Value::from).collect::<Vec<_>>());
}

/// Experts are chosen by sigmoids and averaged with the one that every token gets; a file of RMS norms says their eps. Dense
/// layers, which come first, turn positions.
fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.rms_norms = keys.optional::<f32>("attention.layer_norm_rms_epsilon")?.is_some_and(|eps| eps > 0.0);
    if let Some(experts) = &mut config.experts {
        experts.averaged = true;
        experts.routing.normalized = keys.optional("expert_weights_norm")?.unwrap_or(false);
        match keys.optional::<usize>("expert_gating_func")? {
            None => experts.routing.scores = Scores::Sigmoid,
            Some(CHOSEN_SOFTMAX) => experts.routing.normalized = true,
            Some(_) => {}
        }
    }
    let dense = keys.optional("leading_dense_block_count")?.unwrap_or(0);
    if let Some(windowed) = &config.lists.windowed {
        let rotated = windowed.iter().enumerate().map(|(index, windowed)| *windowed || index < dense);
        config.lists.rotated = Some(rotated.collect());
    }
    Ok(())
}

/// The function of GGUF files that is the softmax of a token's experts alone.
const CHOSEN_SOFTMAX: usize = 3;

fn gguf_keys(config: &Config) -> Vec<(&'static str, MetaValue)> {
    let windowed = config.lists.windowed.clone();
    let mut keys: Vec<_> =
        windowed.map(|layers| ("attention.sliding_window_pattern", layers.into())).into_iter().collect();
    if config.experts.is_some_and(|experts| experts.routing.scores == Scores::Softmax) {
        keys.push(("expert_gating_func", (CHOSEN_SOFTMAX as u32).into()));
    }
    keys
}

fn cohere2_moe(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = windowed(cohere(config, ropes, weights), config, |index| index % 4 != 3);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        if config.rms_norms {
            layer.norms = Norms::Shared(Norm::Rms { eps: config.norm_eps });
        }
        if let Channel::Experts(experts) = &mut layer.channel {
            experts.averaged = experts.shared.is_some() && config.experts.is_some_and(|own| own.averaged);
        }
        if config.lists.rotated.as_ref().is_some_and(|rotated| !rotated[index])
            && let Mixer::Attention(attention) = &mut layer.mixer
        {
            attention.rope = None;
        }
    }
    if config.rms_norms {
        decoder.norm = Norm::Rms { eps: config.norm_eps };
    }
    decoder
}
