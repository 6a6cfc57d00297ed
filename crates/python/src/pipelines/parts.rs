//! The parts of answers to conversations: text, reasoning, and calls as they are made and once they are whole.

use perihelion::pipelines::{AnswerEvent, AnswerParser, AnswerReader};

/// Index, the id that the model gave, name, and arguments in JSON.
pub(super) type Call = (usize, Option<String>, String, String);

/// What is new of a call: its index; at its beginning, the id that the model gave and the name; more of the arguments.
pub(super) type CallDelta = (usize, Option<String>, Option<String>, String);

/// The new parts of an answer.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<Call>,
    pub(super) deltas: Vec<CallDelta>,
}

impl Parts {
    /// Adds to what is new of a call.
    pub(super) fn add_delta(&mut self, delta: CallDelta) {
        match self.deltas.last_mut() {
            Some((index, .., arguments)) if *index == delta.0 && delta.2.is_none() => {
                arguments.push_str(&delta.3)
            }
            _ => self.deltas.push(delta),
        }
    }
}

/// Reads an answer while it is made.
pub(super) struct PartReader {
    parser: AnswerParser,
    /// The call that is not whole yet.
    open: Option<Call>,
    pub(super) has_calls: bool,
}

impl PartReader {
    pub(super) fn new(reader: &AnswerReader) -> PartReader {
        PartReader { parser: reader.parser(), open: None, has_calls: false }
    }

    /// The parts of an answer that is whole, and whether it has calls.
    pub(super) fn read(reader: &AnswerReader, text: &str) -> (Parts, bool) {
        let mut own = PartReader::new(reader);
        let mut parts = own.push(text);
        own.finish(&mut parts);
        (parts, own.has_calls)
    }

    /// Whether the answer is whole although the model would go on.
    pub(super) fn is_over(&self) -> bool {
        self.parser.is_over()
    }

    pub(super) fn push(&mut self, piece: &str) -> Parts {
        let mut parts = Parts::default();
        let events = self.parser.push(piece);
        self.take(events, &mut parts);
        parts
    }

    /// Adds what was held back.
    pub(super) fn finish(&mut self, parts: &mut Parts) {
        let parser = std::mem::replace(&mut self.parser, AnswerReader::default().parser());
        self.take(parser.finish(), parts);
    }

    fn take(&mut self, events: Vec<AnswerEvent>, parts: &mut Parts) {
        for event in events {
            match event {
                AnswerEvent::Text(text) => parts.text.push_str(&text),
                AnswerEvent::Reasoning(text) => parts.reasoning.push_str(&text),
                AnswerEvent::ToolCallStarted { index, id, name } => {
                    parts.add_delta((index, id.clone(), Some(name.clone()), String::new()));
                    self.open = Some((index, id, name, String::new()));
                }
                AnswerEvent::ToolCallArguments { index, delta } => {
                    if let Some((.., arguments)) = &mut self.open {
                        arguments.push_str(&delta);
                    }
                    parts.add_delta((index, None, None, delta));
                }
                AnswerEvent::ToolCallFinished { .. } => {
                    self.has_calls = true;
                    parts.calls.extend(self.open.take());
                }
                AnswerEvent::ToolCallFailed { text, .. } => {
                    self.open = None;
                    parts.text.push_str(&text);
                }
            }
        }
    }
}
