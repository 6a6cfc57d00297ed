//! ModernBERT: rotated queries and keys, windows in most layers, gated blocks, norms in front and no biases.

use graph::ops::{RopeStyle, Unary};

use super::EncoderArchitecture;
use super::bert::BERT;
use crate::encoder::{Encoder, EncoderLayer, EncoderNorms, FeedForward};
use crate::names::NameTable;
use crate::{Activation, Config, EncoderConfig, Error, Gated, Norm, Rope, SelfAttention, WeightTypes};

/// ModernBERT, and the embedding models that start from it.
pub(crate) const MODERNBERT: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "ModernBertModel",
    examples: &["Alibaba-NLP/gte-modernbert-base", "nomic-ai/modernbert-embed-base"],
    gguf: "modern-bert",
    names: &[NAMES],
    renames: &[
        ("global_rope_theta", "rope_theta"),
        ("local_rope_theta", "rope_local_base_freq"),
        ("hidden_activation", "hidden_act"),
        ("local_attention", "sliding_window"),
    ],
    encoder: modernbert,
    ..BERT
};

/// ModernBERT with a head that fills gaps.
pub(crate) const MODERNBERT_MASKED: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "ModernBertForMaskedLM",
    examples: &["answerdotai/ModernBERT-base"],
    ..MODERNBERT
};

/// ModernBERT with a head that scores texts.
pub(crate) const MODERNBERT_CLASSIFIER: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "ModernBertForSequenceClassification",
    examples: &["Alibaba-NLP/gte-reranker-modernbert-base"],
    names: &[&[("head.dense", "cls"), ("head.norm", "cls.norm"), ("classifier", "cls.output")], NAMES],
    head: Some(Unary::Gelu),
    ..MODERNBERT
};

const NAMES: NameTable = &[
    ("embeddings.tok_embeddings", "token_embd"),
    ("embeddings.norm", "token_embd_norm"),
    ("layers.#.attn.Wqkv", "blk.#.attn_qkv"),
    ("layers.#.attn.Wo", "blk.#.attn_output"),
    ("layers.#.attn_norm", "blk.#.attn_norm"),
    ("layers.#.mlp.Wi", "blk.#.ffn_up"),
    ("layers.#.mlp.Wo", "blk.#.ffn_down"),
    ("layers.#.mlp_norm", "blk.#.ffn_norm"),
    ("final_norm", "output_norm"),
];

/// The size of windows of files that do not say it.
const WINDOW: usize = 128;
/// Windows that reach further to a side are no model but a damaged or hostile file.
const MAX_WINDOW: usize = 1 << 16;

fn modernbert(config: &Config, own: &EncoderConfig, weights: &dyn WeightTypes) -> Result<Encoder, Error> {
    let has = |name: &str| weights.dtype(name).is_some();
    let norm = Norm::Layer { eps: config.norm_eps, weight: true, bias: has("token_embd_norm.bias") };
    // Of a number of layers, the first has no window.
    let is_windowed = |index: usize| match (own.global_every, &config.lists.windowed) {
        (None, Some(windowed)) => windowed[index],
        (every, _) => !index.is_multiple_of(every.unwrap_or(3).max(1)),
    };
    let ropes = Rope::all(config, RopeStyle::HalfSplit)?;
    let rope_of = |windowed: bool| match ropes.len() {
        0 => None,
        1 => Some(0),
        _ => Some(usize::from(windowed)),
    };
    // Half of the window is on each side.
    let window = config.attention.window.unwrap_or(WINDOW) / 2;
    if window > MAX_WINDOW {
        let message = format!("`local_attention` is {}, expected at most {}", 2 * window, 2 * MAX_WINDOW);
        return Err(Error::config(&config.source_name, message));
    }
    let layer = |index: usize| EncoderLayer {
        attention: SelfAttention {
            heads: config.attention.heads,
            kv_heads: config.attention.heads,
            head_dim: config.attention.head_dim,
            scale: 1.0 / (config.attention.head_dim as f32).sqrt(),
            bias: has("blk.0.attn_q.bias"),
            qk_norm: None,
            rope: rope_of(is_windowed(index)),
            window: is_windowed(index).then_some(window),
        },
        feed_forward: FeedForward::Gated {
            block: Gated {
                width: config.feed_forward,
                activation: config.activation.unwrap_or(Activation::Unary(Unary::Gelu)),
                bias: has("blk.0.ffn_down.bias"),
                cutoff: None,
                limit: None,
                gate_scale: 1.0,
                output_scale: 1.0,
            },
            down_bias: false,
        },
        norm,
        norms: if index == 0 { EncoderNorms::BeforeFeedForward } else { EncoderNorms::Before },
    };
    let layers = (0..config.layers).map(layer).collect();
    Ok(Encoder {
        vocab: config.vocab,
        hidden: config.hidden,
        context_length: config.context_length,
        embedding_scale: 1.0,
        positions: None,
        ropes,
        token_types: None,
        relative_bias: None,
        norm: Some(norm),
        layers,
        final_norm: Some(norm),
        head: None,
    })
}
