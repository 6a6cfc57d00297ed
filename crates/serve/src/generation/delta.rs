//! A step of an answer, in the terms that all protocols share.

use pipelines::{EventKind, FinishReason, TokenLogprobs};

use crate::error::ApiError;

/// What a choice gains.
#[derive(Debug)]
pub(crate) enum Delta {
    /// Tokens of the prompt, which the request wants back.
    Prompt(PromptToken),
    /// A token, and the text that is complete with it.
    Text { text: String, logprobs: Option<TokenLogprobs> },
    /// The end, with text that was held back.
    Finished { text: String, finish: Finish },
    /// The end, because something went wrong.
    Failed(ApiError),
}

/// A token of the prompt.
#[derive(Debug)]
pub(crate) struct PromptToken {
    pub(crate) text: String,
    pub(crate) logprobs: Option<TokenLogprobs>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The model ended its text.
    Stop,
    /// The text came to the stop string of this index.
    StopString(usize),
    /// The limit of tokens.
    Length,
}

impl Finish {
    /// The name that OpenAI's routes use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Finish::Stop | Finish::StopString(_) => "stop",
            Finish::Length => "length",
        }
    }
}

impl Delta {
    /// What an event adds to the answer, if anything.
    pub(super) fn of(event: EventKind) -> Option<Delta> {
        match event {
            EventKind::PromptToken { text, logprobs, .. } => {
                Some(Delta::Prompt(PromptToken { text, logprobs }))
            }
            EventKind::Token { text, logprobs, .. } => Some(Delta::Text { text, logprobs }),
            EventKind::Finished { reason, text } => Some(Delta::Finished { text, finish: reason.into() }),
            EventKind::Failed(error) => Some(Delta::Failed(ApiError::from(&*error))),
            _ => None,
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
