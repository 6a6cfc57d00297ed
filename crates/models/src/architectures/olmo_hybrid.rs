//! OLMo Hybrid: OLMo 3 with gated delta nets in most layers, which have their norms in front of blocks.

use serde_json::{Value, json};

use super::Architecture;
use super::gemma2::SANDWICH_NAMES;
use super::llama::{NAMES, rms_norm};
use super::mamba::without_positions;
use super::olmo2::{OLMO3, olmo2};
use super::qwen3::QK_NORM_NAMES;
use super::qwen3_next::{DELTA_NAMES, complete_layer_types, delta_net};
use crate::config::ConfigKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Config, Decoder, Error, Mixer, Norm, Norms, Rope, WeightTypes};

/// OLMo Hybrid.
pub(crate) const OLMO_HYBRID: Architecture = Architecture {
    hugging_face: "OlmoHybridForCausalLM",
    examples: &["allenai/Olmo-Hybrid-7B"],
    gguf: None,
    model_type: "olmo_hybrid",
    keys: &[
        "attention_bias",
        "hidden_act",
        "layer_types",
        "linear_allow_neg_eigval",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "num_key_value_heads",
        "rms_norm_eps",
    ],
    complete,
    names: &[HYBRID_NAMES, DELTA_NAMES, SANDWICH_NAMES, QK_NORM_NAMES, NAMES],
    layout,
    decoder: olmo_hybrid,
    ..OLMO3
};

const HYBRID_NAMES: NameTable = &[
    ("layers.#.attention_layer_norm", "blk.#.attn_norm"),
    ("layers.#.feedforward_layer_norm", "blk.#.ffn_norm"),
    ("layers.#.linear_attn.q_proj", "blk.#.attn_q"),
    ("layers.#.linear_attn.k_proj", "blk.#.attn_k"),
    ("layers.#.linear_attn.v_proj", "blk.#.attn_v"),
    ("layers.#.linear_attn.q_conv1d", "blk.#.ssm_conv1d_q"),
    ("layers.#.linear_attn.k_conv1d", "blk.#.ssm_conv1d_k"),
    ("layers.#.linear_attn.v_conv1d", "blk.#.ssm_conv1d_v"),
    ("layers.#.linear_attn.g_proj", "blk.#.attn_gate"),
    ("layers.#.linear_attn.b_proj", "blk.#.ssm_beta"),
    ("layers.#.linear_attn.a_proj", "blk.#.ssm_alpha"),
    ("layers.#.linear_attn.o_norm", "blk.#.ssm_norm"),
    ("layers.#.linear_attn.o_proj", "blk.#.ssm_out"),
];

/// `eps` of the norms of delta nets, whatever the file says of other norms.
const DELTA_EPS: f32 = 1e-5;

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_attention_heads": 30, "hidden_size": 3840, "max_position_embeddings": 65536, "linear_conv_kernel_dim": 4,
        "linear_allow_neg_eigval": true,
    }));
    let count = |keys: &ConfigKeys, key: &str| keys.count(key).unwrap_or(0);
    let heads = count(keys, "num_attention_heads");
    keys.add(json!({ "linear_num_key_heads": heads, "linear_num_value_heads": heads }));
    let key_heads = count(keys, "linear_num_key_heads").max(1);
    keys.add(json!({ "linear_key_head_dim": count(keys, "hidden_size") * 3 / 4 / key_heads }));
    keys.add(json!({ "linear_value_head_dim": 2 * count(keys, "linear_key_head_dim") }));
    complete_layer_types(keys, 4)?;
    // Published models turn nothing, and say so.
    let theta = keys.get("rope_parameters").and_then(|rope| rope.get("rope_theta"));
    if theta.is_some_and(Value::is_null) {
        without_positions(keys);
    }
    rms_norm(keys)
}

/// Names norms by the kind of the layer, and joins what delta nets read.
fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
        if !config.lists.is_recurrent(layer) {
            layout.rename(&name("ffn_norm"), &name("post_attention_norm"));
            continue;
        }
        layout.rename(&name("post_attention_norm"), &name("ffn_norm"));
        layout.exponentiate(&name("ssm_a"));
        let filters = ["ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"].map(name);
        let filter = name("ssm_conv1d");
        filters.iter().chain([&filter]).for_each(|filter| layout.flatten(filter));
        layout.join(&filters, filter)?;
        layout.join(&["attn_q", "attn_k", "attn_v"].map(name), name("attn_qkv"))?;
    }
    Ok(())
}

fn olmo_hybrid(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = olmo2(config, ropes, weights);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        if let (true, Some(delta)) = (config.lists.is_recurrent(index), config.delta) {
            layer.norms = Norms::Pre(Norm::Rms { eps: config.norm_eps });
            layer.mixer = Mixer::GatedDelta(delta_net(&delta, DELTA_EPS));
        }
    }
    decoder
}
