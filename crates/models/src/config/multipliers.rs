//! Factors between layers and inside of them.

use crate::key::{Key, Keyed};

/// Factors inside of layers; 1 for most families.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerMultipliers {
    /// On what attention reads.
    pub attention_input: f32,
    /// On keys.
    pub key: f32,
    /// On the result of attention.
    pub attention_output: f32,
    /// On what a state space reads.
    pub state_space_input: f32,
    /// On what its first projection gives: its gate, values, inputs, outputs and steps.
    pub state_space_parts: [f32; 5],
    /// On the result of a state space.
    pub state_space_output: f32,
    /// On the gate of a feed-forward block, and on its result.
    pub feed_forward: [f32; 2],
}

impl Default for LayerMultipliers {
    fn default() -> LayerMultipliers {
        LayerMultipliers {
            attention_input: 1.0,
            key: 1.0,
            attention_output: 1.0,
            state_space_input: 1.0,
            state_space_parts: [1.0; 5],
            state_space_output: 1.0,
            feed_forward: [1.0; 2],
        }
    }
}

impl Keyed for LayerMultipliers {
    const KEYS: &'static [Key<LayerMultipliers>] = &[
        Key::factor("factor on what attention reads", ["attention_in_multiplier", ""], |factors| {
            &mut factors.attention_input
        }),
        Key::factor("factor on keys", ["key_multiplier", ""], |factors| &mut factors.key),
        Key::factor("factor on the result of attention", ["attention_out_multiplier", ""], |factors| {
            &mut factors.attention_output
        }),
        Key::factor("factor on what state spaces read", ["ssm_in_multiplier", ""], |factors| {
            &mut factors.state_space_input
        }),
        Key::factor("factor on a part of what state spaces read", ["ssm_multipliers", ""], |factors| {
            &mut factors.state_space_parts
        }),
        Key::factor("factor on the result of state spaces", ["ssm_out_multiplier", ""], |factors| {
            &mut factors.state_space_output
        }),
        Key::factor(
            "factor on a gate or a result of feed-forward blocks",
            ["mlp_multipliers", ""],
            |factors| &mut factors.feed_forward,
        ),
    ];
}

/// Factors that keep activations of the same size in models of all widths; 1 for most families.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Multipliers {
    /// On the embedding.
    pub embedding: f32,
    /// On attention scores, if not `1 / sqrt(head_dim)`.
    pub attention: Option<f32>,
    /// On queries, after their norm.
    pub queries: f32,
    /// On values of attention.
    pub values: f32,
    /// On what each block adds to the residual stream.
    pub residual: f32,
    /// On logits.
    pub logits: f32,
}

impl Default for Multipliers {
    fn default() -> Multipliers {
        Multipliers { embedding: 1.0, attention: None, queries: 1.0, values: 1.0, residual: 1.0, logits: 1.0 }
    }
}

impl Keyed for Multipliers {
    const KEYS: &'static [Key<Multipliers>] = &[
        Key::factor("embedding multiplier", ["embedding_multiplier", "embedding_scale"], |factors| {
            &mut factors.embedding
        }),
        Key::number("attention multiplier", ["attention_multiplier", "attention.scale"], |factors| {
            &mut factors.attention
        }),
        Key::factor("query multiplier", ["qk_scale_factor", ""], |factors| &mut factors.queries),
        Key::factor("value multiplier", ["attention_value_scale", "attention.value_scale"], |factors| {
            &mut factors.values
        }),
        Key::factor("residual multiplier", ["residual_multiplier", "residual_scale"], |factors| {
            &mut factors.residual
        }),
        Key::factor("logit multiplier", ["logit_scale", "logit_scale"], |factors| &mut factors.logits),
    ];
}
