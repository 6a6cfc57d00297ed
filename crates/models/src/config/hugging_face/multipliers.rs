//! Factors inside of layers, and layers of one block, in a `config.json`.

use serde::Deserialize;

use crate::config::{LayerMultipliers, LoneBlock};

/// The keys of factors inside of layers.
#[derive(Deserialize)]
pub(super) struct File {
    attention_in_multiplier: Option<f32>,
    key_multiplier: Option<f32>,
    attention_out_multiplier: Option<f32>,
    ssm_in_multiplier: Option<f32>,
    ssm_multipliers: Option<[f32; 5]>,
    ssm_out_multiplier: Option<f32>,
    mlp_multipliers: Option<[f32; 2]>,
    /// Set for families whose layers have one block: a letter for each layer.
    lone_blocks: Option<String>,
}

impl File {
    pub(super) fn read(&self) -> LayerMultipliers {
        let [gate, down] = self.mlp_multipliers.unwrap_or([1.0; 2]);
        LayerMultipliers {
            attention_input: self.attention_in_multiplier.unwrap_or(1.0),
            key: self.key_multiplier.unwrap_or(1.0),
            attention_output: self.attention_out_multiplier.unwrap_or(1.0),
            state_space_input: self.ssm_in_multiplier.unwrap_or(1.0),
            state_space_parts: self.ssm_multipliers.unwrap_or([1.0; 5]),
            state_space_output: self.ssm_out_multiplier.unwrap_or(1.0),
            gate,
            down,
        }
    }

    pub(super) fn lone_blocks(&self) -> Result<Option<Vec<LoneBlock>>, String> {
        let Some(letters) = &self.lone_blocks else { return Ok(None) };
        let blocks = letters.chars().map(|letter| match letter {
            'M' => Ok(LoneBlock::StateSpace),
            '*' => Ok(LoneBlock::Attention),
            '-' | 'E' => Ok(LoneBlock::FeedForward),
            _ => Err(format!("layers of the kind `{letter}` are not supported; known: M, *, -, E")),
        });
        blocks.collect::<Result<_, _>>().map(Some)
    }
}
