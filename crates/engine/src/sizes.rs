//! The sizes of symbolic dims, read off the shapes of a call's inputs.

use std::collections::BTreeMap;

use graph::{Bindings, Dim, Graph};
use tensor::Shape;

use crate::Error;

/// Which axis of which input tells which symbol.
pub(crate) struct Rules {
    /// In the order in which inputs mention them.
    pub(crate) symbols: Vec<String>,
    axes: Vec<Axis>,
}

struct Axis {
    input: usize,
    axis: usize,
    symbol: usize,
    /// The expression to solve, where the axis is not the symbol itself.
    expression: Option<Dim>,
}

/// A size nobody has told yet; no shape that has memory holds it.
const UNKNOWN: usize = usize::MAX;

impl Rules {
    /// The rules of a graph's inputs.
    pub(crate) fn new(graph: &Graph) -> Result<Rules, Error> {
        let mut rules = Rules { symbols: Vec::new(), axes: Vec::new() };
        let dims: Vec<(usize, usize, &Dim)> = graph
            .inputs()
            .iter()
            .enumerate()
            .flat_map(|(i, input)| {
                graph.ty(input.value).shape.iter().enumerate().map(move |(axis, d)| (i, axis, d))
            })
            .collect();
        for &(input, axis, dim) in &dims {
            if let Some(name) = dim.as_symbol() {
                let symbol = rules.symbol(name);
                rules.axes.push(Axis { input, axis, symbol, expression: None });
            }
        }
        // An expression can tell a symbol once it holds no other unknown; one solved may unlock the next.
        while let Some((input, axis, dim, name)) = dims.iter().find_map(|&(input, axis, dim)| {
            let mut unknown = dim.symbols();
            unknown.retain(|name| !rules.symbols.iter().any(|known| known == name));
            unknown.dedup();
            match unknown[..] {
                [name] => Some((input, axis, dim, name)),
                _ => None,
            }
        }) {
            let symbol = rules.symbol(name);
            rules.axes.push(Axis { input, axis, symbol, expression: Some(dim.clone()) });
        }
        rules.check(graph)?;
        Ok(rules)
    }

    /// The sizes in the order of the symbols. Every input has as many axes as its type says.
    pub(crate) fn sizes<'n>(
        &self,
        name: impl Fn(usize) -> &'n str,
        shapes: &[Shape],
    ) -> Result<Vec<usize>, Error> {
        let mut sizes = vec![UNKNOWN; self.symbols.len()];
        for (i, rule) in self.axes.iter().enumerate() {
            let given = shapes[rule.input][rule.axis];
            let told = match &rule.expression {
                None => given,
                Some(dim) => self.solve(rule, dim, &sizes, given).ok_or_else(|| Error::Input {
                    position: rule.input,
                    name: name(rule.input).to_string(),
                    message: format!("axis {} is {given}, which cannot be {dim}", rule.axis),
                })?,
            };
            if sizes[rule.symbol] != UNKNOWN && sizes[rule.symbol] != told {
                let first = self.axes[..i].iter().find(|other| other.symbol == rule.symbol);
                let first = first.map_or(0, |rule| rule.input);
                return Err(Error::DimConflict {
                    dim: self.symbols[rule.symbol].clone(),
                    first: sizes[rule.symbol],
                    first_input: format!("{first} '{}'", name(first)),
                    second: told,
                    second_input: format!("{} '{}'", rule.input, name(rule.input)),
                });
            }
            sizes[rule.symbol] = told;
        }
        Ok(sizes)
    }

    /// Symbols with sizes.
    pub(crate) fn bindings(&self, sizes: &[usize]) -> Bindings {
        let mut bindings = Bindings::default();
        for (symbol, &size) in self.symbols.iter().zip(sizes).filter(|&(_, &size)| size != UNKNOWN) {
            bindings.insert(symbol, size);
        }
        bindings
    }

    fn symbol(&mut self, name: &str) -> usize {
        self.symbols.iter().position(|known| known == name).unwrap_or_else(|| {
            self.symbols.push(name.to_string());
            self.symbols.len() - 1
        })
    }

    /// The size of a symbol for which an expression linear in it has the given value.
    fn solve(&self, rule: &Axis, dim: &Dim, sizes: &[usize], given: usize) -> Option<usize> {
        let mut bindings = self.bindings(sizes);
        let mut at = |size: usize| {
            bindings.insert(&self.symbols[rule.symbol], size);
            dim.resolve(&bindings).ok()
        };
        let (one, two) = (at(1)? as i128, at(2)? as i128);
        let slope = two - one;
        let size = usize::try_from(1 + (given as i128 - one).checked_div(slope)?).ok()?;
        (at(size)? == given).then_some(size)
    }

    /// Every symbol of the graph must be told by an input.
    fn check(&self, graph: &Graph) -> Result<(), Error> {
        let values =
            graph.nodes().flat_map(|(_, node)| &node.outputs).chain(graph.inputs().iter().map(|i| &i.value));
        let mut missing: BTreeMap<&str, String> = BTreeMap::new();
        for &value in values {
            for name in graph.ty(value).shape.iter().flat_map(Dim::symbols) {
                if !self.symbols.iter().any(|known| known == name) {
                    missing.entry(name).or_insert_with(|| graph.ty(value).to_string());
                }
            }
        }
        match missing.into_iter().next() {
            None => Ok(()),
            Some((name, ty)) => {
                let message = format!("no input tells the size of dim `{name}` of a value {ty}");
                Err(Error::Compile { graph: graph.name().to_string(), message })
            }
        }
    }
}
