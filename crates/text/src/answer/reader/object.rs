//! Calls as JSON objects: `{"name": "f", "arguments": {"a": 1}}`.

use super::json::JsonScan;
use super::{Call, MAX_HEAD, Progress, Reader};

/// Keys of the name.
const NAME: [&str; 2] = ["name", "tool_name"];
/// Keys of the arguments.
const ARGUMENTS: [&str; 2] = ["arguments", "parameters"];
/// Keys of the id.
const ID: [&str; 2] = ["id", "tool_call_id"];
/// Other keys that an object without a mark in front may have and yet be a call.
const OTHER: [&str; 1] = ["type"];

#[derive(Debug)]
pub(super) struct ObjectReader {
    place: Place,
    key: String,
    scan: JsonScan,
    /// The value, unless it goes to the arguments as it comes.
    held: String,
    has_arguments: bool,
    /// Whether other keys show that this is no call.
    is_bare: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Open,
    /// In front of a key or of the end.
    Gap,
    Key,
    Colon,
    ValueStart,
    Value,
    Arguments,
}

impl ObjectReader {
    pub(super) fn new(is_bare: bool) -> ObjectReader {
        ObjectReader {
            place: Place::Open,
            key: String::new(),
            scan: JsonScan::default(),
            held: String::new(),
            has_arguments: false,
            is_bare,
        }
    }

    /// A character between values.
    fn between(&mut self, char: char, call: &Call) -> Progress {
        self.place = match (self.place, char) {
            (place, ' ' | '\n' | '\r' | '\t') => place,
            (Place::Open, '{') | (Place::Gap, ',') => Place::Gap,
            (Place::Gap, '}') if call.name.is_some() => return Progress::Done,
            (Place::Gap, '"') => {
                self.held.clear();
                self.scan = JsonScan::default();
                self.scan.scan("\"");
                self.held.push('"');
                Place::Key
            }
            (Place::Colon, ':') => Place::ValueStart,
            _ => return Progress::Failed,
        };
        Progress::More
    }

    /// Chooses where the value goes that begins with `char`.
    fn begin_value(&mut self, char: char) {
        self.held.clear();
        self.scan = JsonScan::default();
        let streams = char == '{' && ARGUMENTS.contains(&&self.key[..]) && !self.has_arguments;
        self.has_arguments |= streams;
        self.place = if streams { Place::Arguments } else { Place::Value };
    }

    /// A key or a value is whole.
    fn finish(&mut self, call: &mut Call) -> Progress {
        let place = std::mem::replace(&mut self.place, Place::Gap);
        let text = || serde_json::from_str::<String>(&self.held).ok();
        let is = |keys: &[&str]| keys.contains(&&self.key[..]);
        match place {
            Place::Key => {
                let Some(key) = text() else { return Progress::Failed };
                self.key = key;
                self.place = Place::Colon;
                let known = [&NAME[..], &ARGUMENTS, &ID, &OTHER].concat();
                if self.is_bare && !known.contains(&&self.key[..]) {
                    return Progress::Failed;
                }
            }
            Place::Value if is(&NAME) && call.name.is_none() => {
                call.name = text().filter(|name| !name.is_empty());
                if call.name.is_none() {
                    return Progress::Failed;
                }
            }
            // The text of a JSON object in place of the object.
            Place::Value if is(&ARGUMENTS) && !self.has_arguments => {
                self.has_arguments = true;
                call.arguments = match self.held.trim() {
                    "null" => String::new(),
                    held => text().unwrap_or_else(|| held.to_owned()),
                };
            }
            Place::Value if is(&ID) && call.name.is_none() => call.id = text(),
            _ => {}
        }
        Progress::More
    }
}

impl Reader for ObjectReader {
    fn read(&mut self, text: &str, call: &mut Call) -> (usize, Progress) {
        let mut at = 0;
        while let Some(char) = text[at..].chars().next() {
            let progress = match self.place {
                Place::ValueStart if char.is_ascii_whitespace() => {
                    at += 1;
                    Progress::More
                }
                Place::ValueStart => {
                    self.begin_value(char);
                    Progress::More
                }
                Place::Key | Place::Value | Place::Arguments => {
                    let (taken, progress) = self.scan.scan(&text[at..]);
                    let target =
                        if self.place == Place::Arguments { &mut call.arguments } else { &mut self.held };
                    target.push_str(&text[at..at + taken]);
                    at += taken;
                    match progress {
                        Progress::More if self.place == Place::Key && self.held.len() > MAX_HEAD => {
                            Progress::Failed
                        }
                        Progress::Done => self.finish(call),
                        progress => progress,
                    }
                }
                _ => {
                    let progress = self.between(char, call);
                    at += if progress == Progress::Failed { 0 } else { char.len_utf8() };
                    progress
                }
            };
            if progress != Progress::More {
                return (at, progress);
            }
        }
        (at, Progress::More)
    }
}
