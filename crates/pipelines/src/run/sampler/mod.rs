//! Chooses the next token from its logits.
//!
//! In order: penalties, bias, mask; then temperature, top-k, top-p, min-p; then the draw. The draw's random number
//! comes from the request's seed and the token's position alone, and no sum depends on how it is computed, so what a
//! sequence says does not depend on what else runs.
//!
//! The three filters each keep a prefix of the tokens sorted by probability, of which little is ever sorted: the whole
//! row is read a few times, at memory speed, and a few hundred candidates are looked at closely.

mod candidates;
mod filters;
mod logprobs;
mod penalties;
#[cfg(test)]
mod tests;
mod weights;

use tensor::philox;

use self::candidates::select_above;
use self::filters::{Buffers, Draw};
pub use self::logprobs::Logprobs;
pub use self::penalties::TokenCounts;
use self::penalties::adjust;
use self::weights::{CHUNK, Scale, mass, maximum};
use crate::Error;
pub use crate::sampling::{
    LARGEST_BIAS, LARGEST_PENALTY, LARGEST_REPETITION_PENALTY, LogprobsMode, MAX_LOGIT_BIAS, MAX_LOGPROBS,
    SamplingParams,
};

/// One sequence's next token, to be chosen.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// One number per token. NaN counts as -inf.
    pub logits: &'a [f32],
    /// The request's, after [`SamplingParams::validate`].
    pub params: &'a SamplingParams,
    /// The tokens before this one.
    pub history: &'a TokenCounts,
    /// Where in the sequence the chosen token will stand, counted from the start of the prompt.
    pub position: u64,
    /// One bit per token, lowest first in each word: whether a grammar allows it. Tokens past the end are forbidden.
    pub allowed: Option<&'a [u32]>,
    /// Tokens that cannot be chosen here.
    pub forbidden: &'a [u32],
}

/// A chosen token.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub token: u32,
    /// If the request asks for them.
    pub logprobs: Option<Logprobs>,
}

/// Chooses tokens. Holds buffers only, so that one serves any number of sequences.
#[derive(Debug, Default)]
pub struct Sampler {
    adjusted: Vec<f32>,
    buffers: Buffers,
}

impl Sampler {
    /// Chooses one row's token.
    ///
    /// # Errors
    /// [`Error::NoCandidate`] when every logit is NaN, -inf, or forbidden.
    pub fn sample(&mut self, row: &Row<'_>) -> Result<Sampled, Error> {
        let adjusted = if adjust(row, &mut self.adjusted) { &self.adjusted } else { row.logits };
        let token = choose(adjusted, row, &mut self.buffers);
        let token = token.ok_or(Error::NoCandidate { vocab_size: row.logits.len() })?;
        let logprobs = row.params.logprobs.map(|top| match row.params.logprobs_mode {
            LogprobsMode::Raw => Logprobs::from_logits(row.logits, token, top),
            LogprobsMode::Processed => {
                Logprobs::processed(adjusted, row.params, token, top, &mut self.buffers)
            }
        });
        Ok(Sampled { token, logprobs })
    }
}

fn choose(logits: &[f32], row: &Row<'_>, buffers: &mut Buffers) -> Option<u32> {
    let params = row.params;
    if params.is_greedy() {
        return greedy(logits);
    }
    let scale = Scale::new(logits, params.temperature);
    if scale.highest == f32::NEG_INFINITY {
        return None;
    }
    let uniform = philox::uniform(params.seed, row.position);
    if params.top_p < 1.0 || params.top_k.is_some_and(|count| count < logits.len()) {
        return Draw::new(logits, &scale, params, uniform).drawn(buffers).map(|drawn| drawn.token);
    }
    if params.min_p > 0.0 {
        let candidates = &mut buffers.candidates;
        select_above(logits, &scale, params.min_p, candidates);
        let kept = candidates.iter().map(|c| (c.token, scale.weight(c.logit)));
        let total: f64 = kept.clone().map(|(_, weight)| f64::from(weight)).sum();
        return pick(kept, uniform * total);
    }
    let all = (0..).zip(logits).map(|(token, &logit)| (token, scale.weight(logit)));
    pick(all, uniform * mass(logits, &scale))
}

/// The best token; of equals, the first.
fn greedy(logits: &[f32]) -> Option<u32> {
    let (mut best, mut token) = (f32::NEG_INFINITY, None);
    for (index, chunk) in logits.chunks(CHUNK).enumerate() {
        let highest = maximum(chunk);
        if highest > best {
            best = highest;
            token = chunk.iter().position(|&logit| logit == highest).map(|at| (index * CHUNK + at) as u32);
        }
    }
    token
}

/// The first token at which the running sum of weights passes `target`.
fn pick(weights: impl Iterator<Item = (u32, f32)>, target: f64) -> Option<u32> {
    let (mut sum, mut last) = (0.0, None);
    for (token, weight) in weights.filter(|&(_, weight)| weight > 0.0) {
        sum += f64::from(weight);
        last = Some(token);
        if sum > target {
            break;
        }
    }
    // Where rounding leaves the sum short of the target, the last token that could be meant.
    last
}
