//! Types and the dims in them.

use tensor::DType;

use super::Parser;
use crate::text::lexer::{Token, unexpected};
use crate::{DeviceRef, Dim, Error, Kind, Type};

/// How deep parentheses nest in a dim.
const MAX_DEPTH: usize = 32;

impl Parser<'_> {
    /// Whether the list that starts here holds types: a symbol may be called as a dtype is, but no shape follows it.
    pub(super) fn is_list_of_types(&self) -> Result<bool, Error> {
        let mut ahead = self.lexer.clone();
        Ok(match ahead.next()?.0 {
            Token::Word("mut") => matches!(ahead.next()?.0, Token::Word(_)),
            Token::Word(word) => word.parse::<DType>().is_ok() && ahead.next()?.0 == Token::Symbol("["),
            _ => false,
        })
    }

    pub(super) fn list_of_types(&mut self) -> Result<Vec<Type>, Error> {
        self.symbol("[")?;
        let mut types = Vec::new();
        while !self.accept("]")? {
            if !types.is_empty() {
                self.symbol(",")?;
            }
            types.push(self.ty()?);
        }
        Ok(types)
    }

    pub(super) fn types(&mut self) -> Result<Vec<Type>, Error> {
        let mut types = Vec::new();
        if self.accept(":")? {
            types.push(self.ty()?);
            while self.accept(",")? {
                types.push(self.ty()?);
            }
        }
        Ok(types)
    }

    pub(super) fn ty(&mut self) -> Result<Type, Error> {
        let line = self.line;
        let is_buffer = self.token == Token::Word("mut");
        if is_buffer {
            self.advance()?;
        }
        let Token::Word(word) = self.token else { return Err(self.expected("a dtype")) };
        let dtype: DType = word.parse().map_err(|_| self.expected("a dtype"))?;
        self.advance()?;
        let shape = self.dims()?;
        let device = if self.accept("@")? { self.device()? } else { DeviceRef::Cpu };
        let kind = if is_buffer { Kind::Buffer } else { Kind::Tensor };
        let ty = Type { kind, dtype, shape, device };
        let fault = match ty.shape.iter().find(|dim| dim.as_integer().is_some_and(|size| size < 0)) {
            Some(dim) => format!("the size {dim} is negative"),
            None if !ty.is_tractable() => "the shape has too many axes or terms".to_string(),
            None => return Ok(ty),
        };
        Err(Error::Parse { line, message: fault })
    }

    fn device(&mut self) -> Result<DeviceRef, Error> {
        match self.advance()? {
            (Token::Word("cpu"), _) => Ok(DeviceRef::Cpu),
            (Token::Word("gpu"), _) => {
                self.symbol(":")?;
                let Token::Number(digits) = self.token else {
                    return Err(self.expected("the device's index"));
                };
                let index = digits.parse().map_err(|_| self.expected("the device's index"))?;
                self.advance()?;
                Ok(DeviceRef::Gpu(index))
            }
            (found, line) => Err(unexpected("cpu or gpu", &found, line)),
        }
    }

    pub(super) fn dims(&mut self) -> Result<Vec<Dim>, Error> {
        self.symbol("[")?;
        let mut dims = Vec::new();
        while !self.accept("]")? {
            if !dims.is_empty() {
                self.symbol(",")?;
            }
            dims.push(self.sum(0)?);
        }
        Ok(dims)
    }

    fn sum(&mut self, depth: usize) -> Result<Dim, Error> {
        let mut sum =
            if self.accept("-")? { &Dim::from(0) - &self.product(depth)? } else { self.product(depth)? };
        loop {
            sum = match self.token {
                Token::Symbol("+") => {
                    self.advance()?;
                    &sum + &self.product(depth)?
                }
                Token::Symbol("-") => {
                    self.advance()?;
                    &sum - &self.product(depth)?
                }
                _ => return Ok(sum),
            };
            self.expect_tractable(&sum)?;
        }
    }

    fn product(&mut self, depth: usize) -> Result<Dim, Error> {
        let mut product = self.factor(depth)?;
        loop {
            product = match self.token {
                Token::Symbol("*") => {
                    self.advance()?;
                    &product * &self.factor(depth)?
                }
                Token::Symbol("//") => {
                    self.advance()?;
                    let line = self.line;
                    match self.factor(depth)? {
                        zero if zero.as_integer() == Some(0) => {
                            return Err(Error::Parse { line, message: "the dim is divided by 0".into() });
                        }
                        divisor => product.floor_div(&divisor),
                    }
                }
                _ => return Ok(product),
            };
            self.expect_tractable(&product)?;
        }
    }

    fn factor(&mut self, depth: usize) -> Result<Dim, Error> {
        match self.advance()? {
            (Token::Word(name), _) => Ok(Dim::symbol(name)),
            (Token::Number(digits), line) => match digits.parse::<i64>() {
                Ok(number) => Ok(Dim::from(number as usize)),
                Err(_) => Err(unexpected("a size below 2^63", &Token::Number(digits), line)),
            },
            (Token::Symbol("("), line) if depth == MAX_DEPTH => {
                let message = format!("parentheses nest deeper than {MAX_DEPTH}");
                Err(Error::Parse { line, message })
            }
            (Token::Symbol("("), _) => {
                let inner = self.sum(depth + 1)?;
                self.symbol(")")?;
                Ok(inner)
            }
            (found, line) => Err(unexpected("a dim", &found, line)),
        }
    }

    fn expect_tractable(&self, dim: &Dim) -> Result<(), Error> {
        if dim.complexity() <= Dim::MAX_COMPLEXITY {
            Ok(())
        } else {
            Err(Error::Parse { line: self.line, message: "the dim has too many terms".into() })
        }
    }
}
