//! The wire formats of tool calls, as data: what models write, and how it is read.

mod rows;

use serde_json::{Map, Value};

pub use rows::FORMATS;

use super::spaced_json;
use super::types::Types;

/// How a model writes its tool calls.
///
/// Several calls are `begin open` call `separator` call `close`, and a call is `before` NAME `between` ARGUMENTS
/// `after`. In these texts `{index}` is the number of a call, `{id:9}` an id of nine letters and digits, and `{name}` of a
/// begin mark the name of the call. They are written as they stand; reading ignores the white space in them.
#[derive(Debug, PartialEq, Eq)]
pub struct ToolFormat {
    /// The name, as in `--tool-format`.
    pub name: &'static str,
    /// Texts that begin calls wherever they occur; templates write the first.
    pub begin: &'static [&'static str],
    /// Whether calls may also begin an answer without any mark. Templates then write none.
    pub bare: bool,
    /// Between the begin mark and the first call.
    pub open: &'static str,
    /// In front of a name.
    pub before: &'static str,
    /// Between name and arguments.
    pub between: &'static str,
    /// Behind the arguments.
    pub after: &'static str,
    /// Between calls.
    pub separator: Separator,
    /// Behind the last call.
    pub close: &'static str,
    /// How a call is read, and how its arguments are written.
    pub syntax: Syntax,
    /// Whether calls may stand in the middle of the reasoning.
    pub in_reasoning: bool,
}

/// How calls follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Separator {
    /// All calls stand between one begin mark and one `close`, with this text between them.
    Calls(&'static str),
    /// Each call has its own begin mark and `close`, with this text between calls.
    Sections(&'static str),
}

/// How a call is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// A JSON object with the name and the arguments under keys such as `name` and `arguments`, in any order.
    Object,
    /// The name between marks, then the arguments as a JSON object.
    Named(Heads),
    /// Each argument between marks of its own, texts without quotes.
    Tagged(Tags),
    /// A call as in a program: `name(key='value')`.
    Literals(Literals),
}

/// The marks of [`Syntax::Named`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Begins a call; empty if the format's begin mark does.
    pub call: &'static str,
    /// Stands before the name and behind an id or a type; empty if there is none.
    pub name: &'static str,
    /// Stands before an id that follows the name; empty if there is none.
    pub id: &'static str,
    /// Begins the arguments.
    pub arguments: &'static str,
    /// Stands in the place of a name if text follows, in formats that name who gets each part of an answer; empty in all
    /// others. The prompt then ends with the begin mark.
    pub text: &'static str,
}

/// The marks of [`Syntax::Tagged`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    /// Begins a call; empty if the format's begin mark does.
    pub call: &'static str,
    /// Ends the name; empty if the first key or the end of the call does. A quote inside the name ends it too.
    pub name_end: &'static str,
    /// Begins a key.
    pub key: &'static str,
    /// Ends a key.
    pub key_end: &'static str,
    /// The text between key and value that tells the type of the value.
    pub kinds: Option<Kinds>,
    /// Begins a value; empty if the end of the key does.
    pub value: &'static str,
    /// Around a value, and no part of it.
    pub padding: &'static str,
    /// Stand around a text that holds marks of XML or line breaks, and are no part of it; empty if texts are never quoted.
    pub quotes: [&'static str; 2],
    /// Ends a value.
    pub value_end: &'static str,
    /// Behind each value, and between the marks of key and value if the latter has one.
    pub line: &'static str,
    /// Ends a call.
    pub end: &'static str,
}

/// How [`Tags`] tell the type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    /// By the first of these if it is a text, and by the second if it is not.
    Text([&'static str; 2]),
    /// By the name of its type in JSON, which is `number` of integers too.
    Type,
}

/// The punctuation of [`Syntax::Literals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literals {
    /// Begins a call; empty if its name does.
    pub call: &'static str,
    /// Behind the name.
    pub open: char,
    /// Between key and value.
    pub assign: char,
    /// Behind the last argument.
    pub close: char,
    /// Around strings, which have no escapes then. Empty: quotes as in Python, with its escapes.
    pub quote: &'static str,
}

impl ToolFormat {
    /// The format of this name.
    pub fn named(name: &str) -> Option<&'static ToolFormat> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// The names that [`ToolFormat::named`] takes.
    pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// All texts of the format, to find special tokens in.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'static str> {
        let quote = match &self.syntax {
            Syntax::Literals(literals) => literals.quote,
            _ => "",
        };
        let own = [self.open, self.before, self.between, self.after, self.close, quote];
        let tags = match &self.syntax {
            Syntax::Tagged(tags) => [tags.key, tags.key_end, tags.value, tags.value_end, tags.end],
            Syntax::Named(heads) => [heads.call, heads.name, heads.id, heads.arguments, ""],
            _ => [""; 5],
        };
        self.begin.iter().copied().chain(own).chain(tags)
    }

    /// The name under which text stands, if it needs one as calls do; empty if not.
    pub(super) fn recipient(&self) -> &'static str {
        match &self.syntax {
            Syntax::Named(heads) => heads.text,
            _ => "",
        }
    }

    /// The begin mark as written; a format whose calls may stand bare writes none.
    pub(super) fn written_begin(&self) -> &'static str {
        if self.bare { "" } else { self.begin[0] }
    }

    /// Calls as templates write them, without texts that vary. Arguments are on one line, with spaces.
    pub(super) fn write(&self, calls: &[(&str, &Map<String, Value>)]) -> String {
        let written = calls.iter().map(|(name, arguments)| {
            [self.before, name, self.between, &self.arguments(arguments), self.after].concat()
        });
        let written = written.collect::<Vec<_>>();
        let section = |name: &str, calls: &str| {
            [&self.written_begin().replace("{name}", name), self.open, calls, self.close].concat()
        };
        match self.separator {
            Separator::Calls(between) => section("", &written.join(between)),
            Separator::Sections(between) => {
                let sections = calls.iter().zip(&written).map(|((name, _), call)| section(name, call));
                sections.collect::<Vec<_>>().join(between)
            }
        }
    }

    fn arguments(&self, arguments: &Map<String, Value>) -> String {
        match &self.syntax {
            Syntax::Object | Syntax::Named(_) => spaced_json(&Value::Object(arguments.clone())),
            Syntax::Tagged(tags) => arguments.iter().map(|(key, value)| tags.write(key, value)).collect(),
            Syntax::Literals(literals) => {
                let separator = if literals.quote.is_empty() { ", " } else { "," };
                literals.members(arguments, separator)
            }
        }
    }
}

impl Tags {
    /// All between a key and its value of one of these types.
    pub(super) fn middle(&self, types: Types) -> String {
        let gap = match self.kinds {
            Some(Kinds::Text([text, _])) if types == Types::STRING => text,
            Some(Kinds::Text([_, other])) => other,
            Some(Kinds::Type) if types.meets(Types::NUMBER) => "number",
            Some(Kinds::Type) => types.names().first().copied().unwrap_or("null"),
            None if self.value.is_empty() => "",
            None => self.line,
        };
        [self.key_end, gap, self.value].concat()
    }

    fn write(&self, key: &str, value: &Value) -> String {
        let types = Types::from_value(value);
        let [quote, unquote] = self.quotes;
        let value = match value {
            Value::String(text) if text.contains(['<', '&', '\n']) => [quote, text, unquote].concat(),
            Value::String(text) => text.clone(),
            other => spaced_json(other),
        };
        let (padding, end, line) = (self.padding, self.value_end, self.line);
        [self.key, key, &self.middle(types), padding, &value, padding, end, line].concat()
    }
}

impl Literals {
    fn members(&self, members: &Map<String, Value>, separator: &str) -> String {
        let written = members.iter().map(|(key, value)| format!("{key}{}{}", self.assign, self.write(value)));
        written.collect::<Vec<_>>().join(separator)
    }

    fn write(&self, value: &Value) -> String {
        let is_python = self.quote.is_empty();
        match value {
            Value::String(text) if !is_python => [self.quote, text, self.quote].concat(),
            Value::String(text) if !text.contains(['\'', '\\', '\n', '\r']) => format!("'{text}'"),
            Value::Array(items) if !is_python => {
                let items: Vec<String> = items.iter().map(|item| self.write(item)).collect();
                format!("[{}]", items.join(","))
            }
            Value::Object(members) if !is_python => format!("{{{}}}", self.members(members, ",")),
            other => spaced_json(other),
        }
    }
}
