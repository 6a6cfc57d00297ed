//! Calls between a begin mark and what ends them.

use std::sync::Arc;

use super::AnswerEvent;
use super::formats::{Separator, Syntax, ToolFormat};
use super::reader::{Call, Progress, Reader, reader};
use super::tool::{Tool, is_name_char};

/// One or more calls that are read.
#[derive(Debug)]
pub(super) struct Section {
    format: &'static ToolFormat,
    tools: Arc<[Tool]>,
    marks: Marks,
    /// The call that is read; `None` between calls.
    reader: Option<Box<dyn Reader>>,
    call: Call,
    /// The index of the call, once it was reported.
    index: Option<usize>,
    /// Bytes of the arguments that were reported.
    sent: usize,
    /// All text since the last whole call.
    raw: String,
    /// Text between calls that may become a mark, without white space.
    held: String,
    /// Where the text of the first call begins in `raw`.
    start: usize,
    /// Whether there was a begin mark. Without one, only a declared name makes a call.
    is_marked: bool,
    /// Whether nothing but a declared name may stand before the arguments, which are an object.
    is_strict: bool,
    is_first: bool,
    in_list: bool,
    list_ended: bool,
}

/// How a section goes on after a piece of text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The piece was consumed.
    More,
    /// The section is over.
    Over,
    /// It is over, and this text in front of the rest is none of it.
    Unread(String),
    /// The calls turned out to be text.
    Text(String),
    /// The last call turned out to be text, which was reported.
    Failed,
}

/// Marks between calls, without white space.
#[derive(Debug)]
struct Marks {
    call: String,
    after: String,
    close: String,
    /// Whether calls may be items of a list.
    may_list: bool,
}

impl Marks {
    fn new(format: &'static ToolFormat) -> Marks {
        let solid = |text: &str| text.chars().filter(|char| !char.is_whitespace()).collect::<String>();
        let (call, after, may_list) = match &format.syntax {
            Syntax::Object => ("{", "", true),
            Syntax::Named(heads) => (heads.call, format.after, format.open.contains('[')),
            Syntax::Tagged(tags) => (tags.call, "", false),
            Syntax::Literals(literals) => (literals.call, "", true),
        };
        let close = solid(format.close);
        let close = if may_list { close.trim_start_matches(']') } else { &close };
        Marks { call: solid(call), after: solid(after), close: close.to_owned(), may_list }
    }

    fn may_become(&self, held: &str) -> bool {
        [&self.call, &self.after, &self.close].iter().any(|mark| mark.starts_with(held))
    }
}

impl Section {
    /// Calls behind the mark `begin`, which is empty if they begin an answer without any, and behind the white space in
    /// front of it.
    pub(super) fn new(
        format: &'static ToolFormat,
        tools: &Arc<[Tool]>,
        space: String,
        begin: &str,
    ) -> Section {
        let raw = space + begin;
        let is_marked = !begin.is_empty() && format.recipient().is_empty();
        let is_strict = !is_marked
            && matches!(&format.syntax, Syntax::Named(heads) if heads.call.is_empty() && heads.id.is_empty());
        Section {
            format,
            tools: Arc::clone(tools),
            marks: Marks::new(format),
            reader: None,
            call: Call::default(),
            index: None,
            sent: 0,
            start: raw.len(),
            raw,
            held: String::new(),
            is_marked,
            is_strict,
            is_first: true,
            in_list: false,
            list_ended: false,
        }
    }

    /// Consumes bytes of `text`, and reports calls, whose indexes `count` gives.
    pub(super) fn read(
        &mut self,
        text: &str,
        count: &mut usize,
        events: &mut Vec<AnswerEvent>,
    ) -> (usize, Outcome) {
        let mut at = 0;
        while at < text.len() {
            let in_head = self.is_strict && self.is_first && self.call.arguments.is_empty();
            let char = text[at..].chars().next().expect("text is left");
            if in_head && !self.may_be_call(char) {
                return (at, Outcome::Text(std::mem::take(&mut self.raw)));
            }
            let outcome = match &mut self.reader {
                Some(reader) => {
                    let end = if in_head { at + char.len_utf8() } else { text.len() };
                    let (taken, progress) = reader.read(&text[at..end], &mut self.call);
                    self.raw.push_str(&text[at..at + taken]);
                    at += taken;
                    let outcome = self.report(progress, count, events);
                    // One call at a time, so that the caller can stop.
                    if outcome == Outcome::More && progress == Progress::Done {
                        return (at, outcome);
                    }
                    outcome
                }
                None => {
                    let (is_taken, outcome) = self.between(char);
                    at += if is_taken { char.len_utf8() } else { 0 };
                    outcome
                }
            };
            if outcome != Outcome::More {
                return (at, outcome);
            }
        }
        (at, Outcome::More)
    }

    /// The calls' text, if none was reported of the last one, once no more text comes.
    pub(super) fn finish(mut self, events: &mut Vec<AnswerEvent>) -> Option<String> {
        match self.reader {
            Some(_) => self.fail(events),
            None => self.is_first.then_some(self.raw),
        }
    }

    /// Calls that are whole.
    pub(super) fn has_calls(&self) -> bool {
        !self.is_first
    }

    /// Whether what was read of a call may be a declared name, white space and the start of an object, once `char` is added.
    fn may_be_call(&self, char: char) -> bool {
        if self.call.name.is_some() {
            return char.is_whitespace() || char == '{';
        }
        let head = &self.raw[self.start..];
        let names = self.tools.iter().map(|tool| &tool.name[..]).chain([self.format.recipient()]);
        names.filter(|name| !name.is_empty()).any(|name| match head.strip_prefix(name) {
            Some(space) => space.trim().is_empty() && char.is_whitespace(),
            None => name.strip_prefix(head).is_some_and(|rest| rest.starts_with(char)),
        })
    }

    /// A character between calls; whether it was taken.
    fn between(&mut self, char: char) -> (bool, Outcome) {
        if self.held.is_empty() && self.is_punctuation(char) {
            if self.is_first {
                self.raw.push(char);
            }
            let is_over = self.list_ended && self.marks.close.is_empty();
            return (true, if is_over { Outcome::Over } else { Outcome::More });
        }
        if char.is_whitespace() {
            self.raw.push(char);
            return (true, Outcome::More);
        }
        // Some models write in one section what others write in several.
        let repeats = matches!(self.format.separator, Separator::Calls(_)) || !self.marks.call.is_empty();
        let may_call = !self.list_ended && (self.is_first || repeats);
        let begins_by_itself = match &self.marks.call[..] {
            "" => self.is_first || is_name_char(char),
            mark => mark == "{" && char == '{',
        };
        if self.held.is_empty() && may_call && begins_by_itself {
            self.begin_call();
            return (false, Outcome::More);
        }
        self.held.push(char);
        if !self.marks.may_become(&self.held) {
            return (false, self.give_up());
        }
        self.raw.push(char);
        let outcome = self.complete_mark(may_call);
        (true, outcome)
    }

    /// Acts on what is held back if it is a whole mark.
    fn complete_mark(&mut self, may_call: bool) -> Outcome {
        if self.held == self.marks.close && !self.is_first {
            return Outcome::Over;
        }
        if self.held == self.marks.after {
            self.held.clear();
            self.raw.clear();
        } else if self.held == self.marks.call && may_call {
            self.begin_call();
        }
        Outcome::More
    }

    fn is_punctuation(&mut self, char: char) -> bool {
        match char {
            _ if !self.marks.may_list => false,
            '[' if self.is_first && !self.in_list => {
                self.in_list = true;
                true
            }
            ']' if self.in_list && !self.is_first && !self.list_ended => {
                self.list_ended = true;
                true
            }
            ',' | ';' => !self.is_first && !self.list_ended,
            _ => false,
        }
    }

    fn begin_call(&mut self) {
        self.held.clear();
        self.reader = Some(reader(self.format, &self.tools));
    }

    /// The following text is not a call.
    fn give_up(&mut self) -> Outcome {
        let raw = std::mem::take(&mut self.raw);
        if self.is_first { Outcome::Text(raw) } else { Outcome::Unread(raw) }
    }

    /// Reports what became known of a call, and then whether it is one. The order does not depend on cuts.
    fn report(&mut self, progress: Progress, count: &mut usize, events: &mut Vec<AnswerEvent>) -> Outcome {
        let recipient = self.format.recipient();
        if progress == Progress::Done && !recipient.is_empty() && self.call.name.as_deref() == Some(recipient)
        {
            return Outcome::Over;
        }
        if progress == Progress::Done && self.call.arguments.trim().is_empty() {
            self.call.arguments = "{}".to_owned();
        }
        let is_undeclared = |name: &String| !self.tools.iter().any(|tool| tool.name == *name);
        let is_text = !self.is_marked && self.call.name.as_ref().is_some_and(is_undeclared);
        if !is_text {
            self.report_arguments(count, events);
        }
        let is_broken = progress == Progress::Done && !is_object(&self.call.arguments);
        if is_text || is_broken || progress == Progress::Failed {
            return self.fail(events).map_or(Outcome::Failed, Outcome::Text);
        }
        if let (Some(index), Progress::Done) = (self.index, progress) {
            events.push(AnswerEvent::ToolCallFinished { index });
            self.next();
        }
        Outcome::More
    }

    fn report_arguments(&mut self, count: &mut usize, events: &mut Vec<AnswerEvent>) {
        let (Some(name), false) = (&self.call.name, self.call.arguments.len() == self.sent) else { return };
        let index = *self.index.get_or_insert_with(|| {
            let (index, id) = (*count, self.call.id.clone());
            events.push(AnswerEvent::ToolCallStarted { index, id, name: name.clone() });
            *count += 1;
            index
        });
        let delta = self.call.arguments[self.sent..].to_owned();
        self.sent = self.call.arguments.len();
        events.push(AnswerEvent::ToolCallArguments { index, delta });
    }

    /// A call is whole.
    fn next(&mut self) {
        (self.reader, self.call, self.index, self.sent) = (None, Call::default(), None, 0);
        self.raw.clear();
        self.is_first = false;
    }

    /// The call is none. Gives its text, unless the call was reported: then the text is reported too.
    fn fail(&mut self, events: &mut Vec<AnswerEvent>) -> Option<String> {
        let text = std::mem::take(&mut self.raw);
        let Some(index) = self.index else { return Some(text) };
        events.push(AnswerEvent::ToolCallFailed { index, text });
        None
    }
}

/// Whether a text is a JSON object. However deep it is, this takes no stack.
fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
