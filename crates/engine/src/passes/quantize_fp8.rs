//! `linear(x, w)` → `fp8_linear(x, w)` and `matmul(a, b)` → `fp8_matmul(a, b)`, where the weight is of floats.
//!
//! What is fused into a linear layer becomes nodes of its own around the product.

use graph::ops::{Binary, Fp8Product, Linear, RmsNorm};
use graph::{Graph, NodeId, Op, Value};
use tensor::DType;

/// What is rounded; blocks and 8-bit floats are small as they are.
const WIDE: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

pub(super) fn run(graph: &mut Graph) {
    for id in graph.node_ids() {
        let node = graph.node(id);
        match node.op.clone() {
            Op::MatMul(_) => {
                let inputs = node.inputs.clone();
                super::replace(graph, id, Fp8Product::MatMul, &inputs);
            }
            Op::Linear(linear) => {
                let weights = linear.operands(&node.inputs).weights;
                if weights.iter().all(|&weight| WIDE.contains(&graph.ty(weight).dtype)) {
                    take_apart(graph, id, linear);
                }
            }
            _ => (),
        }
    }
}

fn take_apart(graph: &mut Graph, id: NodeId, linear: Linear) {
    let node = graph.node(id);
    let (inputs, results) = (node.inputs.clone(), node.outputs.clone());
    let operands = linear.operands(&inputs);
    let mut add =
        |op: Op, inputs: &[Value]| graph.insert_before(id, op, inputs).expect("the parts of a layer fit")[0];
    let x = match (linear.norm, operands.norm) {
        (Some(eps), Some(&weight)) => add(RmsNorm { eps }.into(), &[*operands.x, weight]),
        _ => *operands.x,
    };
    let mut products: Vec<Value> =
        operands.weights.iter().map(|&weight| add(Fp8Product::Linear.into(), &[x, weight])).collect();
    for (product, &bias) in products.iter_mut().zip(operands.biases) {
        *product = add(Binary::Add.into(), &[*product, bias]);
    }
    if let (Some(gate), &[gated, up]) = (linear.gate, &products[..]) {
        let gated = add(gate.into(), &[gated]);
        products = vec![add(Binary::Mul.into(), &[gated, up])];
    }
    if let Some(activation) = linear.activation {
        products.iter_mut().for_each(|product| *product = add(activation.into(), &[*product]));
    }
    if let Some(&residual) = operands.residual {
        products[0] = add(Binary::Add.into(), &[products[0], residual]);
    }
    for (old, new) in results.into_iter().zip(products) {
        graph.replace_uses(old, new);
    }
    graph.remove(id);
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    #[test]
    fn products_of_floats_are_rounded() {
        check(
            run,
            "graph g(%x: f32[n, 32], %a: bf16[n, 2, 3], %b: bf16[n, 3, 2]) {
               %w = weight \"w\" : f16[4, 32]
               %c = weight \"c\" : f32[4]
               %y = linear(%x, %w, %c) {bias = true}
               %z = matmul(%a, %b)
               return %y, %z
             }",
            "graph g(%x: f32[n, 32], %a: bf16[n, 2, 3], %b: bf16[n, 3, 2]) {
               %w = weight \"w\" : f16[4, 32]
               %c = weight \"c\" : f32[4]
               %p = fp8_linear(%x, %w)
               %y = add(%p, %c)
               %z = fp8_matmul(%a, %b)
               return %y, %z
             }",
        );
    }

    #[test]
    fn what_is_fused_comes_apart() {
        check(
            run,
            "graph g(%x: f32[n, 32], %r: f32[n, 8]) {
               %n = weight \"n\" : f32[32]
               %v = weight \"v\" : f32[8, 32]
               %w = weight \"w\" : f32[8, 32]
               %y = linear(%x, %n, %v, %w, %r) {weights = 2, norm = 0.5, gate = silu, residual = true}
               return %y
             }",
            "graph g(%x: f32[n, 32], %r: f32[n, 8]) {
               %n = weight \"n\" : f32[32]
               %v = weight \"v\" : f32[8, 32]
               %w = weight \"w\" : f32[8, 32]
               %h = rms_norm(%x, %n) {eps = 0.5}
               %a = fp8_linear(%h, %v)
               %b = fp8_linear(%h, %w)
               %s = silu(%a)
               %m = mul(%s, %b)
               %y = add(%m, %r)
               return %y
             }",
        );
    }

    #[test]
    fn blocks_stay_blocks() {
        check_unchanged(
            run,
            "graph g(%x: f32[n, 32]) {
               %w = weight \"w\" : q8_0[4, 32]
               %y = linear(%x, %w)
               return %y
             }",
        );
    }
}
