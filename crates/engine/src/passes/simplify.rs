//! `reshape(reshape(x))` → `reshape(x)`, `neg(neg(x))` → `x`, `x · 1` → `x`, and others that hold to the last bit.

use graph::ops::{Binary, Transpose, Unary};
use graph::{Graph, Node, NodeId, Op, Value};

use super::{forward, replace};

/// Operands are simple already when their user's turn comes, so one walk is enough.
pub(super) fn run(graph: &mut Graph) {
    for id in graph.node_ids() {
        if let Some(value) = equal_value(graph, graph.node(id)) {
            forward(graph, id, value);
        } else if let Some((op, x)) = simpler(graph, id) {
            replace(graph, id, op, &[x]);
        }
    }
}

/// An existing value that a node's result equals.
fn equal_value(graph: &Graph, node: &Node) -> Option<Value> {
    let &x = node.inputs.first()?;
    let &[output] = &node.outputs[..] else { return None };
    let inner = graph.defined_by(x);
    let value = match &node.op {
        Op::Cast(_) | Op::Broadcast(_) => x,
        // What has the type already needs no check.
        Op::Rebind(rebind) if rebind.symbols.is_empty() => x,
        Op::Reshape(_) => match inner {
            Some((Op::Reshape(_), &[source])) if graph.ty(source) == graph.ty(output) => source,
            _ => x,
        },
        // There and back again.
        Op::Transfer(_) => match inner {
            Some((Op::Transfer(_), &[source])) => source,
            _ => x,
        },
        Op::Transpose(transpose) => match inner {
            Some((Op::Transpose(first), &[source])) if is_identity(&composed(first, transpose)) => source,
            _ if is_identity(transpose) => x,
            _ => return None,
        },
        Op::Unary(Unary::Neg) => match inner {
            Some((Op::Unary(Unary::Neg), &[source])) => source,
            _ => return None,
        },
        Op::Binary(op) => neutral(graph, *op, x, node.inputs[1])?,
        Op::Concat(_) if node.inputs.len() == 1 => x,
        Op::Split(split) if split.sizes.len() == 1 => x,
        _ => return None,
    };
    (graph.ty(value) == graph.ty(output)).then_some(value)
}

/// An op of one operand that gives the same result.
fn simpler(graph: &Graph, id: NodeId) -> Option<(Op, Value)> {
    let node = graph.node(id);
    let (inner, &[source]) = graph.defined_by(*node.inputs.first()?)? else { return None };
    match (&node.op, inner) {
        (Op::Reshape(reshape), Op::Reshape(_)) => Some((reshape.clone().into(), source)),
        (Op::Transpose(second), Op::Transpose(first)) => Some((composed(first, second).into(), source)),
        _ => None,
    }
}

fn composed(first: &Transpose, second: &Transpose) -> Transpose {
    Transpose { order: second.order.iter().map(|&axis| first.order[axis]).collect() }
}

fn is_identity(transpose: &Transpose) -> bool {
    transpose.order.iter().enumerate().all(|(i, &axis)| i == axis)
}

/// The operand that the other one leaves as it is. Not `x + 0`, which makes 0 of -0.
fn neutral(graph: &Graph, op: Binary, x: Value, y: Value) -> Option<Value> {
    match op {
        Binary::Mul if is_all(graph, y, 1.0) => Some(x),
        Binary::Mul if is_all(graph, x, 1.0) => Some(y),
        Binary::Div if is_all(graph, y, 1.0) => Some(x),
        Binary::Sub if is_all(graph, y, 0.0) => Some(x),
        _ => None,
    }
}

/// Whether a value is a constant of one number throughout; -0 is not 0.
fn is_all(graph: &Graph, value: Value, number: f64) -> bool {
    match graph.defined_by(value) {
        Some((Op::Constant(constant), _)) if constant.value.0.elements() <= 4096 => {
            constant.value.0.to_f64_vec().iter().all(|element| element.to_bits() == number.to_bits())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, check_unchanged};
    use super::run;

    #[test]
    fn shapes_are_changed_once() {
        check(
            run,
            "graph g(%x: f32[n, 4]) {
               %a = reshape(%x) {shape = [4*n]}
               %b = reshape(%a) {shape = [n, 2, 2]}
               %c = reshape(%b) {shape = [2*n, 2]}
               %d = reshape(%c) {shape = [n, 4]}
               %e = transpose(%b) {order = [1, 2, 0]}
               %f = transpose(%e) {order = [1, 0, 2]}
               %g = transpose(%f) {order = [2, 1, 0]}
               %h = broadcast(%d) {shape = [n, 4]}
               return %c, %h, %g
             }",
            "graph g(%x: f32[n, 4]) {
               %b = reshape(%x) {shape = [n, 2, 2]}
               %c = reshape(%x) {shape = [2*n, 2]}
               return %c, %x, %b
             }",
        );
    }

    #[test]
    fn transfers_there_and_back_go() {
        check(
            run,
            "graph g(%x: f32[n]) {
               %a = transfer_to(%x) {device = cpu}
               %b = transfer_to(%a) {device = \"gpu:0\"}
               %c = transfer_to(%b) {device = cpu}
               %d = neg(%b)
               return %c, %d
             }",
            "graph g(%x: f32[n]) {
               %b = transfer_to(%x) {device = \"gpu:0\"}
               %d = neg(%b)
               return %x, %d
             }",
        );
    }

    #[test]
    fn ops_that_change_nothing_go() {
        check(
            run,
            "graph g(%x: f32[2, 2]) {
               %one = constant [1.0] : f32[]
               %zero = constant [0.0, 0.0] : f32[2]
               %a = mul(%one, %x)
               %b = div(%a, %one)
               %c = sub(%b, %zero)
               %d = neg(%c)
               %e = neg(%d)
               %f = cast(%e) {to = f32}
               %g = concat(%f) {axis = 0}
               %h = split(%g) {axis = 1, sizes = [2]}
               %y = exp(%h)
               return %y
             }",
            "graph g(%x: f32[2, 2]) {
               %y = exp(%x)
               return %y
             }",
        );
    }

    #[test]
    fn what_changes_bits_types_or_order_stays() {
        check_unchanged(
            run,
            "graph g(%x: f32[2, 2], %n: f32[2]) {
               %minus = constant [-0.0] : f32[]
               %zero = constant [0.0] : f32[]
               %ones = constant [1.0, 1.0] : f32[2]
               %a = add(%x, %zero)
               %b = sub(%x, %minus)
               %c = transpose(%x) {order = [1, 0]}
               %d = cast(%x) {to = f16}
               %e = mul(%n, %x)
               %f = abs(%x)
               %g = abs(%f)
               return %a, %b, %c, %d, %e, %g, %ones
             }",
        );
        check_unchanged(
            run,
            "graph g(%x: f32[2]) {
               %ones = constant [1.0, 1.0] : f32[2, 1]
               %a = mul(%x, %ones)
               return %a
             }",
        );
    }
}
