//! Chooses the next token from its logits.
//!
//! In order: penalties, bias, mask; then temperature, top-k, top-p, min-p; then the draw. The draw's random number
//! comes from the request's seed and the token's position alone, and every sum has one order, so what a sequence
//! says depends on nothing that runs beside it.
//!
//! The three filters each keep a prefix of the tokens sorted by probability, so only that prefix is ever sorted:
//! the whole row is read once or twice, at memory speed, and a few hundred candidates are looked at closely.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use tensor::philox;

use crate::Error;
use crate::error::InvalidField;

/// The most probable tokens that a request may have reported at each place.
pub const MAX_LOGPROBS: usize = 256;
/// The most tokens that a request may bias.
pub const MAX_LOGIT_BIAS: usize = 4096;

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
        number(
            finite(self.repetition_penalty) && self.repetition_penalty > 0.0,
            "repetition_penalty",
            self.repetition_penalty,
            "give a positive number; 1 is none",
        );
        let any = "give a finite number; 0 is none";
        number(finite(self.frequency_penalty), "frequency_penalty", self.frequency_penalty, any);
        number(finite(self.presence_penalty), "presence_penalty", self.presence_penalty, any);
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
            check(finite(bias), "logit_bias", entry(), "give a finite number".into());
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

    /// Whether the tokens so far make a difference: [`Row::history`] may be empty otherwise.
    pub fn uses_history(&self) -> bool {
        self.repetition_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }
}

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

/// Chooses tokens. Holds buffers only, so that one serves any number of sequences.
#[derive(Debug, Default)]
pub struct Sampler {
    adjusted: Vec<f32>,
    candidates: Vec<Candidate>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    token: u32,
    logit: f32,
}

/// How many candidates are sorted at first when only probabilities limit them.
const FIRST_LOOK: usize = 256;

impl Sampler {
    /// Chooses one row's token.
    ///
    /// # Errors
    /// [`Error::NoCandidate`] when every logit is NaN, -inf, or forbidden.
    pub fn sample(&mut self, row: &Row<'_>) -> Result<Sampled, Error> {
        let token = match adjust(row, &mut self.adjusted) {
            true => choose(&self.adjusted, row, &mut self.candidates),
            false => choose(row.logits, row, &mut self.candidates),
        };
        let token = token.ok_or(Error::NoCandidate { vocab_size: row.logits.len() })?;
        let logprobs = row.params.logprobs.map(|top| Logprobs::of(row.logits, token, top));
        Ok(Sampled { token, logprobs })
    }
}

/// Writes the logits after penalties, bias and mask; `false` if they are as they were.
fn adjust(row: &Row<'_>, adjusted: &mut Vec<f32>) -> bool {
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
    let scaled = match logit > 0.0 {
        true => logit / params.repetition_penalty,
        false => logit * params.repetition_penalty,
    };
    let present = if generated > 0 { params.presence_penalty } else { 0.0 };
    scaled - params.frequency_penalty * generated as f32 - present
}

fn choose(logits: &[f32], row: &Row<'_>, candidates: &mut Vec<Candidate>) -> Option<u32> {
    let params = row.params;
    if params.temperature <= 0.0 || params.top_k == Some(1) {
        return greedy(logits);
    }
    let highest = finite(maximum(logits));
    if highest == f32::NEG_INFINITY {
        return None;
    }
    // So that no distance from the highest becomes NaN, however cold.
    let scale = Scale { highest, inverse_temperature: (1.0 / params.temperature).min(f32::MAX) };
    let draw = philox::uniform(params.seed, row.position);
    let limit = params.top_k.unwrap_or(logits.len()).min(logits.len());
    let kept = match (limit < logits.len(), params.top_p < 1.0, params.min_p > 0.0) {
        (false, false, false) => {
            let total = mass(logits, &scale);
            let all = logits.iter().enumerate().map(|(token, &logit)| (token as u32, scale.weight(logit)));
            return pick(all, draw * total);
        }
        (false, false, true) => select_above(logits, &scale, params.min_p, candidates),
        (false, true, _) => look_further(logits, &scale, params, candidates),
        (true, ..) => {
            select_top(logits, limit, candidates);
            let total = candidates.iter().map(|c| f64::from(scale.weight(c.logit))).sum();
            nucleus(candidates, total, &scale, params).0
        }
    };
    let kept = candidates[..kept].iter().map(|c| (c.token, scale.weight(c.logit)));
    let total: f64 = kept.clone().map(|(_, weight)| f64::from(weight)).sum();
    pick(kept, draw * total)
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

/// The candidates that min-p alone keeps, in the vocabulary's order; returns how many.
fn select_above(logits: &[f32], scale: &Scale, min_p: f32, candidates: &mut Vec<Candidate>) -> usize {
    candidates.clear();
    for (index, chunk) in logits.chunks(CHUNK).enumerate() {
        if scale.weight(maximum(chunk)) >= min_p {
            let first = (index * CHUNK) as u32;
            let found = chunk.iter().zip(first..).filter(|&(&logit, _)| scale.weight(logit) >= min_p);
            candidates.extend(found.map(|(&logit, token)| Candidate { token, logit }));
        }
    }
    candidates.len()
}

/// Sorts as many candidates as it takes to find where top-p or min-p cuts; returns how many are kept.
fn look_further(
    logits: &[f32],
    scale: &Scale,
    params: &SamplingParams,
    candidates: &mut Vec<Candidate>,
) -> usize {
    let total = mass(logits, scale);
    let mut look = FIRST_LOOK;
    loop {
        select_top(logits, look.min(logits.len()), candidates);
        let (kept, cut) = nucleus(candidates, total, scale, params);
        if cut || look >= logits.len() {
            return kept;
        }
        look *= 8;
    }
}

/// How many of the sorted candidates top-p and min-p keep (at least one), and whether either cut here.
fn nucleus(candidates: &[Candidate], total: f64, scale: &Scale, params: &SamplingParams) -> (usize, bool) {
    let enough = f64::from(params.top_p) * total;
    let mut sum = 0.0;
    for (index, candidate) in candidates.iter().enumerate() {
        let weight = scale.weight(candidate.logit);
        // The best candidate's weight is 1.
        if index > 0 && weight < params.min_p {
            return (index, true);
        }
        sum += f64::from(weight);
        if params.top_p < 1.0 && sum >= enough {
            return (index + 1, true);
        }
    }
    (candidates.len(), false)
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

/// From logits to weights: `exp((logit - highest) / temperature)`.
struct Scale {
    highest: f32,
    inverse_temperature: f32,
}

impl Scale {
    #[inline(always)]
    fn weight(&self, logit: f32) -> f32 {
        exp_nonpositive((finite(logit) - self.highest) * self.inverse_temperature)
    }
}

/// The numbers looked at together; a multiple of any vector register's.
const CHUNK: usize = 64;

/// The `count` highest logits, best first, of equals the first; NaN and -inf are never among them.
fn select_top(logits: &[f32], count: usize, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    if count == 0 {
        return;
    }
    let better = |a: &Candidate, b: &Candidate| {
        b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.token.cmp(&b.token))
    };
    let mut threshold = f32::NEG_INFINITY;
    for (index, chunk) in logits.chunks(CHUNK).enumerate() {
        if maximum(chunk) > threshold {
            let first = (index * CHUNK) as u32;
            let found = chunk.iter().zip(first..).filter(|&(&logit, _)| logit > threshold);
            candidates.extend(found.map(|(&logit, token)| Candidate { token, logit }));
            // Later equals of the worst candidate lose to it, so the comparison above may be strict.
            if candidates.len() >= 2 * count + CHUNK {
                candidates.select_nth_unstable_by(count - 1, better);
                candidates.truncate(count);
                threshold = candidates[count - 1].logit;
            }
        }
    }
    if candidates.len() > count {
        candidates.select_nth_unstable_by(count - 1, better);
        candidates.truncate(count);
    }
    candidates.sort_unstable_by(better);
}

/// The highest number; NaN counts as -inf.
fn maximum(numbers: &[f32]) -> f32 {
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let (lanes, rest) = numbers.as_chunks::<16>();
    let mut highest = [f32::NEG_INFINITY; 16];
    for lane in lanes {
        for (highest, &number) in highest.iter_mut().zip(lane) {
            *highest = higher(*highest, number);
        }
    }
    highest.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, higher)
}

/// The sum of all weights, in an order that only the length decides: sixteen partial sums per block in single
/// precision, blocks in double.
fn mass(logits: &[f32], scale: &Scale) -> f64 {
    let mut total = 0.0;
    for block in logits.chunks(512) {
        let (lanes, rest) = block.as_chunks::<16>();
        let mut sums = [0.0f32; 16];
        for lane in lanes {
            for (sum, &logit) in sums.iter_mut().zip(lane) {
                *sum += scale.weight(logit);
            }
        }
        total += sums.iter().map(|&sum| f64::from(sum)).sum::<f64>();
        total += rest.iter().map(|&logit| f64::from(scale.weight(logit))).sum::<f64>();
    }
    total
}

/// The logit, or the highest number in place of +inf. NaN stays.
fn finite(logit: f32) -> f32 {
    if logit > f32::MAX { f32::MAX } else { logit }
}

/// `exp(x)` for `x <= 0`, with NaN as -inf; below `exp(-87)` it is 0. Relative error under 2e-7.
///
/// A polynomial of our own rather than the system's `exp`, which differs between systems, and so that the compiler
/// can compute many at once. Range reduction and coefficients are those of Cephes' `expf`.
#[inline(always)]
fn exp_nonpositive(x: f32) -> f32 {
    // Adding and taking off 1.5 · 2^23 rounds to an integer, which is left in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = if x > -87.0 { x } else { -87.0 };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + coefficient;
    }
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x > -87.0 { (p * r * r + r + 1.0) * power } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params(edit: impl FnOnce(&mut SamplingParams)) -> SamplingParams {
        let mut params = SamplingParams { temperature: 1.0, ..Default::default() };
        edit(&mut params);
        params
    }

    fn sample(logits: &[f32], params: &SamplingParams, history: &TokenCounts, position: u64) -> u32 {
        let row = Row { logits, params, history, position, allowed: None, forbidden: &[] };
        Sampler::default().sample(&row).unwrap().token
    }

    /// How often each token comes in `draws` draws.
    fn shares(logits: &[f32], params: &SamplingParams, draws: u64) -> Vec<f64> {
        let mut counts = vec![0u32; logits.len()];
        for position in 0..draws {
            counts[sample(logits, params, &TokenCounts::default(), position) as usize] += 1;
        }
        counts.into_iter().map(|count| f64::from(count) / draws as f64).collect()
    }

    fn noise(len: usize, seed: u64) -> Vec<f32> {
        (0..len as u64).map(|i| (philox::uniform(seed, i) * 16.0 - 8.0) as f32).collect()
    }

    #[test]
    fn greedy_takes_the_first_of_the_best() {
        let greedy = SamplingParams::default();
        let check = |logits: &[f32], expected| {
            assert_eq!(sample(logits, &greedy, &TokenCounts::default(), 0), expected, "{logits:?}");
        };
        check(&[1.0, 3.0, 3.0, 2.0], 1);
        check(&[-0.0, 0.0], 0);
        check(&[f32::NAN, -5.0, f32::NAN], 1);
        check(&[f32::NEG_INFINITY, f32::INFINITY, f32::MAX], 1);
        let mut long = vec![0.0; 1000];
        (long[700], long[130]) = (9.0, 9.0);
        check(&long, 130);
    }

    #[test]
    fn no_candidate_is_an_error() {
        let never = [f32::NAN, f32::NEG_INFINITY];
        let edits: [fn(&mut SamplingParams); 4] =
            [|p| p.temperature = 0.0, |_| {}, |p| p.top_k = Some(2), |p| p.top_p = 0.5];
        for edit in edits {
            for logits in [&never[..], &[]] {
                let row = Row {
                    logits,
                    params: &params(edit),
                    history: &TokenCounts::default(),
                    position: 0,
                    allowed: None,
                    forbidden: &[],
                };
                let error = Sampler::default().sample(&row).unwrap_err();
                assert!(matches!(error, Error::NoCandidate { vocab_size } if vocab_size == logits.len()));
            }
        }
    }

    #[test]
    fn strange_logits_are_survived() {
        let logits = [f32::NAN, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN];
        let edits: [fn(&mut SamplingParams); 5] = [
            |_| {},
            |p| p.top_k = Some(3),
            |p| p.top_p = 0.9,
            |p| p.temperature = 1e-45,
            |p| p.temperature = f32::MAX,
        ];
        for edit in edits {
            for position in 0..50 {
                let token = sample(&logits, &params(edit), &TokenCounts::default(), position);
                assert!(![0, 3].contains(&token), "chose {token}, whose logit is {}", logits[token as usize]);
            }
        }
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln()];
        let check = |edit: fn(&mut SamplingParams), expected: [f64; 3]| {
            let shares = shares(&logits, &params(edit), 20_000);
            for (share, expected) in shares.iter().zip(expected) {
                assert!((share - expected).abs() < 0.015, "{shares:?} is not {expected:?}");
            }
        };
        check(|_| {}, [0.5, 0.3, 0.2]);
        check(|p| p.seed = 99, [0.5, 0.3, 0.2]);
        check(|p| p.temperature = 0.5, [0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38]);
        check(|p| p.top_k = Some(2), [0.625, 0.375, 0.0]);
        check(|p| p.top_p = 0.7, [0.625, 0.375, 0.0]);
        check(|p| p.top_p = 0.4, [1.0, 0.0, 0.0]);
        check(|p| p.min_p = 0.5, [0.625, 0.375, 0.0]);
        // Of the two that top-k leaves, the first has 0.625, which is enough for top-p.
        check(|p| (p.top_k, p.top_p) = (Some(2), 0.6), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn draws_depend_on_seed_and_position_alone() {
        let logits = noise(1000, 1);
        let tokens = |seed: u64| -> Vec<u32> {
            let params = params(|p| p.seed = seed);
            (0..20).map(|position| sample(&logits, &params, &TokenCounts::default(), position)).collect()
        };
        assert_eq!(tokens(1), tokens(1));
        assert_ne!(tokens(1), tokens(2));
        let mut shared = Sampler::default();
        let (one, other) = (params(|p| p.seed = 1), params(|p| (p.seed, p.top_k) = (2, Some(5))));
        let history = TokenCounts::default();
        let in_company: Vec<u32> = (0..20)
            .map(|position| {
                shared
                    .sample(&Row {
                        logits: &logits,
                        params: &other,
                        history: &history,
                        position,
                        allowed: None,
                        forbidden: &[],
                    })
                    .unwrap();
                let row = Row {
                    logits: &logits,
                    params: &one,
                    history: &history,
                    position,
                    allowed: None,
                    forbidden: &[],
                };
                shared.sample(&row).unwrap().token
            })
            .collect();
        assert_eq!(in_company, tokens(1));
    }

    #[test]
    fn penalties_bias_and_mask() {
        let mut history = TokenCounts::new(&[0]);
        let row = |logits: &[f32], edit: fn(&mut SamplingParams), history: &TokenCounts| {
            let params = params(|p| {
                p.temperature = 0.0;
                edit(p);
            });
            let mut adjusted = Vec::new();
            adjust(
                &Row {
                    logits,
                    params: &params,
                    history,
                    position: 0,
                    allowed: Some(&[0b1011]),
                    forbidden: &[],
                },
                &mut adjusted,
            );
            adjusted
        };
        let inf = f32::NEG_INFINITY;
        let logits = [2.0, -2.0, 5.0, 1.0];
        assert_eq!(row(&logits, |p| p.repetition_penalty = 2.0, &history), [1.0, -2.0, inf, 1.0]);
        assert_eq!(row(&logits, |p| p.frequency_penalty = 1.0, &history), [2.0, -2.0, inf, 1.0]);
        [1, 1, 3, 777].into_iter().for_each(|token| history.push(token));
        assert_eq!(row(&logits, |p| p.repetition_penalty = 2.0, &history), [1.0, -4.0, inf, 0.5]);
        assert_eq!(row(&logits, |p| p.frequency_penalty = 0.5, &history), [2.0, -3.0, inf, 0.5]);
        assert_eq!(row(&logits, |p| p.presence_penalty = 0.5, &history), [2.0, -2.5, inf, 0.5]);
        let bias = |p: &mut SamplingParams| p.logit_bias = [(1, 10.0), (2, 100.0), (9, 1.0)].into();
        assert_eq!(row(&logits, bias, &history), [2.0, 8.0, inf, 1.0]);
    }

    #[test]
    fn wrong_parameters_are_all_named() {
        let params = SamplingParams {
            temperature: -1.0,
            top_k: Some(0),
            top_p: 0.0,
            min_p: f32::NAN,
            repetition_penalty: 0.0,
            frequency_penalty: f32::INFINITY,
            presence_penalty: f32::NAN,
            logit_bias: [(7, 1.0), (3, f32::NAN)].into(),
            ..Default::default()
        };
        let message = params.validate(5).unwrap_err().to_string();
        for part in [
            "temperature is -1: give 0 for greedy, or a positive number",
            "top_k is 0: give at least 1",
            "top_p is 0: ",
            "min_p is NaN: ",
            "repetition_penalty is 0: ",
            "frequency_penalty is inf: ",
            "presence_penalty is NaN: ",
            "logit_bias is {7: 1}: give a token below 5",
            "logit_bias is {3: NaN}: give a finite number",
        ] {
            assert!(message.contains(part), "{message:?} should say {part:?}");
        }
        SamplingParams::default().validate(5).unwrap();
    }

    #[test]
    fn logprobs_are_of_the_models_own_logits() {
        let logits = [1.0f32, 2.0, f32::NAN, 0.0];
        let sum: f32 = [1.0f32, 2.0, 0.0].iter().map(|logit| logit.exp()).sum();
        let history = TokenCounts::default();
        let params = params(|p| (p.logit_bias, p.logprobs) = ([(3, 1000.0)].into(), Some(2)));
        let row = Row {
            logits: &logits,
            params: &params,
            history: &history,
            position: 0,
            allowed: None,
            forbidden: &[],
        };
        let Sampled { token, logprobs: Some(logprobs) } = Sampler::default().sample(&row).unwrap() else {
            panic!()
        };
        assert_eq!((token, logprobs.top[0].0, logprobs.top[1].0), (3, 1, 0));
        for (got, logit) in [(logprobs.logprob, 0.0), (logprobs.top[0].1, 2.0), (logprobs.top[1].1, 1.0)] {
            assert!((got - (logit - sum.ln())).abs() < 1e-6);
        }
        assert_eq!(Logprobs::of(&logits, 2, 0), Logprobs { logprob: f32::NEG_INFINITY, top: vec![] });
        assert_eq!(Logprobs::of(&logits, 99, 9).top.len(), 3);
        assert_eq!(Logprobs::of(&[f32::NAN], 0, 1).logprob, f32::NEG_INFINITY);
    }

    #[test]
    fn exp_is_close() {
        for i in 0..870_000 {
            let x = -(i as f32) / 10_000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_nonpositive(x)) - exact).abs() / exact;
            assert!(error < 2e-7, "exp({x}) is off by {error:e}");
        }
        assert_eq!(exp_nonpositive(0.0), 1.0);
        assert_eq!([-88.0, f32::NEG_INFINITY, f32::NAN].map(exp_nonpositive), [0.0; 3]);
    }

    proptest! {
        /// Against a full sort, with many equal logits.
        #[test]
        fn selection_is_a_sorts_prefix(seed: u64, len in 0usize..3000, count in 0usize..300, levels in 1u32..500) {
            let logits: Vec<f32> = (0..len as u64)
                .map(|i| match (philox::uniform(seed, i) * f64::from(levels)) as u32 {
                    0 => f32::NAN,
                    1 => f32::NEG_INFINITY,
                    level => level as f32,
                })
                .collect();
            let mut sorted: Vec<u32> = (0..len as u32).filter(|&i| logits[i as usize] > f32::NEG_INFINITY).collect();
            sorted.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
            sorted.truncate(count);
            let mut candidates = Vec::new();
            select_top(&logits, count, &mut candidates);
            prop_assert_eq!(candidates.iter().map(|c| c.token).collect::<Vec<_>>(), sorted);
        }

        /// Looking at a few candidates first finds the cut that sorting all of them finds.
        #[test]
        fn looking_further_finds_the_cut(seed: u64, top_p in 0.05f32..1.0, min_p in 0.0f32..0.1, heat in 0.1f32..10.0) {
            let logits = noise(5000, seed);
            let params = params(|p| (p.top_p, p.min_p) = (top_p, min_p));
            let scale = Scale { highest: maximum(&logits), inverse_temperature: 1.0 / heat };
            let (mut few, mut all) = (Vec::new(), Vec::new());
            let kept = look_further(&logits, &scale, &params, &mut few);
            select_top(&logits, logits.len(), &mut all);
            prop_assert_eq!(kept, nucleus(&all, mass(&logits, &scale), &scale, &params).0);
            prop_assert!(few.iter().zip(&all).take(kept).all(|(few, all)| few.token == all.token));
            let by_min_p = select_above(&logits, &scale, min_p, &mut few);
            prop_assert_eq!(by_min_p, all.iter().filter(|c| scale.weight(c.logit) >= min_p).count());
        }
    }
}
