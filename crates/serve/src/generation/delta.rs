//! A step of an answer, in the terms that all protocols share.

use pipelines::{AnswerEvent, AnswerParser, EventKind, FinishReason, TokenLogprobs};

/// What an answer gains.
#[derive(Debug)]
pub(crate) enum Delta {
    /// The model reads the prompt; the usage knows how much of it the cache held.
    Started,
    /// A token of the prompt, which the request wants back.
    Prompt(PromptToken),
    /// A token, and what is certain of the answer with it.
    Token { token: u32, logprobs: Option<TokenLogprobs>, events: Vec<AnswerEvent> },
    /// The end, with what was held back.
    Finished { events: Vec<AnswerEvent>, finish: Finish },
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
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The limit of tokens.
    Length,
}

impl Finish {
    /// The name that OpenAI's routes use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Finish::Stop | Finish::StopString(_) => "stop",
            Finish::ToolCalls => "tool_calls",
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

/// An answer that is read while it is made.
pub(super) struct ChoiceParser {
    parser: AnswerParser,
    /// Whether reasoning is left out.
    hides_reasoning: bool,
    has_calls: bool,
}

impl ChoiceParser {
    pub(super) fn new(parser: AnswerParser, hides_reasoning: bool) -> ChoiceParser {
        ChoiceParser { parser, hides_reasoning, has_calls: false }
    }

    /// Whether the model reasons.
    pub(super) fn is_reasoning(&self) -> bool {
        self.parser.is_reasoning()
    }

    /// Whether the answer is whole although the model would go on.
    pub(super) fn is_over(&self) -> bool {
        self.parser.is_over()
    }

    /// The events of a piece of text.
    pub(super) fn push(&mut self, text: &str) -> Vec<AnswerEvent> {
        let events = shown(self.parser.push(text), self.hides_reasoning);
        self.has_calls |= events.iter().any(|event| matches!(event, AnswerEvent::ToolCallFinished { .. }));
        events
    }

    /// The end, which comes with a piece of text.
    pub(super) fn finish(mut self, text: &str, reason: Finish) -> Delta {
        let mut events = self.push(text);
        events.extend(shown(self.parser.finish(), self.hides_reasoning));
        let finish = if self.has_calls && reason != Finish::Length { Finish::ToolCalls } else { reason };
        Delta::Finished { events, finish }
    }
}

/// The events that clients see.
fn shown(mut events: Vec<AnswerEvent>, hides_reasoning: bool) -> Vec<AnswerEvent> {
    events.retain(|event| !(hides_reasoning && matches!(event, AnswerEvent::Reasoning(_))));
    events
}

impl Delta {
    /// The events of the answer that it has.
    pub(super) fn events(&self) -> &[AnswerEvent] {
        match self {
            Delta::Started | Delta::Prompt(_) => &[],
            Delta::Token { events, .. } | Delta::Finished { events, .. } => events,
        }
    }

    /// The delta of an event, if it adds to the answer. Failures are not part of answers.
    pub(super) fn from_event(event: EventKind, parser: &mut Option<ChoiceParser>) -> Option<Delta> {
        match event {
            EventKind::Started { .. } => Some(Delta::Started),
            EventKind::PromptToken { text, logprobs, .. } => {
                Some(Delta::Prompt(PromptToken { text, logprobs }))
            }
            EventKind::Token { token, text, logprobs } => {
                Some(Delta::Token { token, logprobs, events: parser.as_mut()?.push(&text) })
            }
            EventKind::Finished { reason, text } => Some(parser.take()?.finish(&text, reason.into())),
            _ => None,
        }
    }
}

/// The text of events of an answer that is all text.
pub(crate) fn text_of(events: Vec<AnswerEvent>) -> String {
    let text = |event| if let AnswerEvent::Text(text) = event { Some(text) } else { None };
    events.into_iter().filter_map(text).collect()
}
