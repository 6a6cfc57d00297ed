//! Nodes remember the line that called the builder, however many of them a method makes.

use perihelion_graph::{Builder, Error, Index, Type, Value, dims};
use tensor::{DType, Tensor};

/// Builds something in one line of this file, and checks that all nodes it adds come from that line.
macro_rules! check {
    ($b:ident, $what:expr) => {{
        let before = $b.graph().nodes().count();
        let (made, line) = ($what?, line!());
        let nodes: Vec<_> = $b.graph().nodes().skip(before).collect();
        assert!(!nodes.is_empty(), "{}", stringify!($what));
        for (_, node) in nodes {
            let location = node.location.expect("built, not parsed");
            let place = (location.file(), location.line());
            assert_eq!(place, (file!(), line), "{} of {}", node.op.name(), stringify!($what));
        }
        made
    }};
}

#[test]
fn nodes_remember_who_called() -> Result<(), Error> {
    let mut b = Builder::new("g");
    b.set_seed(1);
    let x = b.input("x", Type::new(DType::BF16, dims![4, 6]));
    let y = b.input("y", Type::new(DType::I32, dims![4, 6]));
    let v = b.input("v", Type::new(DType::F32, dims![8]));
    let u = b.input("u", Type::new(DType::F32, dims!["n"]));
    let i = b.input("i", Type::new(DType::I32, dims![]));
    let p = b.input("p", Type::new(DType::Bool, dims![]));
    let state = b.input("state", Type::buffer(DType::F32, dims![4, 6]));

    check!(b, b.weight("w", Type::new(DType::F32, [2])));
    check!(b, Ok::<_, Error>(b.constant(Tensor::scalar(1i64))));
    check!(b, b.add(x, 1));
    check!(b, b.div(y, 2));
    check!(b, b.equal(y, 1));
    check!(b, b.gelu(x, Default::default()));
    check!(b, b.is_inf(x));
    check!(b, b.where_(p, x, 0));
    check!(b, b.scalar_like(x, 2));
    let turned = check!(b, b.permute(x, &[1, 0]));
    check!(b, b.matmul(x, turned));
    check!(b, b.outer(v, v));
    check!(b, b.sum(x, -1));
    check!(b, b.logsoftmax(v, 0));
    check!(b, b.stack(&[x, x], 0));
    check!(b, b.chunk(x, 2, 0));
    check!(b, b.flatten(x, 0, 1));
    check!(b, b.shape_to_tensor(x));
    check!(b, b.rebind(u, dims![8], None));
    check!(b, b.range(0.0, 4.0, 1.0, DType::F32));
    check!(b, b.range_to(5, DType::I64));
    check!(b, b.hann_window(4, true, DType::F32));
    check!(b, b.random_uniform(DType::F32, dims![2], 0.0, 1.0));
    check!(b, b.random_normal(DType::F32, dims![2], 0.0, 1.0));
    check!(b, b.as_interleaved_complex(v));
    check!(b, b.flip(x, &[0]));
    check!(b, b.top_k(v, 2, 0));
    check!(b, b.slice_tensor(x, &[Index::At(0), Index::range(1, 3)]));
    check!(b, b.slice_tensor(x, &[Index::AtValue(i), Index::NewAxis]));
    let span = Index::Span { start: None, stop: None, step: None, out_dim: "m".into() };
    check!(b, b.slice_tensor(x, &[span]));
    let window = Index::Window { start: i, size: 2.into() };
    check!(b, b.slice_tensor(x, std::slice::from_ref(&window)));
    let row = check!(b, b.load_slice(state, &[Index::At(1)]));
    check!(b, b.store_slice(state, &[window], row));
    check!(b, b.store_slice(state, &[Index::AtValue(i)], row));
    check!(b, b.print(x, "x"));
    check!(b, b.print_text("here", "note"));
    check!(b, b.cond(p, &[x], |_, x| Ok(x.to_vec()), |_, x| Ok(x.to_vec())));
    check!(b, b.while_loop(&[p], &[], |_, p, _| Ok(p[0]), |_, p, _| Ok(p.to_vec())));
    Ok(())
}

#[test]
fn nodes_of_graphs_within_remember_too() -> Result<(), Error> {
    let mut b = Builder::new("g");
    let p = b.input("p", Type::new(DType::Bool, dims![]));
    let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    let mut line = 0;
    let then = |b: &mut Builder, x: &[Value]| {
        line = line!() + 1;
        Ok(vec![b.add(x[0], 1)?])
    };
    b.cond(p, &[x], then, |_, x| Ok(x.to_vec()))?;
    let (_, node) = b.graph().nodes().last().expect("a node");
    let regions = node.op.regions();
    for (_, node) in regions[0].nodes() {
        let location = node.location.expect("built, not parsed");
        assert_eq!((location.file(), location.line()), (file!(), line), "{}", node.op.name());
    }
    Ok(())
}
