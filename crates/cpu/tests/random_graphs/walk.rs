//! The references of a graph one after another, where someone else may decide what each node gives.

use graph::{Bindings, Error, Graph, Kind, Node, Op, Type, Value};
use tensor::{Shape, Tensor};

use crate::data::Noise;
use crate::tolerance::{Slack, largest_of, slack, unit};

/// What a node gives, told what its reference gives for these operands.
pub(crate) type Decide<'a> = &'a mut dyn FnMut(&Node, &[&Tensor], Vec<Tensor>) -> Result<Vec<Tensor>, String>;

/// The outputs, then what buffers hold.
pub(crate) fn walk(
    graph: &Graph,
    inputs: &[Tensor],
    weights: &dyn Fn(&str) -> Option<Tensor>,
    decide: Decide<'_>,
) -> Result<Vec<Tensor>, String> {
    let given: Vec<_> = inputs.iter().map(|input| (input.dtype(), *input.shape())).collect();
    let mut bindings = graph.bind_inputs(&given).map_err(|error| error.to_string())?;
    let mut values: Vec<Option<Tensor>> = vec![None; graph.value_count()];
    for (input, tensor) in graph.inputs().iter().zip(inputs) {
        values[input.value.index()] = Some(tensor.clone());
    }
    for (_, node) in graph.nodes() {
        let operands: Vec<&Tensor> = node
            .inputs
            .iter()
            .map(|value| values[value.index()].as_ref().expect("defined before use"))
            .collect();
        let results = reference(graph, node, &operands, &mut bindings, weights);
        let mut results = results.map_err(|error| format!("{}: {error}", node.op.name()))?;
        let written = results.split_off(node.outputs.len());
        let results = decide(node, &operands, results)?;
        for (value, result) in node.outputs.iter().zip(results) {
            values[value.index()] = Some(result);
        }
        let buffers = node.inputs.iter().enumerate();
        let buffers = buffers.filter(|&(i, _)| node.op.effect(i) == graph::ops::Effect::Write);
        for ((_, value), result) in buffers.zip(written) {
            values[value.index()] = Some(result);
        }
    }
    let buffers = graph.inputs().iter().map(|input| input.value);
    let buffers = buffers.filter(|&value| graph.ty(value).kind == Kind::Buffer);
    let take = |value: Value| values[value.index()].clone().expect("verified: defined");
    Ok(graph.outputs().iter().copied().chain(buffers).map(take).collect())
}

/// The results of a node, then what it writes.
fn reference(
    graph: &Graph,
    node: &Node,
    operands: &[&Tensor],
    bindings: &mut Bindings,
    weights: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<Vec<Tensor>, Error> {
    if let Op::Weight(weight) = &node.op {
        return Ok(vec![weights(&weight.name).expect("every weight has a value")]);
    }
    if !node.op.regions().is_empty() {
        let results = alone(node, operands, weights)?;
        for (value, result) in node.outputs.iter().zip(&results) {
            graph.ty(*value).bind_symbols(result.shape(), bindings);
        }
        return Ok(results);
    }
    for (symbol, size) in node.op.defines().into_iter().zip(node.op.sizes(operands)?) {
        bindings.insert(symbol, size);
    }
    let shapes = node.outputs.iter().map(|&value| graph.ty(value).resolve(bindings));
    node.op.reference(operands, &shapes.collect::<Result<Vec<Shape>, Error>>()?)
}

/// A graph of the one node, evaluated: graphs that nodes run have weights.
fn alone(
    node: &Node,
    operands: &[&Tensor],
    weights: &dyn Fn(&str) -> Option<Tensor>,
) -> Result<Vec<Tensor>, Error> {
    use graph::ops::Effect;
    let mut graph = Graph::new("alone");
    let inputs: Vec<Value> = operands
        .iter()
        .enumerate()
        .map(|(i, operand)| {
            let ty = Type::new(operand.dtype(), operand.shape().iter().copied());
            let kind = if node.op.effect(i) == Effect::None { Kind::Tensor } else { Kind::Buffer };
            graph.input(format!("x{i}"), Type { kind, ..ty })
        })
        .collect();
    let outputs = graph.push(node.op.clone(), &inputs)?;
    graph.set_outputs(&outputs);
    let operands: Vec<Tensor> = operands.iter().map(|&operand| operand.clone()).collect();
    let evaluation = graph.evaluate(&operands, weights)?;
    let effects = (0..operands.len()).map(|i| node.op.effect(i)).filter(|&effect| effect != Effect::None);
    let buffers = effects.zip(evaluation.buffers).filter(|(effect, _)| *effect == Effect::Write);
    Ok(evaluation.outputs.into_iter().chain(buffers.map(|(_, buffer)| buffer)).collect())
}

/// Whether an op computes nothing that could be rounded.
fn is_exact(op: &Op) -> bool {
    matches!(op, Op::Constant(_) | Op::Weight(_) | Op::CreateBuffer(_) | Op::Load(_))
}

/// Results moved at random within the slack of their op, and that of one more rounding: what another way to compute the
/// same may give (Vignes, "A stochastic arithmetic for reliable scientific computation", 1993).
pub(crate) fn disturb(
    node: &Node,
    operands: &[&Tensor],
    results: Vec<Tensor>,
    noise: &mut Noise,
) -> Vec<Tensor> {
    let disturbed = results.into_iter().map(|result| {
        let dtype = result.dtype();
        if !dtype.is_float() || is_exact(&node.op) {
            return result;
        }
        let Slack { mut relative, mut absolute } = slack(&node.op, operands, dtype);
        if matches!(node.op, Op::Binary(_) | Op::Cast(_)) {
            relative += 2.0 * unit(dtype);
        }
        let is_claimed = absolute != f64::INFINITY;
        if !is_claimed {
            absolute = 1.0 + largest_of(&result);
        }
        if relative == 0.0 && absolute == 0.0 {
            return result;
        }
        let moved = |x: f64| match x.is_finite() {
            true => x + noise.number() * (relative * x.abs() + absolute),
            false if is_claimed => x,
            false => noise.number(),
        };
        let values: Vec<f64> = result.to_f64_vec().into_iter().map(moved).collect();
        crate::data::cast(&Tensor::from_slice(*result.shape(), &values), dtype)
    });
    disturbed.collect()
}
