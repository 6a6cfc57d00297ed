//! From the shapes of a call's inputs to the number of each symbol.

use std::collections::BTreeMap;

use tensor::{DType, Shape};

use crate::dim::Unknown;
use crate::{Bindings, Dim, Error, Graph, Type};

impl Graph {
    /// The number of each symbol when the inputs have these shapes. Lone symbols take their numbers first;
    /// then expressions that know all but one symbol give that one (`batch + 1` of size 5 makes `batch` 4);
    /// all others must agree.
    ///
    /// # Errors
    /// If a shape does not fit, naming the input, what was given and what was expected; if a symbol gets two
    /// sizes, naming both inputs.
    pub fn bind(&self, shapes: &[Shape]) -> Result<Bindings, Error> {
        self.expect_input_count(shapes.len())?;
        let declared = self.inputs().iter().map(|input| self.ty(input.value).dtype);
        self.bind_inputs(&declared.zip(shapes.iter().copied()).collect::<Vec<_>>())
    }

    /// [`Graph::bind`], where the inputs' dtypes are checked too.
    ///
    /// # Errors
    /// As [`Graph::bind`], or if a dtype is another than declared.
    pub fn bind_inputs(&self, given: &[(DType, Shape)]) -> Result<Bindings, Error> {
        self.expect_input_count(given.len())?;
        let mut binder =
            Binder { graph: self, given, bindings: Bindings::default(), sources: BTreeMap::new() };
        let mut expressions = Vec::new();
        for (index, &(dtype, shape)) in given.iter().enumerate() {
            let ty = binder.expected(index);
            if ty.dtype != dtype || ty.rank() != shape.rank() {
                return Err(binder.mismatch(index));
            }
            for (dim, &size) in ty.shape.iter().zip(shape.iter()) {
                match (dim.as_static(), dim.as_symbol()) {
                    (Some(expected), _) if expected != size => return Err(binder.mismatch(index)),
                    (Some(_), _) => {}
                    (None, Some(symbol)) => binder.set(symbol, size, index)?,
                    (None, None) => expressions.push((index, dim, size)),
                }
            }
        }
        binder.solve(expressions)?;
        Ok(binder.bindings)
    }

    fn expect_input_count(&self, given: usize) -> Result<(), Error> {
        let names: Vec<&str> = self.inputs().iter().map(|input| &input.name[..]).collect();
        if names.len() == given {
            Ok(())
        } else {
            let (name, expected) = (self.name(), names.len());
            let list = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            Err(Error::Input(format!("`{name}` takes {expected} inputs{list}, got {given}")))
        }
    }
}

struct Binder<'a> {
    graph: &'a Graph,
    given: &'a [(DType, Shape)],
    bindings: Bindings,
    /// The input that gave a symbol its number.
    sources: BTreeMap<&'a str, usize>,
}

impl<'a> Binder<'a> {
    fn expected(&self, index: usize) -> &'a Type {
        self.graph.ty(self.graph.inputs()[index].value)
    }

    fn label(&self, index: usize) -> String {
        format!("input {index} '{}'", self.graph.inputs()[index].name)
    }

    fn set(&mut self, symbol: &'a str, size: usize, index: usize) -> Result<(), Error> {
        let Some(earlier) = self.bindings.get(symbol) else {
            self.bindings.insert(symbol, size);
            self.sources.insert(symbol, index);
            return Ok(());
        };
        if earlier == size {
            return Ok(());
        }
        let (first, second) = (self.label(self.sources[symbol]), self.label(index));
        Err(Error::Input(if first == second {
            format!("the dim `{symbol}` is both {earlier} and {size} in {first}")
        } else {
            format!("the dim `{symbol}` is {earlier} in {first}, {size} in {second}")
        }))
    }

    /// Each round gives at least one symbol its number or ends.
    fn solve(&mut self, mut expressions: Vec<(usize, &'a Dim, usize)>) -> Result<(), Error> {
        while !expressions.is_empty() {
            let before = expressions.len();
            let mut waiting = Vec::new();
            for (index, dim, size) in expressions {
                match dim.unknown(&|symbol| self.bindings.get(symbol).is_some()) {
                    Unknown::Nothing if dim.resolve(&self.bindings).ok() == Some(size) => {}
                    Unknown::Nothing => return Err(self.mismatch(index)),
                    Unknown::Linear(symbol) => match dim.solve(symbol, size, &self.bindings) {
                        Some(value) => self.set(symbol, value, index)?,
                        None => return Err(self.mismatch(index)),
                    },
                    Unknown::Entangled => waiting.push((index, dim, size)),
                }
            }
            if let (true, Some((index, dim, _))) = (waiting.len() == before, waiting.first()) {
                let message = format!("the dim {dim} of {} determines no symbol", self.label(*index));
                return Err(Error::Input(message));
            }
            expressions = waiting;
        }
        Ok(())
    }

    /// `input 0 'x': got f32[6], expected f32[5]`
    fn mismatch(&self, index: usize) -> Error {
        let (dtype, shape) = self.given[index];
        let ty = self.expected(index);
        let expressions = ty.shape.iter().filter(|dim| dim.as_symbol().is_none());
        let mut symbols: Vec<&str> = expressions.flat_map(Dim::symbols).collect();
        symbols.sort_unstable();
        symbols.dedup();
        let known = symbols.into_iter().filter_map(|s| Some(format!("{s} = {}", self.bindings.get(s)?)));
        let known: Vec<String> = known.collect();
        let with = if known.is_empty() { String::new() } else { format!(" with {}", known.join(", ")) };
        let label = self.label(index);
        Error::Input(format!("{label}: got {dtype}{shape}, expected {}{:?}{with}", ty.dtype, ty.shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph whose inputs are f32 of these shapes, bound to `given`: the bindings, or the error.
    fn check(inputs: &[(&str, &[Dim])], given: &[&[usize]]) -> String {
        let mut graph = Graph::new("g");
        for (name, shape) in inputs {
            graph.input(*name, Type::new(DType::F32, shape.iter().cloned()));
        }
        let shapes: Vec<Shape> = given.iter().map(|dims| Shape::new(dims)).collect();
        match graph.bind(&shapes) {
            Ok(bindings) => bindings.iter().map(|(symbol, size)| format!("{symbol}={size} ")).collect(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn symbols_take_the_sizes_of_inputs() {
        let [n, b, one, two, five] = ["n".into(), "b".into(), 1.into(), 2.into(), Dim::from(5)];
        let next = &b + &one;
        assert_eq!(check(&[("x", &[n.clone(), five.clone()])], &[&[3, 5]]), "n=3 ");
        assert_eq!(check(&[("x", std::slice::from_ref(&next))], &[&[4]]), "b=3 ");
        assert_eq!(check(&[("x", &[next.clone(), b.clone()])], &[&[4, 3]]), "b=3 ");
        let product = &(&n * &b) + &two;
        assert_eq!(check(&[("x", &[product]), ("y", &[next])], &[&[14], &[5]]), "b=4 n=3 ");
        assert_eq!(check(&[], &[]), "");
    }

    #[test]
    fn errors_name_input_and_both_facts() {
        let [n, b, one, five] = ["n".into(), "b".into(), 1.into(), Dim::from(5)];
        let next = &b + &one;
        let x: &[(&str, &[Dim])] = &[("x", std::slice::from_ref(&five))];
        assert_eq!(check(x, &[&[6]]), "input 0 'x': got f32[6], expected f32[5]");
        assert_eq!(check(x, &[&[5, 1]]), "input 0 'x': got f32[5, 1], expected f32[5]");
        assert_eq!(check(x, &[]), "`g` takes 1 inputs (x), got 0");
        let two: &[(&str, &[Dim])] = &[("x", std::slice::from_ref(&n)), ("y", &[n.clone(), n.clone()])];
        assert_eq!(check(two, &[&[5], &[6, 6]]), "the dim `n` is 5 in input 0 'x', 6 in input 1 'y'");
        assert_eq!(check(&two[1..], &[&[5, 6]]), "the dim `n` is both 5 and 6 in input 0 'y'");
        let offsets: &[(&str, &[Dim])] =
            &[("o", std::slice::from_ref(&next)), ("l", std::slice::from_ref(&b))];
        assert_eq!(check(offsets, &[&[6], &[4]]), "input 0 'o': got f32[6], expected f32[b + 1] with b = 4");
        assert_eq!(check(offsets, &[&[0], &[4]]), "input 0 'o': got f32[0], expected f32[b + 1] with b = 4");
        assert_eq!(check(&offsets[..1], &[&[0]]), "input 0 'o': got f32[0], expected f32[b + 1]");
        let entangled = &n * &b;
        let message = check(&[("x", std::slice::from_ref(&entangled))], &[&[6]]);
        assert_eq!(message, "the dim b*n of input 0 'x' determines no symbol");
        let odd = &b + &b;
        assert_eq!(check(&[("x", &[odd])], &[&[7]]), "input 0 'x': got f32[7], expected f32[2*b]");
    }
}
