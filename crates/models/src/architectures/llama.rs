//! Llama: RMS norms, rotary positions, grouped-query attention, a SiLU-gated feed-forward block.

use graph::ops::{RopeStyle, Unary};

use super::Architecture;
use crate::{Attention, Config, Decoder, FeedForward, Layer, Norm, Norms, Rope, WeightTypes};

/// Llama 1 to 3.x, and the many models of the same shape.
pub(crate) const LLAMA: Architecture = Architecture {
    hugging_face: "LlamaForCausalLM",
    gguf: "llama",
    gguf_rope: RopeStyle::Interleaved,
    zero_centered_norms: false,
    decoder: llama,
};

pub(super) fn llama(config: &Config, ropes: Vec<Rope>, weights: &dyn WeightTypes) -> Decoder {
    let layer = llama_layer(config, weights);
    Decoder {
        vocab: config.vocab,
        hidden: config.hidden,
        context_length: config.context_length,
        embedding_scale: 1.0,
        ropes,
        layers: vec![layer; config.layers],
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
        },
        residual_scale: 1.0,
    }
}
