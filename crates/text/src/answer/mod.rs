//! What models write in answers besides text: reasoning and tool calls.
//!
//! [`AnswerFormat::for_model`] finds how a model marks them, by rendering its chat template. [`AnswerParser`] splits the
//! answer while it is made. [`AnswerFormat::grammar`] makes sure that calls are those of declared tools.
//!
//! Marks are often special tokens, which are hidden from text: the caller shows those of
//! [`AnswerFormat::special_tokens`] and no others (`shown_special_tokens` of a generator's request), so that the parser
//! sees every mark and no other name of a token gets into the text.

mod detect;
pub mod formats;
mod grammar;
mod parser;
mod reader;
pub mod reasoning;
mod schema;
mod section;
#[cfg(test)]
mod tests;
mod tool;
mod types;
mod writer;

use std::io;

use serde_json::Value;

pub use formats::ToolFormat;
pub use grammar::AnswerRules;
pub use parser::AnswerParser;
pub use reasoning::{ReasoningFormat, ReasoningPhase};
pub use tool::{Tool, ToolChoice};

use crate::Tokenizer;

/// How a model marks the parts of its answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerFormat {
    /// Its reasoning; `None`: it has none.
    pub reasoning: Option<&'static ReasoningFormat>,
    /// Its tool calls; `None`: it has none.
    pub tools: Option<&'static ToolFormat>,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerEvent {
    /// Text for the reader.
    Text(String),
    /// Text that the model wrote for itself.
    Reasoning(String),
    /// A call begins; its name is known, and its arguments come.
    ToolCallStarted {
        /// From 0 in an answer.
        index: usize,
        /// The id that the model gave it, if it gave one before the arguments.
        id: Option<String>,
        /// The function.
        name: String,
    },
    /// The arguments go on.
    ToolCallArguments {
        /// The call.
        index: usize,
        /// More of the JSON text.
        delta: String,
    },
    /// The call is whole, and its arguments are a JSON object.
    ToolCallFinished {
        /// The call.
        index: usize,
    },
    /// The call that began is none: the answer ended within it, or its arguments are not JSON.
    ///
    /// Arguments are reported while they are made, so they cannot be taken back. An answer that is given at once has no
    /// such call, and `text` as content. A stream that has sent the call's beginning sends `text` as content too: then
    /// its text is the same. A call of which nothing was reported is [`AnswerEvent::Text`] in both cases.
    ToolCallFailed {
        /// The call.
        index: usize,
        /// All that the model wrote of the call, marks too.
        text: String,
    },
}

/// An answer that is whole: its parts in order. Neighbours differ in kind, unless they are calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The parts.
    pub parts: Vec<AnswerPart>,
}

/// A part of an answer that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerPart {
    /// Text for the reader.
    Text(String),
    /// Text that the model wrote for itself.
    Reasoning(String),
    /// A call.
    ToolCall(ToolCall),
}

/// A call that is whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Its index in events.
    pub index: usize,
    /// The id that the model gave it.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// The arguments, a JSON object, as the model wrote them.
    pub arguments: String,
}

impl Answer {
    /// Adds an event.
    pub fn push(&mut self, event: AnswerEvent) {
        match (event, self.parts.last_mut()) {
            (AnswerEvent::Text(text), Some(AnswerPart::Text(last)))
            | (AnswerEvent::Reasoning(text), Some(AnswerPart::Reasoning(last))) => last.push_str(&text),
            (AnswerEvent::Text(text), _) => self.parts.push(AnswerPart::Text(text)),
            (AnswerEvent::Reasoning(text), _) => self.parts.push(AnswerPart::Reasoning(text)),
            (AnswerEvent::ToolCallStarted { index, id, name }, _) => {
                self.parts.push(AnswerPart::ToolCall(ToolCall { index, id, name, arguments: String::new() }));
            }
            (AnswerEvent::ToolCallArguments { delta, .. }, Some(AnswerPart::ToolCall(last))) => {
                last.arguments.push_str(&delta);
            }
            (AnswerEvent::ToolCallFailed { index, text }, _) => {
                let is_it =
                    |part: &AnswerPart| matches!(part, AnswerPart::ToolCall(own) if own.index == index);
                self.parts.retain(|part| !is_it(part));
                self.push(AnswerEvent::Text(text));
            }
            (AnswerEvent::ToolCallArguments { .. } | AnswerEvent::ToolCallFinished { .. }, _) => {}
        }
    }

    /// The text, without what comes between its parts.
    pub fn text(&self) -> String {
        let text = |part: &AnswerPart| match part {
            AnswerPart::Text(text) => text.clone(),
            _ => String::new(),
        };
        self.parts.iter().map(text).collect()
    }

    /// The model's reasoning.
    pub fn reasoning(&self) -> String {
        let reasoning = |part: &AnswerPart| match part {
            AnswerPart::Reasoning(text) => text.clone(),
            _ => String::new(),
        };
        self.parts.iter().map(reasoning).collect()
    }

    /// The calls, whole ones only.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            AnswerPart::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

impl FromIterator<AnswerEvent> for Answer {
    fn from_iter<I: IntoIterator<Item = AnswerEvent>>(events: I) -> Answer {
        let mut answer = Answer::default();
        events.into_iter().for_each(|event| answer.push(event));
        answer
    }
}

impl AnswerFormat {
    /// The special tokens in the format's marks, sorted: a generator shows these as text, and hides all others.
    pub fn special_tokens(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let texts = self.texts().collect::<Vec<_>>();
        let ids = 0..if texts.is_empty() { 0 } else { tokenizer.vocab_size() as u32 };
        let is_in_a_mark = |id: &u32| {
            let name = tokenizer.token(*id);
            name.is_some_and(|name| !name.is_empty() && texts.iter().any(|text| text.contains(&*name)))
        };
        ids.filter(|&id| tokenizer.is_special(id)).filter(is_in_a_mark).collect()
    }

    /// The format of calls, if it names who gets each part of an answer.
    fn addressed(&self) -> Option<&'static ToolFormat> {
        self.tools.filter(|own| !own.recipient().is_empty())
    }

    fn texts(&self) -> impl Iterator<Item = &'static str> {
        let reasoning = self.reasoning.into_iter().flat_map(ReasoningFormat::texts);
        reasoning.chain(self.tools.into_iter().flat_map(ToolFormat::texts))
    }
}

/// A value as Python's `json.dumps` and most templates write it: on one line, with spaces behind `,` and `:`.
fn spaced_json(value: &Value) -> String {
    struct Spaced;
    impl serde_json::ser::Formatter for Spaced {
        fn begin_array_value<W: ?Sized + io::Write>(
            &mut self,
            writer: &mut W,
            first: bool,
        ) -> io::Result<()> {
            if first { Ok(()) } else { writer.write_all(b", ") }
        }
        fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
            if first { Ok(()) } else { writer.write_all(b", ") }
        }
        fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
            writer.write_all(b": ")
        }
    }
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Spaced);
    serde::Serialize::serialize(value, &mut serializer).expect("a JSON value can be written to memory");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}
