//! `y = f(constants)` → `y = constant`, where operands and results are small.

use graph::ops::{Constant, TensorData};
use graph::{DeviceRef, Graph, NodeId, Op, Value};
use tensor::{Shape, Tensor};

use super::touches_buffers;
use crate::leaf::is_leaf;

/// References are slow and folded constants are kept forever, so only what takes no more bytes is computed here.
const LIMIT: usize = 1 << 20;

pub(super) fn run(graph: &mut Graph) {
    for id in graph.node_ids() {
        let Some(results) = evaluate(graph, id) else { continue };
        let outputs = graph.node(id).outputs.clone();
        for (&output, result) in outputs.iter().zip(results) {
            let constant = Constant { value: TensorData(result) };
            let value = graph.insert_before(id, constant.into(), &[]).expect("constants need nothing")[0];
            graph.replace_uses(output, value);
        }
        graph.remove(id);
    }
}

fn evaluate(graph: &Graph, id: NodeId) -> Option<Vec<Tensor>> {
    let node = graph.node(id);
    let pure = !touches_buffers(node);
    // A loop might never end, and a constant defines no symbol.
    let computes = node.op.regions().is_empty() && !node.op.has_side_effect() && node.op.defines().is_empty();
    // A constant is on the host.
    let is_here = node.outputs.iter().all(|&output| graph.ty(output).device == DeviceRef::Cpu);
    if is_leaf(&node.op) || node.outputs.is_empty() || !pure || !computes || !is_here {
        return None;
    }
    let inputs: Option<Vec<&Tensor>> = node.inputs.iter().map(|&input| constant(graph, input)).collect();
    let inputs = inputs?;
    let shapes: Option<Vec<Shape>> =
        node.outputs.iter().map(|&output| graph.ty(output).static_shape()).collect();
    let shapes = shapes?;
    let bytes_in = inputs.iter().map(|tensor| tensor.dtype().bytes_for(tensor.elements()));
    let dtypes = node.outputs.iter().map(|&output| graph.ty(output).dtype);
    let bytes_out =
        shapes.iter().zip(dtypes).map(|(shape, dtype)| dtype.bytes_for(shape.checked_elements()?));
    let small = bytes_in.chain(bytes_out).all(|bytes| bytes.is_some_and(|bytes| bytes <= LIMIT));
    // Data that makes no sense is an error of the call, if the call comes that far.
    if small { node.op.reference(&inputs, &shapes).ok() } else { None }
}

fn constant(graph: &Graph, value: Value) -> Option<&Tensor> {
    match graph.defined_by(value)? {
        (Op::Constant(constant), _) => Some(&constant.value.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    #[test]
    fn chains_of_constants_become_one() {
        check(
            run,
            "graph g(%x: f32[2]) {
               %a = constant [1.0, 2.0] : f32[2]
               %b = constant [3.0] : f32[]
               %c = mul(%a, %b)
               %d = neg(%c)
               %e, %f = split(%d) {axis = 0, sizes = [1, 1]}
               %y = add(%x, %d)
               %z = add(%x, %f)
               return %y, %z
             }",
            "graph g(%x: f32[2]) {
               %d = constant [-3.0, -6.0] : f32[2]
               %f = constant [-6.0] : f32[1]
               %y = add(%x, %d)
               %z = add(%x, %f)
               return %y, %z
             }",
        );
    }

    #[test]
    fn what_is_large_or_fails_or_is_not_constant_stays() {
        check_unchanged(
            run,
            "graph g(%x: f32[n]) {
               %a = constant [1.0] : f32[1]
               %large = broadcast(%a) {shape = [300000]}
               %w = weight \"w\" : f32[1]
               %b = mul(%a, %w)
               %c = constant [1] : i32[1]
               %zero = constant [0] : i32[1]
               %fails = div(%c, %zero)
               %buffer = create_buffer() {dtype = i32, shape = [1]}
               store(%buffer, %c)
               %loaded = load(%buffer)
               return %large, %b, %fails, %loaded
             }",
        );
    }
}
