//! Splits an answer into text, reasoning and tool calls while it is made.

use std::sync::Arc;

use super::formats::Syntax;
use super::section::{Outcome, Section};
use super::tool::Tool;
use super::{AnswerEvent, AnswerFormat, ToolFormat};
use crate::stop_strings::{StopSearch, StopStrings};

/// Reads an answer, piece by piece.
///
/// The events do not depend on how the text is cut: those of all pieces, with neighbours of one kind joined, are those
/// of the whole text. A mark is never part of a text, not even half of one, and white space next to a mark is part
/// of the layout.
#[derive(Debug)]
pub struct AnswerParser {
    format: AnswerFormat,
    tools: Arc<[Tool]>,
    is_parallel: bool,
    marks: Marks,
    mode: Mode,
    text: Flow,
    reasoning: Flow,
    /// Whether nothing but white space came since the beginning, or since the last reasoning or calls.
    is_blank: bool,
    /// Whether a call without a mark may begin here.
    may_be_bare: bool,
    /// Calls that were reported.
    calls: usize,
    is_over: bool,
    /// Bytes of the prompt's end that the search for marks holds: they may begin a mark, and are never text.
    held: usize,
    /// Whether the calls that are read stand in the reasoning, which goes on behind them.
    in_reasoning: bool,
    /// The rest of the mark that ends the prompt, while the answer repeats that mark.
    echo: &'static str,
}

#[derive(Debug)]
enum Mode {
    Text(StopSearch),
    Reasoning(StopSearch),
    Calls(Box<Section>),
}

/// The marks that end a text, by index.
#[derive(Debug)]
struct Marks {
    strings: Arc<StopStrings>,
    meanings: Vec<Meaning>,
    texts: Vec<String>,
    /// The marks that end reasoning, then those that begin it, then those that begin calls inside it.
    reasoning: Arc<StopStrings>,
    reasoning_begins: Vec<&'static str>,
    calls_in_reasoning: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Reasoning,
    ReasoningEnd,
    Calls,
    Silent,
}

impl AnswerParser {
    /// An answer to `prompt`, the text that the model continues. `continued` is the content of the message that the
    /// prompt ends with, if the model goes on with one.
    ///
    /// `tools` are those that the answer may call. If there are none, marks of calls are text.
    pub fn new(format: AnswerFormat, tools: &[Tool], prompt: &str, continued: Option<&str>) -> AnswerParser {
        let addressed = format.addressed();
        let has_marks = |_: &&ToolFormat| !tools.is_empty() || addressed.is_some();
        let format = AnswerFormat { tools: format.tools.filter(has_marks), ..format };
        let marks = Marks::new(&format, tools);
        let mut search = StopSearch::new(Arc::clone(&marks.strings));
        let lead = format.reasoning.map_or("", |own| own.lead);
        let held = if prompt.ends_with(lead) { lead.len() } else { 0 };
        search.find(&lead[..held]);
        let is_open = format.reasoning.is_some_and(|own| own.is_open(prompt, continued));
        let tools: Arc<[Tool]> = tools.into();
        let begun = addressed.filter(|own| prompt.ends_with(own.begin[0]));
        let mode = match begun {
            _ if is_open => Mode::Reasoning(marks.reasoning()),
            Some(own) => Mode::Calls(Box::new(Section::new(own, &tools, String::new(), ""))),
            None => Mode::Text(search),
        };
        AnswerParser {
            tools,
            is_parallel: true,
            text: Flow { is_plain: marks.texts.is_empty(), ..Flow::default() },
            reasoning: Flow { trims: is_open, ..Flow::default() },
            is_blank: continued.is_none_or(|text| text.trim().is_empty()) || is_open,
            may_be_bare: format.tools.is_some_and(|own| own.bare) && continued.is_none(),
            calls: 0,
            is_over: false,
            held: if matches!(mode, Mode::Text(_)) { held } else { 0 },
            in_reasoning: false,
            echo: begun.map_or("", |own| own.begin[0]),
            format,
            marks,
            mode,
        }
    }

    /// Stops after one call and ignores the rest. [`AnswerParser::is_over`] is true from then on.
    pub fn one_call(self) -> AnswerParser {
        AnswerParser { is_parallel: false, ..self }
    }

    /// Whether the answer is whole although the model would go on, so that it can be cancelled.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the reasoning goes on.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.mode, Mode::Reasoning(_))
    }

    /// Takes a piece of the answer.
    pub fn push(&mut self, piece: &str) -> Vec<AnswerEvent> {
        let mut events = Vec::new();
        let mut at = 0;
        while at < piece.len() && !self.is_over {
            at += match self.echo {
                "" => self.step(&piece[at..], &mut events),
                _ => self.skip_echo(&piece[at..], &mut events),
            };
        }
        events
    }

    /// The rest, once no more text comes. Text that may have become a mark is text then; a call that is not whole
    /// is text, as [`AnswerEvent::ToolCallFailed`] says.
    pub fn finish(mut self) -> Vec<AnswerEvent> {
        let mut events = Vec::new();
        if self.is_over {
            return events;
        }
        self.end_echo(&mut events);
        match std::mem::replace(&mut self.mode, self.marks.text()) {
            Mode::Text(mut search) => {
                let text = search.finish();
                let own = self.without_held(&text);
                self.put_text(own, &mut events);
            }
            Mode::Reasoning(mut search) => self.put_reasoning(&search.finish(), &mut events),
            Mode::Calls(section) => {
                if let Some(text) = section.finish(&mut events) {
                    self.put_back(&text, &mut events);
                }
            }
        }
        push_text(&mut events, &self.text.finish());
        events
    }

    /// Takes what repeats the mark that the prompt ends with; gives its length.
    fn skip_echo(&mut self, piece: &str, events: &mut Vec<AnswerEvent>) -> usize {
        let first = self.echo.chars().next().map_or(0, char::len_utf8);
        let (first, rest) = self.echo.split_at(first);
        if piece.starts_with(first) {
            self.echo = rest;
            return first.len();
        }
        self.end_echo(events);
        0
    }

    /// The answer does not repeat the mark, or not all of it: what it has is read as any text.
    fn end_echo(&mut self, events: &mut Vec<AnswerEvent>) {
        let mark = self.format.addressed().map_or("", |own| own.begin[0]);
        let taken = match std::mem::take(&mut self.echo) {
            "" => return,
            rest => &mark[..mark.len() - rest.len()],
        };
        let mut at = 0;
        while at < taken.len() {
            at += self.step(&taken[at..], events);
        }
    }

    /// Takes a part of a piece; gives its length.
    fn step(&mut self, piece: &str, events: &mut Vec<AnswerEvent>) -> usize {
        if let Some(space) = self.bare_call(piece) {
            self.text.push(&piece[..space]);
            self.begin_calls("");
            return space;
        }
        match &mut self.mode {
            Mode::Text(search) => {
                let found = search.find(piece);
                let own = self.without_held(&found.text);
                self.put_text(own, events);
                if let Some(mark) = found.string {
                    self.held = 0;
                    self.meet(mark, events);
                }
                found.end
            }
            Mode::Reasoning(search) => {
                let found = search.find(piece);
                self.put_reasoning(&found.text, events);
                match found.string {
                    Some(0) => self.begin_text(),
                    Some(mark) => self.meet_in_reasoning(mark, events),
                    None => {}
                }
                found.end
            }
            Mode::Calls(section) => {
                let (end, outcome) = section.read(piece, &mut self.calls, events);
                self.follow(outcome, events);
                end
            }
        }
    }

    /// A text without what the search for marks held of the prompt.
    fn without_held<'t>(&mut self, text: &'t str) -> &'t str {
        let held = self.held.min(text.len());
        self.held -= held;
        &text[held..]
    }

    /// The white space before a call without a mark, if one begins in `piece`.
    fn bare_call(&mut self, piece: &str) -> Option<usize> {
        if !self.may_be_bare || !matches!(self.mode, Mode::Text(_)) {
            return None;
        }
        let is_named = matches!(self.format.tools.map(|own| &own.syntax), Some(Syntax::Named(_)));
        // White space comes before no name.
        let space = if is_named { 0 } else { piece.len() - piece.trim_start().len() };
        let first = piece[space..].chars().next()?;
        self.may_be_bare = false;
        let begins = if is_named {
            self.tools.iter().any(|tool| tool.name.starts_with(first))
        } else {
            matches!(first, '{' | '[')
        };
        begins.then_some(space)
    }

    /// Reasoning begins once more: models repeat the mark that ends a prompt. Elsewhere, it is what they reason about.
    fn meet_in_reasoning(&mut self, mark: usize, events: &mut Vec<AnswerEvent>) {
        let begins = self.marks.reasoning_begins.len();
        if let Some(call) = (mark - 1).checked_sub(begins) {
            self.in_reasoning = true;
            return self.begin_calls(self.marks.calls_in_reasoning[call]);
        }
        self.mode = Mode::Reasoning(self.marks.reasoning());
        match self.reasoning.trims {
            true => self.reasoning.drop_space(),
            false => self.put_reasoning(self.marks.reasoning_begins[mark - 1], events),
        }
    }

    /// A mark ends a text.
    fn meet(&mut self, mark: usize, events: &mut Vec<AnswerEvent>) {
        match self.marks.meanings[mark] {
            Meaning::Reasoning | Meaning::ReasoningEnd if !self.is_blank => {
                let text = self.marks.texts[mark].clone();
                self.put_text(&text, events);
                self.mode = self.marks.text();
            }
            Meaning::Reasoning => {
                self.text.drop_space();
                self.reasoning = Flow { trims: true, ..Flow::default() };
                self.mode = Mode::Reasoning(self.marks.reasoning());
            }
            Meaning::Calls => self.begin_calls(&self.marks.texts[mark].clone()),
            Meaning::Silent | Meaning::ReasoningEnd => self.begin_text(),
        }
    }

    /// A section of calls goes on or ends.
    fn follow(&mut self, outcome: Outcome, events: &mut Vec<AnswerEvent>) {
        let Mode::Calls(section) = &self.mode else { return };
        if section.has_calls() && !self.is_parallel {
            self.is_over = true;
            return;
        }
        match outcome {
            Outcome::More => {}
            Outcome::Over => self.end_calls(),
            Outcome::Unread(text) => {
                self.end_calls();
                self.search_again(&text, events);
            }
            Outcome::Text(text) => {
                self.mode = self.around_calls();
                self.put_back(&text, events);
            }
            Outcome::Failed => {
                self.mode = self.around_calls();
                let around = if self.in_reasoning { &mut self.reasoning } else { &mut self.text };
                (around.trims, self.is_blank) = (false, false);
            }
        }
    }

    /// Goes on with the text or reasoning behind calls.
    fn end_calls(&mut self) {
        if self.in_reasoning {
            self.reasoning.drop_space();
            self.mode = self.around_calls();
        } else {
            self.begin_text();
        }
    }

    /// Returns the mode around the calls: reasoning or text.
    fn around_calls(&self) -> Mode {
        if self.in_reasoning { Mode::Reasoning(self.marks.reasoning()) } else { self.marks.text() }
    }

    /// Adds a text that turned out to be no call to what it stands in.
    fn put_back(&mut self, text: &str, events: &mut Vec<AnswerEvent>) {
        if self.in_reasoning {
            self.put_reasoning(text, events);
        } else {
            self.put_text(text, events);
        }
    }

    /// Looks for marks in a text that is shorter than one, white space apart.
    fn search_again(&mut self, text: &str, events: &mut Vec<AnswerEvent>) {
        match &mut self.mode {
            Mode::Text(search) => {
                let certain = search.find(text).text;
                self.put_text(&certain, events);
            }
            Mode::Reasoning(search) => {
                let certain = search.find(text).text;
                self.put_reasoning(&certain, events);
            }
            Mode::Calls(_) => {}
        }
    }

    fn begin_calls(&mut self, begin: &str) {
        let Some(format) = self.format.tools else { return };
        self.may_be_bare = false;
        let space = if self.in_reasoning { self.reasoning.finish() } else { self.text.finish() };
        self.mode = Mode::Calls(Box::new(Section::new(format, &self.tools, space, begin)));
    }

    /// Text comes behind a mark.
    fn begin_text(&mut self) {
        self.in_reasoning = false;
        self.may_be_bare =
            matches!(self.mode, Mode::Reasoning(_)) && self.format.tools.is_some_and(|own| own.bare);
        self.text.drop_space();
        self.is_blank = true;
        self.mode = self.marks.text();
    }

    fn put_text(&mut self, text: &str, events: &mut Vec<AnswerEvent>) {
        let text = self.text.push(text);
        self.is_blank &= text.is_empty();
        push_text(events, &text);
    }

    fn put_reasoning(&mut self, text: &str, events: &mut Vec<AnswerEvent>) {
        let text = self.reasoning.push(text);
        match events.last_mut() {
            _ if text.is_empty() => {}
            Some(AnswerEvent::Reasoning(last)) => last.push_str(&text),
            _ => events.push(AnswerEvent::Reasoning(text)),
        }
    }
}

impl Marks {
    fn new(format: &AnswerFormat, tools: &[Tool]) -> Marks {
        let mut marks: Vec<(String, Meaning)> = Vec::new();
        for begin in format.tools.map_or(&[][..], |own| own.begin) {
            if begin.contains("{name}") {
                marks.extend(tools.iter().map(|tool| (begin.replace("{name}", &tool.name), Meaning::Calls)));
            } else {
                marks.push(((*begin).to_owned(), Meaning::Calls));
            }
        }
        if let Some(reasoning) = format.reasoning {
            marks.push((reasoning.begin.to_owned(), Meaning::Reasoning));
            marks.extend(reasoning.silent.iter().map(|silent| ((*silent).to_owned(), Meaning::Silent)));
            marks.push((reasoning.end.to_owned(), Meaning::ReasoningEnd));
        }
        let (texts, meanings): (Vec<String>, _) = marks.into_iter().unzip();
        let reasoning_begins = format.reasoning.map_or_else(Vec::new, |own| vec![own.begin, own.own_begin()]);
        let calls_in_reasoning = format.tools.filter(|own| own.in_reasoning).map_or(&[][..], |own| own.begin);
        let ends = format.reasoning.map(|own| own.end).into_iter();
        let reasoning: Vec<String> = ends
            .chain(reasoning_begins.iter().chain(calls_in_reasoning).copied())
            .map(str::to_owned)
            .collect();
        Marks {
            strings: Arc::new(StopStrings::new(&texts)),
            meanings,
            texts,
            reasoning: Arc::new(StopStrings::new(&reasoning)),
            reasoning_begins,
            calls_in_reasoning,
        }
    }

    fn reasoning(&self) -> StopSearch {
        StopSearch::new(Arc::clone(&self.reasoning))
    }

    fn text(&self) -> Mode {
        Mode::Text(StopSearch::new(Arc::clone(&self.strings)))
    }
}

/// A text without the white space next to marks.
#[derive(Debug, Default)]
struct Flow {
    /// Whether a mark came last, so that white space is dropped.
    trims: bool,
    /// White space that is dropped if a mark follows.
    held: String,
    /// Whether there are no marks.
    is_plain: bool,
}

impl Flow {
    /// The text that is certain after `text`.
    fn push(&mut self, text: &str) -> String {
        if self.is_plain {
            return text.to_owned();
        }
        let text = if self.trims { text.trim_start() } else { text };
        let end = text.trim_end().len();
        if end == 0 {
            self.held.push_str(text);
            return String::new();
        }
        self.trims = false;
        std::mem::replace(&mut self.held, text[end..].to_owned()) + &text[..end]
    }

    fn drop_space(&mut self) {
        self.held.clear();
        self.trims = true;
    }

    fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

fn push_text(events: &mut Vec<AnswerEvent>, text: &str) {
    match events.last_mut() {
        _ if text.is_empty() => {}
        Some(AnswerEvent::Text(last)) => last.push_str(text),
        _ => events.push(AnswerEvent::Text(text.to_owned())),
    }
}
