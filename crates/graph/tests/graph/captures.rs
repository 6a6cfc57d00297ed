//! Regions use the values of the graphs around them; these become operands of the op that runs the regions.

use perihelion_graph::{Builder, Dim, Error, Graph, Type, Value, dims};
use tensor::{DType, Tensor};

fn f32(shape: impl IntoIterator<Item = Dim>) -> Type {
    Type::new(DType::F32, shape)
}

fn floats<const N: usize>(elements: [f32; N]) -> Tensor {
    Tensor::from_slice([N], &elements)
}

/// A builder with the inputs `p: bool[]` and `x`, `y`: `f32[n]`.
fn start() -> (Builder, Value, Value, Value) {
    let mut b = Builder::new("g");
    let p = b.input("p", Type::new(DType::Bool, dims![]));
    let (x, y) = (b.input("x", f32(dims!["n"])), b.input("y", f32(dims!["n"])));
    (b, p, x, y)
}

/// Checks the text of a graph, and that the graph which the text states is the same.
#[track_caller]
fn check(graph: &Graph, text: &str) {
    assert_eq!(graph.to_string(), text);
    assert_eq!(Graph::parse(text).unwrap(), *graph);
}

/// The first output for `p`, `x = [1, 2]` and `y = [10, 20]`, with weights of 3.
fn output(graph: &Graph, p: bool) -> Vec<f32> {
    let inputs = [Tensor::from_bools([], &[p]), floats([1.0, 2.0]), floats([10.0, 20.0])];
    let evaluation = graph.evaluate(&inputs, &|_| Some(floats([3.0]))).unwrap();
    evaluation.outputs[0].to_vec()
}

#[test]
fn both_branches_get_the_union_in_the_order_of_first_use() -> Result<(), Error> {
    let (mut b, p, x, y) = start();
    let z = b.exp(x)?;
    let results = b.cond(
        p,
        None,
        |b| Ok(vec![b.sub(y, x)?]),
        |b| {
            let product = b.mul(x, y)?;
            Ok(vec![b.add(product, z)?])
        },
    )?;
    let graph = b.finish(&results)?;
    check(
        &graph,
        "graph g(%p: bool[], %x: f32[n], %y: f32[n]) {
  %0 = exp(%x) : f32[n]
  %1 = cond(%p, %y, %x, %0) {then = graph then(%x0: f32[n], %x1: f32[n], %x2: f32[n]) {
    %0 = sub(%x0, %x1) : f32[n]
    return %0
  }, otherwise = graph otherwise(%x0: f32[n], %x1: f32[n], %x2: f32[n]) {
    %0 = mul(%x1, %x0) : f32[n]
    %1 = add(%0, %x2) : f32[n]
    return %1
  }} : f32[n]
  return %1
}
",
    );
    assert_eq!(output(&graph, true), [9.0, 18.0]);
    assert_eq!(output(&graph, false), [10.0 + 1f32.exp(), 40.0 + 2f32.exp()]);
    Ok(())
}

#[test]
fn weights_and_constants_are_asked_for_within() -> Result<(), Error> {
    let (mut b, p, x, _) = start();
    let w = b.weight("w", f32(dims![1]))?;
    let data = floats([5.0]);
    let five = b.constant(data.clone());
    let results = b.cond(
        p,
        None,
        |b| {
            let again = b.weight("w", f32(dims![1]))?;
            let sum = b.add(w, five)?;
            let sum = b.add(sum, again)?;
            Ok(vec![b.mul(x, sum)?])
        },
        |b| Ok(vec![b.add(x, w)?]),
    )?;
    let graph = b.finish(&results)?;
    check(
        &graph,
        "graph g(%p: bool[], %x: f32[n], %y: f32[n]) {
  %0 = weight \"w\" : f32[1]
  %1 = constant [5.0] : f32[1]
  %2 = cond(%p, %x) {then = graph then(%x0: f32[n]) {
    %0 = weight \"w\" : f32[1]
    %1 = constant [5.0] : f32[1]
    %2 = add(%0, %1) : f32[1]
    %3 = add(%2, %0) : f32[1]
    %4 = mul(%x0, %3) : f32[n]
    return %4
  }, otherwise = graph otherwise(%x0: f32[n]) {
    %0 = weight \"w\" : f32[1]
    %1 = add(%x0, %0) : f32[n]
    return %1
  }} : f32[n]
  return %2
}
",
    );
    assert_eq!(output(&graph, true), [11.0, 22.0]);
    let (_, node) = graph.nodes().last().expect("cond");
    let mut within = node.op.regions()[0].nodes().map(|(_, node)| &node.op);
    let copy = within.find_map(|op| match op {
        perihelion_graph::Op::Constant(constant) => Some(&constant.value.0),
        _ => None,
    });
    assert_eq!(copy.expect("a constant").bytes().as_ptr(), data.bytes().as_ptr(), "the same memory");
    Ok(())
}

#[test]
fn values_and_buffers_are_captured_through_all_levels() -> Result<(), Error> {
    let (mut b, p, x, y) = start();
    let cache = b.input("cache", Type::buffer(DType::F32, dims!["n"]));
    let then = |b: &mut Builder| {
        let zero = b.constant(Tensor::scalar(0i64));
        let last = b.while_loop(
            &[zero],
            |b, carried| b.less(carried[0], 2),
            |b, carried| {
                let stored = |b: &mut Builder| {
                    let old = b.load(cache)?;
                    let new = b.add(old, x)?;
                    b.store(cache, new)?;
                    Ok(vec![])
                };
                b.cond(p, None, stored, |_| Ok(vec![]))?;
                Ok(vec![b.add(carried[0], 1)?])
            },
        )?;
        Ok(vec![b.load(cache)?, b.cast(last[0], DType::F32)?])
    };
    let results = b.cond(p, None, then, |b| Ok(vec![y, b.constant(Tensor::scalar(0f32))]))?;
    let graph = b.finish(&results)?;
    assert_eq!(Graph::parse(&graph.to_string()).unwrap(), graph);
    assert_eq!(graph.nodes().last().expect("cond").1.inputs, [p, p, cache, x, y]);
    let inputs =
        [Tensor::from_bools([], &[true]), floats([1.0, 2.0]), floats([7.0, 7.0]), floats([0.5, 0.5])];
    let evaluation = graph.evaluate(&inputs, &|_| None).unwrap();
    assert_eq!(evaluation.outputs[0].to_vec::<f32>(), [2.5, 4.5]);
    assert_eq!(evaluation.buffers[0].to_vec::<f32>(), [2.5, 4.5]);
    Ok(())
}

#[test]
fn symbols_of_the_graph_around_have_sizes_within() -> Result<(), Error> {
    let (mut b, p, x, _) = start();
    let wide = |b: &mut Builder, number: f32| {
        let number = b.constant(Tensor::scalar(number));
        Ok::<_, Error>(vec![b.broadcast(number, dims!["n"])?])
    };
    let results = b.cond(p, None, |b| wide(b, 1.0), |b| wide(b, 2.0))?;
    let graph = b.finish(&results)?;
    assert_eq!(graph.nodes().last().expect("cond").1.inputs[1..], [x]);
    assert_eq!([true, false].map(|p| output(&graph, p)), [[1.0, 1.0], [2.0, 2.0]]);
    let (mut b, p, ..) = start();
    let error = b.cond(
        p,
        None,
        |b| {
            let one = b.constant(Tensor::scalar(1f32));
            Ok(vec![b.broadcast(one, dims!["m"])?])
        },
        |_| Ok(vec![]),
    );
    let message = "graph `then`: no input determines the symbol `m` of the dim m";
    assert_eq!(error.unwrap_err().to_string(), message);
    Ok(())
}

#[test]
fn random_ops_in_and_after_regions_have_seeds_of_their_own() -> Result<(), Error> {
    let (mut b, p, ..) = start();
    b.set_seed(5);
    let random = |b: &mut Builder| Ok(vec![b.random_normal(DType::F32, dims![2], 0.0, 1.0)?]);
    let drawn = b.cond(p, None, random, random)?;
    let other = random(&mut b)?;
    let text = b.finish(&[drawn[0], other[0]])?.to_string();
    let seeds: Vec<&str> = text.split("seed = ").skip(1).map(|rest| &rest[..1]).collect();
    assert_eq!(seeds, ["5", "6", "7"]);
    Ok(())
}

#[test]
fn a_failed_region_leaves_the_builder_as_before() -> Result<(), Error> {
    let (mut b, p, x, y) = start();
    b.set_seed(1);
    let before = b.clone().finish(&[x])?;
    let fails = |b: &mut Builder| {
        b.random_normal(DType::F32, dims![2], 0.0, 1.0)?;
        b.begin_region("deeper", &[]);
        Ok(vec![b.softmax(y, 3)?])
    };
    b.cond(p, None, fails, |_| Ok(vec![x])).unwrap_err();
    b.cond(p, None, |_| Ok(vec![x]), |_| Ok(vec![])).unwrap_err();
    b.while_loop(&[x], |b, _| b.negate(p), |_, x| Ok(x.to_vec())).unwrap_err();
    assert_eq!(b.clone().finish(&[x])?, before);
    let drawn = b.random_normal(DType::F32, dims!["n"], 0.0, 1.0)?;
    assert!(b.finish(&[drawn])?.to_string().contains("seed = 1"));
    Ok(())
}

#[test]
fn regions_are_built_without_closures() -> Result<(), Error> {
    let (mut b, _, x, _) = start();
    let one = b.constant(Tensor::scalar(1i64));
    let carried = b.begin_region("predicate", &[Type::new(DType::I64, dims![])]);
    let less = b.less(carried[0], 3)?;
    let predicate = b.end_region(&[less])?;
    let carried = b.begin_region("body", &[Type::new(DType::I64, dims![])]);
    b.begin_region("then", &[]);
    let double = b.add(x, x)?;
    b.end_region(&[double])?;
    b.begin_region("abandoned", &[]);
    b.discard_region();
    let next = b.add(carried[0], one)?;
    let open = b.clone().finish(&[next]).unwrap_err().to_string();
    assert_eq!(open, "graph `g`: the region `body` is not ended");
    let open = Builder::subgraph("part", &[], |b, _| {
        b.begin_region("then", &[]);
        Ok(vec![])
    });
    assert_eq!(open.unwrap_err().to_string(), "graph `part`: the region `then` is not ended");
    let body = b.end_region(&[next])?;
    let last = b.while_of(&[one], predicate, body)?;
    let mut other = start().0;
    let one = other.constant(Tensor::scalar(1i64));
    let closures = other.while_loop(
        &[one],
        |b, carried| b.less(carried[0], 3),
        |b, carried| Ok(vec![b.add(carried[0], one)?]),
    )?;
    assert_eq!(b.finish(&last)?, other.finish(&closures)?);
    Ok(())
}
