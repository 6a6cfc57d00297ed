//! `cast(matmul(a, b))` → `split_matmul(a, b)`, where the product of two halves becomes a half of their dtype.

use graph::ops::SplitMatMul;
use graph::{Graph, Node, Op, Value};
use tensor::DType;

use super::replace_each;

/// Of the inner axis, in a partial sum: what of a product stays in the nearest caches. Fixed, since results depend on it.
const CHUNK: usize = 512;

pub(super) fn run(graph: &mut Graph) {
    replace_each(graph, |graph, node| Some((SplitMatMul { chunk: CHUNK }, matches(graph, node)?)));
}

fn matches(graph: &Graph, node: &Node) -> Option<Vec<Value>> {
    let (Op::Cast(cast), &[product]) = (&node.op, &node.inputs[..]) else { return None };
    let (Op::MatMul(_), operands) = graph.defined_by(product)? else { return None };
    let is_half = [DType::F16, DType::BF16].contains(&cast.to);
    (is_half && graph.ty(operands[0]).dtype == cast.to).then(|| operands.to_vec())
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    #[test]
    fn products_that_become_halves_are_split() {
        check(
            run,
            "graph g(%a: bf16[n, 2, k], %b: bf16[k, 2]) {
               %p = matmul(%a, %b)
               %y = cast(%p) {to = bf16}
               return %y
             }",
            "graph g(%a: bf16[n, 2, k], %b: bf16[k, 2]) {
               %y = split_matmul(%a, %b) {chunk = 512}
               return %y
             }",
        );
    }

    #[test]
    fn wide_products_stay() {
        for (operands, result) in [("f16", "bf16"), ("f32", "f16"), ("bf16", "f64")] {
            check_unchanged(
                run,
                &format!(
                    "graph g(%a: {operands}[2, k], %b: {operands}[k, 2]) {{
                       %p = matmul(%a, %b)
                       %y = cast(%p) {{to = {result}}}
                       return %y
                     }}"
                ),
            );
        }
    }
}
