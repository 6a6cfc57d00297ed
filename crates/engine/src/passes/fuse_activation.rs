//! `gelu(linear(x, W))` → `linear[gelu](x, W)`, if the product has no other reader; also for other activations, and for
//! convolutions.

use graph::ops::{Conv, Linear, Unary};
use graph::{Graph, Node, Op, Value};
use tensor::DType;

use super::{replace_each, sole};

pub(super) fn run(graph: &mut Graph) {
    replace_each(graph, matches);
}

fn matches(graph: &Graph, node: &Node) -> Option<(Op, Vec<Value>)> {
    let (&Op::Unary(function), &[y]) = (&node.op, &node.inputs[..]) else { return None };
    let (op, inputs) = sole(graph, y).filter(|_| is_activation(function))?;
    let activation = Some(function);
    let fused = match op {
        Op::Linear(linear) if linear.weights == 1 && linear.activation.is_none() && !linear.residual => {
            Op::from(Linear { activation, ..*linear })
        }
        // Halves are rounded before other activations.
        Op::Conv(conv)
            if conv.activation.is_none() && (graph.ty(y).dtype == DType::F32 || function == Unary::Relu) =>
        {
            Op::from(Conv { activation, ..conv.clone() })
        }
        _ => return None,
    };
    Some((fused, inputs.to_vec()))
}

/// Whether networks have it after products, so that devices know it there.
fn is_activation(function: Unary) -> bool {
    use Unary::{Gelu, GeluQuick, GeluTanh, Relu, Sigmoid, Silu, Tanh};
    matches!(function, Gelu | GeluQuick | GeluTanh | Relu | Sigmoid | Silu | Tanh)
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    fn graph(body: &str) -> String {
        format!(
            "graph g(%x: f32[n, 4], %r: f32[n, 2], %b: f32[2]) {{
               %w = weight \"w\" : f32[2, 4]
               {body}
             }}"
        )
    }

    #[test]
    fn activations_follow_products_and_biases() {
        for name in ["gelu", "gelu_quick", "gelu_tanh", "relu", "sigmoid", "silu", "tanh"] {
            check(
                run,
                &graph(&format!("%a = linear(%x, %w, %b) {{bias = true}} %y = {name}(%a) return %y")),
                &graph(&format!("%y = linear(%x, %w, %b) {{bias = true, activation = {name}}} return %y")),
            );
        }
    }

    #[test]
    fn only_the_first_activation_is_taken() {
        check(
            run,
            &graph("%a = linear(%x, %w) %b0 = relu(%a) %y = tanh(%b0) return %y"),
            &graph("%b0 = linear(%x, %w) {activation = relu} %y = tanh(%b0) return %y"),
        );
    }

    #[test]
    fn what_is_no_activation_of_one_product_stays() {
        for body in [
            "%a = linear(%x, %w) %y = gelu(%a) return %y, %a",
            "%a = linear(%x, %w) %y = exp(%a) return %y",
            "%a = linear(%x, %w, %r) {residual = true} %y = gelu(%a) return %y",
            "%v = weight \"v\" : f32[2, 4]
             %a, %c = linear(%x, %v, %w) {weights = 2} %y = gelu(%a) return %y, %c",
            "%v = weight \"v\" : f32[2, 4]
             %a = linear(%x, %v, %w) {weights = 2, gate = silu} %y = gelu(%a) return %y",
        ] {
            check_unchanged(run, &graph(body));
        }
    }

    fn images(dtype: &str, body: &str) -> String {
        format!(
            "graph g(%x: {dtype}[n, 8, 8, 3], %b: {dtype}[5]) {{
               %w = weight \"w\" : {dtype}[3, 3, 3, 5]
               {body}
             }}"
        )
    }

    #[test]
    fn activations_follow_convolutions() {
        for (dtype, name) in [("f32", "relu"), ("f32", "silu"), ("f32", "gelu"), ("bf16", "relu")] {
            check(
                run,
                &images(
                    dtype,
                    &format!("%a = conv2d(%x, %w, %b) {{strides = [2, 2]}} %y = {name}(%a) return %y"),
                ),
                &images(
                    dtype,
                    &format!("%y = conv2d(%x, %w, %b) {{strides = [2, 2], activation = {name}}} return %y"),
                ),
            );
        }
    }

    #[test]
    fn activations_of_convolutions_read_elsewhere_or_rounded_stay() {
        for (dtype, body) in [
            ("f32", "%a = conv2d(%x, %w) %y = relu(%a) return %y, %a"),
            ("f32", "%a = conv2d(%x, %w) {activation = silu} %y = relu(%a) return %y"),
            ("bf16", "%a = conv2d(%x, %w) %y = silu(%a) return %y"),
        ] {
            check_unchanged(run, &images(dtype, body));
        }
    }
}
