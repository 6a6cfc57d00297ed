//! "Models, graphs, debugging": compiled models, models and graphs on the CPU.

use std::time::{Duration, Instant};

use perihelion::driver::{Buffer, DType, Tensor};
use perihelion::engine::{CancelHandle, Error, ExecuteOptions, ExportOptions, InferenceSession, Model};
use perihelion::graph::{Builder, Graph, Module, Type, dims};

use crate::support::{folder, load_unfused, message, noise, parse, root, run, session, sum, weights};

#[test]
fn compiled_models_print_and_come_back_from_files() {
    let (session, path) = (session(), folder("saved").join("sum.mef"));
    let compiled = session.compile(&sum("sum")).unwrap();
    assert_eq!(format!("{compiled:?}"), "CompiledModel(sum)");
    assert!(compiled.to_string().starts_with("plan sum on cpu"), "{compiled}");
    compiled.export_mef(&path).unwrap();
    let read = InferenceSession::new([]).unwrap().compile(&path).unwrap();
    assert_eq!(read.to_string(), compiled.to_string());
    let missing = "model `sum`: no weight `w` in the registry, expected f32[2]";
    assert_eq!(message(session.init(&read, &())), missing);
    assert_eq!(run(&session.init(&read, &weights()).unwrap(), &[1.0, 2.0]).unwrap(), [11.0, 22.0]);
    let with = ExportOptions { weights: Some(&weights()), ..ExportOptions::default() };
    compiled.export_mef_with(&path, with).unwrap();
    assert_eq!(run(&session.load(&path, &()).unwrap(), &[1.0, 2.0]).unwrap(), [11.0, 22.0]);
}

#[test]
fn models_run_by_position_by_name_into_buffers_and_profiled() {
    let graph = parse("graph g(%x: f32[n], %k: f32[]) { %y = mul(%x, %k) return %y }");
    let model = session().load(&graph, &()).unwrap();
    for n in [3usize, 0, 1000, 3] {
        let x = noise(n, n);
        let doubled: Vec<f32> = x.iter().map(|x| x * 2.0).collect();
        let (x, two) = (Buffer::from_slice([n], &x), Buffer::scalar(2f32));
        assert_eq!(model.execute(&[x.clone(), two.clone()]).unwrap()[0].to_vec::<f32>(), doubled);
        assert_eq!(model.call(&[("k", two.clone()), ("x", x.clone())]).unwrap()[0].to_vec::<f32>(), doubled);
        let y = Buffer::zeros(DType::F32, [n]);
        let options = ExecuteOptions::default();
        model.execute_into(&[x.clone(), two.clone()], std::slice::from_ref(&y), &options).unwrap();
        assert_eq!(y.to_vec::<f32>(), doubled);
        let (outputs, profile) = model.profile(&[x, two]).unwrap();
        assert_eq!(outputs[0].to_vec::<f32>(), doubled);
        assert_eq!(profile.steps.len(), 1);
        assert!(profile.steps[0].kernel.is_some(), "the CPU has a kernel for it");
    }
    let twelve = |x: &[f32]| model.execute(&[Buffer::from_slice([x.len()], x)]);
    assert_eq!(message(twelve(&[1.0])), "`g` takes 2 inputs (x, k), got 1");
}

#[test]
fn weights_are_exchanged_and_released_for_every_clone() {
    let graph = parse(
        r#"graph shift(%x: f32[n, 2]) {
             %w = weight "w" : f32[2, 2]
             %b = weight "b" : f32[2]
             %h = linear(%x, %w)
             %y = add(%h, %b)
             return %y
           }"#,
    );
    // A multiple of the identity, which the CPU packs, and a bias, which it does not.
    let weights = |scale: f32| {
        move |name: &str| match name {
            "w" => Some(Tensor::from_slice([2, 2], &[scale, 0.0, 0.0, scale])),
            _ => Some(Tensor::from_slice([2], &[scale; 2])),
        }
    };
    let model = session().load(&graph, &weights(2.0)).unwrap();
    let models = [model.clone(), model];
    let run = |model: &Model| -> Result<Vec<f32>, Error> {
        Ok(model.execute(&[Buffer::from_slice([1, 2], &[1f32, 3.0])])?[0].to_vec())
    };
    let check =
        |expected: [f32; 2]| models.iter().for_each(|model| assert_eq!(run(model).unwrap(), expected));
    check([4.0, 8.0]);
    models[0].reload(&weights(10.0)).unwrap();
    check([20.0, 40.0]);
    let wrong = |_: &str| Some(Tensor::zeros(DType::F32, [3]));
    assert_eq!(message(models[0].reload(&wrong)), "weight `w`: got f32[3], expected f32[2, 2]");
    check([20.0, 40.0]);
    models[1].release_weights();
    let released = "the weights of model `shift` were released; reload them before it is executed";
    models.iter().for_each(|model| assert_eq!(message(run(model)), released));
    models[1].reload(&weights(1.0)).unwrap();
    check([2.0, 4.0]);
}

/// A loop that ends once the buffer `on` is false, which nothing writes.
fn endless() -> Model {
    let mut b = Builder::new("endless");
    let on = b.input("on", Type::new(DType::Bool, dims![]));
    let zero = b.constant(Tensor::scalar(0i64));
    let count = b.while_loop(
        &[zero],
        |_, _| Ok(on),
        |b, carried| {
            let one = b.constant(Tensor::scalar(1i64));
            Ok(vec![b.add(carried[0], one)?])
        },
    );
    let count = count.unwrap();
    session().load(&b.finish(&count).unwrap(), &()).unwrap()
}

#[test]
fn calls_end_when_they_are_cancelled_or_late() {
    let (model, cancel) = (endless(), CancelHandle::new());
    let flag = |on: bool| [Buffer::from_bools([0usize; 0], &[on])];
    let options = ExecuteOptions { cancel: Some(cancel.clone()), deadline: None };
    std::thread::scope(|scope| {
        let call = scope.spawn(|| model.execute_with(&flag(true), &options));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!call.is_finished());
        cancel.cancel();
        assert_eq!(message(call.join().unwrap()), "model `endless`: the call was cancelled");
    });
    let deadline = Instant::now() + Duration::from_millis(20);
    let options = ExecuteOptions { cancel: None, deadline: Some(deadline) };
    let error = message(model.execute_with(&flag(true), &options));
    assert!(Instant::now() >= deadline);
    assert!(error.starts_with("model `endless`: the deadline of the call passed "), "{error}");
    let deadline = Instant::now() + Duration::from_secs(3600);
    let options = ExecuteOptions { cancel: Some(CancelHandle::new()), deadline: Some(deadline) };
    assert_eq!(model.execute_with(&flag(false), &options).unwrap()[0].to_vec::<i64>(), [0]);
    assert_eq!(model.execute(&flag(false)).unwrap()[0].to_vec::<i64>(), [0], "the model runs on");
}

#[test]
fn graphs_print_as_they_parse() {
    let mut b = Builder::new("built");
    let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    let y = b.exp(x).unwrap();
    let z = b.add(y, x).unwrap();
    let graph = b.finish(&[z]).unwrap();
    assert_eq!(graph.name(), "built");
    let text = graph.to_string();
    let parsed = parse(&text);
    assert_eq!(parsed.to_string(), text);
    let results =
        [&graph, &parsed].map(|graph| run(&session().load(graph, &()).unwrap(), &[0.0, 1.0]).unwrap());
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0][0], 1.0);
    let error = Graph::parse("graph g(%x: f32[n]) { return %y }").unwrap_err().to_string();
    assert!(error.starts_with("line 1"), "{error}");
}

#[test]
fn modules_compile_their_graphs_together_and_refuse_equal_names() {
    let module = Module { graphs: vec![root(), sum("sum")] };
    let session = session();
    let models = session.load_all(&module, &weights()).unwrap();
    assert_eq!(models.keys().collect::<Vec<_>>(), ["root", "sum"]);
    assert_eq!(run(&models["root"], &[0.0]).unwrap(), [1.0]);
    assert_eq!(run(&models["sum"], &[1.0, 2.0]).unwrap(), [11.0, 22.0]);
    let doubled = Module { graphs: vec![root(), root()] };
    let expected = "two models have the name `root`; each needs its own";
    assert_eq!(message(session.compile(&doubled)), expected);
}

/// Graphs that ops run belong to the graph around them, with their weights, in files too.
#[test]
fn graphs_that_ops_run_are_part_of_their_model() {
    let text = r#"graph choice(%p: bool[], %x: f32[2]) {
                    %y = cond(%p, %x) {
                      then = graph then(%x: f32[2]) { %w = weight "w" : f32[2] %y = add(%x, %w) return %y },
                      otherwise = graph otherwise(%x: f32[2]) { %y = neg(%x) return %y }
                    }
                    return %y
                  }"#;
    let (session, path) = (session(), folder("within").join("choice.mef"));
    let compiled = session.compile(&parse(text)).unwrap();
    assert_eq!(compiled.names().collect::<Vec<_>>(), ["choice"]);
    let with = ExportOptions { weights: Some(&weights()), ..ExportOptions::default() };
    compiled.export_mef_with(&path, with).unwrap();
    for model in [session.init(&compiled, &weights()).unwrap(), session.load(&path, &()).unwrap()] {
        assert_eq!(model.name(), "choice");
        for (pick, expected) in [(true, [11.0, 22.0]), (false, [-1.0, -2.0])] {
            let pick = Buffer::from_bools([0usize; 0], &[pick]);
            let y = model.execute(&[pick, Buffer::from_slice([2], &[1f32, 2.0])]).unwrap();
            assert_eq!(y[0].to_vec::<f32>(), expected);
        }
    }
}

#[test]
fn errors_in_data_name_the_step() {
    let graph = parse("graph lookup(%t: f32[3, 2], %i: u32[n]) { %y = embedding(%t, %i) return %y }");
    let model = load_unfused(&session(), &graph);
    let table = Buffer::from_slice([3, 2], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let error = message(model.execute(&[table, Buffer::from_slice([2], &[1u32, 7])]));
    assert!(error.starts_with("step 0, embedding: ") && error.contains('7'), "{error}");
}
