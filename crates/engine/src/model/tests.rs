//! Models called in every way.

use graph::ops::{Binary, ReduceKind, Unary};
use graph::{Builder, Error as GraphError, Graph, Value};
use proptest::prelude::*;
use tensor::{Buffer, DType, Index, Shape, Tensor};

use super::*;
use crate::testing::{buffers, build, f32, noise, reference_session, session};
use crate::{CompileOptions, Passes};

/// `y = x + x · 2`, with x f32[n, 2].
fn triple() -> Graph {
    build("triple", |b| {
        let x = b.input("x", f32(&["n", "2"]));
        let two = b.constant(Tensor::scalar(2f32));
        let double = b.mul(x, two)?;
        Ok(vec![b.add(double, x)?])
    })
}

#[test]
fn one_model_serves_every_size() {
    let model = session().load(&triple(), &()).unwrap();
    for n in [1usize, 3, 0, 100, 3] {
        let x = noise([n, 2], n);
        let y = model.execute(&[Buffer::from_tensor(&x)]).unwrap();
        assert_eq!(y[0].shape(), &Shape::new(&[n, 2]));
        let expected: Vec<f32> = x.to_vec::<f32>().into_iter().map(|x| x * 2.0 + x).collect();
        assert_eq!(y[0].to_vec::<f32>(), expected);
    }
    assert_eq!(model.input_metadata()[0].to_string(), "x f32[n, 2]");
    assert_eq!(model.output_metadata()[0].to_string(), "output0 f32[n, 2]");
}

#[test]
fn wrong_inputs_are_named() {
    let graph = build("sum", |b| {
        let (x, y) = (b.input("x", f32(&["n", "5"])), b.input("y", f32(&["n", "5"])));
        Ok(vec![b.add(x, y)?])
    });
    let model = session().load(&graph, &()).unwrap();
    let zeros = |dtype, shape: &[usize]| Buffer::zeros(dtype, shape);
    let check = |inputs: &[Buffer], message: &str| {
        assert_eq!(model.execute(inputs).unwrap_err().to_string(), message);
    };
    let x = zeros(DType::F32, &[2, 5]);
    check(&[x.clone(), zeros(DType::F32, &[2, 6])], "input 1 'y': got f32[2, 6], expected f32[n, 5]");
    check(&[x.clone(), zeros(DType::F16, &[2, 5])], "input 1 'y': got f16[2, 5], expected f32[n, 5]");
    check(&[x.clone(), zeros(DType::F32, &[2])], "input 1 'y': got f32[2], expected f32[n, 5]");
    check(&[x.clone(), zeros(DType::F32, &[3, 5])], "the dim `n` is 2 in input 0 'x', 3 in input 1 'y'");
    check(&[x], "`sum` takes 2 inputs (x, y), got 1");
}

#[test]
fn buffers_in_use_are_named() {
    let graph = build("store", |b| {
        let cache = b.input("cache", Type::buffer(DType::F32, [2]));
        let x = b.input("x", f32(&["2"]));
        let old = b.load(cache)?;
        b.store(cache, x)?;
        let new = b.load(cache)?;
        Ok(vec![b.sub(new, old)?])
    });
    let model = session().load(&graph, &()).unwrap();
    let (cache, x) = (Buffer::from_slice([2], &[1f32, 2.0]), Buffer::from_slice([2], &[10f32, 20.0]));
    let y = model.execute(&[cache.clone(), x.clone()]).unwrap();
    assert_eq!(y[0].to_vec::<f32>(), [9.0, 18.0]);
    assert_eq!(cache.to_vec::<f32>(), [10.0, 20.0]);
    assert_eq!(x.to_vec::<f32>(), [10.0, 20.0]);
    let busy = "input 0 'cache': the buffer is being read by another call";
    let guard = cache.read().unwrap();
    assert_eq!(model.execute(&[cache.clone(), x.clone()]).unwrap_err().to_string(), busy);
    drop(guard);
    let same = model.execute(&[cache.clone(), cache.clone()]).unwrap_err().to_string();
    assert_eq!(same, "input 1 'x': the buffer is being written by another call");
    assert!(model.execute(&[cache, x]).is_ok());
}

#[test]
fn parts_of_buffers_are_inputs_and_outputs() {
    let model = session().load(&triple(), &()).unwrap();
    let all = Buffer::from_slice([5, 2], &[0f32, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
    let x = all.slice(&[(1..3).into()]).unwrap();
    let results = Buffer::zeros(DType::F32, [4, 2]);
    let y = results.slice(&[(1..3).into()]).unwrap();
    model
        .execute_into(std::slice::from_ref(&x), std::slice::from_ref(&y), &ExecuteOptions::default())
        .unwrap();
    assert_eq!(results.to_vec::<f32>(), [0.0, 0.0, 3.0, 6.0, 9.0, 12.0, 0.0, 0.0]);
    assert_eq!(model.execute(&[x]).unwrap()[0].to_vec::<f32>(), [3.0, 6.0, 9.0, 12.0]);

    let gaps = Buffer::zeros(DType::F32, [2, 4]).slice(&[Index::ALL, Index::ALL.step(2)]).unwrap();
    let error = model.execute(std::slice::from_ref(&gaps)).unwrap_err().to_string();
    assert_eq!(
        error,
        "input 0 'x': got strides [4, 2], expected a row-major buffer; .contiguous() makes one"
    );
    let x = Buffer::zeros(DType::F32, [2, 2]);
    let error = model
        .execute_into(std::slice::from_ref(&x), &[gaps], &ExecuteOptions::default())
        .unwrap_err()
        .to_string();
    assert_eq!(error, "output 0: got strides [4, 2], expected a row-major buffer; .contiguous() makes one");
    let error = model
        .execute_into(&[x], &[Buffer::zeros(DType::F32, [2, 2]).read_only()], &ExecuteOptions::default())
        .unwrap_err();
    assert_eq!(error.to_string(), "output 0: the buffer is read-only");
}

#[test]
fn parts_of_buffers_are_written_where_they_lie() {
    let graph = build("store", |b| {
        let cache = b.input("cache", Type::buffer(DType::F32, [2]));
        let x = b.input("x", f32(&["2"]));
        b.store(cache, x)?;
        Ok(vec![b.load(cache)?])
    });
    let all = Buffer::zeros(DType::F32, [4]);
    let cache = all.slice(&[(1..3).into()]).unwrap();
    let model = session().load(&graph, &()).unwrap();
    model.execute(&[cache, Buffer::from_slice([2], &[1f32, 2.0])]).unwrap();
    assert_eq!(all.to_vec::<f32>(), [0.0, 1.0, 2.0, 0.0]);
}

#[test]
fn outputs_can_be_the_callers() {
    let model = session().load(&triple(), &()).unwrap();
    let (x, y) = (Buffer::from_slice([1, 2], &[1f32, 2.0]), Buffer::zeros(DType::F32, [1, 2]));
    model
        .execute_into(std::slice::from_ref(&x), std::slice::from_ref(&y), &ExecuteOptions::default())
        .unwrap();
    assert_eq!(y.to_vec::<f32>(), [3.0, 6.0]);
    let check = |outputs: &[Buffer], message: &str| {
        assert_eq!(
            model
                .execute_into(std::slice::from_ref(&x), outputs, &ExecuteOptions::default())
                .unwrap_err()
                .to_string(),
            message
        );
    };
    check(&[], "model `triple`: got 0 buffers for outputs, expected 1");
    check(&[Buffer::zeros(DType::F32, [2, 2])], "output 0: got f32[2, 2], expected f32[1, 2]");
    check(std::slice::from_ref(&x), "output 0: the buffer is being read by another call");
}

/// An input, a weight, the same value twice, a view of it, and a part of something.
#[test]
fn any_value_can_be_an_output() {
    let graph = build("outputs", |b| {
        let x = b.input("x", f32(&["n", "2"]));
        let w = b.weight("w", f32(&["2"]))?;
        let y = b.unary(Unary::Neg, x)?;
        let view = b.reshape(y, [b.dim(x, 0)?, 1.into(), 2.into()])?;
        let last = b.slice(y, 0, 1, None)?;
        Ok(vec![x, w, y, y, view, last])
    });
    let w = |_: &str| Some(Tensor::from_slice([2], &[5f32, 6.0]));
    for model in [session().load(&graph, &w).unwrap(), reference_session().load(&graph, &w).unwrap()] {
        let x = Buffer::from_slice([2, 2], &[1f32, 2.0, 3.0, 4.0]);
        let outputs = model.execute(std::slice::from_ref(&x)).unwrap();
        let values: Vec<Vec<f32>> = outputs.iter().map(Buffer::to_vec).collect();
        let negative = vec![-1.0, -2.0, -3.0, -4.0];
        let last = vec![-3.0, -4.0];
        let x_values = vec![1.0, 2.0, 3.0, 4.0];
        assert_eq!(values, [x_values, vec![5.0, 6.0], negative.clone(), negative.clone(), negative, last]);
        assert!(!outputs[0].shares_memory_with(&x) && !outputs[2].shares_memory_with(&outputs[3]));
        let error = model.execute(&[Buffer::zeros(DType::F32, [0, 2])]).unwrap_err();
        assert_eq!(error.to_string(), "the dim n - 1 is -1");
    }
}

#[test]
fn data_that_makes_no_sense_names_the_step() {
    let graph = build("lookup", |b| {
        let table = b.weight("table", f32(&["3", "2"]))?;
        let ids = b.input("ids", Type::new(DType::U32, ["n"]));
        Ok(vec![b.embedding(table, ids)?])
    });
    let model = session().load(&graph, &|_: &str| Some(noise([3, 2], 1))).unwrap();
    let error = model.execute(&[Buffer::from_slice([2], &[1u32, 7])]).unwrap_err().to_string();
    assert!(error.starts_with("step 0, embedding: ") && error.contains('7'), "{error}");
}

#[test]
fn threads_do_not_disturb_each_other() {
    let model = session().load(&triple(), &()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let model = model.clone();
            scope.spawn(move || {
                for n in 1..50 {
                    let x = noise([n, 2], n + thread);
                    let y = model.execute(&[Buffer::from_tensor(&x)]).unwrap();
                    let expected: Vec<f32> = x.to_vec::<f32>().into_iter().map(|x| x * 2.0 + x).collect();
                    assert_eq!(y[0].to_vec::<f32>(), expected);
                }
            });
        }
    });
}

#[test]
fn a_profile_tells_each_step() {
    let options = CompileOptions { passes: Passes::None, ..CompileOptions::default() };
    let model = session().init(&session().compile_with(&triple(), &options).unwrap(), &()).unwrap();
    let (outputs, profile) = model.profile(&[Buffer::from_slice([1, 2], &[1f32, 2.0])]).unwrap();
    assert_eq!(outputs[0].to_vec::<f32>(), [3.0, 6.0]);
    let steps: Vec<(&str, Option<&str>, &str)> =
        profile.steps.iter().map(|step| (step.op, step.kernel.as_deref(), &step.shapes[..])).collect();
    let mul = ("mul", None, "f32[1, 2], f32[] → f32[1, 2]");
    assert_eq!(steps, [mul, ("add", Some("add.test"), "f32[1, 2], f32[1, 2] → f32[1, 2]")]);
    assert!(profile.to_string().contains("1 x mul (reference)"), "{profile}");
}

/// A prefill of two sequences and a decode step of both, with the cache kept from call to call.
#[test]
fn a_cache_is_kept_from_call_to_call() {
    let graph = Graph::parse(
        "graph attend(%x: f32[tokens, 2, 4], %cache: mut f32[pages, 1, 2, 2, 64], %offsets: u32[batch + 1],
                      %lengths: u32[batch], %pages: u32[batch, width]) {
           kv_store(%cache, %x, %x, %offsets, %lengths, %pages) {layer = 0}
           %y = paged_attention(%x, %cache, %offsets, %lengths, %pages) {layer = 0, scale = 0.5}
           return %y
         }",
    )
    .unwrap();
    let model = session().load(&graph, &()).unwrap();
    let cache = Buffer::zeros(DType::F32, [4, 1, 2, 2, 64]);
    let mut expected_cache = cache.to_tensor().unwrap();
    let pages = Tensor::from_slice([2, 1], &[2u32, 0]);
    for (tokens, offsets, lengths) in [(5, [0u32, 3, 5], [0u32, 0]), (2, [0, 1, 2], [3, 2])] {
        let (offsets, lengths) = (Tensor::from_slice([3], &offsets), Tensor::from_slice([2], &lengths));
        let x = noise([tokens, 2, 4], tokens);
        let tensors = [x, expected_cache, offsets, lengths, pages.clone()];
        let expected = graph.evaluate(&tensors, &|_| None).unwrap();
        let mut inputs = buffers(&tensors);
        inputs[1] = cache.clone();
        let y = model.execute(&inputs).unwrap();
        assert_eq!(y[0].to_vec::<f32>(), expected.outputs[0].to_vec::<f32>());
        expected_cache = expected.buffers[0].clone();
        assert_eq!(cache.to_vec::<f32>(), expected_cache.to_vec::<f32>());
    }
}

#[test]
fn sizes_that_overflow_are_refused() {
    let graph = Graph::parse(
        "graph vast(%x: u8[n, 0]) {
           %one = constant [1] : u8[1, 1]
           %y = broadcast(%one) {shape = [n, 8]}
           %z = add(%y, %y)
           return %z
         }",
    )
    .unwrap();
    let model = session().load(&graph, &()).unwrap();
    let error = model.execute(&[Buffer::zeros(DType::U8, [usize::MAX / 16, 0])]).unwrap_err().to_string();
    assert!(error.starts_with("model `vast`: the arena overflows with n = "), "{error}");
    let error = model.execute(&[Buffer::zeros(DType::U8, [1 << 62, 0])]).unwrap_err().to_string();
    assert!(error.starts_with("model `vast`: u8[4611686018427387904, 8] overflows with n = "), "{error}");
}

/// Appends a node that the numbers choose, if it fits the operands they choose.
fn random_node(b: &mut Builder, pool: &mut Vec<Value>, [op, i, j]: [usize; 3]) -> Result<(), GraphError> {
    let (x, y) = (pool[i % pool.len()], pool[j % pool.len()]);
    let columns = b.dim(x, -1)?.as_static().unwrap_or(0);
    match op {
        0 => pool.push(b.unary(Unary::Sigmoid, x)?),
        1 => pool.push(b.silu(x)?),
        2 => pool.push(b.unary(Unary::Neg, x)?),
        3..6 => pool.push(b.add(x, y)?),
        6 | 7 => pool.push(b.mul(x, y)?),
        8..12 => {
            let rows = if op == 11 { 8 } else { 4 };
            let w =
                b.weight(format!("w{rows}.{columns}.{}", j % 2), Type::new(DType::F32, [rows, columns]))?;
            pool.push(b.linear(x, w)?);
        }
        12 | 13 => {
            let w = b.weight(format!("norm{columns}"), Type::new(DType::F32, [columns]))?;
            pool.push(b.rms_norm(x, w, 1e-3)?);
        }
        14 => {
            let w = b.weight(format!("bias{columns}"), Type::new(DType::F32, [columns]))?;
            pool.push(b.add(x, w)?);
        }
        15 => pool.push(b.reshape(x, [b.dim(x, 0)?, 2.into(), (columns / 2).into()])?),
        16 => pool.push(b.reshape(x, [b.dim(x, 0)?, (columns * 2).into()])?),
        17 => pool.push(b.transpose(x, &[0, 2, 1])?),
        18 => {
            let parts = b.split(x, -1, &[columns / 2, columns - columns / 2])?;
            pool.extend(parts);
        }
        19 => pool.push(b.slice(x, 0, 1, None)?),
        20 => pool.push(b.concat(&[x, y], -1)?),
        21 => pool.push(b.binary(Binary::Max, x, y)?),
        22 => {
            let one = b.constant(Tensor::scalar(1f32));
            pool.push(b.mul(x, one)?);
        }
        23 => b.store(pool_buffer(b), x)?,
        24 => {
            let (p, buffer) = (is_negative(b, x)?, pool_buffer(b));
            let then = |b: &mut Builder| {
                b.store(buffer, x)?;
                Ok(vec![b.silu(x)?, x])
            };
            pool.extend(b.cond(p, None, then, |b| Ok(vec![x, b.unary(Unary::Neg, x)?]))?);
        }
        25 => {
            let body = |b: &mut Builder, v: &[Value]| {
                let w =
                    b.weight(format!("w{columns}.{columns}.0"), Type::new(DType::F32, [columns, columns]))?;
                Ok(vec![b.linear(v[0], w)?])
            };
            let inputs = [("rows", Type::new(DType::F32, [graph::Dim::symbol("rows"), columns.into()]))];
            let layer = Builder::subgraph("layer", &inputs, body)?;
            pool.extend(b.call(&layer, &[x], "layer.")?);
        }
        26 => {
            let (zero, buffer) = (b.constant(Tensor::scalar(0i64)), pool_buffer(b));
            let next = |b: &mut Builder, carried: &[Value]| {
                let one = b.constant(Tensor::scalar(1i64));
                let old = b.load(buffer)?;
                b.store(buffer, old)?;
                Ok(vec![b.add(carried[0], one)?, b.add(carried[1], x)?])
            };
            let few = |b: &mut Builder, carried: &[Value]| {
                let end = b.constant(Tensor::scalar((j % 3) as i64));
                b.binary(Binary::Less, carried[0], end)
            };
            pool.push(b.while_loop(&[zero, x], few, next)?[1]);
        }
        _ => pool.push(b.load(pool_buffer(b))?),
    }
    Ok(())
}

/// Whether the sum of all elements is negative: `bool[]`.
fn is_negative(b: &mut Builder, x: Value) -> Result<Value, GraphError> {
    let flat = b.reshape(x, [b.ty(x).elements()])?;
    let sum = b.reduce(ReduceKind::Sum, flat, 0)?;
    let sum = b.reshape(sum, [])?;
    let zero = b.constant(Tensor::scalar(0f32));
    b.binary(Binary::Less, sum, zero)
}

fn pool_buffer(b: &Builder) -> Value {
    b.graph().inputs()[1].value
}

fn random_graph(choices: &[[usize; 3]]) -> Graph {
    build("random", |b| {
        let x = b.input("x", f32(&["n", "4"]));
        b.input("buffer", Type::buffer(DType::F32, [graph::Dim::symbol("n"), 4.into()]));
        let mut pool = vec![x];
        for &choice in choices {
            // What does not fit is left out.
            let _ = random_node(b, &mut pool, choice);
        }
        let from = pool.len().saturating_sub(3);
        Ok(pool.split_off(from))
    })
}

fn close(a: f32, b: f32) -> bool {
    (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= 1e-3 * (1.0 + a.abs().max(b.abs()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn models_compute_what_graphs_mean(
        choices in prop::collection::vec(prop::array::uniform3(0usize..28), 1..24),
        n in 1usize..4,
    ) {
        let graph = random_graph(&choices);
        let tensors = [noise([n, 4], 1), noise([n, 4], 2)];
        let weight = |name: &str| {
            Some(noise(graph.weights().get(name)?.static_shape()?, name.len()))
        };
        let Ok(expected) = graph.evaluate(&tensors, &weight) else { return Ok(()) };
        for session in [session(), reference_session()] {
            for passes in [Passes::All, Passes::None] {
                let exact = passes == Passes::None;
                let compiled = session.compile_with(&graph, &CompileOptions { passes, ..CompileOptions::default() }).unwrap();
                let model = session.init(&compiled, &weight).unwrap();
                let inputs = buffers(&tensors);
                for _ in 0..2 {
                    let outputs = model.execute(&inputs).unwrap();
                    let contents: Vec<Tensor> =
                        outputs.iter().chain(&inputs[1..]).map(|b| b.to_tensor().unwrap()).collect();
                    for (got, expected) in contents.iter().zip(expected.outputs.iter().chain(&expected.buffers)) {
                        prop_assert_eq!(got.shape(), expected.shape());
                        let pairs = got.to_vec::<f32>().into_iter().zip(expected.to_vec::<f32>());
                        for (got, expected) in pairs {
                            let same = if exact { got == expected || got.is_nan() } else { close(got, expected) };
                            prop_assert!(same, "{got} is not {expected}\n{}", model.program());
                        }
                    }
                    let old = Buffer::from_tensor(&tensors[1]);
                    inputs[1].write().unwrap().copy_from_slice(&old.read().unwrap());
                }
            }
        }
    }
}
