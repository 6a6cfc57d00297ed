//! Attributes of ops, and the graphs among them.

use std::sync::Arc;

use super::Parser;
use crate::ops::{Attribute, Attributes};
use crate::text::lexer::{Token, unexpected};
use crate::{Dim, Error};

impl Parser<'_> {
    pub(super) fn attributes(&mut self, depth: usize) -> Result<Attributes, Error> {
        let mut attributes = Attributes::default();
        if !self.accept("{")? {
            return Ok(attributes);
        }
        loop {
            let Token::Word(name) = self.token else { return Err(self.expected("the name of an attribute")) };
            if attributes.iter().any(|(other, _)| other == name) {
                return Err(Error::Parse {
                    line: self.line,
                    message: format!("a second attribute is named `{name}`"),
                });
            }
            self.advance()?;
            self.symbol("=")?;
            attributes = attributes.with(name, self.attribute(depth)?);
            if self.accept("}")? {
                return Ok(attributes);
            }
            self.symbol(",")?;
        }
    }

    fn attribute(&mut self, depth: usize) -> Result<Attribute, Error> {
        if self.token == Token::Word("graph") {
            let graph = Arc::new(self.graph(depth + 1)?);
            self.within.insert(graph.name().to_string(), Arc::clone(&graph));
            return Ok(Attribute::Graph(graph));
        }
        if self.accept("@")? {
            let line = self.line;
            let name = self.word_or_text("the name of a graph")?;
            let graph = self.within.get(&name).cloned().map(Attribute::Graph);
            let message = || format!("there is no graph `{name}` before this");
            return graph.ok_or_else(|| Error::Parse { line, message: message() });
        }
        if self.token == Token::Symbol("[") {
            if self.is_list_of_types()? {
                return Ok(Attribute::Types(self.list_of_types()?));
            }
            let dims = self.dims()?;
            let integers: Option<Vec<i64>> = dims.iter().map(Dim::as_integer).collect();
            return Ok(integers.map_or(Attribute::Dims(dims), Attribute::Ints));
        }
        let negative = self.accept("-")?;
        let (token, line) = self.advance()?;
        match token {
            Token::Number(text) => {
                let signed = format!("{}{text}", if negative { "-" } else { "" });
                let float =
                    || signed.parse().ok().filter(|value: &f64| value.is_finite()).map(Attribute::Float);
                let value = signed.parse().ok().map(Attribute::Int).or_else(float);
                value.ok_or_else(|| unexpected("a number", &Token::Number(text), line))
            }
            found if negative => Err(unexpected("a number", &found, line)),
            Token::Word("true") => Ok(Attribute::Bool(true)),
            Token::Word("false") => Ok(Attribute::Bool(false)),
            Token::Word(word) => {
                Ok(word.parse().map_or_else(|_| Attribute::Text(word.into()), Attribute::DType))
            }
            Token::Text(text) => Ok(Attribute::Text(text)),
            found => Err(unexpected("the value of an attribute", &found, line)),
        }
    }
}
