//! `y = x`, of a shape that is asserted: what the type rules cannot prove, checked when the sizes are known.

use super::prelude::*;
use crate::Bindings;
use crate::dim::Unknown;

/// `x` of any type → the same of the shape `shape`, which the sizes at run time must equal.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebind {
    /// The asserted shape, of as many axes as `x` has.
    pub shape: Vec<Dim>,
    /// The symbols of the shape that are new in the graph: each gets its size from the first axis that is it alone, or a
    /// multiple of it and a number, as `2*k + 1`.
    pub symbols: Vec<String>,
    /// What to say if the sizes differ.
    pub message: Option<String>,
}

impl Rebind {
    /// Gives the new symbols their sizes, and checks all others.
    ///
    /// # Errors
    /// If a size differs: the axis and both sizes, and the message.
    pub fn bind(&self, given: &Shape, bindings: &mut Bindings) -> Result<(), String> {
        for (dim, &size) in self.shape.iter().zip(given.iter()) {
            if let Some(symbol) = dim.as_symbol()
                && bindings.get(symbol).is_none()
            {
                bindings.insert(symbol, size);
            }
        }
        self.solve(given, bindings)?;
        for (axis, (dim, &size)) in self.shape.iter().zip(given.iter()).enumerate() {
            match dim.resolve(bindings) {
                Ok(expected) if expected == size => {}
                Ok(expected) => return Err(self.differs(axis, size, expected)),
                Err(error) => return Err(format!("axis {axis} is {size}, but {error}")),
            }
        }
        Ok(())
    }

    /// Gives each new symbol that has no size yet the one that an axis leaves for it.
    fn solve(&self, given: &Shape, bindings: &mut Bindings) -> Result<(), String> {
        for (axis, symbol) in self.sources() {
            if bindings.get(symbol).is_none() {
                let (dim, size) = (&self.shape[axis], given[axis]);
                let solution = dim.solve(symbol, size, bindings);
                let number = solution.ok_or_else(|| {
                    let reason =
                        self.message.as_ref().map_or(String::new(), |message| format!(": {message}"));
                    format!("axis {axis} is {size}, which `{dim}` can never be{reason}")
                })?;
                bindings.insert(symbol, number);
            }
        }
        Ok(())
    }

    /// The axes that give new symbols their sizes, in an order in which each is the only one unknown of its axis.
    fn sources(&self) -> Vec<(usize, &str)> {
        let mut sources: Vec<(usize, &str)> = Vec::new();
        loop {
            let known = |symbol: &str| sources.iter().any(|(_, other)| *other == symbol);
            let next = self.shape.iter().enumerate().find_map(|(axis, dim)| match dim.unknown(&known) {
                Unknown::Linear(symbol) if self.symbols.iter().any(|other| other == symbol) => {
                    Some((axis, symbol))
                }
                _ => None,
            });
            match next {
                Some(source) => sources.push(source),
                None => return sources,
            }
        }
    }

    fn differs(&self, axis: usize, size: usize, expected: usize) -> String {
        let dim = &self.shape[axis];
        let name = if dim.as_static().is_some() { String::new() } else { format!("{dim} = ") };
        let reason = self.message.as_ref().map_or(String::new(), |message| format!(": {message}"));
        format!("axis {axis} is {size}, expected {name}{expected}{reason}")
    }
}

impl Define for Rebind {
    declare!("rebind" { shape, symbols = Vec::new(), message });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        let shape = &self.shape;
        refuse_if!(x.rank() != shape.len(), "x is {x}, expected {} axes for {shape:?}", shape.len());
        let never = |(given, wanted): (&Dim, &Dim)| matches!((given.as_static(), wanted.as_static()), (Some(a), Some(b)) if a != b);
        if let Some(axis) = x.shape.iter().zip(shape).position(never) {
            return Err(type_error!("x is {x}, which axis {axis} of {shape:?} can never be"));
        }
        let sources = self.sources();
        match self.symbols.iter().find(|symbol| sources.iter().all(|(_, source)| source != symbol)) {
            None => Ok(vec![x.with_shape(shape.iter().cloned())]),
            Some(symbol) => Err(type_error!(
                "no axis of {shape:?} is a multiple of the new symbol `{symbol}` and a number"
            )),
        }
    }

    fn defines(&self) -> Vec<&str> {
        self.symbols.iter().map(|symbol| &symbol[..]).collect()
    }

    fn sizes(&self, inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
        let mut bindings = Bindings::default();
        self.solve(inputs[0].shape(), &mut bindings)
            .map_err(|message| Error::evaluation("rebind", message))?;
        Ok(self.symbols.iter().filter_map(|symbol| bindings.get(symbol)).collect())
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let sizes = inputs[0].shape().iter().zip(outputs[0].iter());
        match sizes.enumerate().find(|(_, (given, expected))| given != expected) {
            None => Ok(vec![inputs[0].contiguous()]),
            Some((axis, (&given, &expected))) => {
                Err(Error::evaluation("rebind", self.differs(axis, given, expected)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check_types;
    use super::*;
    use crate::Graph;

    fn rebind(shape: &[Dim], symbols: &[&str]) -> Rebind {
        let symbols = symbols.iter().map(|symbol| symbol.to_string()).collect();
        Rebind { shape: shape.to_vec(), symbols, message: Some("see the docs".to_string()) }
    }

    #[test]
    fn types() {
        let [k, four] = [Dim::from("k"), Dim::from(4)];
        check_types(
            rebind(&[k.clone(), four.clone()], &["k"]),
            &[
                (&["q8_0[n, m]"], "q8_0[k, 4]"),
                (&["f32[n]"], "rebind: x is f32[n], expected 2 axes for [k, 4]"),
                (&["f32[n, 5]"], "rebind: x is f32[n, 5], which axis 1 of [k, 4] can never be"),
            ],
        );
        check_types(rebind(&[&(&k + &k) + &four], &["k"]), &[(&["f32[n]"], "f32[2*k + 4]")]);
        check_types(
            rebind(&[&k * &k], &["k"]),
            &[(&["f32[n]"], "rebind: no axis of [k*k] is a multiple of the new symbol `k` and a number")],
        );
    }

    #[test]
    fn sizes_are_checked_when_they_are_known() {
        let text = "graph g(%x: f32[n], %y: f32[m]) {
                      %a = rebind(%x) {shape = [k], symbols = [k], message = \"too short\"}
                      %b = rebind(%y) {shape = [2*k], message = \"the axes do not match\"}
                      return %a, %b
                    }";
        let graph = Graph::parse(text).unwrap();
        graph.verify().unwrap();
        assert_eq!(Graph::parse(&graph.to_string()).unwrap(), graph);
        let run = |n: usize, m: usize| {
            let inputs = [n, m].map(|size| Tensor::zeros(tensor::DType::F32, [size]));
            graph.evaluate(&inputs, &|_| None)
        };
        assert_eq!(run(3, 6).unwrap().outputs[1].shape(), &Shape::new(&[6]));
        let message = "rebind: axis 0 is 7, expected 2*k = 6: the axes do not match";
        assert_eq!(run(3, 7).unwrap_err().to_string(), message);
    }

    #[test]
    fn new_symbols_are_solved_for() {
        let text = "graph g(%x: f32[n, m]) {
                      %a = rebind(%x) {shape = [2*k + 1, k + j], symbols = [j, k]}
                      %b = shape_to_tensor(%a)
                      return %a
                    }";
        let graph = Graph::parse(text).unwrap();
        graph.verify().unwrap();
        let run =
            |n: usize, m: usize| graph.evaluate(&[Tensor::zeros(tensor::DType::F32, [n, m])], &|_| None);
        assert_eq!(run(7, 5).unwrap().outputs[0].shape(), &Shape::new(&[7, 5]));
        let message = "rebind: axis 0 is 6, which `2*k + 1` can never be";
        assert_eq!(run(6, 5).unwrap_err().to_string(), message);
        assert!(run(7, 2).unwrap_err().to_string().contains("axis 1 is 2, which `k + j` can never be"));
    }
}
