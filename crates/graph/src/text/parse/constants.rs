//! The data of constants.

use super::Parser;
use crate::Error;
use crate::text::data::{Data, Number};
use crate::text::lexer::{Token, unexpected};

impl<'t> Parser<'t> {
    pub(super) fn data(&mut self) -> Result<Data<'t>, Error> {
        if let Token::Number(text) = self.token
            && let Some(digits) = text.strip_prefix("0x")
        {
            self.advance()?;
            return Ok(Data::Bytes(digits));
        }
        if self.accept("@")? {
            return self.detached();
        }
        self.symbol("[")?;
        let mut numbers = Vec::new();
        while !self.accept("]")? {
            if !numbers.is_empty() {
                self.symbol(",")?;
            }
            let negative = self.accept("-")?;
            let (Token::Number(text) | Token::Word(text)) = self.token else {
                return Err(self.expected("a number"));
            };
            self.advance()?;
            let mut bits = None;
            if text == "nan" && self.accept("(")? {
                let Token::Number(digits) = self.token else {
                    return Err(self.expected("the bits of a NaN"));
                };
                self.advance()?;
                self.symbol(")")?;
                bits = Some(digits);
            }
            numbers.push(Number { negative, text, bits });
        }
        Ok(Data::Numbers(numbers))
    }

    /// The constant with the number that stands next.
    fn detached(&mut self) -> Result<Data<'t>, Error> {
        let (token, line) = self.advance()?;
        let Token::Number(digits) = token else {
            return Err(unexpected("a constant's number", &token, line));
        };
        let found = digits.parse().ok().and_then(|index: usize| self.detached.get(index));
        let known = self.detached.len();
        let message = || format!("there is no constant @{digits} with the text, which has {known}");
        found.cloned().map(Data::Detached).ok_or_else(|| Error::Parse { line, message: message() })
    }
}
