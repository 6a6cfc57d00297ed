//! Lark grammars: limits on what llguidance parses by recursion, the tokens they name, and the schemas in them.

use serde_json::{Deserializer, Value};

use super::{ConstraintError, schema};
use crate::Tokenizer;

/// The most bytes of a grammar.
const MAX_BYTES: usize = 256 << 10;
/// Brackets inside brackets.
const MAX_DEPTH: usize = 64;
/// The most definitions.
const MAX_DEFINITIONS: usize = 4096;

/// A token of the vocabulary as a grammar writes it: special tokens as themselves, others as the text that they are.
/// `None` if the vocabulary has no token of this name.
pub fn token_as_lark(tokenizer: &Tokenizer, name: &str) -> Option<String> {
    let id = tokenizer.id(name)?;
    let is_special = tokenizer.is_special(id) || tokenizer.eos_ids().contains(&id);
    if is_special {
        return Some(format!("<[{id}]>"));
    }
    String::from_utf8(tokenizer.bytes_inside(id)?).ok().map(|text| quoted(&text))
}

/// A grammar as llguidance compiles it: schemas are prepared, and tokens named as it knows them.
///
/// # Errors
/// If the grammar is too large, a token is unknown, or a schema cannot be enforced.
pub(super) fn prepare(grammar: &str, tokenizer: &Tokenizer) -> Result<String, ConstraintError> {
    if grammar.len() > MAX_BYTES {
        return Err(refuse(format!("the grammar has {} bytes; the limit is {MAX_BYTES}", grammar.len())));
    }
    let mut scan = Scan { grammar, position: 0, prepared: String::new(), depth: 0, negations: 0 };
    while let Some(lexeme) = scan.next_lexeme() {
        scan.take(lexeme, tokenizer)?;
    }
    if grammar.lines().count() > MAX_DEFINITIONS {
        return Err(refuse(format!("the grammar has more than {MAX_DEFINITIONS} lines")));
    }
    Ok(scan.prepared)
}

/// A text as a string of Lark, whose escapes are JSON's.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn refuse(problem: impl Into<String>) -> ConstraintError {
    ConstraintError::new("grammar", problem)
}

/// A piece of a grammar that is read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lexeme<'a> {
    /// A string, an expression, a comment or a word.
    Other(&'a str),
    /// A word after `%`, which JSON may follow.
    Directive(&'a str),
    /// `<name>`
    Token(&'a str),
    Character(char),
}

struct Scan<'a> {
    grammar: &'a str,
    position: usize,
    prepared: String,
    depth: usize,
    /// `~` before `~`.
    negations: usize,
}

impl<'a> Scan<'a> {
    fn rest(&self) -> &'a str {
        &self.grammar[self.position..]
    }

    fn next_lexeme(&mut self) -> Option<Lexeme<'a>> {
        let rest = self.rest();
        let first = rest.chars().next()?;
        let lexeme = match first {
            '"' => Lexeme::Other(&rest[..delimited(rest, '"')]),
            '/' if !rest.starts_with("//") => Lexeme::Other(&rest[..delimited(rest, '/')]),
            '#' | '/' => Lexeme::Other(&rest[..rest.find('\n').unwrap_or(rest.len())]),
            '%' => Lexeme::Directive(&rest[..1 + letters(&rest[1..])]),
            '<' => match rest[1..].find(|c: char| matches!(c, '<' | '>') || c.is_whitespace()) {
                Some(end) if end > 0 && rest[1 + end..].starts_with('>') => Lexeme::Token(&rest[..end + 2]),
                _ => Lexeme::Character('<'),
            },
            _ => Lexeme::Character(first),
        };
        self.position += match lexeme {
            Lexeme::Other(text) | Lexeme::Directive(text) | Lexeme::Token(text) => text.len(),
            Lexeme::Character(c) => c.len_utf8(),
        };
        Some(lexeme)
    }

    fn take(&mut self, lexeme: Lexeme<'_>, tokenizer: &Tokenizer) -> Result<(), ConstraintError> {
        match lexeme {
            Lexeme::Other(text) => self.prepared.push_str(text),
            Lexeme::Directive(name) => {
                self.prepared.push_str(name);
                self.directive(name)?;
            }
            Lexeme::Token(name) => {
                let token = self.token(name, tokenizer)?;
                self.prepared.push_str(&token);
            }
            Lexeme::Character(c) => {
                self.nest(c)?;
                self.prepared.push(c);
            }
        }
        Ok(())
    }

    /// Counts what llguidance parses by recursion.
    fn nest(&mut self, c: char) -> Result<(), ConstraintError> {
        match c {
            '(' | '[' | '{' => self.depth += 1,
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            '~' => self.negations += 1,
            c if c.is_whitespace() => {}
            _ => self.negations = 0,
        }
        if self.depth > MAX_DEPTH || self.negations > 2 {
            let problem =
                format!("more than {MAX_DEPTH} brackets inside each other, or more than two `~` in a row");
            return Err(self.refuse(&problem));
        }
        Ok(())
    }

    /// A token's name as llguidance knows it.
    fn token(&self, name: &str, tokenizer: &Tokenizer) -> Result<String, ConstraintError> {
        if name.starts_with("<[") && name.ends_with("]>") {
            return Ok(name.to_owned());
        }
        let token = token_as_lark(tokenizer, name);
        token.ok_or_else(|| self.refuse(&format!("the vocabulary has no token `{name}`")))
    }

    /// Copies the JSON after a directive, a schema as it is prepared.
    fn directive(&mut self, name: &str) -> Result<(), ConstraintError> {
        if !matches!(name, "%json" | "%regex" | "%llguidance") {
            return Ok(());
        }
        let mut values = Deserializer::from_str(self.rest()).into_iter::<Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(error)) => return Err(self.refuse(&format!("the JSON after `{name}`: {error}"))),
            None => return Err(self.refuse(&format!("there is no JSON after `{name}`"))),
        };
        let length = values.byte_offset();
        let value = match name {
            "%json" => {
                let prepared = schema::prepare(&value, false);
                prepared.map_err(|error| self.refuse(&error.to_string()))?.schema
            }
            "%llguidance" if value["allow_invalid_utf8"] == true => {
                return Err(self.refuse("`allow_invalid_utf8` is not supported: answers are texts"));
            }
            _ => value,
        };
        self.position += length;
        self.prepared.push(' ');
        self.prepared.push_str(&value.to_string());
        Ok(())
    }

    fn refuse(&self, problem: &str) -> ConstraintError {
        let before = &self.grammar[..self.position];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        refuse(format!("line {line}, column {column}: {problem}"))
    }
}

/// The bytes of a text from a delimiter to the next one that has no backslash before it.
fn delimited(text: &str, delimiter: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == delimiter && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

fn letters(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len())
}
