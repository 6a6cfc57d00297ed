//! Nodes remember the line that called the builder, however many of them a method makes.

use perihelion_graph::ops::{Conv, FftNorm, TopK};
use perihelion_graph::{Builder, DeviceRef, Error, Index, SourceLocation, Type, dims};
use tensor::{DType, Tensor};

/// Builds something in one line of this file, and checks that all nodes it adds come from that line.
macro_rules! check {
    ($b:ident, $what:expr) => {{
        let before = $b.graph().nodes().count();
        let (made, line) = ($what?, line!());
        let nodes: Vec<_> = $b.graph().nodes().skip(before).collect();
        assert!(!nodes.is_empty(), "{}", stringify!($what));
        for (_, node) in nodes {
            let location = node.location.as_ref().expect("built, not parsed");
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
    check!(b, b.create_buffer(Type::buffer(DType::F32, dims![2])));
    let row = check!(b, b.load_slice(state, &[Index::At(1)]));
    check!(b, b.store_slice(state, &[window], row));
    check!(b, b.store_slice(state, &[Index::AtValue(i)], row));
    check!(b, b.print(x, "x"));
    check!(b, b.print_text("here", "note"));
    check!(b, b.cond(p, None, |_| Ok(vec![x]), |_| Ok(vec![x])));
    check!(b, b.while_loop(&[p], |_, p| Ok(p[0]), |_, p| Ok(p.to_vec())));
    Ok(())
}

/// Checks that what fails in one line of this file says so.
macro_rules! fails {
    ($what:expr) => {{
        let (error, line) = ($what.map(|_| ()).unwrap_err(), line!());
        let (Error::Type { location: Some(location), .. } | Error::Axis { location: Some(location), .. }) =
            &error
        else {
            panic!("no location in {error:?} of {}", stringify!($what));
        };
        assert_eq!((location.file(), location.line()), (file!(), line), "{}", stringify!($what));
        assert!(error.to_string().ends_with(&format!(" ({location})")), "{error}");
    }};
}

#[test]
fn errors_name_who_called() {
    let mut b = Builder::new("g");
    let x = b.input("x", Type::new(DType::F32, dims!["n", 3]));
    let y = b.input("y", Type::new(DType::I8, dims!["n", 3]));
    let z = b.input("z", Type::new(DType::U8, dims![]));
    let p = b.input("p", Type::new(DType::Bool, dims![]));
    let state = b.input("state", Type::buffer(DType::F32, dims![4, 6]));
    let other = Builder::new("h").input("x", Type::new(DType::F32, dims!["n"]));
    let same = |_: &mut Builder| Ok(vec![x]);

    fails!(b.logical_not(x));
    fails!(b.negate(other));
    fails!(b.op(TopK { k: 1, axis: 1, smallest: false }, &[x]));
    fails!(b.weight("w", Type::new(DType::F32, vec![1usize; Type::MAX_RANK + 1])));
    fails!(b.dim(x, 5));
    fails!(b.softmax(x, 2));
    fails!(b.sum(x, -3));
    fails!(b.concat(&[x, y], 0));
    fails!(b.add(y, z));
    fails!(b.add(1, 2));
    fails!(b.mul(y, 0.5));
    fails!(b.div(y, other));
    fails!(b.is_nan(y));
    fails!(b.cast(other, DType::F32));
    fails!(b.matmul(x, x));
    fails!(b.outer(x, x));
    fails!(b.squeeze(x, 0));
    fails!(b.unsqueeze(x, 5));
    fails!(b.flatten(x, 1, 0));
    fails!(b.permute(x, &[0, 7]));
    fails!(b.flip(x, &[0, 7]));
    fails!(b.stack(&[], 0));
    fails!(b.stack(&[x, y], 0));
    fails!(b.chunk(x, 2, 1));
    fails!(b.rebind(x, dims!["n"], None));
    fails!(b.transfer_to(other, DeviceRef::Gpu(0)));
    fails!(b.range(0.5, 3.0, 1.0, DType::I32));
    fails!(b.range(0.0, 3.0, 0.0, DType::I32));
    fails!(b.range_to(3, DType::Bool));
    fails!(b.hann_window(4, true, DType::I32));
    fails!(b.hann_window(1 << 60, true, DType::F32));
    fails!(b.random_normal(DType::F32, dims![4], 0.0, 1.0));
    fails!(b.as_interleaved_complex(x));
    fails!(b.slice_tensor(x, &[Index::Ellipsis, Index::Ellipsis]));
    fails!(b.slice_tensor(x, &[Index::AtValue(x)]));
    fails!(b.create_buffer(Type::new(DType::F32, dims![2])));
    fails!(b.load_slice(state, &[Index::range(5, 9), Index::Ellipsis, Index::At(0), Index::At(0)]));
    fails!(b.load_slice(state, &[Index::Range { start: None, stop: None, step: 0 }]));
    fails!(b.store_slice(state, &[Index::At(0)], other));
    fails!(b.irfft(x, None, 4, FftNorm::Backward));
    fails!(b.conv2d(Conv::new(3), x, x, None));
    fails!(b.qmatmul(DType::Q4_0, x, other));
    fails!(b.allreduce_sum(&[x], &[]));
    fails!(b.shard_and_stack(&[x], &[], 0));
    fails!(b.cond(x, None, same, same));
    fails!(b.cond(p, Some(&[]), same, same));
    fails!(b.cond(other, None, same, same));
    fails!(b.cond(p, None, |b| Ok(vec![b.negate(other)?]), same));
    fails!(b.while_loop(&[x], |_, x| Ok(x[0]), |_, _| Ok(vec![])));
    fails!(b.while_loop(&[other], |_, x| Ok(x[0]), |_, _| Ok(vec![])));
}

#[test]
fn nodes_of_graphs_within_remember_too() -> Result<(), Error> {
    let mut b = Builder::new("g");
    let p = b.input("p", Type::new(DType::Bool, dims![]));
    let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    let mut line = 0;
    let then = |b: &mut Builder| {
        line = line!() + 1;
        Ok(vec![b.add(x, 1)?])
    };
    b.cond(p, None, then, |_| Ok(vec![x]))?;
    let (_, node) = b.graph().nodes().last().expect("a node");
    let regions = node.op.regions();
    for (_, node) in regions[0].nodes() {
        let location = node.location.as_ref().expect("built, not parsed");
        assert_eq!((location.file(), location.line()), (file!(), line), "{}", node.op.name());
    }
    Ok(())
}

#[test]
fn locations_of_other_languages_replace_those_of_callers() -> Result<(), Error> {
    let mut b = Builder::new("g");
    let p = b.input("p", Type::new(DType::Bool, dims![]));
    let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    let place = |line, column| Some(SourceLocation::Other { file: "model.py".into(), line, column });
    b.set_location(place(3, None));
    assert_eq!(b.softmax(x, 1).unwrap_err().to_string(), "softmax: f32[n] has no axis 1 (model.py:3)");
    let then = |b: &mut Builder| {
        b.set_location(place(7, Some(9)));
        let error = b.is_nan(p).unwrap_err().to_string();
        assert_eq!(error, "is_nan: x is bool[], expected a float (model.py:7:9)");
        Ok(vec![b.negate(x)?])
    };
    b.cond(p, None, then, |_| Ok(vec![x]))?;
    b.set_location(None);
    let (_, line) = (b.negate(x)?, line!());
    let nodes: Vec<_> = b.graph().nodes().map(|(_, node)| node).collect();
    assert_eq!(nodes[0].location, place(7, Some(9)));
    assert_eq!(nodes[0].op.regions()[0].nodes().next().expect("negate").1.location, place(7, Some(9)));
    assert_eq!(nodes[1].location.as_ref().map(SourceLocation::line), Some(line));
    Ok(())
}
