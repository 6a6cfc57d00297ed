//! What becomes of logits before anything is chosen: penalties, bias, mask.

use std::collections::HashMap;

use super::{Row, SamplingParams};

/// Which tokens a sequence has so far, for the penalties.
#[derive(Debug, Clone, Default)]
pub struct TokenCounts {
    /// Every token that occurs, and how often it stands in the answer.
    generated: HashMap<u32, u32>,
}

impl TokenCounts {
    /// The counts after a prompt, before anything is generated.
    pub fn new(prompt: &[u32]) -> Self {
        Self { generated: prompt.iter().map(|&token| (token, 0)).collect() }
    }

    /// Adds a token of the answer.
    pub fn push(&mut self, token: u32) {
        let count = self.generated.entry(token).or_default();
        *count = count.saturating_add(1);
    }
}

/// Writes the logits after penalties, bias and mask; `false` if they are as they were.
pub(super) fn adjust(row: &Row<'_>, adjusted: &mut Vec<f32>) -> bool {
    let params = row.params;
    let masked = row.allowed.is_some() || !row.forbidden.is_empty();
    if !params.uses_history() && params.logit_bias.is_empty() && !masked {
        return false;
    }
    adjusted.clear();
    adjusted.extend_from_slice(row.logits);
    if params.uses_history() {
        for (&token, &generated) in &row.history.generated {
            if let Some(logit) = adjusted.get_mut(token as usize) {
                *logit = penalized(*logit, generated, params);
            }
        }
    }
    for (&token, bias) in &params.logit_bias {
        if let Some(logit) = adjusted.get_mut(token as usize) {
            *logit += bias;
        }
    }
    if let Some(allowed) = row.allowed {
        for (index, logits) in adjusted.chunks_mut(32).enumerate() {
            let word = allowed.get(index).copied().unwrap_or(0);
            for (bit, logit) in logits.iter_mut().enumerate() {
                *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
            }
        }
    }
    for &token in row.forbidden {
        if let Some(logit) = adjusted.get_mut(token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
    true
}

fn penalized(logit: f32, generated: u32, params: &SamplingParams) -> f32 {
    let scaled =
        if logit > 0.0 { logit / params.repetition_penalty } else { logit * params.repetition_penalty };
    let present = if generated > 0 { params.presence_penalty } else { 0.0 };
    scaled - params.frequency_penalty * generated as f32 - present
}
