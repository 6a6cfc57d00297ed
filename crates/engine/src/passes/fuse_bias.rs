//! `linear(x, W) + b` → `linear[bias](x, W, b)`, if `b` is f32[rows] and the product has no other reader; also for
//! convolutions whose channels lie last.

use graph::ops::{Binary, Conv, ImageLayout, Linear};
use graph::{Graph, Node, Op, Value};
use tensor::DType;

use super::{either_order, replace_each, sole};
use crate::leaf::is_leaf;

pub(super) fn run(graph: &mut Graph) {
    replace_each(graph, matches);
}

fn matches(graph: &Graph, node: &Node) -> Option<(Op, Vec<Value>)> {
    either_order(&node.op, &node.inputs, Binary::Add).find_map(|(y, bias)| {
        let (op, inputs) = sole(graph, y)?;
        let (ty, rows) = (graph.ty(bias), graph.ty(y).shape.last());
        let per_row = ty.rank() == 1 && ty.shape.last() == rows;
        let leaf = graph.defined_by(bias).is_some_and(|(op, _)| is_leaf(op));
        if !per_row || !leaf {
            return None;
        }
        let fused = match op {
            Op::Linear(linear) if takes_bias(linear) => Linear { bias: true, ..*linear }.into(),
            // Halves are rounded before a bias.
            Op::Conv(conv) if has_room(conv, inputs) && graph.ty(y).dtype == DType::F32 => op.clone(),
            _ => return None,
        };
        Some((fused, [inputs, &[bias]].concat()))
    })
}

fn takes_bias(linear: &Linear) -> bool {
    linear.weights == 1 && !linear.bias && linear.activation.is_none() && !linear.residual
}

fn has_room(conv: &Conv, inputs: &[Value]) -> bool {
    inputs.len() == 2 && conv.activation.is_none() && conv.layout == ImageLayout::ChannelsLast
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    fn graph(body: &str) -> String {
        format!(
            "graph g(%x: f32[n, 4], %r: f32[n, 2], %b: f32[2]) {{
               %v = weight \"v\" : f32[2, 4]
               %bias = weight \"bias\" : f32[2]
               {body}
             }}"
        )
    }

    #[test]
    fn both_orders_fuse() {
        let fused = graph("%z = linear(%x, %v, %bias) {bias = true} return %z");
        check(run, &graph("%y = linear(%x, %v) %z = add(%y, %bias) return %z"), &fused);
        check(run, &graph("%y = linear(%x, %v) %z = add(%bias, %y) return %z"), &fused);
    }

    #[test]
    fn only_the_bias_of_a_plain_layer_fuses() {
        for body in [
            "%y = linear(%x, %v) %z = add(%y, %bias) return %z, %y",
            "%y = linear(%x, %v) %z = add(%y, %b) return %z",
            "%y = linear(%x, %v) %z = mul(%y, %bias) return %z",
            "%y = linear(%x, %v, %bias) {bias = true} %z = add(%y, %bias) return %z",
            "%y = linear(%x, %v, %r) {residual = true} %z = add(%y, %bias) return %z",
        ] {
            let text = if body.contains("%bias") {
                graph(body)
            } else {
                graph(body).replace("%bias = weight \"bias\" : f32[2]", "")
            };
            check_unchanged(run, &text);
        }
    }

    #[test]
    fn sums_of_single_numbers_stay() {
        check_unchanged(run, "graph g(%x: f32[]) { %y = neg(%x) %z = add(%y, %x) return %z }");
    }

    fn images(dtype: &str, body: &str) -> String {
        format!(
            "graph g(%x: {dtype}[n, 8, 8, 3]) {{
               %w = weight \"w\" : {dtype}[3, 3, 3, 5]
               %b = weight \"b\" : {dtype}[5]
               {body}
             }}"
        )
    }

    #[test]
    fn convolutions_take_a_bias_of_their_channels() {
        check(
            run,
            &images("f32", "%a = conv2d(%x, %w) {strides = [2, 2]} %y = add(%b, %a) return %y"),
            &images("f32", "%y = conv2d(%x, %w, %b) {strides = [2, 2]} return %y"),
        );
        let text = images("f32", "%a = conv2d(%x, %w) {layout = nchw} %y = add(%a, %b) return %y");
        check_unchanged(run, &text.replace("[n, 8, 8, 3]", "[n, 3, 8, 7]"));
        for (dtype, body) in [
            ("bf16", "%a = conv2d(%x, %w) %y = add(%a, %b) return %y"),
            ("f32", "%a = conv2d(%x, %w, %b) %y = add(%a, %b) return %y"),
            ("f32", "%a = conv2d(%x, %w) {activation = relu} %y = add(%a, %b) return %y"),
            ("f32", "%a = conv2d(%x, %w) %y = add(%a, %b) return %y, %a"),
        ] {
            check_unchanged(run, &images(dtype, body));
        }
    }
}
