//! From characters to tokens.

use std::fmt;

use crate::Error;

/// A piece of graph text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'t> {
    /// Letters, digits and underscores, not starting with a digit.
    Word(&'t str),
    /// What starts with a digit: letters, digits, points, and a sign after an exponent's `e`.
    Number(&'t str),
    /// What stood between quotes.
    Text(String),
    /// One of `%(){}[],:=@+-*` or `//`.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

const SYMBOLS: &[&str] = &["%", "(", ")", "{", "}", "[", "]", ",", ":", "=", "@", "+", "-", "*", "//"];

/// Reads tokens one by one.
#[derive(Debug, Clone)]
pub(super) struct Lexer<'t> {
    rest: &'t str,
    line: usize,
}

impl<'t> Lexer<'t> {
    /// A reader of a text.
    pub(super) fn new(text: &'t str) -> Lexer<'t> {
        Lexer { rest: text, line: 1 }
    }

    /// The next token and the line it stands on.
    pub(super) fn next(&mut self) -> Result<(Token<'t>, usize), Error> {
        self.skip_blanks();
        let line = self.line;
        let Some(first) = self.rest.chars().next() else { return Ok((Token::End, line)) };
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| self.rest.starts_with(**symbol)) {
            self.rest = &self.rest[symbol.len()..];
            return Ok((Token::Symbol(symbol), line));
        }
        let token = match first {
            '"' => Token::Text(self.text()?),
            '0'..='9' => Token::Number(self.number()),
            '_' | 'a'..='z' | 'A'..='Z' => {
                Token::Word(self.take_while(|c| c == '_' || c.is_ascii_alphanumeric()))
            }
            other => return Err(Error::Parse { line, message: format!("unexpected character {other:?}") }),
        };
        Ok((token, line))
    }

    fn skip_blanks(&mut self) {
        loop {
            let blanks = self.take_while(|c| c.is_ascii_whitespace());
            self.line += blanks.matches('\n').count();
            if !self.rest.starts_with('#') {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn number(&mut self) -> &'t str {
        let start = self.rest;
        let part = |c: char| c == '.' || c.is_ascii_alphanumeric();
        let mantissa = self.take_while(part);
        let exponent = !mantissa.starts_with("0x") && mantissa.ends_with(['e', 'E']);
        if exponent && self.rest.starts_with(['+', '-']) {
            self.rest = &self.rest[1..];
            self.take_while(part);
        }
        &start[..start.len() - self.rest.len()]
    }

    /// Reads a text in quotes with the escapes of Rust's `{:?}`.
    fn text(&mut self) -> Result<String, Error> {
        let line = self.line;
        let fail = |message: &str| Err(Error::Parse { line, message: message.to_string() });
        let mut text = String::new();
        let mut chars = self.rest[1..].chars();
        loop {
            match chars.next() {
                None => return fail("the text in quotes does not end"),
                Some('"') => break,
                Some('\n') => return fail("the text in quotes does not end on its line"),
                Some('\\') => match unescape(&mut chars) {
                    Some(character) => text.push(character),
                    None => return fail("the text in quotes has an unknown escape"),
                },
                Some(character) => text.push(character),
            }
        }
        self.rest = chars.as_str();
        Ok(text)
    }
}

pub(super) fn unexpected(expected: &str, found: &Token<'_>, line: usize) -> Error {
    Error::Parse { line, message: format!("expected {expected}, found {found}") }
}

fn unescape(chars: &mut std::str::Chars<'_>) -> Option<char> {
    match chars.next()? {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        '0' => Some('\0'),
        character @ ('\\' | '"' | '\'') => Some(character),
        'u' => {
            let (digits, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
            *chars = rest.chars();
            char::from_u32(u32::from_str_radix(digits, 16).ok()?)
        }
        _ => None,
    }
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Number(text) => match text.char_indices().nth(40) {
                None => write!(f, "`{text}`"),
                Some((end, _)) => write!(f, "`{}…`", &text[..end]),
            },
            Token::Text(text) => write!(f, "{text:?}"),
            Token::Symbol(symbol) => write!(f, "`{symbol}`"),
            Token::End => f.write_str("the end"),
        }
    }
}
