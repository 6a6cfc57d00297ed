//! LongCat-Flash: DeepSeek V3 whose layers have two attentions and two dense blocks, and experts whose result skips the
//! second half; some experts give what they read.

use serde_json::json;

use super::Architecture;
use super::deepseek::{DEEPSEEK_V3, NAMES as DEEPSEEK_NAMES, deepseek, latent};
use super::llama::NAMES as LLAMA_NAMES;
use crate::config::ConfigKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Channel, Config, Decoder, Error, Gated, GatedAndShortcut, Mixer, Rope, Scores, WeightTypes};

/// Meituan's LongCat-Flash. Each half of its layers is one here.
pub(crate) const LONGCAT_FLASH: Architecture = Architecture {
    hugging_face: "LongcatFlashForCausalLM",
    examples: &["meituan-longcat/LongCat-Flash-Chat"],
    gguf: None,
    model_type: "longcat_flash",
    keys: &[
        "attention_bias",
        "expert_ffn_hidden_size",
        "ffn_hidden_size",
        "hidden_act",
        "kv_lora_rank",
        "moe_intermediate_size",
        "moe_topk",
        "n_routed_experts",
        "num_experts_per_tok",
        "num_key_value_heads",
        "num_layers",
        "num_local_experts",
        "num_nextn_predict_layers",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "rms_norm_eps",
        "routed_scaling_factor",
        "v_head_dim",
        "zero_expert_num",
    ],
    complete,
    names: &[NAMES, DEEPSEEK_NAMES, LLAMA_NAMES],
    layout,
    decoder: longcat_flash,
    ..DEEPSEEK_V3
};

/// Of the two numbers of names, the second one says which half of the layer is meant.
const NAMES: NameTable = &[
    ("layers.#.input_layernorm.#", "half.#.#.attn_norm"),
    ("layers.#.post_attention_layernorm.#", "half.#.#.ffn_norm"),
    ("layers.#.self_attn.#.q_a_proj", "half.#.#.attn_q_a"),
    ("layers.#.self_attn.#.q_a_layernorm", "half.#.#.attn_q_a_norm"),
    ("layers.#.self_attn.#.q_b_proj", "half.#.#.attn_q_b"),
    ("layers.#.self_attn.#.kv_a_proj_with_mqa", "half.#.#.attn_kv_a_mqa"),
    ("layers.#.self_attn.#.kv_a_layernorm", "half.#.#.attn_kv_a_norm"),
    ("layers.#.self_attn.#.kv_b_proj", "half.#.#.attn_kv_b"),
    ("layers.#.self_attn.#.o_proj", "half.#.#.attn_output"),
    ("layers.#.mlps.#.gate_proj", "half.#.#.ffn_gate"),
    ("layers.#.mlps.#.up_proj", "half.#.#.ffn_up"),
    ("layers.#.mlps.#.down_proj", "half.#.#.ffn_down"),
    ("layers.#.mlp.router.classifier", "first.#.ffn_gate_inp"),
    ("layers.#.mlp.router.e_score_correction_bias", "first.#.exp_probs_b"),
    ("layers.#.mlp.experts.#.gate_proj", "first.#.ffn_gate.#"),
    ("layers.#.mlp.experts.#.up_proj", "first.#.ffn_up.#"),
    ("layers.#.mlp.experts.#.down_proj", "first.#.ffn_down.#"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    for (own, shared) in [
        ("ffn_hidden_size", "intermediate_size"),
        ("expert_ffn_hidden_size", "moe_intermediate_size"),
        ("moe_topk", "num_experts_per_tok"),
        ("num_local_experts", "n_routed_experts"),
        ("n_routed_experts", "num_experts"),
    ] {
        keys.rename(own, shared);
    }
    keys.add(json!({
        "vocab_size": 131_072, "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64, "intermediate_size": 12288,
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "rope_theta": 1e7, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "num_experts": 512, "num_experts_per_tok": 12, "moe_intermediate_size": 2048,
        "zero_expert_num": 256, "routed_scaling_factor": 6.0, "norm_topk_prob": false,
    }));
    let layers = keys.count("num_layers").ok_or("`num_layers` is no number of layers")?;
    keys.set("num_hidden_layers", layers.saturating_mul(2));
    keys.list_layers("sparse_layers", |_, layer| layer.is_multiple_of(2));
    latent(keys)
}

/// Names the weights of both halves of each layer as those of two layers.
fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    layout.rename_all(|name| {
        let (kind, rest) = name.split_once('.')?;
        let (layer, rest) = rest.split_once('.')?;
        let first = layer.parse::<usize>().ok()?.checked_mul(2)?;
        match kind {
            "half" => {
                let (half, rest) = rest.split_once('.')?;
                let half = half.parse::<usize>().ok().filter(|&half| half < 2)?;
                Some(format!("blk.{}.{rest}", first + half))
            }
            "first" => Some(format!("blk.{first}.{rest}")),
            _ => None,
        }
    });
    layout.split_latents(config)
}

fn longcat_flash(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = deepseek(config, ropes, weights);
    let growth = |rank: usize| (config.hidden as f32 / rank as f32).sqrt();
    for layer in &mut decoder.layers {
        if let Mixer::Latent(attention) = &mut layer.mixer {
            attention.latent_scale = growth(attention.rank);
            attention.scale *= attention.query_rank.map_or(1.0, growth);
        }
        if let Channel::Experts(mut experts) = layer.channel {
            experts.routing.scores = Scores::Softmax;
            let gated = Gated {
                width: config.feed_forward,
                activation: experts.activation,
                bias: false,
                cutoff: None,
                limit: None,
                gate_scale: 1.0,
                output_scale: 1.0,
            };
            layer.channel = Channel::GatedAndShortcut(GatedAndShortcut { gated, experts });
        }
    }
    decoder
}
