//! Llama: RMS norms, rotary positions, grouped-query attention, a SiLU-gated feed-forward block.

use graph::ops::RopeStyle;
use serde_json::json;

use super::Architecture;
use crate::config::ConfigKeys;
use crate::names::NameTable;
use crate::{
    Activation, Attention, CenteredNorms, Channel, Config, Decoder, ExpertConfig, Experts, GateLimit, Gated,
    Layer, Mixer, Norm, Norms, Plain, Residual, Rope, Routing, SharedExpert, WeightTypes,
};

/// Llama 1 to 3.x, and the many models of the same shape. With experts it is a Mixtral and with a window a Mistral, whose
/// GGUF files call themselves Llamas.
pub(crate) const LLAMA: Architecture = Architecture {
    hugging_face: "LlamaForCausalLM",
    alias: None,
    examples: &["meta-llama/Llama-3.2-1B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"],
    gguf: Some("llama"),
    gguf_of_experts: None,
    model_type: "llama",
    classifies: false,
    pair_template: None,
    keys: &["attention_bias", "head_dim", "hidden_act", "mlp_bias", "num_key_value_heads", "rms_norm_eps"],
    complete,
    gguf_quirks: |_, _| Ok(()),
    names: &[NAMES],
    gguf_names: |_| &[],
    gguf_keys: |_| Vec::new(),
    layout: |_, _| Ok(()),
    gguf_layout: |_, _| Ok(()),
    gguf_joins_gates: false,
    gguf_joins_latents: false,
    gguf_holds_factors: false,
    rope: RopeStyle::HalfSplit,
    gguf_rope: RopeStyle::Interleaved,
    centered_norms: CenteredNorms::None,
    decoder: llama_with_window,
};

/// Hugging Face's names, and Meta's, which llama2.c has too.
pub(super) const NAMES: NameTable = &[
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", "output"),
    ("layers.#.input_layernorm", "blk.#.attn_norm"),
    ("layers.#.self_attn.q_proj", "blk.#.attn_q"),
    ("layers.#.self_attn.k_proj", "blk.#.attn_k"),
    ("layers.#.self_attn.v_proj", "blk.#.attn_v"),
    ("layers.#.self_attn.o_proj", "blk.#.attn_output"),
    ("layers.#.post_attention_layernorm", "blk.#.ffn_norm"),
    ("layers.#.mlp.gate_proj", "blk.#.ffn_gate"),
    ("layers.#.mlp.up_proj", "blk.#.ffn_up"),
    ("layers.#.mlp.down_proj", "blk.#.ffn_down"),
    ("tok_embeddings", "token_embd"),
    ("output", "output"),
    ("layers.#.attention_norm", "blk.#.attn_norm"),
    ("layers.#.attention.wq", "blk.#.attn_q"),
    ("layers.#.attention.wk", "blk.#.attn_k"),
    ("layers.#.attention.wv", "blk.#.attn_v"),
    ("layers.#.attention.wo", "blk.#.attn_output"),
    ("layers.#.ffn_norm", "blk.#.ffn_norm"),
    ("layers.#.feed_forward.w1", "blk.#.ffn_gate"),
    ("layers.#.feed_forward.w2", "blk.#.ffn_down"),
    ("layers.#.feed_forward.w3", "blk.#.ffn_up"),
];

/// Text parts of models that see may leave out all sizes.
fn complete(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.add(json!({
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }));
    rms_norm(keys)
}

/// Families whose norms have the key that Llama has.
pub(super) fn rms_norm(keys: &mut ConfigKeys) -> Result<(), String> {
    keys.rename("rms_norm_eps", "norm_eps");
    Ok(())
}

pub(super) fn llama(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let layer = llama_layer(config, weights);
    Decoder {
        vocab: config.vocab,
        hidden: config.hidden,
        context_length: config.context_length,
        embedding_scale: 1.0,
        embedding_norm: None,
        learned_positions: None,
        ropes,
        temperature: config.temperature,
        alibi: None,
        layer_embedding: None,
        streams: None,
        layers: (0..config.layers)
            .map(|index| Layer {
                mixer: with_heads(config, index, layer.mixer),
                channel: with_experts(config, index, layer.channel, weights),
                ..layer
            })
            .collect(),
        norm: Norm::Rms { eps: config.norm_eps },
        tied: weights.dtype("output.weight").is_none(),
        head_bias: weights.dtype("output.bias").is_some(),
        logit_scale: 1.0,
        logit_softcap: config.logit_softcap,
        head: None,
        bare: false,
    }
}

fn llama_layer(config: &Config, weights: &dyn WeightTypes) -> Layer {
    // Of the first layer, or of the first that has such a block.
    let has =
        |name: &str| (0..config.layers).any(|layer| weights.dtype(&format!("blk.{layer}.{name}")).is_some());
    Layer {
        norms: Norms::Pre(Norm::Rms { eps: config.norm_eps }),
        mixer: Mixer::Attention(Attention {
            heads: config.attention.heads,
            kv_heads: config.attention.kv_heads,
            head_dim: config.attention.head_dim,
            value_dim: config.attention.value_dim,
            value_scale: config.multipliers.values,
            scale: config.multipliers.attention.unwrap_or(1.0 / (config.attention.head_dim as f32).sqrt()),
            qkv_bias: has("attn_q.bias"),
            output_bias: has("attn_output.bias"),
            clip: config.attention.clip_qkv,
            qk_norm: None,
            value_norm: None,
            keys_as_values: false,
            keys_of: None,
            rope: (config.rope.dims > 0).then_some(0),
            window: None,
            chunk: None,
            is_tempered: true,
            softcap: config.attention.softcap,
            sinks: false,
            gate: None,
            output_scale: 1.0,
        }),
        channel: Channel::Gated(Gated {
            width: config.feed_forward,
            activation: config.activation.unwrap_or_default(),
            bias: has("ffn_gate.bias"),
            cutoff: None,
            limit: None,
            gate_scale: 1.0,
            output_scale: 1.0,
        }),
        residual: Residual { parallel: config.parallel_residual.unwrap_or(false), scale: 1.0 },
        low_rank: None,
        scaled: false,
    }
}

/// A Llama whose layers have the window of the configuration, if it has one, as those of Mistral do.
pub(super) fn llama_with_window(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    windowed(llama(config, ropes, weights), config, |_| true)
}

/// Gives layers the window of the configuration and the last of the ropes: those that the configuration lists, or
/// else those that `usual` tells by their index.
pub(super) fn windowed(mut decoder: Decoder, config: &Config, usual: impl Fn(usize) -> bool) -> Decoder {
    let local = decoder.ropes.len().saturating_sub(1);
    for (index, layer) in decoder.layers.iter_mut().enumerate() {
        let Mixer::Attention(attention) = &mut layer.mixer else { continue };
        let listed = config.lists.windowed.as_ref().map(|layers| layers[index]);
        if config.attention.window.is_some() && listed.unwrap_or_else(|| usual(index)) {
            attention.window = config.attention.window;
            attention.rope = attention.rope.map(|_| local);
        }
    }
    decoder
}

/// A decoder with other norms: on what blocks read, and after the last layer.
pub(super) fn with_norm(mut decoder: Decoder, norm: Norm) -> Decoder {
    decoder.layers.iter_mut().for_each(|layer| layer.norms = Norms::Pre(norm));
    Decoder { norm, ..decoder }
}

/// A decoder with plain channel blocks, of the family's activation unless the configuration says another one.
pub(super) fn with_plain_channels(
    mut decoder: Decoder,
    config: &Config,
    usual: Activation,
    weights: &dyn WeightTypes,
) -> Decoder {
    let bias = weights.dtype("blk.0.ffn_up.bias").is_some();
    let activation = config.activation.unwrap_or(usual);
    let plain = Plain { width: config.feed_forward, activation, bias };
    decoder.layers.iter_mut().for_each(|layer| layer.channel = Channel::Plain(plain));
    decoder
}

/// Attention of the heads that the configuration lists, if it lists those of each layer.
fn with_heads(config: &Config, index: usize, mut mixer: Mixer) -> Mixer {
    if let (Some(heads), Some(attention)) = (&config.lists.heads, mixer.attention_mut()) {
        attention.heads = heads[index];
    }
    mixer
}

/// Experts where the configuration has some, in the layers that it lists; if it lists none, in those with a router.
fn with_experts(config: &Config, index: usize, dense: Channel, weights: &dyn WeightTypes) -> Channel {
    let Some(experts) = config.experts else { return dense };
    let has = |name: &str| weights.dtype(&format!("blk.{index}.{name}")).is_some();
    let listed = config.lists.sparse.as_ref().map(|layers| layers[index]);
    if !listed.unwrap_or_else(|| has("ffn_gate_inp.weight")) {
        return dense;
    }
    let shared = experts.shared_width;
    let shared =
        shared.map(|width| SharedExpert { width, limit: None, gated: has("ffn_gate_inp_shexp.weight") });
    let ExpertConfig { count, identities, per_token, width, latent, routing, .. } = experts;
    let per_token = config.lists.experts_per_token.as_ref().map_or(per_token, |layers| layers[index]);
    let routing = Routing { correction: has("exp_probs_b.bias"), bias: has("ffn_gate_inp.bias"), ..routing };
    Channel::Experts(Experts {
        width,
        activation: config.activation.unwrap_or_default(),
        plain: false,
        latent,
        count,
        identities,
        per_token,
        routing,
        shared,
        averaged: false,
        bias: has("ffn_gate_exps.bias"),
        limit: experts.gate_limit.map(|size| GateLimit { size, after: false }),
        offset: 0.0,
        scaled: false,
        scales_input: false,
    })
}
