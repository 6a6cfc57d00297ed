//! nomic-bert and GTE: BERTs with rotated queries and keys, and gated blocks or plain experts.

use graph::ops::{RopeStyle, Unary};

use super::EncoderArchitecture;
use super::bert::{self, BERT};
use crate::encoder::{Encoder, EncoderLayer, EncoderNorms, FeedForward};
use crate::names::NameTable;
use crate::{
    Activation, Config, EncoderConfig, Error, ExpertConfig, Experts, Gated, Norm, Plain, Rope, Routing,
    SelfAttention, WeightTypes,
};

/// nomic-bert: no biases.
pub(crate) const NOMIC_BERT: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "NomicBertModel",
    examples: &["nomic-ai/nomic-embed-text-v1.5"],
    gguf: "nomic-bert",
    names: &[NAMES, bert::NAMES],
    renames: &[
        ("n_embd", "hidden_size"),
        ("n_inner", "intermediate_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
        ("n_positions", "max_position_embeddings"),
        ("rotary_emb_base", "rope_theta"),
        ("rotary_emb_fraction", "partial_rotary_factor"),
        ("moe_top_k", "num_experts_per_tok"),
    ],
    encoder: nomic_bert,
    ..BERT
};

/// nomic-bert with experts in every other layer, and biases. Other files than GGUF call it as the one without.
pub(crate) const NOMIC_BERT_MOE: EncoderArchitecture = EncoderArchitecture {
    examples: &["nomic-ai/nomic-embed-text-v2-moe"],
    gguf: "nomic-bert-moe",
    ..NOMIC_BERT
};

/// nomic-bert with a head that fills gaps.
pub(crate) const NOMIC_BERT_MASKED: EncoderArchitecture =
    EncoderArchitecture { hugging_face: "NomicBertForMaskedLM", examples: &[], ..NOMIC_BERT };

/// GTE: biases, but for two of the gated block's projections.
pub(crate) const GTE: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "GteModel",
    examples: &["alibaba-nlp-community/gte-multilingual-base"],
    gguf: "gte",
    in_llama_cpp: false,
    renames: &[],
    encoder: gte,
    ..NOMIC_BERT
};

/// GTE with a head that fills gaps.
pub(crate) const GTE_MASKED: EncoderArchitecture =
    EncoderArchitecture { hugging_face: "GteForMaskedLM", examples: &[], ..GTE };

/// GTE with a head that scores texts: a layer that was its pooler, and the scores.
pub(crate) const GTE_CLASSIFIER: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "GteForSequenceClassification",
    examples: &[],
    names: &[&[("pooler.dense", "cls"), ("classifier", "cls.output")], NAMES, bert::NAMES],
    head: Some(Unary::Tanh),
    ..GTE
};

/// GTE as its first files call it.
pub(crate) const NEW: EncoderArchitecture =
    EncoderArchitecture { hugging_face: "NewModel", examples: &["Alibaba-NLP/gte-multilingual-base"], ..GTE };

/// The same with a head that scores texts.
pub(crate) const NEW_CLASSIFIER: EncoderArchitecture = EncoderArchitecture {
    hugging_face: "NewForSequenceClassification",
    examples: &["Alibaba-NLP/gte-multilingual-reranker-base"],
    ..GTE_CLASSIFIER
};

pub(super) const NAMES: NameTable = &[
    ("layers.#.self_attn.q_proj", "blk.#.attn_q"),
    ("layers.#.self_attn.k_proj", "blk.#.attn_k"),
    ("layers.#.self_attn.v_proj", "blk.#.attn_v"),
    ("layers.#.self_attn.o_proj", "blk.#.attn_output"),
    ("layers.#.post_attention_layernorm", "blk.#.attn_output_norm"),
    ("layers.#.mlp.gate_proj", "blk.#.ffn_gate"),
    ("layers.#.mlp.up_proj", "blk.#.ffn_up"),
    ("layers.#.mlp.down_proj", "blk.#.ffn_down"),
    ("layers.#.post_mlp_layernorm", "blk.#.layer_output_norm"),
    // As files of GTE have them.
    ("encoder.layer.#.attention.qkv_proj", "blk.#.attn_qkv"),
    ("encoder.layer.#.attention.o_proj", "blk.#.attn_output"),
    ("encoder.layer.#.attn_ln", "blk.#.attn_output_norm"),
    ("encoder.layer.#.mlp.up_gate_proj", "blk.#.ffn_up_gate"),
    ("encoder.layer.#.mlp.down_proj", "blk.#.ffn_down"),
    ("encoder.layer.#.mlp_ln", "blk.#.layer_output_norm"),
    // As files of nomic-bert have them.
    ("emb_ln", "token_embd_norm"),
    ("encoder.layers.#.attn.Wqkv", "blk.#.attn_qkv"),
    ("encoder.layers.#.attn.out_proj", "blk.#.attn_output"),
    ("encoder.layers.#.norm1", "blk.#.attn_output_norm"),
    ("encoder.layers.#.mlp.fc1", "blk.#.ffn_up"),
    ("encoder.layers.#.mlp.fc11", "blk.#.ffn_up"),
    ("encoder.layers.#.mlp.fc12", "blk.#.ffn_gate"),
    ("encoder.layers.#.mlp.fc2", "blk.#.ffn_down"),
    ("encoder.layers.#.norm2", "blk.#.layer_output_norm"),
    ("encoder.layers.#.mlp.router.layer", "blk.#.ffn_gate_inp"),
    ("encoder.layers.#.mlp.experts", "blk.#.ffn_exps"),
    ("encoder.layers.#.mlp.experts.mlp.w1", "blk.#.ffn_up_exps"),
    ("encoder.layers.#.mlp.experts.mlp.w2", "blk.#.ffn_down_exps"),
];

fn nomic_bert(config: &Config, own: &EncoderConfig, weights: &dyn WeightTypes) -> Result<Encoder, Error> {
    rotated(config, own, weights, Unary::Silu)
}

fn gte(config: &Config, own: &EncoderConfig, weights: &dyn WeightTypes) -> Result<Encoder, Error> {
    rotated(config, own, weights, Unary::Gelu)
}

/// A BERT that turns queries and keys. The weights say whether blocks are plain, gated or experts, and which projections
/// have biases; `gate` is the family's function of gates.
pub(super) fn rotated(
    config: &Config,
    own: &EncoderConfig,
    weights: &dyn WeightTypes,
    gate: Unary,
) -> Result<Encoder, Error> {
    let has = |index: usize, name: &str| weights.dtype(&format!("blk.{index}.{name}")).is_some();
    let norm = Norm::layer(own.norm_eps);
    let ropes = Rope::all(config, RopeStyle::HalfSplit)?;
    let activation = |usual: Unary| {
        let of_file = own.activation.map(Activation::Unary).or(config.activation);
        of_file.unwrap_or(Activation::Unary(usual))
    };
    let plain = Plain {
        width: config.feed_forward,
        activation: activation(Unary::Gelu),
        bias: has(0, "ffn_up.bias"),
    };
    let block = Gated {
        width: config.feed_forward,
        activation: activation(gate),
        bias: false,
        cutoff: None,
        limit: None,
        gate_scale: 1.0,
        output_scale: 1.0,
    };
    let feed_forward = |index: usize| match config.experts {
        Some(experts) if has(index, "ffn_gate_inp.weight") => FeedForward::Experts {
            experts: plain_experts(&experts, activation(Unary::Gelu)),
            sum_bias: has(index, "ffn_exps.bias"),
        },
        // Without weights, as published models are.
        _ if has(0, "ffn_up.weight") && !has(0, "ffn_gate.weight") => FeedForward::Plain(plain),
        _ => FeedForward::Gated { block, down_bias: has(index, "ffn_down.bias") },
    };
    let layer = |index: usize| EncoderLayer {
        attention: SelfAttention {
            heads: config.attention.heads,
            kv_heads: config.attention.heads,
            head_dim: config.attention.head_dim,
            scale: 1.0 / (config.attention.head_dim as f32).sqrt(),
            bias: has(index, "attn_q.bias"),
            qk_norm: None,
            rope: (!ropes.is_empty()).then_some(0),
            window: None,
        },
        feed_forward: feed_forward(index),
        norm,
        norms: EncoderNorms::After,
    };
    let layers = (0..config.layers).map(layer).collect();
    Ok(Encoder {
        vocab: config.vocab,
        hidden: config.hidden,
        context_length: config.context_length,
        embedding_scale: 1.0,
        positions: None,
        token_types: weights.dtype("token_types.weight").map(|_| own.token_types),
        relative_bias: None,
        norm: Some(norm),
        layers,
        ropes,
        final_norm: None,
        head: None,
    })
}

/// Experts without gates and biases, whose shares do not sum to 1.
fn plain_experts(experts: &ExpertConfig, activation: Activation) -> Experts {
    Experts {
        width: experts.width,
        activation,
        plain: true,
        latent: None,
        count: experts.count,
        identities: 0,
        per_token: experts.per_token,
        routing: Routing { normalized: false, ..Routing::default() },
        shared: None,
        averaged: false,
        bias: false,
        limit: None,
        offset: 0.0,
        scaled: false,
        scales_input: false,
    }
}
