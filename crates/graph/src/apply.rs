//! The types of a graph's results when another graph gives it operands: symbols in the terms of the caller.

use crate::dim::{Substitution, Unknown};
use crate::{Dim, Graph, Type, TypeError, Value};

impl Graph {
    /// The types of the outputs when the inputs have these types. What the inputs' symbols stand for follows from
    /// the types; symbols that nodes of this graph define stay as they are.
    ///
    /// # Errors
    /// If an operand does not fit its input, naming the input, what was given and what was expected.
    pub fn apply(&self, operands: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let symbols = self.substitution(operands)?;
        let output = |&value: &Value| {
            let ty = self.ty(value);
            ty.substitute(&symbols)
                .ok_or_else(|| type_error!("`{}`: no size for the result {ty}", self.name()))
        };
        self.outputs().iter().map(output).collect()
    }

    /// What each symbol of the inputs stands for when the inputs have these types.
    ///
    /// # Errors
    /// As [`Graph::apply`].
    pub fn substitution(&self, operands: &[&Type]) -> Result<Substitution, TypeError> {
        let (name, expected) = (self.name(), self.inputs().len());
        if expected != operands.len() {
            let names: Vec<&str> = self.inputs().iter().map(|input| &input.name[..]).collect();
            let list = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            let got = operands.len();
            return Err(type_error!("`{name}` takes {expected} operands{list}, got {got}"));
        }
        let mut applied = Application { graph: self, operands, symbols: Substitution::default() };
        applied.bind()?;
        Ok(applied.symbols)
    }
}

struct Application<'a> {
    graph: &'a Graph,
    operands: &'a [&'a Type],
    symbols: Substitution,
}

impl<'a> Application<'a> {
    fn expected(&self, index: usize) -> &'a Type {
        self.graph.ty(self.graph.inputs()[index].value)
    }

    /// Lone symbols first; then what is linear in one more symbol gives that one; all else must agree.
    fn bind(&mut self) -> Result<(), TypeError> {
        let mut expressions = Vec::new();
        for (index, &given) in self.operands.iter().enumerate() {
            let expected = self.expected(index);
            let alike = (expected.kind, expected.dtype, expected.device, expected.rank())
                == (given.kind, given.dtype, given.device, given.rank());
            if !alike {
                return Err(self.mismatch(index));
            }
            for (dim, given) in expected.shape.iter().zip(&given.shape) {
                match dim.as_symbol() {
                    Some(symbol) if self.symbols.get(symbol).is_none() => {
                        self.symbols.insert(symbol, given.clone());
                    }
                    Some(symbol) if self.symbols.get(symbol) == Some(given) => {}
                    Some(_) => return Err(self.mismatch(index)),
                    None => expressions.push((index, dim, given)),
                }
            }
        }
        self.solve(expressions)
    }

    /// Each round gives at least one symbol its dim or ends.
    fn solve(&mut self, mut expressions: Vec<(usize, &'a Dim, &'a Dim)>) -> Result<(), TypeError> {
        while !expressions.is_empty() {
            let before = expressions.len();
            let mut waiting = Vec::new();
            for (index, dim, given) in expressions {
                match dim.unknown(&|symbol| self.symbols.get(symbol).is_some()) {
                    Unknown::Nothing if dim.substitute(&self.symbols).as_ref() == Some(given) => {}
                    Unknown::Nothing => return Err(self.mismatch(index)),
                    Unknown::Linear(symbol) => match self.solution(dim, symbol, given) {
                        Some(value) => self.symbols.insert(symbol, value),
                        None => return Err(self.mismatch(index)),
                    },
                    Unknown::Entangled => waiting.push((index, dim, given)),
                }
            }
            match waiting.first() {
                Some(&(index, ..)) if waiting.len() == before => return Err(self.mismatch(index)),
                _ => expressions = waiting,
            }
        }
        Ok(())
    }

    /// What `symbol`, the one in `dim` that stands for nothing yet, must stand for to make `dim` equal `given`.
    fn solution(&self, dim: &Dim, symbol: &str, given: &Dim) -> Option<Dim> {
        // The caller may have a symbol of this name too.
        let unknown = format!("'{symbol}");
        let mut symbols = self.symbols.clone();
        symbols.insert(symbol, Dim::unchecked_symbol(&unknown));
        dim.substitute(&symbols)?.solve_for(&unknown, given)
    }

    /// `operand 'x' of `layer` is f32[6], expected f32[n] with n = 5`
    fn mismatch(&self, index: usize) -> TypeError {
        let (given, expected) = (self.operands[index], self.expected(index));
        let mut symbols: Vec<&str> = expected.shape.iter().flat_map(Dim::symbols).collect();
        symbols.sort_unstable();
        symbols.dedup();
        let known = symbols.into_iter().filter_map(|s| Some(format!("{s} = {}", self.symbols.get(s)?)));
        let known: Vec<String> = known.collect();
        let with = if known.is_empty() { String::new() } else { format!(" with {}", known.join(", ")) };
        let (graph, input) = (self.graph.name(), &self.graph.inputs()[index].name);
        type_error!("operand '{input}' of `{graph}` is {given}, expected {expected}{with}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The types of the results of a graph for operands of these types, or the error.
    fn check(graph: &str, operands: &[&str], expected: &str) {
        let graph = Graph::parse(graph).unwrap();
        let operands: Vec<Type> = operands.iter().map(|text| text.parse().unwrap()).collect();
        let got = match graph.apply(&operands.iter().collect::<Vec<_>>()) {
            Ok(types) => types.iter().map(Type::to_string).collect::<Vec<_>>().join(", "),
            Err(error) => error.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn symbols_are_said_in_the_terms_of_the_caller() {
        let graph = "graph g(%x: f32[n, 4], %o: u32[b + 1]) {
                       %y = reshape(%x) {shape = [2*n, 2]}
                       %z = slice(%o) {axis = 0, start = 1}
                       return %y, %z
                     }";
        check(graph, &["f32[tokens, 4]", "u32[n + 1]"], "f32[2*tokens, 2], u32[n]");
        check(graph, &["f32[3, 4]", "u32[9]"], "f32[6, 2], u32[8]");
        check("graph g(%a: f32[a], %b: f32[a + n]) { return %b }", &["f32[n]", "f32[n + 1]"], "f32[n + 1]");
        check(graph, &["f32[b + n, 4]", "u32[b]"], "f32[2*n + 2*b, 2], u32[b - 1]");
    }

    #[test]
    fn operands_must_fit() {
        let graph = "graph g(%x: f32[n], %y: f32[n, 2*n]) { return %x }";
        check(graph, &["f32[m]", "f32[m, 2*m]"], "f32[m]");
        check(graph, &["f32[m]"], "`g` takes 2 operands (x, y), got 1");
        check(graph, &["f16[m]", "f32[m, 2*m]"], "operand 'x' of `g` is f16[m], expected f32[n]");
        let wrong = "operand 'y' of `g` is f32[k, 2*m], expected f32[n, 2*n] with n = m";
        check(graph, &["f32[m]", "f32[k, 2*m]"], wrong);
        let wrong = "operand 'y' of `g` is f32[m, m], expected f32[n, 2*n] with n = m";
        check(graph, &["f32[m]", "f32[m, m]"], wrong);
    }
}
