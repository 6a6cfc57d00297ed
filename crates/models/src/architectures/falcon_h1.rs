//! Falcon-H1: Llama whose layers run attention and a state space in parallel, with factors on embeddings, projections and
//! logits.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use super::bamba::FEED_FORWARD_NAMES;
use super::granite_hybrid::STATE_SPACE_KEYS;
use super::llama::{LLAMA, NAMES, llama, rms_norm};
use super::mamba::{self, MAMBA_NAMES, expect_silu};
use super::mamba2::{self, HEAD_NAMES};
use crate::config::ConfigKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Channel, Config, Decoder, Error, Mixer, Rope, SideBySide, WeightTypes};

/// Falcon-H1.
pub(crate) const FALCON_H1: Architecture = Architecture {
    hugging_face: "FalconH1ForCausalLM",
    examples: &["tiiuae/Falcon-H1-1.5B-Instruct", "tiiuae/Falcon-H1-0.5B-Instruct"],
    gguf: Some("falcon-h1"),
    model_type: "falcon_h1",
    keys: &[
        "attention_bias",
        "attention_in_multiplier",
        "attention_out_multiplier",
        "embedding_multiplier",
        "head_dim",
        "hidden_act",
        "key_multiplier",
        "lm_head_multiplier",
        "mamba_d_conv",
        "mamba_d_head",
        "mamba_d_ssm",
        "mamba_d_state",
        "mamba_expand",
        "mamba_n_groups",
        "mamba_n_heads",
        "mamba_norm_before_gate",
        "mlp_bias",
        "mlp_multipliers",
        "num_key_value_heads",
        "rms_norm_eps",
        "ssm_in_multiplier",
        "ssm_multipliers",
        "ssm_out_multiplier",
        "time_step_limit",
    ],
    complete,
    names: &[FEED_FORWARD_NAMES, HEAD_NAMES, MAMBA_NAMES, NAMES],
    gguf_names: |_| GGUF_NAMES,
    layout,
    gguf_holds_factors: true,
    gguf_layout: mamba::vectors,
    gguf_rope: RopeStyle::HalfSplit,
    decoder: falcon_h1,
    ..LLAMA
};

/// Parameters without a leaf.
const GGUF_NAMES: NameTable =
    &[("blk.#.ffn_norm", "blk.#.ffn_norm"), ("blk.#.ssm_a", "blk.#.ssm_a"), ("blk.#.ssm_d", "blk.#.ssm_d")];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "num_key_value_heads": 8, "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_n_groups": 1,
        "mamba_d_state": 256, "mamba_norm_before_gate": true, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
    }));
    expect_silu(keys)?;
    keys.gather_state_space(STATE_SPACE_KEYS);
    keys.rename("lm_head_multiplier", "logit_scale");
    rms_norm(keys)
}

/// Refuses biases of projections whose input has a factor: the graph multiplies what projections give, biases included.
fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    let factors = config.layer_multipliers;
    let attention = ("attention_in_multiplier", factors.attention_input);
    let state_space = ("ssm_in_multiplier", factors.state_space_input);
    for layer in 0..config.layers {
        let of_attention = ["attn_q", "attn_k", "attn_v", "attn_output"].map(|stem| (stem, attention));
        for (stem, (key, factor)) in of_attention.into_iter().chain([("ssm_in", state_space)]) {
            let name = format!("blk.{layer}.{stem}.bias");
            if factor != 1.0 && layout.has(&name) {
                let message = format!("a bias is not supported if `{key}` is not 1, but it is {factor}");
                return Err(Error::Weight { name, message });
            }
        }
    }
    mamba::layout(layout, config)
}

fn falcon_h1(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    let factors = config.layer_multipliers;
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        if let (Mixer::Attention(mut attention), Some(space)) =
            (layer.mixer, mamba2::state_space(config, index, weights))
        {
            // Queries and keys are linear in what attention reads.
            attention.scale *= factors.attention_input * factors.attention_input * factors.key;
            attention.output_scale = factors.attention_input * factors.attention_output;
            layer.mixer = Mixer::SideBySide(SideBySide { attention, space });
        }
        if let Channel::Gated(gated) = &mut layer.channel {
            [gated.gate_scale, gated.output_scale] = factors.feed_forward;
        }
    }
    Decoder {
        embedding_scale: config.multipliers.embedding,
        logit_scale: config.multipliers.logits,
        ..decoder
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::LayerMultipliers;
    use crate::checkpoint::testing::safetensors;
    use crate::stored::Stored;

    #[test]
    fn biases_next_to_factors_on_inputs_are_refused() {
        let refusal = |bias: &str, layer_multipliers: LayerMultipliers| {
            let weights = safetensors(&[("stored", "F32", &[1], vec![0; 4])]);
            let mut names = HashMap::from([(bias.to_string(), Stored::Whole("stored".to_string()))]);
            let config = Config { layer_multipliers, ..crate::config::tests::small() };
            layout(&mut Layout::new(&weights, &mut names), &config).err().map(|error| error.to_string())
        };
        let plain = LayerMultipliers::default();
        let of_space = LayerMultipliers { state_space_input: 1.25, ..plain };
        let of_attention = LayerMultipliers { attention_input: 0.5, ..plain };
        let error = refusal("blk.1.ssm_in.bias", of_space).unwrap();
        assert!(error.contains("blk.1.ssm_in.bias"), "{error}");
        assert!(
            error.ends_with("a bias is not supported if `ssm_in_multiplier` is not 1, but it is 1.25"),
            "{error}"
        );
        assert!(
            refusal("blk.0.attn_output.bias", of_attention).unwrap().contains("`attention_in_multiplier`")
        );
        for (bias, factors) in
            [("blk.0.attn_q.bias", of_space), ("blk.0.ssm_in.bias", plain), ("blk.0.ssm_out.bias", of_space)]
        {
            assert_eq!(refusal(bias, factors), None, "{bias}");
        }
    }
}
