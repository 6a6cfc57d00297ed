//! A value belongs to the graph that made it; other graphs refuse it, and name both.

use perihelion_graph::ops::Binary;
use perihelion_graph::{Builder, Dim, Error, Type, dims};
use tensor::DType;

fn f32(shape: impl IntoIterator<Item = Dim>) -> Type {
    Type::new(DType::F32, shape)
}

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().without_location().to_string()
}

#[test]
fn a_value_of_another_builder_is_refused() {
    let mut a = Builder::new("a");
    let x = a.input("x", f32(dims!["n"]));
    let y = a.exp(x).unwrap();
    let mut b = Builder::new("b");
    let own = b.input("x", f32(dims!["n"]));
    b.exp(own).unwrap();
    let foreign = "a value of another graph, `a`; this graph is `b`";
    assert_eq!(message(b.negate(y)), format!("neg: an operand is {foreign}"));
    assert_eq!(message(b.op(Binary::Add, &[own, x])), format!("add: operand 1 is {foreign}"));
    assert_eq!(message(b.add(own, x)), format!("add: an operand is {foreign}"));
    assert_eq!(message(b.softmax(y, 0)), format!("softmax: an operand is {foreign}"));
    assert_eq!(message(b.dim(x, 0)), format!("dim: an operand is {foreign}"));
    assert_eq!(
        message(b.while_loop(&[y], |_, v| Ok(v[0]), |_, v| Ok(v.to_vec()))),
        format!("while: an operand is {foreign}")
    );
    assert_eq!(message(b.clone().finish(&[own, y])), format!("graph `b`: output 1 is {foreign}"));
    drop(a);
    let gone = "neg: an operand is a value of another graph, dropped since; this graph is `b`";
    assert_eq!(message(b.negate(y)), gone);
    b.finish(&[own]).unwrap();
}

#[test]
fn a_value_of_an_ended_region_is_refused() {
    let mut b = Builder::new("outer");
    let p = b.input("p", Type::new(DType::Bool, dims![]));
    let x = b.input("x", f32(dims!["n"]));
    let mut inner = x;
    let then = |b: &mut Builder| {
        inner = b.silu(x)?;
        Ok(vec![inner])
    };
    let y = b.cond(p, None, then, |_| Ok(vec![x])).unwrap()[0];
    let foreign = "a value of another graph, `then`; this graph is `outer`";
    assert_eq!(message(b.negate(inner)), format!("neg: an operand is {foreign}"));
    let foreign = "a value of another graph, `then`; this graph is `otherwise`";
    let error = b.cond(p, None, |_| Ok(vec![x]), |b| Ok(vec![b.negate(inner)?]));
    assert_eq!(message(error), format!("neg: an operand is {foreign}"));
    let error = b.cond(p, None, |_| Ok(vec![x]), |_| Ok(vec![inner]));
    assert_eq!(message(error), format!("graph `otherwise`: output 0 is {foreign}"));
    b.finish(&[y]).unwrap();
}

#[test]
fn a_branch_refuses_values_of_other_graphs() {
    let mut a = Builder::new("a");
    let x = a.input("x", f32(dims!["n"]));
    let mut b = Builder::new("b");
    let p = b.input("p", Type::new(DType::Bool, dims![]));
    let error = b.cond(p, None, |b| Ok(vec![b.negate(x)?]), |_| Ok(vec![]));
    let foreign = "a value of another graph, `a`; this graph is `then`";
    assert_eq!(message(error), format!("neg: an operand is {foreign}"));
    a.begin_region("then", &[]);
    let region = a.end_region(&[x]).unwrap();
    b.begin_region("otherwise", &[]);
    let otherwise = b.end_region(&[p]).unwrap();
    let foreign = "a value of another graph, `a`; this graph is `b`";
    assert_eq!(message(b.cond_of(p, None, region, otherwise)), format!("cond: an operand is {foreign}"));
}

#[test]
fn a_clone_knows_the_values_made_before_it() {
    let mut a = Builder::new("g");
    let x = a.input("x", f32(dims!["n"]));
    let before = a.exp(x).unwrap();
    let mut b = a.clone();
    let (in_a, in_b) = (a.negate(before).unwrap(), b.abs(before).unwrap());
    assert_eq!(in_a.index(), in_b.index());
    let foreign = "a value of another graph, `g`; this graph is `g`";
    assert_eq!(message(b.negate(in_a)), format!("neg: an operand is {foreign}"));
    assert_eq!(message(a.negate(in_b)), format!("neg: an operand is {foreign}"));
    assert_eq!(b.finish(&[in_b]).unwrap().nodes().last().unwrap().1.op.name(), "abs");
    a.finish(&[in_a, before]).unwrap();
}
