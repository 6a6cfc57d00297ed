//! Sample problems for each op. A device runs all of them, and its results are compared with the op's reference.
//!
//! ```
//! for problem in perihelion_conformance::problems() {
//!     // A device compiles `problem.graph()` and executes it with `problem.arguments()` instead.
//!     let results = problem.graph().evaluate(&problem.arguments(), &|name| problem.weight(name)).unwrap();
//!     problem.check(&results.outputs, &results.buffers).unwrap();
//! }
//! ```

#![forbid(unsafe_code)]

mod data;
mod samples;

use graph::ops::{Effect, Load, Weight};
use graph::{Bindings, Error, Graph, Kind, Op, Type, Value};
use tensor::{DType, Shape, Tensor};

pub use samples::problems;

/// One op with operands of known values.
#[derive(Debug, Clone)]
pub struct Problem {
    /// What is special about it, after the op's name: `softmax f32[17, 15] axis 0`.
    pub name: String,
    /// The op.
    pub op: Op,
    /// The values of the operands, buffers included.
    pub inputs: Vec<Tensor>,
    /// The shapes of the results.
    pub outputs: Vec<Shape>,
    /// How far from the reference a device may be.
    pub tolerance: Tolerance,
}

/// How far from the reference a result may be. NaN and infinities must be met always.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// Not at all; but -0 is 0, and one NaN is as good as another.
    Exact,
    /// `|got - expected| <= relative · |expected| + absolute`.
    Close {
        /// Times the expected value.
        relative: f64,
        /// Whatever the expected value.
        absolute: f64,
    },
}

impl Problem {
    /// A problem whose shapes of results follow from the op's type rule.
    ///
    /// # Errors
    /// If the operands do not fit the op.
    pub fn new(
        name: impl Into<String>,
        op: impl Into<Op>,
        inputs: Vec<Tensor>,
        tolerance: Tolerance,
    ) -> Result<Problem, Error> {
        let (name, op) = (name.into(), op.into());
        let mut problem = Problem { name, op, inputs, outputs: Vec::new(), tolerance };
        let graph = problem.build()?;
        let sizes = problem.op.sizes(&problem.inputs.iter().collect::<Vec<_>>())?;
        let bindings: Bindings = problem.op.defines().into_iter().zip(sizes).collect();
        let shapes = graph.outputs().iter().map(|&result| graph.ty(result).resolve(&bindings));
        problem.outputs = shapes.collect::<Result<_, Error>>()?;
        Ok(problem)
    }

    /// The types of the operands.
    pub fn types(&self) -> Vec<Type> {
        let ty = |(position, input): (usize, &Tensor)| {
            let kind = if self.op.effect(position) == Effect::None { Kind::Tensor } else { Kind::Buffer };
            Type { kind, ..Type::new(input.dtype(), input.shape().iter().copied()) }
        };
        self.inputs.iter().enumerate().map(ty).collect()
    }

    /// A graph of the one op: operand `i` is the input `operand{i}`, or the weight of that name where models
    /// have weights (a device packs those); the results are the outputs, those that are buffers once they are loaded.
    pub fn graph(&self) -> Graph {
        self.build().expect("the operands fit the op")
    }

    fn build(&self) -> Result<Graph, Error> {
        let mut graph = Graph::new(self.op.name());
        let mut operands: Vec<Value> = Vec::new();
        for (position, ty) in self.types().into_iter().enumerate() {
            let name = format!("operand{position}");
            operands.push(if self.is_weight(position) {
                graph.push_one(Weight { name, ty }.into(), &[])?
            } else {
                graph.input(name, ty)
            });
        }
        let mut results = graph.push(self.op.clone(), &operands)?;
        for result in &mut results {
            if graph.ty(*result).kind == Kind::Buffer {
                *result = graph.push_one(Load.into(), &[*result])?;
            }
        }
        graph.set_outputs(&results);
        Ok(graph)
    }

    /// The inputs of [`Problem::graph`], buffers included.
    pub fn arguments(&self) -> Vec<Tensor> {
        let inputs = self.inputs.iter().enumerate().filter(|&(i, _)| !self.is_weight(i));
        inputs.map(|(_, input)| input.clone()).collect()
    }

    /// The weights of [`Problem::graph`].
    pub fn weight(&self, name: &str) -> Option<Tensor> {
        let position: usize = name.strip_prefix("operand")?.parse().ok()?;
        self.is_weight(position).then(|| self.inputs.get(position).cloned()).flatten()
    }

    /// Compares what a device computed with the reference: the outputs, and what each buffer holds
    /// afterwards.
    ///
    /// # Errors
    /// The first element that is too far off, with both values.
    ///
    /// # Panics
    /// If the reference refuses the problem.
    pub fn check(&self, outputs: &[Tensor], buffers: &[Tensor]) -> Result<(), String> {
        let inputs: Vec<&Tensor> = self.inputs.iter().collect();
        let mut expected =
            self.op.reference(&inputs, &self.outputs).unwrap_or_else(|error| panic!("{error}"));
        let written = expected.split_off(self.outputs.len());
        self.compare_all("output", outputs, &expected)?;
        let mut written = written.into_iter();
        let effects = (0..self.inputs.len()).map(|i| (i, self.op.effect(i)));
        let expected: Vec<Tensor> = effects
            .filter(|&(_, effect)| effect != Effect::None)
            .map(|(i, effect)| match effect {
                Effect::Write => written.next().expect("a reference gives every buffer it writes"),
                _ => self.inputs[i].clone(),
            })
            .collect();
        self.compare_all("buffer", buffers, &expected)
    }

    fn is_weight(&self, position: usize) -> bool {
        match &self.op {
            Op::Linear(linear) => position > 0 && !(linear.residual && position + 1 == self.inputs.len()),
            Op::ExpertLinear(_) => position > 1,
            Op::RmsNorm(_) | Op::LayerNorm(_) => position > 0,
            Op::Embedding(_) => position == 0,
            Op::Conv(_) | Op::QMatMul(_) | Op::GptqMatMul(_) => position > 0,
            _ => false,
        }
    }

    fn compare_all(&self, what: &str, got: &[Tensor], expected: &[Tensor]) -> Result<(), String> {
        if got.len() != expected.len() {
            return Err(format!("{}: {} {what}s, expected {}", self.name, got.len(), expected.len()));
        }
        let pairs = got.iter().zip(expected).enumerate();
        pairs.into_iter().try_for_each(|(i, (got, expected))| {
            self.tolerance.compare(got, expected).map_err(|error| format!("{}: {what} {i}{error}", self.name))
        })
    }
}

impl Tolerance {
    fn compare(self, got: &Tensor, expected: &Tensor) -> Result<(), String> {
        if got.dtype() != expected.dtype() || got.shape() != expected.shape() {
            return Err(format!(" is {got:?}, expected {expected:?}"));
        }
        let numbers = |tensor: &Tensor| match tensor.dtype() {
            // Beyond 2^53, f64 would take neighbours for equal.
            DType::I64 => tensor.to_vec::<i64>().into_iter().map(i128::from).collect(),
            DType::U64 => tensor.to_vec::<u64>().into_iter().map(i128::from).collect(),
            _ => Vec::new(),
        };
        if let Some(i) =
            numbers(got).iter().zip(numbers(expected)).position(|(got, expected)| *got != expected)
        {
            return Err(format!("[{i}] is {}, expected {}", numbers(got)[i], numbers(expected)[i]));
        }
        let (got, expected) = (got.to_f64_vec(), expected.to_f64_vec());
        match got.iter().zip(&expected).position(|(&got, &expected)| !self.accepts(got, expected)) {
            None => Ok(()),
            Some(i) => Err(format!("[{i}] is {:e}, expected {:e} ({self:?})", got[i], expected[i])),
        }
    }

    fn accepts(self, got: f64, expected: f64) -> bool {
        match self {
            _ if got == expected || (got.is_nan() && expected.is_nan()) => true,
            Tolerance::Close { relative, absolute } if expected.is_finite() => {
                (got - expected).abs() <= relative * expected.abs() + absolute
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use graph::DeviceRef;

    use super::*;

    #[test]
    fn problems_are_sound_and_cover_every_op() {
        let problems = problems();
        let names: BTreeSet<&str> = problems.iter().map(|problem| &problem.name[..]).collect();
        assert_eq!(names.len(), problems.len(), "names are unique");
        for problem in &problems {
            let results =
                problem.graph().evaluate(&problem.arguments(), &|name| problem.weight(name)).unwrap();
            problem.check(&results.outputs, &results.buffers).unwrap();
            assert_eq!(
                Graph::parse(&problem.graph().to_string()).unwrap().to_string(),
                problem.graph().to_string()
            );
        }
        let covered: BTreeSet<&str> = problems.iter().map(|problem| problem.op.name()).collect();
        let missing: Vec<&str> = Op::names().filter(|name| !covered.contains(name)).collect();
        assert_eq!(missing, ["weight", "print", "custom", "inplace_custom"]);
    }

    #[test]
    fn results_are_where_operands_are() {
        for problem in problems().iter().filter(|problem| !problem.op.places_results()) {
            let mut graph = Graph::new("there");
            let device = DeviceRef::Gpu(1);
            let types = problem.types().into_iter().map(|ty| Type { device, ..ty });
            let operands: Vec<Value> =
                types.enumerate().map(|(i, ty)| graph.input(format!("operand{i}"), ty)).collect();
            let results = graph.push(problem.op.clone(), &operands).unwrap();
            let is_there = |result: &Value| operands.is_empty() || graph.ty(*result).device == device;
            assert!(results.iter().all(is_there), "{}", problem.name);
        }
    }

    #[test]
    fn wrong_results_are_found() {
        let x = Tensor::from_slice([3], &[1.0f32, f32::NAN, f32::INFINITY]);
        let close = Tolerance::Close { relative: 1e-6, absolute: 0.0 };
        let problem = Problem::new("neg", graph::ops::Unary::Neg, vec![x], close).unwrap();
        let check = |values: [f32; 3]| problem.check(&[Tensor::from_slice([3], &values)], &[]);
        assert_eq!(check([-1.000_000_1, f32::NAN, f32::NEG_INFINITY]), Ok(()));
        for wrong in [
            [-1.001, f32::NAN, f32::NEG_INFINITY],
            [f32::NAN, f32::NAN, f32::NEG_INFINITY],
            [-1.0, 0.0, f32::NEG_INFINITY],
            [-1.0, f32::NAN, f32::INFINITY],
            [-1.0, f32::NAN, -f32::MAX],
        ] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
        assert!(problem.check(&[Tensor::from_slice([1], &[-1.0f32])], &[]).is_err());
        assert!(problem.check(&[], &[]).is_err());
        let big = Tolerance::Exact.compare(&Tensor::scalar(1i64 << 60), &Tensor::scalar((1i64 << 60) + 1));
        assert!(big.is_err());
    }
}
