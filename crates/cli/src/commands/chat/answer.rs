//! An answer with its usage and timings.

use std::time::Duration;

use pipelines::{FinishReason, Timings, Usage};
use serde_json::{Value, json};

/// An answer, complete or interrupted.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) text: String,
    /// Why it ended; `None` if interrupted.
    pub(super) reason: Option<FinishReason>,
    pub(super) usage: Usage,
    pub(super) timings: Timings,
    /// The time until it ended or was interrupted.
    pub(super) total: Duration,
    pub(super) seed: u64,
}

/// The sums of all answers.
#[derive(Debug, Default)]
pub(super) struct Totals {
    answers: usize,
    prompt_tokens: usize,
    cached_tokens: usize,
    generated_tokens: usize,
    total: Duration,
}

impl Answer {
    /// Tokens per second after the first.
    pub(super) fn rate(&self) -> Option<f64> {
        rate(&self.usage, self.total.checked_sub(self.timings.first_token?)?)
    }

    /// The object of `--json`.
    pub(super) fn json(&self, index: usize) -> Value {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let Usage { prompt_tokens, cached_tokens, generated_tokens, .. } = self.usage;
        json!({
            "index": index,
            "text": self.text,
            "finish_reason": self.reason.map_or("interrupted", FinishReason::name),
            "usage": {
                "prompt_tokens": prompt_tokens,
                "cached_tokens": cached_tokens,
                "generated_tokens": generated_tokens,
            },
            "timings": {
                "queue_ms": self.timings.queue.map(milliseconds),
                "first_token_ms": self.timings.first_token.map(milliseconds),
                "total_ms": milliseconds(self.total),
                "tokens_per_second": self.rate(),
            },
            "seed": self.seed,
        })
    }

    /// The line below an answer, with the seed if it matters.
    pub(super) fn line(&self, sampled: bool) -> String {
        let Usage { prompt_tokens, cached_tokens, generated_tokens, .. } = self.usage;
        let mut facts = vec![format!("prompt {prompt_tokens} tokens, {cached_tokens} cached")];
        if let Some(first) = self.timings.first_token {
            facts.push(format!("first token {:.1} ms", first.as_secs_f64() * 1e3));
        }
        let rate = self.rate().map_or_else(String::new, |rate| format!(", {rate:.1} tok/s"));
        facts.push(format!("answer {generated_tokens} tokens{rate}"));
        if sampled {
            facts.push(format!("seed {}", self.seed));
        }
        if self.reason.is_none() {
            facts.push("stopped".into());
        }
        format!("[{}]", facts.join(" | "))
    }
}

impl Totals {
    /// Adds an answer, kept or replaced.
    pub(super) fn count(&mut self, answer: &Answer) {
        self.answers += 1;
        self.prompt_tokens += answer.usage.prompt_tokens;
        self.cached_tokens += answer.usage.cached_tokens;
        self.generated_tokens += answer.usage.generated_tokens;
        self.total += answer.total;
    }

    /// The lines of `/stats`.
    pub(super) fn lines(&self) -> String {
        format!(
            "answers        {}, {} tokens in {:.1} s\nprompts        {} tokens, {} of them from the cache",
            self.answers,
            self.generated_tokens,
            self.total.as_secs_f64(),
            self.prompt_tokens,
            self.cached_tokens,
        )
    }
}

/// Tokens per second after the first.
pub(super) fn rate(usage: &Usage, since_first: Duration) -> Option<f64> {
    let after_first = usage.generated_tokens.checked_sub(1)?;
    (after_first > 0 && !since_first.is_zero()).then(|| after_first as f64 / since_first.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(generated_tokens: usize) -> Answer {
        let milliseconds = |number| Some(Duration::from_millis(number));
        let (mut usage, mut timings) = (Usage::default(), Timings::default());
        (usage.prompt_tokens, usage.cached_tokens, usage.generated_tokens) = (20, 16, generated_tokens);
        (timings.queue, timings.first_token, timings.total) =
            (milliseconds(1), milliseconds(50), milliseconds(550));
        Answer {
            text: "Hi".into(),
            reason: Some(FinishReason::Stop),
            usage,
            timings,
            total: Duration::from_millis(550),
            seed: 7,
        }
    }

    #[test]
    fn answers_say_what_they_took() {
        assert_eq!(
            answer(11).line(true),
            "[prompt 20 tokens, 16 cached | first token 50.0 ms | answer 11 tokens, 20.0 tok/s | seed 7]"
        );
        let stopped = Answer { reason: None, ..answer(1) };
        assert_eq!(
            stopped.line(false),
            "[prompt 20 tokens, 16 cached | first token 50.0 ms | answer 1 tokens | stopped]"
        );
        assert_eq!(
            (answer(0).rate(), stopped.json(3)["finish_reason"].as_str()),
            (None, Some("interrupted"))
        );
        let json = answer(11).json(3);
        assert_eq!((&json["index"], &json["usage"]["cached_tokens"]), (&json!(3), &json!(16)));
        assert_eq!((&json["timings"]["tokens_per_second"], &json["seed"]), (&json!(20.0), &json!(7)));
    }

    #[test]
    fn totals_add_up() {
        let mut totals = Totals::default();
        totals.count(&answer(11));
        totals.count(&answer(4));
        assert_eq!(
            totals.lines(),
            "answers        2, 15 tokens in 1.1 s\nprompts        40 tokens, 32 of them from the cache"
        );
    }
}
