//! One answer and its state.

use std::sync::Arc;

use pipelines::{EventKind, FinishReason, Request, TokenLogprob, TokenLogprobs};
use serde::Serialize;

use crate::exit;

/// One answer to a prompt.
pub(super) struct Sample {
    /// The index of the prompt, and of the answer among those to this prompt; from 0.
    pub(super) index: usize,
    pub(super) sample: usize,
    /// The seed that gives this answer alone.
    pub(super) seed: u64,
    pub(super) prompt: String,
    pub(super) prompt_tokens: usize,
    pub(super) text: String,
    pub(super) tokens: Vec<u32>,
    /// Whether it ran.
    pub(super) started: bool,
    pub(super) finished: Option<FinishReason>,
    /// Log-probabilities of the prompt's tokens and of the answer's, if requested.
    prompt_logprobs: Option<Vec<Scored>>,
    logprobs: Option<Vec<Scored>>,
}

/// The object of `--json`.
#[derive(Serialize)]
pub(super) struct Object<'a> {
    index: usize,
    sample: usize,
    prompt: &'a str,
    text: &'a str,
    tokens: &'a [u32],
    prompt_tokens: usize,
    finish_reason: &'static str,
    stop_reason: Option<StopReason<'a>>,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<&'a [Scored]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<&'a [Scored]>,
}

/// The stop string or stop token that ended an answer.
#[derive(Serialize)]
#[serde(untagged)]
enum StopReason<'a> {
    Text(&'a str),
    Token(u32),
}

/// A token with its log-probability and the likeliest tokens at its position. The first token of a prompt has none.
#[derive(Serialize)]
struct Scored {
    token: u32,
    text: String,
    logprob: Option<f32>,
    top: Vec<Candidate>,
}

/// A likely token at a position.
#[derive(Serialize)]
struct Candidate {
    token: u32,
    text: String,
    logprob: f32,
}

impl Sample {
    /// A sample at the start of its request.
    pub(super) fn new((index, sample): (usize, usize), prompt: &str, request: &Request) -> Sample {
        Sample {
            index,
            sample,
            seed: request.seed,
            prompt: prompt.to_string(),
            prompt_tokens: request.prompt.len(),
            text: String::new(),
            tokens: Vec::new(),
            started: false,
            finished: None,
            prompt_logprobs: None,
            logprobs: None,
        }
    }

    /// Handles an event of its sequence.
    pub(super) fn take(&mut self, event: EventKind, quiet: bool) -> anyhow::Result<()> {
        match event {
            EventKind::Token { token, text, logprobs } => {
                self.tokens.push(token);
                self.text.push_str(&text);
                if let Some(logprobs) = logprobs {
                    self.logprobs.get_or_insert_default().push(logprobs.into());
                }
            }
            EventKind::PromptToken { token, text, logprobs } => {
                let first = Scored { token, text, logprob: None, top: Vec::new() };
                self.prompt_logprobs.get_or_insert_default().push(logprobs.map_or(first, Scored::from));
            }
            EventKind::Finished { reason, text } => {
                self.text.push_str(&text);
                self.finished = Some(reason);
            }
            EventKind::Started { .. } => self.started = true,
            EventKind::Failed(error) => {
                // An error that several answers share is known by its words.
                let shared = |error: Arc<_>| anyhow::anyhow!("{error}");
                return Err(Arc::try_unwrap(error).map_or_else(shared, anyhow::Error::from));
            }
            EventKind::Warning(warning) if !quiet => exit::warn(&warning.to_string()),
            _ => {}
        }
        Ok(())
    }

    /// The object of `--json`; `stops` are the stop strings of the request.
    pub(super) fn object<'a>(&'a self, stops: &'a [String]) -> Object<'a> {
        Object {
            index: self.index,
            sample: self.sample,
            prompt: &self.prompt,
            text: &self.text,
            tokens: &self.tokens,
            prompt_tokens: self.prompt_tokens,
            finish_reason: self.finished.map_or("interrupted", FinishReason::name),
            stop_reason: match self.finished {
                Some(FinishReason::StopString(index)) => stops.get(index).map(|stop| StopReason::Text(stop)),
                Some(FinishReason::StopToken(token)) => Some(StopReason::Token(token)),
                _ => None,
            },
            seed: self.seed,
            logprobs: self.logprobs.as_deref(),
            prompt_logprobs: self.prompt_logprobs.as_deref(),
        }
    }
}

impl From<TokenLogprobs> for Scored {
    fn from(TokenLogprobs { chosen, top, .. }: TokenLogprobs) -> Scored {
        let text = chosen.text().into_owned();
        let top = top.into_iter().map(Candidate::from).collect();
        Scored { token: chosen.token, text, logprob: Some(chosen.logprob), top }
    }
}

impl From<TokenLogprob> for Candidate {
    fn from(candidate: TokenLogprob) -> Candidate {
        let text = candidate.text().into_owned();
        Candidate { token: candidate.token, text, logprob: candidate.logprob }
    }
}
