//! Log-probabilities of chosen tokens and of their alternatives.

use super::SamplingParams;
use super::candidates::{Candidate, select_top};
use super::filters::{Buffers, Draw};
use super::weights::{Scale, finite, mass};

/// Natural logarithms of probabilities, as [`LogprobsMode`](super::LogprobsMode) says.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// Of the token in question; -inf where its logit is NaN.
    pub logprob: f32,
    /// The most probable tokens, best first.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// The log-probability of `token` and of the `top` most probable tokens under the model's own logits.
    pub fn from_logits(logits: &[f32], token: u32, top: usize) -> Self {
        let scale = Scale::new(logits, 1.0);
        let normalizer = f64::from(scale.highest) + mass(logits, &scale).ln();
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
    /// The log-probability of a token that was drawn, and of the `top` most probable ones of those that the filters
    /// kept. `adjusted` are the logits after penalties, biases and masks.
    pub(super) fn processed(
        adjusted: &[f32],
        params: &SamplingParams,
        token: u32,
        top: usize,
        buffers: &mut Buffers,
    ) -> Self {
        if params.is_greedy() {
            let top = if top > 0 { vec![(token, 0.0)] } else { Vec::new() };
            return Self { logprob: 0.0, top };
        }
        let scale = Scale::new(adjusted, params.temperature);
        let draw = Draw::new(adjusted, &scale, params, 0.0);
        // Whatever is drawn, the same tokens are kept.
        let Some(drawn) = draw.drawn(buffers) else {
            return Self { logprob: f32::NEG_INFINITY, top: Vec::new() };
        };
        let logprob = |candidate: &Candidate| draw.probability(&drawn.kept, candidate).ln() as f32;
        let logit = adjusted.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let mut best = Vec::new();
        select_top(adjusted, top.min(adjusted.len()), &mut best);
        let best = best.iter().map(|candidate| (candidate.token, logprob(candidate)));
        Self {
            logprob: logprob(&Candidate { token, logit }),
            top: best.take_while(|&(_, logprob)| logprob > f32::NEG_INFINITY).collect(),
        }
    }
}
