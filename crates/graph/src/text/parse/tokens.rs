//! Tokens one by one: what stands next, and what should.

use super::Parser;
use crate::Error;
use crate::text::lexer::{Token, unexpected};

impl<'t> Parser<'t> {
    pub(super) fn word_or_text(&mut self, what: &str) -> Result<String, Error> {
        match self.advance()? {
            (Token::Word(word), _) => Ok(word.to_string()),
            (Token::Text(text), _) => Ok(text),
            (found, line) => Err(unexpected(what, &found, line)),
        }
    }

    pub(super) fn word(&mut self, word: &'static str) -> Result<(), Error> {
        match self.token {
            Token::Word(found) if found == word => self.advance().map(|_| ()),
            _ => Err(self.expected(&format!("`{word}`"))),
        }
    }

    pub(super) fn symbol(&mut self, symbol: &'static str) -> Result<(), Error> {
        if self.accept(symbol)? { Ok(()) } else { Err(self.expected(&format!("`{symbol}`"))) }
    }

    pub(super) fn accept(&mut self, symbol: &'static str) -> Result<bool, Error> {
        let is_next = self.token == Token::Symbol(symbol);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    /// Takes the next token.
    pub(super) fn advance(&mut self) -> Result<(Token<'t>, usize), Error> {
        let (token, line) = self.lexer.next()?;
        Ok((std::mem::replace(&mut self.token, token), std::mem::replace(&mut self.line, line)))
    }

    pub(super) fn expected(&self, what: &str) -> Error {
        unexpected(what, &self.token, self.line)
    }
}
