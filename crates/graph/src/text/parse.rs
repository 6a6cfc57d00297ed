//! From text to graphs. The text may be hostile: nothing recurses or grows beyond what the text pays for.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tensor::{Bytes, DType};

use super::data::{self, Data, Number};
use super::lexer::{Lexer, Token};
use crate::ops::{Attribute, Attributes, Constant, Weight};
use crate::{DeviceRef, Dim, Error, Graph, Kind, Module, Op, Type, Value};

/// How deep parentheses nest in a dim.
const MAX_DEPTH: usize = 32;

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

    /// The graph of a text whose large constants are kept beside it, as [`Graph::detached_text`] makes it.
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
        self.symbol("{")?;
        while self.token != Token::Word("return") {
            self.node(&mut graph, &mut names, depth)?;
        }
        self.word("return")?;
        let outputs = self.values(&names, "}")?;
        graph.set_outputs(&outputs);
        Ok(graph)
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

    fn data(&mut self) -> Result<Data<'t>, Error> {
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
        let message = || format!("there is no constant @{digits} beside the text, which has {known}");
        found.cloned().map(Data::Detached).ok_or_else(|| Error::Parse { line, message: message() })
    }

    fn attributes(&mut self, depth: usize) -> Result<Attributes, Error> {
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
                    || signed.parse().ok().filter(|value: &f32| value.is_finite()).map(Attribute::Float);
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

    /// Whether the list that starts here holds types: a symbol may be called as a dtype is, but no shape follows it.
    fn is_list_of_types(&self) -> Result<bool, Error> {
        let mut ahead = self.lexer.clone();
        Ok(match ahead.next()?.0 {
            Token::Word("mut") => matches!(ahead.next()?.0, Token::Word(_)),
            Token::Word(word) => word.parse::<DType>().is_ok() && ahead.next()?.0 == Token::Symbol("["),
            _ => false,
        })
    }

    fn list_of_types(&mut self) -> Result<Vec<Type>, Error> {
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

    fn types(&mut self) -> Result<Vec<Type>, Error> {
        let mut types = Vec::new();
        if self.accept(":")? {
            types.push(self.ty()?);
            while self.accept(",")? {
                types.push(self.ty()?);
            }
        }
        Ok(types)
    }

    fn ty(&mut self) -> Result<Type, Error> {
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

    fn dims(&mut self) -> Result<Vec<Dim>, Error> {
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
        let mut sum = match self.accept("-")? {
            true => &Dim::from(0) - &self.product(depth)?,
            false => self.product(depth)?,
        };
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
        match dim.complexity() <= Dim::MAX_COMPLEXITY {
            true => Ok(()),
            false => Err(Error::Parse { line: self.line, message: "the dim has too many terms".into() }),
        }
    }

    fn word_or_text(&mut self, what: &str) -> Result<String, Error> {
        match self.advance()? {
            (Token::Word(word), _) => Ok(word.to_string()),
            (Token::Text(text), _) => Ok(text),
            (found, line) => Err(unexpected(what, &found, line)),
        }
    }

    fn word(&mut self, word: &'static str) -> Result<(), Error> {
        match self.token {
            Token::Word(found) if found == word => self.advance().map(|_| ()),
            _ => Err(self.expected(&format!("`{word}`"))),
        }
    }

    fn symbol(&mut self, symbol: &'static str) -> Result<(), Error> {
        match self.accept(symbol)? {
            true => Ok(()),
            false => Err(self.expected(&format!("`{symbol}`"))),
        }
    }

    fn accept(&mut self, symbol: &'static str) -> Result<bool, Error> {
        let is_next = self.token == Token::Symbol(symbol);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    /// Takes the next token.
    fn advance(&mut self) -> Result<(Token<'t>, usize), Error> {
        let (token, line) = self.lexer.next()?;
        Ok((std::mem::replace(&mut self.token, token), std::mem::replace(&mut self.line, line)))
    }

    fn expected(&self, what: &str) -> Error {
        unexpected(what, &self.token, self.line)
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

fn unexpected(expected: &str, found: &Token<'_>, line: usize) -> Error {
    Error::Parse { line, message: format!("expected {expected}, found {found}") }
}
