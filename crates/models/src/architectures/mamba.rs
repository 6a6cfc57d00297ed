//! Mamba and Falcon-Mamba: layers of a state space alone, each of whose channels decays on its own.

use serde_json::json;

use super::llama::{LLAMA, llama};
use super::{Architecture, joined};
use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::layout::Layout;
use crate::names::NameTable;
use crate::{Channel, ChannelStateSpace, Config, Decoder, Error, Mixer, Norm, Rope, WeightTypes};

/// Mamba.
pub(crate) const MAMBA: Architecture = Architecture {
    hugging_face: "MambaForCausalLM",
    examples: &["state-spaces/mamba-2.8b-hf", "state-spaces/mamba-130m-hf"],
    gguf: Some("mamba"),
    model_type: "mamba",
    keys: &["conv_kernel", "expand", "hidden_act", "layer_norm_epsilon", "state_size", "time_step_rank"],
    complete,
    gguf_quirks,
    names: &[MAMBA_NAMES],
    gguf_names: |_| GGUF_NAMES,
    layout,
    gguf_layout: vectors,
    decoder: mamba,
    ..LLAMA
};

/// Falcon-Mamba, which normalizes what state spaces select. In GGUF files it calls itself a Mamba.
pub(crate) const FALCON_MAMBA: Architecture = Architecture {
    hugging_face: "FalconMambaForCausalLM",
    examples: &["tiiuae/falcon-mamba-7b", "tiiuae/falcon-mamba-7b-instruct"],
    model_type: "falcon_mamba",
    keys: &joined::<{ MAMBA.keys.len() + 1 }>(MAMBA.keys, &["mixer_rms_eps"]),
    complete: complete_normalized,
    gguf_keys: |_| vec![(NORMALIZED, true.into())],
    ..MAMBA
};

/// The key of GGUF files that says whether state spaces normalize what they select.
const NORMALIZED: &str = "ssm.dt_b_c_rms";
/// `eps` of these norms in Falcon-Mamba, whose GGUF files leave it out.
const MIXER_EPS: f32 = 1e-6;

/// Parameters without a leaf.
pub(super) const GGUF_NAMES: NameTable = &[("blk.#.ssm_a", "blk.#.ssm_a"), ("blk.#.ssm_d", "blk.#.ssm_d")];

/// The names of layers of a block, and of blocks of state spaces.
pub(super) const MAMBA_NAMES: NameTable = &[
    ("embeddings", "token_embd"),
    ("norm_f", "output_norm"),
    ("lm_head", "output"),
    ("layers.#.norm", "blk.#.attn_norm"),
    ("layers.#.mixer.in_proj", "blk.#.ssm_in"),
    ("layers.#.mixer.conv1d", "blk.#.ssm_conv1d"),
    ("layers.#.mixer.x_proj", "blk.#.ssm_x"),
    ("layers.#.mixer.dt_proj", "blk.#.ssm_dt"),
    ("layers.#.mixer.A_log", "blk.#.ssm_a"),
    ("layers.#.mixer.D", "blk.#.ssm_d"),
    ("layers.#.mixer.out_proj", "blk.#.ssm_out"),
    ("layers.#.mamba.in_proj", "blk.#.ssm_in"),
    ("layers.#.mamba.conv1d", "blk.#.ssm_conv1d"),
    ("layers.#.mamba.x_proj", "blk.#.ssm_x"),
    ("layers.#.mamba.dt_proj", "blk.#.ssm_dt"),
    ("layers.#.mamba.A_log", "blk.#.ssm_a"),
    ("layers.#.mamba.D", "blk.#.ssm_d"),
    ("layers.#.mamba.out_proj", "blk.#.ssm_out"),
];

fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "state_size": 16, "tie_word_embeddings": true }));
    keys.gather_state_space(&[
        ("expand", "expand"),
        ("state_size", "state_dim"),
        ("conv_kernel", "conv_width"),
        ("time_step_rank", "step_rank"),
        ("mixer_rms_eps", "norm_eps"),
    ]);
    without_attention(keys)
}

fn complete_normalized(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "mixer_rms_eps": MIXER_EPS }));
    complete(keys)
}

/// The keys of models without attention and feed-forward blocks, which no other code asks for.
pub(super) fn without_attention(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({ "layer_norm_epsilon": 1e-5 }));
    keys.rename("layer_norm_epsilon", "norm_eps");
    expect_silu(keys)?;
    keys.set("num_attention_heads", 1);
    keys.set("intermediate_size", 0);
    // Sequences may be of any length.
    keys.add(json!({ "max_position_embeddings": 1 << 20 }));
    without_positions(keys);
    Ok(())
}

/// State spaces have no other function than SiLU.
pub(super) fn expect_silu(keys: &ConfigKeys) -> Result<(), String> {
    match keys.text("hidden_act") {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => Err(format!("state spaces with the activation `{other}` are not supported")),
    }
}

/// The keys of models whose attention has no positions.
pub(super) fn without_positions(keys: &mut ConfigKeys) {
    keys.remove("rope_parameters");
    keys.set("partial_rotary_factor", 0.0);
}

/// Files do not say that nothing is rotated.
pub(super) fn no_positions(_: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    config.rope.dims = 0;
    Ok(())
}

fn gguf_quirks(keys: &GgufKeys<'_>, config: &mut Config) -> Result<(), Error> {
    if let (Some(true), Some(space)) = (keys.optional(NORMALIZED)?, &mut config.state_space) {
        space.norm_eps = Some(MIXER_EPS);
    }
    no_positions(keys, config)
}

/// The state space of a layer.
pub(super) fn state_space(
    config: &Config,
    layer: usize,
    weights: &dyn WeightTypes,
) -> Option<ChannelStateSpace> {
    let own = config.state_space?;
    let has = |name: &str| weights.dtype(&format!("blk.{layer}.{name}")).is_some();
    Some(ChannelStateSpace {
        channels: own.channels,
        state_dim: own.state_dim,
        step_rank: own.step_rank,
        conv_width: own.conv_width,
        conv_bias: has("ssm_conv1d.bias"),
        bias: has("ssm_in.bias"),
        norm: match own.norm_eps {
            Some(eps) => Some(Norm::Unweighted { eps }),
            None => has("ssm_dt_norm.weight").then_some(Norm::Rms { eps: config.norm_eps }),
        },
    })
}

fn mamba(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let mut decoder = llama(config, ropes, weights);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        if let Some(space) = state_space(config, index, weights) {
            (layer.mixer, layer.channel) = (Mixer::ChannelStateSpace(space), Channel::None);
        }
    }
    decoder
}

/// What files store otherwise than the graph takes it.
pub(super) fn layout(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    vectors(layout, config)?;
    (0..config.layers).for_each(|layer| layout.exponentiate(&format!("blk.{layer}.ssm_a.weight")));
    Ok(())
}

/// Filters, rates, factors and norms have more axes than one.
pub(super) fn vectors(layout: &mut Layout<'_>, config: &Config) -> Result<(), Error> {
    for layer in 0..config.layers {
        for name in ["ssm_conv1d", "ssm_a", "ssm_d", "ssm_norm"] {
            layout.flatten(&format!("blk.{layer}.{name}.weight"));
        }
    }
    Ok(())
}
