//! One answer that is asked for, and what becomes of it.

use pipelines::{EventKind, FinishReason, Request, SequenceId, TokenLogprob, TokenLogprobs};
use serde::Serialize;

use crate::exit;

/// One answer to a prompt.
pub(super) struct Job {
    /// Its sequence.
    pub(super) id: SequenceId,
    /// Which of the prompts it is to, and which answer of several to that one; from 0.
    pub(super) index: usize,
    pub(super) sample: usize,
    /// With this seed it would be the only answer.
    pub(super) seed: u64,
    pub(super) prompt: String,
    pub(super) prompt_tokens: usize,
    pub(super) text: String,
    pub(super) tokens: Vec<u32>,
    pub(super) finished: Option<FinishReason>,
    /// What was asked for of the prompt's tokens, and of the answer's.
    prompt_logprobs: Option<Vec<Scored>>,
    logprobs: Option<Vec<Scored>>,
}

/// What `--json` prints of an answer.
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

/// What of the stops that were asked for ended an answer.
#[derive(Serialize)]
#[serde(untagged)]
enum StopReason<'a> {
    Text(&'a str),
    Token(u32),
}

/// A token with its log-probability, which the first token of a prompt has not, and the most probable in its place.
#[derive(Serialize)]
struct Scored {
    token: u32,
    text: String,
    logprob: Option<f32>,
    top: Vec<Candidate>,
}

/// A token that might have stood there.
#[derive(Serialize)]
struct Candidate {
    token: u32,
    text: String,
    logprob: f32,
}

impl Job {
    /// Nothing yet of a request.
    pub(super) fn new(
        id: SequenceId,
        (index, sample): (usize, usize),
        prompt: &str,
        request: &Request,
    ) -> Job {
        Job {
            id,
            index,
            sample,
            seed: request.seed,
            prompt: prompt.to_string(),
            prompt_tokens: request.prompt.len(),
            text: String::new(),
            tokens: Vec::new(),
            finished: None,
            prompt_logprobs: None,
            logprobs: None,
        }
    }

    /// Takes what came of it in a step.
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
            EventKind::Failed(error) => return Err(error.into()),
            EventKind::Warning(warning) if !quiet => exit::warn(&warning.to_string()),
            EventKind::Warning(_) | EventKind::Started { .. } => {}
        }
        Ok(())
    }

    /// As `--json` prints it; `stops` are the texts that were to end it.
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
                Some(FinishReason::Stop | FinishReason::Length) | None => None,
            },
            seed: self.seed,
            logprobs: self.logprobs.as_deref(),
            prompt_logprobs: self.prompt_logprobs.as_deref(),
        }
    }
}

impl From<TokenLogprobs> for Scored {
    fn from(TokenLogprobs { chosen, top }: TokenLogprobs) -> Scored {
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
