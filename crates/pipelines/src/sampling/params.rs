//! How one request's tokens are chosen, and which numbers make sense.

use std::collections::BTreeMap;

use crate::Error;
use crate::error::InvalidField;

/// The most probable tokens that a request may have reported at each place.
pub const MAX_LOGPROBS: usize = 256;
/// The most tokens that a request may bias.
pub const MAX_LOGIT_BIAS: usize = 4096;
/// The largest bias of a token, up or down: it decides alone, and logits stay finite.
pub const LARGEST_BIAS: f32 = 1e6;
/// The largest presence or frequency penalty, and the least below 0.
pub const LARGEST_PENALTY: f32 = 100.0;
/// The largest repetition penalty; the least is 1 divided by it.
pub const LARGEST_REPETITION_PENALTY: f32 = 100.0;

/// Which probabilities a request has reported. The names are vLLM's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogprobsMode {
    /// The model's own: before penalties, biases, masks, temperature and filters.
    #[default]
    Raw,
    /// Those that the token was drawn by: after all of them. Tokens that a filter left out are not reported, so there may
    /// be fewer than were asked for; with greedy decoding, the chosen token alone.
    Processed,
}

/// How one request's tokens are chosen. The default is greedy: the most probable token, always.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits: lower is safer, and 0 is greedy.
    pub temperature: f32,
    /// Only this many of the most probable tokens; `None` is all.
    pub top_k: Option<usize>,
    /// Only the most probable tokens that together have this probability, within what `top_k` left.
    pub top_p: f32,
    /// Only tokens with at least this share of the most probable one's probability.
    pub min_p: f32,
    /// Divides the positive logits, and multiplies the negative ones, of tokens in the prompt or the answer
    /// (Keskar et al., "CTRL", 2019). 1 is none.
    pub repetition_penalty: f32,
    /// Taken off a token's logit for each time it stands in the answer.
    pub frequency_penalty: f32,
    /// Taken off a token's logit once it stands in the answer.
    pub presence_penalty: f32,
    /// Where the random numbers come from.
    pub seed: u64,
    /// Added to the logits of these tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Whether to report log-probabilities: of the chosen token, and of this many of the most probable.
    pub logprobs: Option<usize>,
    /// Which probabilities these are.
    pub logprobs_mode: LogprobsMode,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: 0,
            logit_bias: BTreeMap::new(),
            logprobs: None,
            logprobs_mode: LogprobsMode::Raw,
        }
    }
}

impl SamplingParams {
    /// Checks every field against its range, and the biased tokens against the vocabulary.
    ///
    /// # Errors
    /// All the fields that are wrong, each with its value and what to give instead.
    pub fn validate(&self, vocab_size: usize) -> Result<(), Error> {
        let wrong = self.problems(vocab_size);
        if wrong.is_empty() { Ok(()) } else { Err(Error::Sampling(wrong)) }
    }

    /// The fields that are wrong.
    pub(crate) fn problems(&self, vocab_size: usize) -> Vec<InvalidField> {
        let mut wrong = Vec::new();
        let mut check = |good: bool, field, value: String, fix: String| {
            if !good {
                wrong.push(InvalidField { field, value, fix });
            }
        };
        let mut number =
            |good: bool, field, value: f32, fix: &str| check(good, field, value.to_string(), fix.into());
        let finite = f32::is_finite;
        number(
            finite(self.temperature) && self.temperature >= 0.0,
            "temperature",
            self.temperature,
            "give 0 for greedy, or a positive number",
        );
        number(
            self.top_p > 0.0 && self.top_p <= 1.0,
            "top_p",
            self.top_p,
            "give a number above 0 and up to 1",
        );
        number((0.0..=1.0).contains(&self.min_p), "min_p", self.min_p, "give a number from 0 to 1");
        let most = LARGEST_REPETITION_PENALTY;
        number(
            (1.0 / most..=most).contains(&self.repetition_penalty),
            "repetition_penalty",
            self.repetition_penalty,
            &format!("give a positive number from {} to {most}; 1 is none", 1.0 / most),
        );
        for (field, penalty) in
            [("frequency_penalty", self.frequency_penalty), ("presence_penalty", self.presence_penalty)]
        {
            let most = LARGEST_PENALTY;
            let fix = format!("give a number from -{most} to {most}; 0 is none");
            number((-most..=most).contains(&penalty), field, penalty, &fix);
        }
        check(
            self.top_k != Some(0),
            "top_k",
            "0".into(),
            "give at least 1, or leave it out for all tokens".into(),
        );
        let biased = self.logit_bias.len();
        check(
            biased <= MAX_LOGIT_BIAS,
            "logit_bias",
            format!("{biased} tokens"),
            format!("give at most {MAX_LOGIT_BIAS}"),
        );
        for (&token, &bias) in self.logit_bias.iter().take(MAX_LOGIT_BIAS) {
            let entry = || format!("{{{token}: {bias}}}");
            let most = LARGEST_BIAS;
            let fix = format!("give a number from -{most} to {most}");
            check((-most..=most).contains(&bias), "logit_bias", entry(), fix);
            let known = (token as usize) < vocab_size;
            check(
                known,
                "logit_bias",
                entry(),
                format!("give a token below {vocab_size}, the vocabulary's size"),
            );
        }
        wrong.extend(self.logprobs.and_then(|count| Self::logprobs_problem("logprobs", count)));
        wrong
    }

    /// What is wrong with a number of most probable tokens to report, if anything.
    pub(crate) fn logprobs_problem(field: &'static str, count: usize) -> Option<InvalidField> {
        let fix = format!("give at most {MAX_LOGPROBS}");
        (count > MAX_LOGPROBS).then(|| InvalidField { field, value: count.to_string(), fix })
    }

    /// Whether the tokens so far make a difference: [`Row::history`](crate::run::sampler::Row::history) may be empty otherwise.
    pub fn uses_history(&self) -> bool {
        self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }

    /// Whether the most probable token is always chosen.
    pub(crate) fn is_greedy(&self) -> bool {
        self.temperature <= 0.0 || self.top_k == Some(1)
    }
}
