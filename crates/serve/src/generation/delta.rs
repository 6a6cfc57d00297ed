//! A step of an answer, in the terms that all protocols share.

use pipelines::{EventKind, FinishReason, TokenLogprobs};

/// What an answer gains.
#[derive(Debug)]
pub(crate) enum Delta {
    /// The model reads the prompt; the usage knows how much of it the cache held.
    Started,
    /// A token of the prompt, which the request wants back.
    Prompt(PromptToken),
    /// A token, and the text that is complete with it.
    Text { token: u32, text: String, logprobs: Option<TokenLogprobs> },
    /// The end, with text that was held back.
    Finished { text: String, finish: Finish },
}

/// A token of the prompt.
#[derive(Debug)]
pub(crate) struct PromptToken {
    pub(crate) text: String,
    pub(crate) logprobs: Option<TokenLogprobs>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The model ended its text.
    #[default]
    Stop,
    /// The text came to the stop string of this index.
    StopString(usize),
    /// The limit of tokens.
    Length,
}

impl Finish {
    /// The name that OpenAI's and Ollama's routes use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Finish::Stop | Finish::StopString(_) => "stop",
            Finish::Length => "length",
        }
    }
}

impl From<FinishReason> for Finish {
    fn from(reason: FinishReason) -> Finish {
        match reason {
            FinishReason::StopString(index) => Finish::StopString(index),
            FinishReason::Length => Finish::Length,
            _ => Finish::Stop,
        }
    }
}

/// What an event adds to an answer, if anything. Failures are no part of an answer.
pub(super) fn of_event(event: EventKind) -> Option<Delta> {
    match event {
        EventKind::Started { .. } => Some(Delta::Started),
        EventKind::PromptToken { text, logprobs, .. } => Some(Delta::Prompt(PromptToken { text, logprobs })),
        EventKind::Token { token, text, logprobs } => Some(Delta::Text { token, text, logprobs }),
        EventKind::Finished { reason, text } => Some(Delta::Finished { text, finish: reason.into() }),
        _ => None,
    }
}
