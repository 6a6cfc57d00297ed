//! Calls as in a program: `f(a='x', b=[1, True])`, or `f{a:<escape>x<escape>,b:[1,true]}`.

use super::tagged::escaped;
use super::{Call, MAX_HEAD, Progress, Reader, search};
use crate::answer::formats::Literals;
use crate::answer::tool::is_name_char;
use crate::stop_strings::StopSearch;

#[derive(Debug)]
pub(super) struct LiteralReader {
    literals: &'static Literals,
    place: Place,
    /// A name, a key, a word of a value, or an escape of a string.
    held: String,
    /// Brackets that are open in a value.
    open: Vec<char>,
    /// The end of a string between marks.
    string: Option<StopSearch>,
    is_first: bool,
    /// Whether a comma comes before the next item of a value; Python allows one behind the last.
    comma: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    Key,
    Value,
    /// In a string that this quote ends.
    Text(char),
    Escape(char),
    /// In a string between marks.
    Marked,
}

impl LiteralReader {
    pub(super) fn new(literals: &'static Literals) -> LiteralReader {
        LiteralReader {
            literals,
            place: Place::Name,
            held: String::new(),
            open: Vec::new(),
            string: None,
            is_first: true,
            comma: false,
        }
    }

    fn step(&mut self, char: char, call: &mut Call) -> Progress {
        match self.place {
            Place::Name => self.name(char, call),
            Place::Key => self.key(char, call),
            Place::Value => self.value(char, call),
            Place::Text(quote) => {
                match char {
                    '\\' => (self.place, self.held) = (Place::Escape(quote), String::new()),
                    _ if char == quote => self.end_string(call),
                    _ => call.arguments.push_str(&escaped(char.encode_utf8(&mut [0; 4]))),
                }
                Progress::More
            }
            Place::Escape(quote) => self.escape(char, quote, call),
            Place::Marked => Progress::More,
        }
    }

    fn name(&mut self, char: char, call: &mut Call) -> Progress {
        if char == self.literals.open && !self.held.is_empty() {
            call.name = Some(self.held.clone());
            call.arguments.push('{');
            self.go(Place::Key);
            return Progress::More;
        }
        if !is_name_char(char) || self.held.len() > MAX_HEAD {
            return Progress::Failed;
        }
        self.held.push(char);
        Progress::More
    }

    fn key(&mut self, char: char, call: &mut Call) -> Progress {
        let is_empty = self.held.is_empty();
        if char == self.literals.assign && !is_empty {
            let separator = if std::mem::take(&mut self.is_first) { "" } else { ", " };
            let (key, quote) = (self.held.trim_end(), self.literals.quote);
            let inner = key.strip_prefix(quote).and_then(|key| key.strip_suffix(quote)).unwrap_or(key);
            call.arguments.push_str(&format!("{separator}\"{}\": ", escaped(inner)));
            self.go(Place::Value);
            return Progress::More;
        }
        if char == self.literals.close && is_empty {
            call.arguments.push('}');
            return Progress::Done;
        }
        if is_empty && (char.is_whitespace() || char == ',' && !self.is_first) {
            return Progress::More;
        }
        let is_key = is_key_char(char) || char == ' ' || self.literals.quote.contains(char);
        if !is_key || self.held.len() > MAX_HEAD {
            return Progress::Failed;
        }
        self.held.push(char);
        Progress::More
    }

    fn value(&mut self, char: char, call: &mut Call) -> Progress {
        let quote = self.literals.quote;
        if !quote.is_empty()
            && (!self.held.is_empty() && quote.starts_with(&self.held[..]) || quote.starts_with(char))
        {
            return self.mark(char, call);
        }
        match char {
            '\'' | '"' if quote.is_empty() && self.held.is_empty() => {
                self.put("\"", call);
                self.go(Place::Text(char));
                Progress::More
            }
            '[' | '{' | '(' if self.held.is_empty() => {
                self.put(if char == '{' { "{" } else { "[" }, call);
                self.open.push(char);
                Progress::More
            }
            ']' | '}' | ')' | ',' | ':' => self.punctuation(char, call),
            _ if char.is_whitespace() => {
                let is_between = self.held.is_empty();
                if is_between || self.word(false, call) { Progress::More } else { Progress::Failed }
            }
            // Whether these are a key, a number or nothing is known at their end.
            _ if is_key_char(char) => {
                self.held.push(char);
                if self.held.len() > MAX_HEAD { Progress::Failed } else { Progress::More }
            }
            _ => Progress::Failed,
        }
    }

    /// A bracket, comma or colon, which ends a word.
    fn punctuation(&mut self, char: char, call: &mut Call) -> Progress {
        if !self.word(char == ':', call) {
            return Progress::Failed;
        }
        let opened = self.open.last().copied();
        match (char, opened) {
            (',', None) => self.go(Place::Key),
            (_, None) if char == self.literals.close => {
                call.arguments.push('}');
                return Progress::Done;
            }
            (',', Some(_)) => self.comma = true,
            (':', Some('{')) => call.arguments.push_str(": "),
            (']', Some('[')) | ('}', Some('{')) | (')', Some('(')) => {
                self.open.pop();
                self.comma = false;
                call.arguments.push(if char == '}' { '}' } else { ']' });
            }
            _ => return Progress::Failed,
        }
        Progress::More
    }

    /// Writes the word that was read: a key, or a value as JSON has it. False if it is neither.
    fn word(&mut self, is_key: bool, call: &mut Call) -> bool {
        let word = std::mem::take(&mut self.held);
        let json = match &word[..] {
            "" => return true,
            word if is_key && self.literals.assign == ':' => format!("\"{}\"", escaped(word)),
            "True" | "true" => "true".to_owned(),
            "False" | "false" => "false".to_owned(),
            "None" | "null" => "null".to_owned(),
            number if serde_json::from_str::<serde::de::IgnoredAny>(number).is_ok() => number.to_owned(),
            _ => return false,
        };
        self.put(&json, call);
        true
    }

    /// Writes the beginning of an item.
    fn put(&mut self, json: &str, call: &mut Call) {
        if std::mem::take(&mut self.comma) {
            call.arguments.push_str(", ");
        }
        call.arguments.push_str(json);
    }

    /// A character of the mark that begins a string.
    fn mark(&mut self, char: char, call: &mut Call) -> Progress {
        self.held.push(char);
        let quote = self.literals.quote;
        if self.held == quote {
            self.put("\"", call);
            self.string = Some(search(&[quote]));
            self.go(Place::Marked);
        } else if !quote.starts_with(&self.held[..]) {
            return Progress::Failed;
        }
        Progress::More
    }

    /// A character behind a backslash.
    fn escape(&mut self, char: char, quote: char, call: &mut Call) -> Progress {
        self.held.push(char);
        let digits = match self.held.as_bytes()[0] {
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            _ => 0,
        };
        if self.held.chars().count() <= digits {
            return Progress::More;
        }
        if char.is_ascii_hexdigit()
            && digits == 4
            && self.held[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            // As in JSON, where two may stand for one character.
            call.arguments.push_str(&format!("\\{}", self.held));
            self.go(Place::Text(quote));
            return Progress::More;
        }
        let code = |digits| u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
        let text = match char {
            _ if digits > 0 => match code(&self.held[1..]) {
                Some(char) => char.to_string(),
                None => return Progress::Failed,
            },
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            'r' => "\r".to_owned(),
            'b' => "\u{8}".to_owned(),
            'f' => "\u{c}".to_owned(),
            '0' => "\0".to_owned(),
            '\n' => String::new(),
            '\\' | '\'' | '"' | '/' => char.to_string(),
            other => format!("\\{other}"),
        };
        call.arguments.push_str(&escaped(&text));
        self.go(Place::Text(quote));
        Progress::More
    }

    fn end_string(&mut self, call: &mut Call) {
        call.arguments.push('"');
        self.go(Place::Value);
    }

    fn go(&mut self, place: Place) {
        self.held.clear();
        self.place = place;
    }
}

/// Whether a name can be read where no quotes are around it, as that of an argument or inside a value.
pub(in crate::answer) fn is_key(name: &str, is_nested: bool) -> bool {
    let may_be = |char| is_key_char(char) || char == ' ' && !is_nested;
    !name.is_empty() && name.trim() == name && name.len() <= MAX_HEAD && name.chars().all(may_be)
}

fn is_key_char(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | '$' | '@' | '/' | '+' | '#')
}

impl Reader for LiteralReader {
    fn read(&mut self, text: &str, call: &mut Call) -> (usize, Progress) {
        let mut at = 0;
        while let Some(char) = text[at..].chars().next() {
            if let (Place::Marked, Some(search)) = (self.place, &mut self.string) {
                let found = search.find(&text[at..]);
                call.arguments.push_str(&escaped(&found.text));
                at += found.end;
                if found.string.is_some() {
                    self.end_string(call);
                }
                continue;
            }
            let progress = self.step(char, call);
            at += if progress == Progress::Failed { 0 } else { char.len_utf8() };
            if progress != Progress::More {
                return (at, progress);
            }
        }
        (at, Progress::More)
    }
}
