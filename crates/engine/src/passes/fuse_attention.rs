//! `softmax(q·kᵀ · scale + mask)·v` of heads moved before tokens, and moved back → `attention(q, k, v, mask)`, if
//! the values between have no other readers. Scale and mask may be missing.

use graph::ops::{Attention, Binary, Transpose};
use graph::{Graph, Node, Op, Value};

use super::{either_order, replace_each, sole};

pub(super) fn run(graph: &mut Graph) {
    replace_each(graph, matches);
}

fn matches(graph: &Graph, node: &Node) -> Option<(Attention, Vec<Value>)> {
    let result = *node.outputs.first()?;
    let mixed = transposed(graph, result, heads_first)?;
    let (Op::MatMul(_), &[shares, v]) = sole(graph, mixed)? else { return None };
    let v = transposed(graph, v, heads_first)?;
    let (Op::Softmax(softmax), &[scores]) = sole(graph, shares)? else { return None };
    if softmax.axis + 1 != graph.ty(scores).rank() {
        return None;
    }
    let (scores, mask) = masked(graph, scores);
    let (scores, scale) = scaled(graph, scores);
    let (Op::MatMul(_), &[q, k]) = sole(graph, scores)? else { return None };
    let (q, k) = (transposed(graph, q, heads_first)?, transposed(graph, k, keys_last)?);
    let attention = Attention { scale };
    let inputs: Vec<Value> = [q, k, v].into_iter().chain(mask).collect();
    let types: Vec<_> = inputs.iter().map(|&input| graph.ty(input)).collect();
    // What matrix products broadcast or convert, attention does not.
    let fits = Op::from(attention).infer(&types).is_ok_and(|results| results[0] == *graph.ty(result));
    fits.then_some((attention, inputs))
}

/// What is transposed into a value in this order.
fn transposed(graph: &Graph, value: Value, order: fn(usize) -> Vec<usize>) -> Option<Value> {
    let (Op::Transpose(Transpose { order: found }), &[source]) = graph.defined_by(value)? else {
        return None;
    };
    (found.len() >= 3 && *found == order(found.len())).then_some(source)
}

/// `[.., tokens, heads, dim]` → `[.., heads, tokens, dim]`, and back.
fn heads_first(rank: usize) -> Vec<usize> {
    (0..rank - 3).chain([rank - 2, rank - 3, rank - 1]).collect()
}

/// `[.., keys, heads, dim]` → `[.., heads, dim, keys]`.
fn keys_last(rank: usize) -> Vec<usize> {
    (0..rank - 3).chain([rank - 2, rank - 1, rank - 3]).collect()
}

/// A sum as scores and the mask added to them.
fn masked(graph: &Graph, sum: Value) -> (Value, Option<Value>) {
    let is_score = |value: Value| {
        let (scores, _) = scaled(graph, value);
        graph.ty(value) == graph.ty(sum) && matches!(sole(graph, scores), Some((Op::MatMul(_), _)))
    };
    let found = sole(graph, sum)
        .and_then(|(op, inputs)| either_order(op, inputs, Binary::Add).find(|&(scores, _)| is_score(scores)));
    found.map_or((sum, None), |(scores, mask)| (scores, Some(mask)))
}

/// A product as scores and the number they are multiplied with.
fn scaled(graph: &Graph, product: Value) -> (Value, f32) {
    let found = sole(graph, product).and_then(|(op, inputs)| match (op, inputs) {
        (Op::Binary(Binary::Div), &[a, b]) => Some((a, number(graph, b)?.recip())),
        _ => either_order(op, inputs, Binary::Mul).find_map(|(a, b)| Some((a, number(graph, b)?))),
    });
    found.filter(|&(_, scale)| scale.is_finite()).unwrap_or((product, 1.0))
}

/// The number that a value is, whatever the graph is given.
fn number(graph: &Graph, value: Value) -> Option<f32> {
    let (Op::Constant(constant), _) = graph.defined_by(value)? else { return None };
    let tensor = &constant.value.0;
    (tensor.elements() == 1).then(|| tensor.to_f32_vec()[0])
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    fn graph(scores: &str, rest: &str) -> String {
        format!(
            "graph g(%q: f32[b, t, 2, 4], %k: f32[b, s, 2, 4], %v: f32[b, s, 2, 4], %mask: f32[b, 1, 1, s]) {{
               %c = constant [0.5] : f32[]
               %q1 = transpose(%q) {{order = [0, 2, 1, 3]}}
               %k1 = transpose(%k) {{order = [0, 2, 3, 1]}}
               %v1 = transpose(%v) {{order = [0, 2, 1, 3]}}
               %s = matmul(%q1, %k1)
               {scores}
               %o = matmul(%p, %v1)
               {rest}
             }}"
        )
    }

    fn fused(op: &str) -> String {
        format!(
            "graph g(%q: f32[b, t, 2, 4], %k: f32[b, s, 2, 4], %v: f32[b, s, 2, 4], %mask: f32[b, 1, 1, s]) {{
               %y = {op}
               return %y
             }}"
        )
    }

    #[test]
    fn with_and_without_scale_and_mask() {
        let rest = "%y = transpose(%o) {order = [0, 2, 1, 3]} return %y";
        let used = "%n = neg(%c) %unused = add(%n, %mask)";
        let graph = |scores: &str| graph(&format!("{scores} {used}"), rest);
        for (scores, op) in [
            ("%p = softmax(%s) {axis = 3}", "attention(%q, %k, %v) {scale = 1.0}"),
            ("%a = mul(%s, %c) %p = softmax(%a) {axis = 3}", "attention(%q, %k, %v) {scale = 0.5}"),
            ("%a = div(%s, %c) %p = softmax(%a) {axis = 3}", "attention(%q, %k, %v) {scale = 2.0}"),
            (
                "%a = mul(%c, %s) %m = add(%mask, %a) %p = softmax(%m) {axis = 3}",
                "attention(%q, %k, %v, %mask) {scale = 0.5}",
            ),
            ("%m = add(%s, %mask) %p = softmax(%m) {axis = 3}", "attention(%q, %k, %v, %mask) {scale = 1.0}"),
        ] {
            check(run, &graph(scores), &fused(op));
        }
    }

    #[test]
    fn what_others_read_or_lies_otherwise_stays() {
        for (scores, rest) in [
            ("%p = softmax(%s) {axis = 3}", "%y = transpose(%o) {order = [0, 2, 1, 3]} return %y, %p, %c"),
            ("%p = softmax(%s) {axis = 2}", "%y = transpose(%o) {order = [0, 2, 1, 3]} return %y, %c"),
            ("%p = softmax(%s) {axis = 3}", "%y = transpose(%o) {order = [2, 0, 1, 3]} return %y, %c"),
            ("%p = softmax(%s) {axis = 3}", "return %o, %c"),
            (
                "%e = exp(%s) %a = mul(%e, %c) %p = softmax(%a) {axis = 3}",
                "%y = transpose(%o) {order = [0, 2, 1, 3]} return %y",
            ),
        ] {
            check_unchanged(run, &graph(scores, rest));
        }
    }
}
