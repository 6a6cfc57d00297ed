//! Llama: RMS norms, rotary positions, grouped-query attention, a SiLU-gated feed-forward block.

use graph::ops::{RopeStyle, Unary};

use super::Architecture;
use super::mistral::mistral;
use crate::{
    Attention, Config, Decoder, ExpertConfig, Experts, FeedForward, Layer, Norm, Norms, Rope, SharedExpert,
    WeightTypes,
};

/// Llama 1 to 3.x, and the many models of the same shape. With experts it is a Mixtral and with a window a Mistral, whose
/// GGUF files call themselves Llamas.
pub(crate) const LLAMA: Architecture = Architecture {
    hugging_face: "LlamaForCausalLM",
    gguf: "llama",
    gguf_rope: RopeStyle::Interleaved,
    zero_centered_norms: false,
    decoder: mistral,
};

pub(super) fn llama(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let layer = llama_layer(config, weights);
    Decoder {
        vocab: config.vocab,
        hidden: config.hidden,
        context_length: config.context_length,
        embedding_scale: 1.0,
        ropes,
        temperature: config.temperature,
        layers: (0..config.layers)
            .map(|index| Layer {
                feed_forward: with_experts(config, index, layer.feed_forward, weights),
                ..layer
            })
            .collect(),
        norm: Norm { eps: config.norm_eps },
        tied: weights.dtype("output.weight").is_none(),
        logit_scale: 1.0,
        logit_softcap: config.logit_softcap,
    }
}

fn llama_layer(config: &Config, weights: &dyn WeightTypes) -> Layer {
    let has = |name: &str| weights.dtype(&format!("blk.0.{name}")).is_some();
    Layer {
        norms: Norms::Pre(Norm { eps: config.norm_eps }),
        attention: Attention {
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            qkv_bias: has("attn_q.bias"),
            output_bias: has("attn_output.bias"),
            qk_norm: None,
            rope: Some(0),
            window: None,
            softcap: config.attention_softcap,
        },
        feed_forward: FeedForward {
            width: config.feed_forward,
            activation: config.activation.unwrap_or(Unary::Silu),
            bias: has("ffn_gate.bias"),
            experts: None,
        },
        residual_scale: 1.0,
    }
}

/// Experts where the configuration has some, in the layers that it lists; if it lists none, in those with a router.
fn with_experts(config: &Config, index: usize, dense: FeedForward, weights: &dyn WeightTypes) -> FeedForward {
    let Some(experts) = config.experts else { return dense };
    let has = |name: &str| weights.dtype(&format!("blk.{index}.{name}.weight")).is_some();
    let listed = config.sparse_layers.as_ref().map(|layers| layers[index]);
    if !listed.unwrap_or_else(|| has("ffn_gate_inp")) {
        return dense;
    }
    let shared = experts.shared_width;
    let shared = shared.map(|width| SharedExpert { width, gated: has("ffn_gate_inp_shexp") });
    let ExpertConfig { count, per_token, width, normalized, .. } = experts;
    let experts = Experts { count, per_token, normalized, shared };
    FeedForward { width, bias: false, experts: Some(experts), ..dense }
}
