//! Log-probabilities of chosen tokens and of their alternatives.

use super::candidates::select_top;
use super::weights::{Scale, finite, mass, maximum};

/// Natural logarithms of probabilities, under the model's own logits: before penalties, temperature or filters.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// Of the token in question; -inf where its logit is NaN.
    pub logprob: f32,
    /// The most probable tokens, best first.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// The log-probability of `token` and of the `top` most probable tokens.
    pub fn of(logits: &[f32], token: u32, top: usize) -> Self {
        let highest = finite(maximum(logits));
        let scale = Scale { highest, inverse_temperature: 1.0 };
        let normalizer = f64::from(highest) + mass(logits, &scale).ln();
        let logprob = |logit: f32| {
            let logprob = (f64::from(finite(logit)) - normalizer) as f32;
            if logprob.is_nan() { f32::NEG_INFINITY } else { logprob.min(0.0) }
        };
        let mut best = Vec::new();
        select_top(logits, top.min(logits.len()), &mut best);
        Self {
            logprob: logits.get(token as usize).map_or(f32::NEG_INFINITY, |&logit| logprob(logit)),
            top: best.iter().map(|candidate| (candidate.token, logprob(candidate.logit))).collect(),
        }
    }
}
