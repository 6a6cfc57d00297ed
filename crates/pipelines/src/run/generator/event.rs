//! What comes of requests.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::Error;
use crate::detokenizer::Detokenizer;
use crate::run::kv_cache::{PrefixEnd, SequenceId};
use crate::run::sampler::Logprobs;

/// Something happened to a sequence.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// The sequence.
    pub id: SequenceId,
    /// What happened.
    pub kind: EventKind,
}

/// What can happen to a sequence.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventKind {
    /// The sequence ran for the first time; what it waited until the step began was its time in the queue.
    Started {
        /// Tokens of the prompt whose keys and values the cache held already.
        cached_tokens: usize,
        /// Why it held no more of them.
        prefix_end: PrefixEnd,
    },
    /// Part of the request is not granted; the rest is. Comes before any token.
    Warning(Warning),
    /// A token of the prompt, if the request has `echo` or wants log-probabilities of the prompt. All of them come,
    /// in order, before the answer's.
    PromptToken {
        /// Its id.
        token: u32,
        /// The text that is complete with it.
        text: String,
        /// If they are wanted; of the first token there are none.
        logprobs: Option<TokenLogprobs>,
    },
    /// A token was made.
    Token {
        /// Its id.
        token: u32,
        /// The text that is complete with it. Empty while a character is incomplete, or while the text may yet
        /// become a stop string; it then comes with a later token or the end.
        text: String,
        /// If the request wants them.
        logprobs: Option<TokenLogprobs>,
    },
    /// The sequence is over.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Text that was held back, for a character or a stop string that never came.
        text: String,
    },
    /// The sequence is over because something went wrong in it; others go on.
    Failed(Arc<Error>),
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model made an end-of-sequence token, which is not part of the text.
    Stop,
    /// The model made this token, one of the request's `stop_token_ids`; it is not part of the text.
    StopToken(u32),
    /// The text came to the request's `stop` string of this index. The string is not part of the text; the tokens
    /// that spell it were reported.
    StopString(usize),
    /// As many tokens as asked for, or as `max_length` allows.
    Length,
}

impl FinishReason {
    /// The name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            FinishReason::Stop | FinishReason::StopToken(_) | FinishReason::StopString(_) => "stop",
            FinishReason::Length => "length",
        }
    }
}

/// Part of a request that is not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Log-probabilities of the prompt are wanted, and the generator was made without `enable_echo`.
    EchoDisabled,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::EchoDisabled => f.write_str(
                "log-probabilities of the prompt are left out: the model was set up without enable_echo",
            ),
        }
    }
}

/// A token and its log-probability.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TokenLogprob {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability, as [`Logprobs`] has it.
    pub logprob: f32,
    /// What it stands for at its place, which may be part of a character. A special token is named here, though it
    /// is no part of the text; the bytes of the others, end to end, are the text's.
    pub bytes: Vec<u8>,
}

/// The log-probabilities at one place.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TokenLogprobs {
    /// Of the token that stands there.
    pub chosen: TokenLogprob,
    /// Of the most probable tokens, best first.
    pub top: Vec<TokenLogprob>,
}

impl TokenLogprob {
    /// The bytes as text, with U+FFFD for what is no character.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

impl TokenLogprobs {
    /// Adds the bytes that tokens would have next in a text.
    pub(super) fn new(token: u32, logprobs: Logprobs, before: &Detokenizer) -> TokenLogprobs {
        let with_bytes = |(token, logprob)| TokenLogprob { token, logprob, bytes: before.bytes(token) };
        TokenLogprobs {
            chosen: with_bytes((token, logprobs.logprob)),
            top: logprobs.top.into_iter().map(with_bytes).collect(),
        }
    }
}
