//! From text to graphs. The text may be hostile: nothing recurses or grows beyond what the text pays for.

mod attributes;
mod constants;
mod tokens;
mod types;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tensor::Bytes;

use super::data::{self, Data};
use super::lexer::{Lexer, Token, unexpected};
use crate::ops::{Attributes, Constant, Weight};
use crate::{DevicePlacementPolicy, Dim, Error, Graph, Module, Op, Type, Value};

impl Module {
    /// The graphs of a text, one after another. Their types are checked; the rest is [`Graph::verify`]'s.
    ///
    /// # Errors
    /// If the text does not parse, with the line, what was expected and what was found.
    pub fn parse(text: &str) -> Result<Module, Error> {
        let mut parser = Parser::new(text)?;
        let mut module = Module::default();
        while parser.token != Token::End {
            let line = parser.line;
            parser.within.clear();
            let graph = parser.graph(1)?;
            if module.graphs.iter().any(|other| other.name() == graph.name()) {
                let message = format!("a second graph is named `{}`", graph.name());
                return Err(Error::Parse { line, message });
            }
            module.graphs.push(graph);
        }
        Ok(module)
    }
}

impl Graph {
    /// The graph of a text. Its types are checked; the rest is [`Graph::verify`]'s.
    ///
    /// # Errors
    /// If the text does not parse, with the line, what was expected and what was found.
    pub fn parse(text: &str) -> Result<Graph, Error> {
        Graph::parse_detached(text, &[])
    }

    /// The graph of a text whose large constants are kept apart from it, as [`Graph::detached_text`] makes it.
    ///
    /// # Errors
    /// As [`Graph::parse`], and if a constant is not there or has another size than its type.
    pub fn parse_detached(text: &str, constants: &[Bytes]) -> Result<Graph, Error> {
        let mut parser = Parser { detached: constants, ..Parser::new(text)? };
        let graph = parser.graph(1)?;
        match parser.token {
            Token::End => Ok(graph),
            _ => Err(parser.expected("the end after one graph")),
        }
    }
}

impl std::str::FromStr for Type {
    type Err = Error;

    /// The type that prints as this text.
    fn from_str(text: &str) -> Result<Type, Error> {
        let mut parser = Parser::new(text)?;
        let ty = parser.ty()?;
        match parser.token {
            Token::End => Ok(ty),
            _ => Err(parser.expected("the end after one type")),
        }
    }
}

/// What a value is called: a number is no name, so that an input may be called `"0"`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Name {
    Number(u64),
    Text(String),
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The next token, and the line it stands on.
    token: Token<'t>,
    line: usize,
    /// What `constant @0` and so on stand for.
    detached: &'t [Bytes],
    /// The graphs within the graph so far, by name.
    within: HashMap<String, Arc<Graph>>,
}

/// The right side of a node before its types are read.
enum Right<'t> {
    Weight(String),
    Constant(Data<'t>),
    Op { name: &'t str, inputs: Vec<Value>, attributes: Attributes },
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Result<Parser<'t>, Error> {
        let mut lexer = Lexer::new(text);
        let (token, line) = lexer.next()?;
        Ok(Parser { lexer, token, line, detached: &[], within: HashMap::new() })
    }

    fn graph(&mut self, depth: usize) -> Result<Graph, Error> {
        if depth > Graph::MAX_DEPTH {
            let message = format!("graphs nest deeper than {}", Graph::MAX_DEPTH);
            return Err(Error::Parse { line: self.line, message });
        }
        self.word("graph")?;
        let mut graph = Graph::new(self.word_or_text("the name of the graph")?);
        let mut names = HashMap::new();
        self.symbol("(")?;
        while !self.accept(")")? {
            if !names.is_empty() {
                self.symbol(",")?;
            }
            self.input(&mut graph, &mut names)?;
        }
        if self.token == Token::Word("device_placement") {
            graph.set_device_placement(self.device_placement()?);
        }
        self.symbol("{")?;
        while self.token != Token::Word("return") {
            self.node(&mut graph, &mut names, depth)?;
        }
        self.word("return")?;
        let outputs = self.values(&names, "}")?;
        graph.set_outputs(&outputs);
        Ok(graph)
    }

    fn device_placement(&mut self) -> Result<DevicePlacementPolicy, Error> {
        self.word("device_placement")?;
        self.symbol("=")?;
        let line = self.line;
        let name = self.word_or_text("a policy")?;
        DevicePlacementPolicy::from_name(&name).ok_or_else(|| {
            let message = format!("device_placement is {name}, expected ignore, warn or error");
            Error::Parse { line, message }
        })
    }

    fn input(&mut self, graph: &mut Graph, names: &mut HashMap<Name, Value>) -> Result<(), Error> {
        let line = self.line;
        let Name::Text(name) = self.name()? else {
            return Err(Error::Parse {
                line,
                message: "expected the name of an input, found a number".into(),
            });
        };
        self.symbol(":")?;
        let ty = self.ty()?;
        define(names, Name::Text(name.clone()), graph.input(name, ty), line)
    }

    fn node(
        &mut self,
        graph: &mut Graph,
        names: &mut HashMap<Name, Value>,
        depth: usize,
    ) -> Result<(), Error> {
        let line = self.line;
        let mut results = Vec::new();
        if self.token == Token::Symbol("%") {
            results.push(self.name()?);
            while self.accept(",")? {
                results.push(self.name()?);
            }
            self.symbol("=")?;
        }
        let right = self.right(names, depth)?;
        let types = self.types()?;
        let at_line = |error: &dyn std::fmt::Display| Error::Parse { line, message: error.to_string() };
        let leaf_type = || match &types[..] {
            [ty] => Ok(ty),
            types => Err(Error::Parse {
                line,
                message: format!("expected the type of the value, found {}", types.len()),
            }),
        };
        let (op, inputs) = match right {
            Right::Weight(name) => (Op::from(Weight { name, ty: leaf_type()?.clone() }), vec![]),
            Right::Constant(data) => {
                let value = data::parse(&data, leaf_type()?).map_err(|error| at_line(&error))?;
                (Op::from(Constant::new(value)), vec![])
            }
            Right::Op { name, inputs, attributes } => {
                (Op::parse(name, attributes).map_err(|error| at_line(&format!("{name}: {error}")))?, inputs)
            }
        };
        let values = graph.push_from(op, &inputs, None).map_err(|error| at_line(&error))?;
        if values.len() != results.len() {
            let message = format!("expected {} results, found {} names", values.len(), results.len());
            return Err(Error::Parse { line, message });
        }
        let inferred: Vec<&Type> = values.iter().map(|&value| graph.ty(value)).collect();
        if !types.is_empty() && !types.iter().eq(inferred.iter().copied()) {
            let list = |types: &[&Type]| types.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", ");
            let found = list(&types.iter().collect::<Vec<_>>());
            let message = format!("expected the type {}, found {found}", list(&inferred));
            return Err(Error::Parse { line, message });
        }
        results.into_iter().zip(values).try_for_each(|(name, value)| define(names, name, value, line))
    }

    fn right(&mut self, names: &HashMap<Name, Value>, depth: usize) -> Result<Right<'t>, Error> {
        let Token::Word(name) = self.token else { return Err(self.expected("an op")) };
        self.advance()?;
        match name {
            "weight" => match self.advance()? {
                (Token::Text(name), _) => Ok(Right::Weight(name)),
                (found, line) => Err(unexpected("the weight's name in quotes", &found, line)),
            },
            "constant" => Ok(Right::Constant(self.data()?)),
            _ => {
                self.symbol("(")?;
                let inputs = self.values(names, ")")?;
                Ok(Right::Op { name, inputs, attributes: self.attributes(depth)? })
            }
        }
    }

    /// Values up to a closing symbol, which is taken too.
    fn values(&mut self, names: &HashMap<Name, Value>, close: &'static str) -> Result<Vec<Value>, Error> {
        let mut values = Vec::new();
        while !self.accept(close)? {
            if !values.is_empty() {
                self.symbol(",")?;
            }
            let line = self.line;
            let name = self.name()?;
            let value = names.get(&name).copied();
            values
                .push(value.ok_or_else(|| Error::Parse { line, message: format!("{name} is not defined") })?);
        }
        Ok(values)
    }

    fn name(&mut self) -> Result<Name, Error> {
        self.symbol("%")?;
        if let Token::Number(digits) = self.token {
            let number = digits.parse().map_err(|_| self.expected("the number of a value"))?;
            self.advance()?;
            return Ok(Name::Number(number));
        }
        Ok(Name::Text(self.word_or_text("the name of a value")?))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Number(number) => write!(f, "%{number}"),
            Name::Text(name) if Dim::is_identifier(name) => write!(f, "%{name}"),
            Name::Text(name) => write!(f, "%{name:?}"),
        }
    }
}

fn define(names: &mut HashMap<Name, Value>, name: Name, value: Value, line: usize) -> Result<(), Error> {
    match names.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(value);
            Ok(())
        }
        Entry::Occupied(entry) => {
            Err(Error::Parse { line, message: format!("{} is defined a second time", entry.key()) })
        }
    }
}
