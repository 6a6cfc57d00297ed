//! A whole answer, and what it took.

use std::time::{Duration, Instant};

use crate::run::generator::{EventKind, FinishReason, TokenLogprobs, Warning};

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Completion {
    /// Its text; with `echo`, the prompt's comes first.
    pub text: String,
    /// Its tokens, without the prompt's and without one that ended it.
    pub tokens: Vec<u32>,
    /// Of each of the tokens, if the request wants them.
    pub logprobs: Vec<TokenLogprobs>,
    /// The prompt's tokens, with `echo` or if the request wants their log-probabilities.
    pub prompt: Vec<PromptToken>,
    /// Why it ended.
    pub reason: FinishReason,
    /// What of the request was not granted.
    pub warnings: Vec<Warning>,
    /// How many tokens it took.
    pub usage: Usage,
    /// How long it took.
    pub timings: Timings,
}

/// A token of a prompt.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PromptToken {
    /// Its id.
    pub token: u32,
    /// The text that is complete with it.
    pub text: String,
    /// If the request wants them; of the first token there are none.
    pub logprobs: Option<TokenLogprobs>,
}

/// Tokens that a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Of the prompt.
    pub prompt_tokens: usize,
    /// Of these, how many the cache held already.
    pub cached_tokens: usize,
    /// Of the answer, without one that ended it.
    pub generated_tokens: usize,
}

/// Times since a request was handed in. Prefill took from `queue` to `first_token`, decoding from there to `total`; the
/// times between tokens are those between values of `last_token`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timings {
    /// Until the step in which it first ran.
    pub queue: Option<Duration>,
    /// Until the first token of the answer, or the end of an answer without any.
    pub first_token: Option<Duration>,
    /// Until the last token of the answer so far.
    pub last_token: Option<Duration>,
    /// Until the end.
    pub total: Option<Duration>,
}

/// Counts and times, gathered event by event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    pub(super) submitted: Instant,
    pub(super) usage: Usage,
    pub(super) timings: Timings,
}

impl Account {
    pub(super) fn new(submitted: Instant, prompt_tokens: usize) -> Account {
        let usage = Usage { prompt_tokens, ..Usage::default() };
        Account { submitted, usage, timings: Timings::default() }
    }

    /// Takes note of an event and when it happened.
    pub(super) fn note(&mut self, at: Instant, event: &EventKind) {
        let elapsed = at.saturating_duration_since(self.submitted);
        match event {
            EventKind::Started { cached_tokens, .. } => {
                self.usage.cached_tokens = *cached_tokens;
                self.timings.queue = Some(elapsed);
            }
            EventKind::Token { .. } => {
                self.usage.generated_tokens += 1;
                self.timings.first_token.get_or_insert(elapsed);
                self.timings.last_token = Some(elapsed);
            }
            EventKind::Finished { .. } | EventKind::Failed(_) => {
                self.timings.first_token.get_or_insert(elapsed);
                self.timings.total = Some(elapsed);
            }
            EventKind::Warning(_) | EventKind::PromptToken { .. } => {}
        }
    }
}

/// An answer that is not whole yet.
#[derive(Debug, Default)]
pub(super) struct Draft {
    echo: bool,
    text: String,
    tokens: Vec<u32>,
    logprobs: Vec<TokenLogprobs>,
    prompt: Vec<PromptToken>,
    warnings: Vec<Warning>,
}

impl Draft {
    pub(super) fn new(echo: bool) -> Draft {
        Draft { echo, ..Draft::default() }
    }

    /// Takes an event; gives the reason if it was the last.
    pub(super) fn take(&mut self, event: EventKind) -> Option<FinishReason> {
        match event {
            EventKind::Warning(warning) => self.warnings.push(warning),
            EventKind::PromptToken { token, text, logprobs } => {
                if self.echo {
                    self.text.push_str(&text);
                }
                self.prompt.push(PromptToken { token, text, logprobs });
            }
            EventKind::Token { token, text, logprobs } => {
                self.tokens.push(token);
                self.text.push_str(&text);
                self.logprobs.extend(logprobs);
            }
            EventKind::Finished { reason, text } => {
                self.text.push_str(&text);
                return Some(reason);
            }
            // A stream gives the error in place of the event.
            EventKind::Started { .. } | EventKind::Failed(_) => {}
        }
        None
    }

    pub(super) fn complete(self, reason: FinishReason, account: &Account) -> Completion {
        let Draft { text, tokens, logprobs, prompt, warnings, .. } = self;
        let Account { usage, timings, .. } = *account;
        Completion { text, tokens, logprobs, prompt, reason, warnings, usage, timings }
    }
}
