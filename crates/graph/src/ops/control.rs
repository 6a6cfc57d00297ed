//! Ops that run graphs: one of two, one again and again, one of its own.
//!
//! A graph takes all it uses as operands; its symbols stand for the sizes of these. Weights may stand in it.

use std::sync::Arc;

use super::prelude::*;
use super::{Effect, Op};
use crate::{DeviceRef, Graph, Kind};

/// `predicate: bool[]` on the host, and captured values → what `then` makes of the captured values if the predicate
/// is true, else what `otherwise` makes of them; both of the same types.
#[derive(Debug, Clone, PartialEq)]
pub struct Cond {
    /// What runs if the predicate is true.
    pub then: Arc<Graph>,
    /// What runs if it is false.
    pub otherwise: Arc<Graph>,
}

/// Carried values, and captured values → the carried values after as many runs of `body` as `predicate` asks for.
///
/// Both graphs take all operands. While `predicate` gives true, `body` makes the next carried values, of the same
/// types. Captured values stay, but buffers among them may be written.
#[derive(Debug, Clone, PartialEq)]
pub struct While {
    /// Whether to go on: gives `bool[]`.
    pub predicate: Arc<Graph>,
    /// The next carried values.
    pub body: Arc<Graph>,
}

/// The operands of a graph → its results.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What runs.
    pub graph: Arc<Graph>,
    /// Stands before the names of its weights, so that one graph serves many layers: `layers.3.`.
    pub prefix: String,
}

impl Define for Cond {
    declare!("cond" { then, otherwise });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let Some((predicate, captured)) = inputs.split_first() else {
            return Err(TypeError::new("takes a predicate, got no operands"));
        };
        expect_condition("predicate", predicate)?;
        let (then, otherwise) = (self.then.apply(captured)?, self.otherwise.apply(captured)?);
        refuse_if!(
            then != otherwise,
            "results differ: `{}` gives {}, `{}` gives {}",
            self.then.name(),
            list(&then),
            self.otherwise.name(),
            list(&otherwise)
        );
        Ok(then)
    }

    fn effect(&self, position: usize) -> Effect {
        let Some(capture) = position.checked_sub(1) else { return Effect::None };
        self.then.input_effect(capture).max(self.otherwise.input_effect(capture))
    }

    /// Its graphs say it.
    fn places_results(&self) -> bool {
        true
    }

    fn regions(&self) -> Vec<&Arc<Graph>> {
        vec![&self.then, &self.otherwise]
    }

    fn defines(&self) -> Vec<&str> {
        self.then.symbols_of_results()
    }

    /// Without weights; [`Graph::evaluate`] has them.
    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        run_regions(&self.clone().into(), inputs, &|_| None)
    }
}

impl Define for While {
    declare!("while" { predicate, body });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let next = self.body.apply(inputs)?;
        if next.is_empty() || next.len() > inputs.len() {
            let (name, count) = (self.body.name(), inputs.len());
            return Err(type_error!(
                "`{name}` gives {} results, expected a value to carry on for each of the first of {count} operands, \
                 and at least one",
                next.len()
            ));
        }
        for (i, (initial, next)) in inputs.iter().zip(&next).enumerate() {
            refuse_if!(initial.kind == Kind::Buffer, "carried value {i} is {initial}, expected a tensor");
            if *initial != next {
                let body = self.body.name();
                return Err(type_error!("carried value {i} is {initial}, `{body}` makes it {next}"));
            }
        }
        let name = self.predicate.name();
        match &self.predicate.apply(inputs)?[..] {
            [condition] => expect_condition(&format!("the result of `{name}`"), condition)?,
            results => {
                return Err(type_error!("`{name}` gives {} results, expected one bool[]", results.len()));
            }
        }
        Ok(next)
    }

    fn effect(&self, position: usize) -> Effect {
        self.predicate.input_effect(position).max(self.body.input_effect(position))
    }

    /// Its graphs say it.
    fn places_results(&self) -> bool {
        true
    }

    fn regions(&self) -> Vec<&Arc<Graph>> {
        vec![&self.predicate, &self.body]
    }

    /// Without weights; [`Graph::evaluate`] has them.
    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        run_regions(&self.clone().into(), inputs, &|_| None)
    }
}

impl Define for Call {
    declare!("call" { graph, prefix = String::new() });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        self.graph.apply(inputs)
    }

    fn effect(&self, position: usize) -> Effect {
        self.graph.input_effect(position)
    }

    /// Its graphs say it.
    fn places_results(&self) -> bool {
        true
    }

    fn regions(&self) -> Vec<&Arc<Graph>> {
        vec![&self.graph]
    }

    fn defines(&self) -> Vec<&str> {
        self.graph.symbols_of_results()
    }

    /// Without weights; [`Graph::evaluate`] has them.
    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        run_regions(&self.clone().into(), inputs, &|_| None)
    }
}

/// The results of an op that runs verified graphs, then the new contents of each buffer operand that it writes.
pub(crate) fn run_regions(
    op: &Op,
    inputs: &[&Tensor],
    weights: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<Vec<Tensor>, Error> {
    let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    let is_true = |tensor: &Tensor| tensor.to_f64_vec() != [0.0];
    let (outputs, inputs) = match op {
        Op::Cond(cond) => {
            let branch = if is_true(&inputs[0]) { &cond.then } else { &cond.otherwise };
            let (outputs, mut captured) = branch.run(&inputs[1..], weights)?;
            captured.insert(0, inputs[0].clone());
            (outputs, captured)
        }
        Op::While(op) => {
            let mut state = inputs;
            let mut outputs = state[..op.body.outputs().len()].to_vec();
            loop {
                let (condition, seen) = op.predicate.run(&state, weights)?;
                if !is_true(&condition[0]) {
                    break (outputs, seen);
                }
                (outputs, state) = op.body.run(&seen, weights)?;
                state[..outputs.len()].clone_from_slice(&outputs);
            }
        }
        Op::Call(call) => call.graph.run(&inputs, &|name| weights(&format!("{}{name}", call.prefix)))?,
        op => unreachable!("{} runs no graphs", op.name()),
    };
    let written = inputs.into_iter().enumerate().filter(|&(i, _)| op.effect(i) == Effect::Write);
    Ok(outputs.into_iter().chain(written.map(|(_, tensor)| tensor)).collect())
}

/// Refuses what is no single bool on the host.
fn expect_condition(name: &str, ty: &Type) -> Result<(), TypeError> {
    let is_single = ty.elements() == Dim::from(1) && ty.kind == Kind::Tensor;
    refuse_if!(
        !(is_single && ty.dtype == DType::Bool && ty.device == DeviceRef::Cpu),
        "{name} is {ty}, expected bool[] on the cpu"
    );
    Ok(())
}

fn list(types: &[Type]) -> String {
    match types {
        [] => "nothing".to_string(),
        types => types.iter().map(Type::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, run};
    use super::*;

    fn graph(text: &str) -> Arc<Graph> {
        Arc::new(Graph::parse(text).unwrap())
    }

    const NEGATE: &str = "graph negate(%x: f32[n]) { %y = neg(%x) return %y }";
    const SAME: &str = "graph same(%x: f32[n]) { return %x }";
    const TWICE: &str = "graph twice(%x: f32[n]) { %y = concat(%x, %x) {axis = 0} return %y }";

    #[test]
    fn types_of_cond() {
        check_types(
            Cond { then: graph(NEGATE), otherwise: graph(SAME) },
            &[
                (&["bool[]", "f32[m]"], "f32[m]"),
                (&["bool[1, 1]", "f32[4]"], "f32[4]"),
                (&["bool[2]", "f32[m]"], "cond: predicate is bool[2], expected bool[] on the cpu"),
                (&["i32[]", "f32[m]"], "cond: predicate is i32[], expected bool[] on the cpu"),
                (
                    &["bool[] @gpu:0", "f32[m]"],
                    "cond: predicate is bool[] @gpu:0, expected bool[] on the cpu",
                ),
                (&["bool[]"], "cond: `negate` takes 1 operands (x), got 0"),
                (&[], "cond: takes a predicate, got no operands"),
                (&["bool[]", "f16[m]"], "cond: operand 'x' of `negate` is f16[m], expected f32[n]"),
            ],
        );
        check_types(
            Cond { then: graph(NEGATE), otherwise: graph(TWICE) },
            &[(&["bool[]", "f32[m]"], "cond: results differ: `negate` gives f32[m], `twice` gives f32[2*m]")],
        );
    }

    #[test]
    fn types_of_while() {
        let small = "graph small(%x: f32[n]) { %c = constant [true] : bool[] return %c }";
        check_types(
            While { predicate: graph(small), body: graph(NEGATE) },
            &[
                (&["f32[m]"], "f32[m]"),
                (&["f32[m]", "f32[m]"], "while: `negate` takes 1 operands (x), got 2"),
            ],
        );
        check_types(
            While { predicate: graph(small), body: graph(TWICE) },
            &[(&["f32[m]"], "while: carried value 0 is f32[m], `twice` makes it f32[2*m]")],
        );
        check_types(
            While { predicate: graph(SAME), body: graph(NEGATE) },
            &[(&["f32[m]"], "while: the result of `same` is f32[m], expected bool[] on the cpu")],
        );
        let nothing = graph("graph nothing(%x: f32[n]) { return }");
        check_types(
            While { predicate: graph(small), body: nothing },
            &[(
                &["f32[m]"],
                "while: `nothing` gives 0 results, expected a value to carry on for each of the first of 1 operands, \
                 and at least one",
            )],
        );
    }

    #[test]
    fn types_and_effects_of_call() {
        let store =
            graph("graph put(%b: mut f32[n], %c: mut f32[n], %x: f32[n]) { store(%b, %x) return %x }");
        let call = Call { graph: store, prefix: String::new() };
        assert_eq!([0, 1, 2].map(|i| call.effect(i)), [Effect::Write, Effect::Read, Effect::None]);
        check_types(
            call,
            &[
                (&["mut f32[4]", "mut f32[4]", "f32[4]"], "f32[4]"),
                (&["f32[4]", "mut f32[4]", "f32[4]"], "call: operand 0 is f32[4], expected a buffer"),
                (
                    &["mut f32[4]", "mut f32[4]", "f32[5]"],
                    "call: operand 'x' of `put` is f32[5], expected f32[n] with n = 4",
                ),
            ],
        );
    }

    #[test]
    fn a_loop_counts() {
        let text = |body: &str| graph(&format!("graph g(%i: i64[], %end: i64[]) {{ {body} return %y }}"));
        let op = While {
            predicate: text("%y = less(%i, %end)"),
            body: text("%one = constant [1] : i64[] %y = add(%i, %one)"),
        };
        let [start, end] = [3i64, 7].map(Tensor::scalar);
        assert_eq!(run(op.clone(), &[&start, &end]).unwrap()[0].to_vec::<i64>(), [7]);
        assert_eq!(run(op, &[&end, &start]).unwrap()[0].to_vec::<i64>(), [7]);
    }
}
