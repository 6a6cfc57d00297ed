//! Calls whose arguments stand between marks, texts without quotes: `<parameter=city>\nParis\n</parameter>`.
//!
//! Whether `5` is a number or a text is known from the tool's schema alone.

use std::sync::Arc;

use serde_json::Value;

use super::{Call, MAX_HEAD, Progress, Reader, search};
use crate::answer::formats::{Kinds, Tags};
use crate::answer::tool::Tool;
use crate::answer::types::Types;
use crate::stop_strings::StopSearch;

#[derive(Debug)]
pub(super) struct TaggedReader {
    tags: &'static Tags,
    tools: Arc<[Tool]>,
    place: Place,
    search: StopSearch,
    /// A name, a key, or a value that does not go to the arguments as it comes.
    held: String,
    /// Whether the value is a text whatever it looks like.
    is_text: bool,
    /// Types that the value may have.
    types: Types,
    /// Whether the value's first byte is still to come.
    at_start: bool,
    is_first: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    /// In front of a key or of the end.
    Gap,
    Key,
    /// Between key and value.
    Middle,
    Value,
    /// Between the quotes of a value.
    Quoted,
}

impl TaggedReader {
    pub(super) fn new(tags: &'static Tags, tools: Arc<[Tool]>) -> TaggedReader {
        let mut reader = TaggedReader {
            tags,
            tools,
            place: Place::Name,
            search: search(&[]),
            held: String::new(),
            is_text: false,
            types: Types::ALL,
            at_start: false,
            is_first: true,
        };
        reader.go(Place::Name);
        reader
    }

    /// Looks for the marks that end a place.
    fn go(&mut self, place: Place) {
        let tags = self.tags;
        if !matches!((self.place, place), (Place::Value, Place::Quoted) | (Place::Quoted, Place::Value)) {
            self.held.clear();
        }
        self.place = place;
        self.search = match place {
            Place::Name if tags.name_end.is_empty() => search(&[tags.key, tags.end]),
            Place::Name => search(&[tags.name_end]),
            Place::Gap => search(&[tags.key, tags.end]),
            Place::Key => search(&[tags.key_end]),
            Place::Middle => search(&[tags.value]),
            Place::Value if tags.quotes[0].is_empty() => search(&[tags.value_end]),
            Place::Value => search(&[tags.value_end, tags.quotes[0]]),
            Place::Quoted => search(&[tags.quotes[1]]),
        };
    }

    /// Takes text that stands in front of the place's end.
    fn take(&mut self, text: &str, call: &mut Call) -> Progress {
        if matches!(self.place, Place::Value | Place::Quoted) && self.is_text {
            self.take_text(text, call);
            return Progress::More;
        }
        self.held.push_str(text);
        let fits = match self.place {
            Place::Name | Place::Key => self.held.len() <= MAX_HEAD,
            Place::Middle if self.tags.kinds.is_some() => self.held.len() <= MAX_HEAD,
            Place::Gap | Place::Middle => text.trim().is_empty(),
            Place::Value | Place::Quoted => {
                self.begin_text_unless_null(call);
                true
            }
        };
        if fits { Progress::More } else { Progress::Failed }
    }

    /// A value that is a text or null is a text once it is not the beginning of `null`.
    fn begin_text_unless_null(&mut self, call: &mut Call) {
        let padding = self.tags.padding;
        let held = self.held.strip_prefix(padding).unwrap_or(&self.held);
        let is_beginning =
            padding.starts_with(&self.held[..]) || ["null", padding].concat().starts_with(held);
        if self.types == Types::STRING | Types::NULL && !is_beginning {
            self.begin_text(call);
            let text = std::mem::take(&mut self.held);
            self.take_text(&text, call);
        }
    }

    fn begin_text(&mut self, call: &mut Call) {
        self.is_text = true;
        call.arguments.push('"');
    }

    /// Adds a piece of a text to the arguments; padding at its end is held back until more comes.
    fn take_text(&mut self, text: &str, call: &mut Call) {
        let mut rest = text;
        if self.at_start && !rest.is_empty() {
            self.at_start = false;
            rest = rest.strip_prefix(self.tags.padding).unwrap_or(rest);
        }
        if rest.is_empty() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        call.arguments.push_str(&escaped(&held));
        let kept = rest.strip_suffix(self.tags.padding).filter(|_| !self.tags.padding.is_empty());
        self.held.push_str(&rest[kept.map_or(rest.len(), str::len)..]);
        call.arguments.push_str(&escaped(kept.unwrap_or(rest)));
    }

    /// The place ends with its mark of this index.
    fn end(&mut self, mark: usize, call: &mut Call) -> Progress {
        let is_end = mark == 1;
        match self.place {
            Place::Name => {
                let name = self.held.split('"').next().unwrap_or_default().trim().to_owned();
                if name.is_empty() || name.contains(char::is_whitespace) {
                    return Progress::Failed;
                }
                call.name = Some(name);
                call.arguments.push('{');
                if is_end {
                    return finish(call);
                }
                self.go(if self.tags.name_end.is_empty() { Place::Key } else { Place::Gap });
            }
            Place::Gap if is_end => return finish(call),
            Place::Gap => self.go(Place::Key),
            Place::Key => {
                let key = self.held.trim().to_owned();
                self.begin_value(&key, call);
                self.go(if self.tags.value.is_empty() { Place::Value } else { Place::Middle });
            }
            Place::Middle => {
                let says_text = match self.tags.kinds {
                    Some(Kinds::Text([text, _])) => self.held.trim() == text,
                    Some(Kinds::Type) => self.held.trim() == "string",
                    None => false,
                };
                if says_text && !self.is_text && self.types.meets(Types::STRING) {
                    self.begin_text(call);
                }
                self.go(Place::Value);
            }
            Place::Value if is_end => self.go(Place::Quoted),
            Place::Value => {
                self.finish_value(call);
                self.go(Place::Gap);
            }
            Place::Quoted => self.go(Place::Value),
        }
        Progress::More
    }

    fn begin_value(&mut self, key: &str, call: &mut Call) {
        let separator = if std::mem::take(&mut self.is_first) { "" } else { ", " };
        call.arguments.push_str(&format!("{separator}{}: ", Value::from(key)));
        let tool = self.tools.iter().find(|tool| Some(&tool.name) == call.name.as_ref());
        self.types = tool.map_or(Types::ALL, |tool| Types::from_argument(&tool.parameters, key));
        self.is_text = false;
        self.at_start = true;
        if self.types == Types::STRING {
            self.begin_text(call);
        }
    }

    fn finish_value(&mut self, call: &mut Call) {
        if self.is_text {
            return call.arguments.push('"');
        }
        let padding = self.tags.padding;
        let held = self.held.strip_prefix(padding).unwrap_or(&self.held);
        let held = held.strip_suffix(padding).unwrap_or(held);
        match json(held, self.types) {
            Some(json) => call.arguments.push_str(json),
            None => call.arguments.push_str(&Value::from(held).to_string()),
        }
    }
}

impl Reader for TaggedReader {
    fn read(&mut self, text: &str, call: &mut Call) -> (usize, Progress) {
        let mut at = 0;
        while at < text.len() {
            let found = self.search.find(&text[at..]);
            at += found.end;
            let mut progress = self.take(&found.text, call);
            if let (Some(mark), Progress::More) = (found.string, progress) {
                progress = self.end(mark, call);
            }
            if progress != Progress::More {
                return (at, progress);
            }
        }
        (at, Progress::More)
    }
}

fn finish(call: &mut Call) -> Progress {
    call.arguments.push('}');
    Progress::Done
}

/// A text as it stands inside a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Whether a text without quotes is read as a value of JSON.
pub(in crate::answer) fn is_json(text: &str, types: Types) -> bool {
    json(text, types).is_some()
}

/// The JSON that a text without quotes is, if the types allow that. A string in quotes is the text with its quotes.
fn json(text: &str, types: Types) -> Option<&str> {
    let text = text.trim();
    let (json, own) = match text {
        // Words of Python are texts wherever texts are allowed.
        "True" | "False" | "None" if types.meets(Types::STRING) => return None,
        "True" => ("true", Types::BOOLEAN),
        "False" => ("false", Types::BOOLEAN),
        "None" => ("null", Types::NULL),
        _ => (text, json_type(text)?),
    };
    (own != Types::STRING && types.meets(own)).then_some(json)
}

/// The type of a JSON text, if it is one. `1.0` may be an integer.
fn json_type(text: &str) -> Option<Types> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    Some(match text.as_bytes()[0] {
        b'{' => Types::OBJECT,
        b'[' => Types::ARRAY,
        b'"' => Types::STRING,
        b't' | b'f' => Types::BOOLEAN,
        b'n' => Types::NULL,
        _ => Types::NUMBER,
    })
}
