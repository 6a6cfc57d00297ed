//! The slow interpreter: runs the reference of each node in program order.

use tensor::{DType, Shape, Tensor};

use crate::ops::{Effect, Weight, run_regions};
use crate::{Bindings, Error, Graph, Kind, Node, Op, Type};

/// What a graph computed.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// The graph's outputs.
    pub outputs: Vec<Tensor>,
    /// What the buffers among the inputs hold afterwards, in the order of the inputs.
    pub buffers: Vec<Tensor>,
}

/// More elements than this in one value are refused: the interpreter takes 8 to 16 bytes for each.
const MAX_ELEMENTS: usize = 1 << 28;

impl Graph {
    /// Computes the outputs with the ops' references: exact, and slow. `inputs` holds the contents of buffers
    /// too; `weights` finds a weight by name.
    ///
    /// # Errors
    /// If the graph breaks a rule of [`Graph::verify`], an input or weight is missing or does not fit, or the
    /// data makes no sense to an op.
    pub fn evaluate(
        &self,
        inputs: &[Tensor],
        weights: &dyn Fn(&str) -> Option<Tensor>,
    ) -> Result<Evaluation, Error> {
        self.verify()?;
        let (outputs, mut buffers) = self.run(inputs, weights)?;
        let mut kinds = self.inputs().iter().map(|input| self.ty(input.value).kind);
        buffers.retain(|_| kinds.next() == Some(Kind::Buffer));
        Ok(Evaluation { outputs, buffers })
    }

    /// The outputs of a verified graph, and what its inputs hold afterwards: buffers may have changed.
    pub(crate) fn run(
        &self,
        inputs: &[Tensor],
        weights: &dyn Fn(&str) -> Option<Tensor>,
    ) -> Result<(Vec<Tensor>, Vec<Tensor>), Error> {
        let given: Vec<(DType, Shape)> = inputs.iter().map(|input| (input.dtype(), *input.shape())).collect();
        let mut bindings = self.bind_inputs(&given)?;
        let mut values: Vec<Option<Tensor>> = vec![None; self.value_count()];
        for (input, tensor) in self.inputs().iter().zip(inputs) {
            values[input.value.index()] = Some(tensor.clone());
        }
        for (_, node) in self.nodes() {
            match &node.op {
                Op::Weight(weight) => values[node.outputs[0].index()] = Some(bound(weight, weights)?),
                _ => self.step(node, &mut bindings, &mut values, weights)?,
            }
        }
        let take = |value: crate::Value| values[value.index()].clone().expect("verified: defined before use");
        let outputs = self.outputs().iter().map(|&value| take(value)).collect();
        Ok((outputs, self.inputs().iter().map(|input| take(input.value)).collect()))
    }

    fn step(
        &self,
        node: &Node,
        bindings: &mut Bindings,
        values: &mut [Option<Tensor>],
        weights: &dyn Fn(&str) -> Option<Tensor>,
    ) -> Result<(), Error> {
        let operand =
            |value: &crate::Value| values[value.index()].as_ref().expect("verified: defined before use");
        let inputs: Vec<&Tensor> = node.inputs.iter().map(operand).collect();
        let types: Vec<&Type> = node.outputs.iter().map(|&value| self.ty(value)).collect();
        let (results, shapes) = if node.op.regions().is_empty() {
            for (symbol, size) in node.op.defines().into_iter().zip(node.op.sizes(&inputs)?) {
                bindings.insert(symbol, size);
            }
            let shapes: Vec<Shape> =
                types.iter().map(|ty| resolve(ty, bindings)).collect::<Result<_, Error>>()?;
            (node.op.reference(&inputs, &shapes)?, shapes)
        } else {
            let results = run_regions(&node.op, &inputs, weights)?;
            for (ty, result) in types.iter().zip(&results) {
                ty.bind_symbols(result.shape(), bindings);
            }
            let shapes = types.iter().map(|ty| resolve(ty, bindings)).collect::<Result<_, Error>>()?;
            (results, shapes)
        };
        let mut results = results.into_iter();
        for ((&value, ty), shape) in node.outputs.iter().zip(types).zip(&shapes) {
            let result = results.next().expect("a reference gives every result");
            let fits = result.dtype() == ty.dtype && result.shape() == shape;
            assert!(fits, "{} gave {result:?} for {ty}, which is {shape}", node.op.name());
            values[value.index()] = Some(result);
        }
        for (position, &buffer) in node.inputs.iter().enumerate() {
            if node.op.effect(position) == Effect::Write {
                values[buffer.index()] =
                    Some(results.next().expect("a reference gives every buffer it writes"));
            }
        }
        Ok(())
    }
}

fn resolve(ty: &Type, bindings: &Bindings) -> Result<Shape, Error> {
    let shape = ty.resolve(bindings)?;
    if shape.checked_elements().is_some_and(|elements| elements <= MAX_ELEMENTS) {
        Ok(shape)
    } else {
        Err(Error::Dim(format!("{}{shape} is too large for the interpreter", ty.dtype)))
    }
}

fn bound(weight: &Weight, weights: &dyn Fn(&str) -> Option<Tensor>) -> Result<Tensor, Error> {
    let Weight { name, ty } = weight;
    let value = weights(name).ok_or_else(|| Error::Input(format!("weight '{name}' {ty} has no value")))?;
    if value.dtype() == ty.dtype && Some(*value.shape()) == ty.static_shape() {
        Ok(value)
    } else {
        let (dtype, shape) = (value.dtype(), value.shape());
        Err(Error::Input(format!("weight '{name}': got {dtype}{shape}, expected {ty}")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn evaluate(text: &str, inputs: &[Tensor]) -> Result<Evaluation, Error> {
        let weights = |name: &str| (name == "w").then(|| Tensor::from_slice([2], &[10.0f32, 20.0]));
        Graph::parse(text).unwrap().evaluate(inputs, &weights)
    }

    #[test]
    fn buffers_change_in_program_order() {
        let text = "graph g(%x: f32[n], %b: mut f32[n]) {
                      %before = load(%b)
                      store(%b, %x)
                      %after = load(%b)
                      %sum = add(%before, %after)
                      store(%b, %sum)
                      return %before, %after
                    }";
        let [x, b] = [[1.0f32, 2.0], [30.0, 40.0]].map(|values| Tensor::from_slice([2], &values));
        let evaluation = evaluate(text, &[x, b]).unwrap();
        let values: Vec<Vec<f32>> = evaluation.outputs.iter().map(|output| output.to_vec()).collect();
        assert_eq!(values, [[30.0, 40.0], [1.0, 2.0]]);
        assert_eq!(evaluation.buffers[0].to_vec::<f32>(), [31.0, 42.0]);
    }

    #[test]
    fn created_buffers_are_new_in_each_run() {
        let text = "graph g(%x: f32[n], %i: i64[], %end: i64[]) {
                      %sum = create_buffer() {dtype = f32, shape = [n]}
                      %last, %same = while(%i, %x, %sum, %end) {predicate = graph more(%i: i64[], %x: f32[n], %s: mut f32[n], %end: i64[]) {
                        %y = less(%i, %end)
                        return %y
                      }, body = graph next(%i: i64[], %x: f32[n], %s: mut f32[n], %end: i64[]) {
                        %fresh = create_buffer() {dtype = f32, shape = [n]}
                        %old = load(%s)
                        %new = add(%old, %x)
                        store(%s, %new)
                        store(%fresh, %new)
                        %one = constant [1] : i64[]
                        %after = add(%i, %one)
                        return %after, %x
                      }}
                      %y = load(%sum)
                      return %y
                    }";
        let [i, end] = [0i64, 3].map(Tensor::scalar);
        let x = Tensor::from_slice([2], &[1.0f32, 2.0]);
        for _ in 0..2 {
            let evaluation = evaluate(text, &[x.clone(), i.clone(), end.clone()]).unwrap();
            assert_eq!(evaluation.outputs[0].to_vec::<f32>(), [3.0, 6.0]);
            assert!(evaluation.buffers.is_empty());
        }
    }

    #[test]
    fn what_is_given_must_fit() {
        let line = |line: &str| format!("graph g(%x: f32[n]) {{ {line} return %0 }}");
        let x = [Tensor::from_slice([2], &[1.0f32, 2.0])];
        let cases = [
            ("%0 = weight \"w\" : f32[3]", "weight 'w': got f32[2], expected f32[3]"),
            ("%0 = weight \"v\" : f32[3]", "weight 'v' f32[3] has no value"),
            (
                "%0 = slice(%x) {axis = 0, start = -3}",
                "slice: the range -3.. does not fit the 2 elements of axis 0",
            ),
            (
                "%0 = broadcast(%x) {shape = [9000000000, n]}",
                "f32[9000000000, 2] is too large for the interpreter",
            ),
            ("%0 = slice(%x) {axis = 0, start = 5}", "the dim n - 5 is -3"),
        ];
        for (text, message) in cases {
            assert_eq!(evaluate(&line(text), &x).unwrap_err().to_string(), message);
        }
        let integers = [Tensor::from_slice([2], &[1i32, 2])];
        let message = "input 0 'x': got i32[2], expected f32[n]";
        assert_eq!(evaluate(&line("%0 = neg(%x)"), &integers).unwrap_err().to_string(), message);
        let text = "graph g(%x: f32[2]) { %w = weight \"w\" : f32[2] %0 = add(%x, %w) return %0 }";
        let sum = evaluate(text, &x).unwrap();
        assert_eq!(sum.outputs[0].to_vec::<f32>(), [11.0, 22.0]);
    }

    /// Inputs of the types of a graph, full of numbers without pattern.
    fn inputs(graph: &Graph) -> Vec<Tensor> {
        let bindings: Bindings = [("n", 3), ("m", 2)].into_iter().collect();
        let input = |input: &crate::Input| {
            let ty = graph.ty(input.value);
            let shape = ty.resolve(&bindings).unwrap();
            let integers: Vec<i64> = (0..shape.elements() as i64).map(|i| i * 7 % 5 - 2).collect();
            let integers = Tensor::from_slice(shape, &integers);
            let cast = crate::ops::Cast { to: ty.dtype };
            Op::from(cast).reference(&[&integers], &[shape]).unwrap().swap_remove(0)
        };
        graph.inputs().iter().map(input).collect()
    }

    proptest! {
        /// That results have the inferred types, the interpreter asserts itself.
        #[test]
        fn random_graphs_evaluate_or_say_why_not(picks in crate::random::picks()) {
            let graph = crate::random::graph(&picks);
            let weight = |_: &str| Some(Tensor::zeros(DType::Q8_0, [3, 64]));
            match graph.evaluate(&inputs(&graph), &weight) {
                Ok(evaluation) => prop_assert_eq!(evaluation.outputs.len(), graph.outputs().len()),
                Err(Error::Evaluation { .. } | Error::Dim(_)) => {}
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}
