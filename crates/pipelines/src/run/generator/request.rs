//! What is asked for: a prompt, how its tokens are chosen, and when to stop.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tensor::philox;
use text::Constraint;

use crate::Error;
use crate::error::InvalidField;
use crate::run::generator::ReasoningBudget;
use crate::sampling::{LogprobsMode, SamplingOptions, SamplingParams};

/// Changes logits: it gets the tokens of the answer so far, and `f32[vocab]` for the next one. The log-probabilities that
/// a request wants are those of the model, before this. Called on the thread of the worker, which waits for it. An error
/// ends the request.
#[derive(Clone)]
pub struct LogitsProcessor(Arc<ProcessLogits>);

type ProcessLogits = dyn Fn(&[u32], &mut [f32]) -> Result<(), Box<dyn StdError + Send + Sync>> + Send + Sync;

/// What is wanted of a prompt.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The tokens to continue; at least one.
    pub prompt: Vec<u32>,
    /// How many of the last tokens of `prompt` are the beginning of the answer, made before, perhaps on another machine. The
    /// answer goes on exactly as it would have there: they count for penalties, `min_new_tokens` and `max_new_tokens`, stop
    /// strings and the constraint include them, and they are not echoed.
    pub generated: usize,
    /// How tokens are chosen. Values that are `None` are as in [`Plan::sampling_defaults`](crate::Plan::sampling_defaults).
    pub sampling: SamplingOptions,
    /// Where the random numbers come from: [`SamplingParams::seed`]. [`random_seed`](crate::random_seed) draws one.
    pub seed: u64,
    /// Added to the logits of these tokens: [`SamplingParams::logit_bias`].
    pub logit_bias: BTreeMap<u32, f32>,
    /// The only tokens that can be chosen; `None`: all. If a constraint leaves one continuation, that comes in any case.
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Sequences of tokens that the answer does not have: the last token of each cannot be chosen behind the others.
    pub bad_words: Vec<Vec<u32>>,
    /// Whether to report log-probabilities of the answer's tokens, and of this many of the most probable in their place.
    pub logprobs: Option<usize>,
    /// Which probabilities `logprobs` reports; those of the prompt are always the model's own.
    pub logprobs_mode: LogprobsMode,
    /// The most tokens to make: 0 only reads the prompt, `usize::MAX` goes on until the model ends its text or
    /// `max_length` is reached. `None` is `max_new_tokens` of the configuration.
    pub max_new_tokens: Option<usize>,
    /// Until this many tokens are made, end-of-sequence tokens and those of `stop_token_ids` cannot be chosen, and
    /// stop strings are not looked for.
    pub min_new_tokens: usize,
    /// Whether the model's end-of-sequence tokens are tokens like any other.
    pub ignore_eos: bool,
    /// Whether special tokens that the model makes are part of the text.
    pub show_special_tokens: bool,
    /// Special tokens that are part of the text in any case, such as those of
    /// [`AnswerFormat::special_tokens`](crate::AnswerFormat::special_tokens).
    pub shown_special_tokens: Vec<u32>,
    /// Texts at whose first occurrence in the answer it ends; they are not part of it.
    pub stop: Vec<String>,
    /// Tokens that end the answer, and are not part of it.
    pub stop_token_ids: Vec<u32>,
    /// The form that the answer must have. It ends where its form is complete, whatever `min_new_tokens` and `ignore_eos`
    /// ask for, and is cut off at `max_new_tokens`, at a stop string, or at one of `stop_token_ids` where it may end.
    pub constraint: Option<Constraint>,
    /// Changes the logits of each token of the answer before it is chosen.
    pub logits_processor: Option<LogitsProcessor>,
    /// How long the model may reason before it answers; `None`: as long as it does.
    pub reasoning: Option<ReasoningBudget>,
    /// Whether the prompt's tokens and text come before the answer's.
    pub echo: bool,
    /// Whether to report log-probabilities of the prompt's tokens, and of this many of the most probable in their
    /// place. With `echo`, `logprobs` asks for them too.
    pub prompt_logprobs: Option<usize>,
    /// With prefix caching, pages are shared only with requests of the same salt.
    pub cache_salt: Option<String>,
    /// Whom the request is from: tenants take turns, and each has a bounded share of the queue. When the cache is full, the
    /// tenant with most of its pages gives up cached ones.
    pub tenant: Option<String>,
    /// Of the requests of a tenant that wait, the one with the lowest number starts first, but none is passed by more than
    /// [`MAX_PASSES`](crate::MAX_PASSES) that came later.
    pub priority: i32,
    /// How long a [`TextGenerator`](crate::TextGenerator) lets the request wait for its start:
    /// [`Error::QueueTimeout`](crate::Error::QueueTimeout).
    pub queue_timeout: Option<Duration>,
    /// How long it may take in all, from when it is handed in: [`Error::Timeout`](crate::Error::Timeout). A step that
    /// runs is not cut short.
    pub timeout: Option<Duration>,
}

/// The most answers to one prompt that [`Request::samples`] makes.
pub const MAX_SAMPLES: usize = 128;
/// The most stop strings of a request.
pub const MAX_STOPS: usize = 256;
/// The most bytes of a request's stop strings together.
pub const MAX_STOP_BYTES: usize = 1 << 16;
/// The most tokens of a request's bad words together.
pub const MAX_BAD_TOKENS: usize = 1 << 14;
/// The most stop tokens of a request.
pub const MAX_STOP_TOKENS: usize = 4096;

impl Request {
    /// Checks every field against its range.
    ///
    /// # Errors
    /// All the fields that are wrong, each with its value and what to give instead.
    pub fn validate(&self, vocab_size: usize) -> Result<(), Error> {
        let mut wrong = self.params(SamplingOptions::default()).problems(vocab_size);
        let mut check = |good: bool, field, value: String, fix: String| {
            if !good {
                wrong.push(InvalidField { field, value, fix });
            }
        };
        let (count, bytes) = (self.stop.len(), self.stop.iter().map(String::len).sum::<usize>());
        check(
            count <= MAX_STOPS && bytes <= MAX_STOP_BYTES,
            "stop",
            format!("{count} strings of {bytes} bytes"),
            format!("give at most {MAX_STOPS} strings, and {MAX_STOP_BYTES} bytes together"),
        );
        let empty = self.stop.iter().any(String::is_empty);
        check(!empty, "stop", "\"\"".into(), "give strings that are not empty".into());
        let count = self.stop_token_ids.len();
        check(
            count <= MAX_STOP_TOKENS,
            "stop_token_ids",
            format!("{count} tokens"),
            format!("give at most {MAX_STOP_TOKENS}"),
        );
        let unknown = self.stop_token_ids.iter().find(|&&token| token as usize >= vocab_size);
        check(
            unknown.is_none(),
            "stop_token_ids",
            unknown.map_or_else(String::new, u32::to_string),
            format!("give tokens below {vocab_size}, the vocabulary's size"),
        );
        let allowed = self.allowed_token_ids.as_deref();
        check(
            allowed.is_none_or(|tokens| !tokens.is_empty()),
            "allowed_token_ids",
            "empty".to_string(),
            "give at least one token".to_string(),
        );
        let (count, words) = (self.bad_words.iter().map(Vec::len).sum::<usize>(), &self.bad_words);
        check(
            count <= MAX_BAD_TOKENS && words.iter().all(|word| !word.is_empty()),
            "bad_words",
            format!("{} words of {count} tokens", words.len()),
            format!("give at most {MAX_BAD_TOKENS} tokens together, and no word without tokens"),
        );
        for (field, mut tokens) in [
            ("allowed_token_ids", allowed.into_iter().flatten().collect::<Vec<_>>()),
            ("bad_words", words.iter().flatten().collect()),
        ] {
            tokens.retain(|&&token| token as usize >= vocab_size);
            check(
                tokens.is_empty(),
                field,
                tokens.first().map_or_else(String::new, ToString::to_string),
                format!("give tokens below {vocab_size}, the vocabulary's size"),
            );
        }
        let most = self.max_new_tokens.unwrap_or(usize::MAX);
        check(
            self.min_new_tokens <= most,
            "min_new_tokens",
            self.min_new_tokens.to_string(),
            format!("give at most max_new_tokens, which is {most}"),
        );
        let fewer = self.prompt.len().saturating_sub(1).min(most);
        check(
            self.generated <= fewer,
            "generated",
            self.generated.to_string(),
            format!(
                "give at most {fewer}: fewer tokens than the prompt has, and no more than max_new_tokens"
            ),
        );
        wrong.extend(
            self.prompt_logprobs.and_then(|count| SamplingParams::logprobs_problem("prompt_logprobs", count)),
        );
        if wrong.is_empty() { Ok(()) } else { Err(Error::Request(wrong)) }
    }

    /// Tokens of the prompt, without those of the answer's beginning.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt.len().saturating_sub(self.generated)
    }

    /// The log-probabilities wanted of the prompt: how many of the most probable tokens for each.
    pub fn scores(&self) -> Option<usize> {
        self.prompt_logprobs.or(if self.echo { self.logprobs } else { None })
    }

    /// How its tokens are chosen; `defaults` say what it leaves open.
    pub fn params(&self, defaults: SamplingOptions) -> SamplingParams {
        SamplingParams {
            seed: self.seed,
            logit_bias: self.logit_bias.clone(),
            logprobs: self.logprobs,
            logprobs_mode: self.logprobs_mode,
            ..self.sampling.or(defaults).params()
        }
    }

    /// This request `count` times, for several answers to one prompt. The first has the request's own seed, and so
    /// the answer that it would get alone; the seeds of the others are derived from it.
    ///
    /// # Errors
    /// If `count` is 0 or more than [`MAX_SAMPLES`].
    pub fn samples(&self, count: usize) -> Result<Vec<Request>, Error> {
        if !(1..=MAX_SAMPLES).contains(&count) {
            let fix = format!("give 1 to {MAX_SAMPLES}");
            return Err(Error::Request(vec![InvalidField { field: "n", value: count.to_string(), fix }]));
        }
        let sample = |index| Request { seed: derived_seed(self.seed, index), ..self.clone() };
        Ok((0..count as u32).map(sample).collect())
    }
}

impl LogitsProcessor {
    /// A processor that calls `process`.
    pub fn new(
        process: impl Fn(&[u32], &mut [f32]) -> Result<(), Box<dyn StdError + Send + Sync>>
        + Send
        + Sync
        + 'static,
    ) -> LogitsProcessor {
        LogitsProcessor(Arc::new(process))
    }

    /// A changed copy of the logits.
    ///
    /// # Errors
    /// [`Error::LogitsProcessor`] with the error of `process`.
    pub(super) fn apply(&self, generated: &[u32], logits: &[f32]) -> Result<Vec<f32>, Error> {
        let mut changed = logits.to_vec();
        (self.0)(generated, &mut changed).map_err(Error::LogitsProcessor)?;
        Ok(changed)
    }
}

impl fmt::Debug for LogitsProcessor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogitsProcessor")
    }
}

/// A random seed for a request without one, short enough to retype. Callers should say which it was.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id()) >> 32
}

/// The seed of one of several answers. Counters of this form are never those of a draw, whose third word is 0.
fn derived_seed(seed: u64, index: u32) -> u64 {
    if index == 0 {
        return seed;
    }
    let [low, high, ..] = philox::philox4x32([index, 0, 1, 0], [seed as u32, (seed >> 32) as u32]);
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(edit: impl FnOnce(&mut Request)) -> String {
        let mut request = Request::default();
        edit(&mut request);
        request.validate(100).err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn hostile_sizes_are_refused() {
        assert_eq!(problems(|_| ()), "");
        assert_eq!(
            problems(|r| r.stop = vec!["x".into(); 100_000]),
            "request: stop is 100000 strings of 100000 bytes: give at most 256 strings, and 65536 bytes together"
        );
        assert!(problems(|r| r.stop = vec!["x".repeat(70_000)]).contains("65536 bytes"));
        assert!(problems(|r| r.stop = vec!["a".into(), String::new()]).contains("not empty"));
        assert!(problems(|r| r.stop_token_ids = vec![5; 5000]).contains("at most 4096"));
        let allowed = |tokens: Vec<u32>| problems(|r| r.allowed_token_ids = Some(tokens));
        assert!(allowed(vec![5]).is_empty() && allowed(vec![]).contains("is empty: give at least one token"));
        assert!(allowed(vec![5, 100]).contains("allowed_token_ids is 100: give tokens below 100"));
        assert!(problems(|r| r.bad_words = vec![vec![5], vec![]]).contains("no word without tokens"));
        assert!(
            problems(|r| r.bad_words = vec![vec![5, 100]]).contains("bad_words is 100: give tokens below")
        );
        assert!(problems(|r| r.bad_words = vec![vec![5; 20_000]]).contains("at most 16384 tokens"));
        assert!(
            problems(|r| r.stop_token_ids = vec![5, 100])
                .contains("stop_token_ids is 100: give tokens below 100")
        );
        assert!(
            problems(|r| r.prompt_logprobs = Some(1_000_000))
                .contains("prompt_logprobs is 1000000: give at most")
        );
        assert!(problems(|r| r.logprobs = Some(1_000_000)).contains("logprobs is 1000000: give at most"));
        assert!(
            problems(|r| r.logit_bias = (0..100_000).map(|t| (t, 1.0)).collect()).contains("100000 tokens")
        );
    }

    #[test]
    fn answers_go_on_after_a_prompt_and_within_their_limit() {
        let with = |generated, most| {
            problems(|r| (r.prompt, r.generated, r.max_new_tokens) = (vec![1, 2, 3], generated, most))
        };
        assert_eq!(with(2, Some(2)), "");
        assert!(with(3, None).contains("generated is 3: give at most 2"));
        assert!(with(2, Some(1)).contains("generated is 2: give at most 1"));
    }

    #[test]
    fn all_problems_come_at_once() {
        let text = problems(|r| {
            (r.min_new_tokens, r.max_new_tokens) = (5, Some(4));
            r.sampling.temperature = Some(f32::NAN);
            r.stop = vec![String::new()];
        });
        for field in ["temperature", "stop", "min_new_tokens is 5: give at most max_new_tokens, which is 4"] {
            assert!(text.contains(field), "{text}");
        }
    }

    #[test]
    fn random_seeds_differ_and_are_short() {
        let seeds: std::collections::HashSet<u64> = (0..100).map(|_| random_seed()).collect();
        assert!(seeds.len() > 98 && seeds.iter().all(|&seed| seed <= u64::from(u32::MAX)));
    }

    #[test]
    fn samples_differ_in_their_seeds_alone() {
        let mut request = Request { prompt: vec![1, 2], ..Request::default() };
        request.seed = 7;
        let samples = request.samples(100).unwrap();
        let seeds: std::collections::HashSet<u64> = samples.iter().map(|r| r.seed).collect();
        assert!(seeds.len() == 100 && samples[0].seed == 7 && samples[99].prompt == [1, 2]);
        assert_eq!(request.samples(3).unwrap()[2].seed, samples[2].seed);
        assert!(request.samples(0).is_err() && request.samples(1_000_000).is_err());
    }
}
