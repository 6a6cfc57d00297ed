//! Sessions, and what they compile and load.

use std::sync::Arc;

use graph::{DeviceRef, Graph, Module, Type};
use tensor::{Buffer, DType, Tensor};

use super::*;
use crate::testing::{TestDevice, build, f32, session};
use crate::{CompiledModel, Error, Model};

fn named(name: &str) -> Graph {
    build(name, |b| {
        let x = b.input("x", f32(&["n"]));
        Ok(vec![b.add(x, x)?])
    })
}

fn message<T>(result: Result<T, Error>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn constants_larger_than_memory_are_refused() {
    let constant = Tensor::scalar(1f32).broadcast_to([1 << 44]);
    let graph = build("vast", |b| Ok(vec![b.constant(constant)]));
    let error = session().compile(&graph).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert_eq!(error.to_string(), "the system refused 70368744177664 bytes of memory");
}

#[test]
fn modules_hold_several_models() {
    let session = session();
    let module = Module { graphs: vec![named("a"), named("b")] };
    let models = session.load_all(&module, &()).unwrap();
    assert_eq!(models.keys().collect::<Vec<_>>(), ["a", "b"]);
    let y = models["b"].execute(&[Buffer::from_slice([1], &[2f32])]).unwrap();
    assert_eq!(y[0].to_vec::<f32>(), [4.0]);
    let several = "makes one model, but 2 were compiled; use";
    assert_eq!(message(session.load(&module, &())), format!("`load` {several} `load_all`"));
    let compiled = session.compile(&module).unwrap();
    assert_eq!(compiled.names().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(message(session.init(&compiled, &())), format!("`init` {several} `init_all`"));
    let doubled = Module { graphs: vec![named("a"), named("a")] };
    let expected = "two models have the name `a`; each needs its own";
    assert_eq!(message(session.compile(&doubled)), expected);
    assert!(session.load_all(&Module::default(), &()).unwrap().is_empty());
}

#[test]
fn devices_count_once() {
    let device: Arc<dyn Device> = Arc::new(TestDevice);
    let session = InferenceSession::new([Arc::clone(&device), device]).unwrap();
    assert_eq!(session.devices().len(), 1);
    assert_eq!(
        message(InferenceSession::new([])),
        "an inference session needs at least one device, got none"
    );
    let mut graph = Graph::new("far");
    let x = graph.input("x", Type { device: DeviceRef::Gpu(0), ..f32(&["2"]) });
    graph.set_outputs(&[x]);
    let expected = "compiling `far`: a value is f32[2] @gpu:0, but the session's devices are: test";
    assert_eq!(message(session.compile(&graph)), expected);
}

#[test]
fn what_is_elsewhere_is_found_in_graphs_within_and_told_by_its_place() {
    let session = session();
    let far = || Type { device: DeviceRef::Gpu(0), ..f32(&["2"]) };
    let mut line = 0;
    let graph = build("g", |b| {
        let (p, x) = (b.input("p", Type::new(DType::Bool, graph::dims![])), b.input("x", f32(&["2"])));
        let then = |b: &mut graph::Builder| {
            line = line!() + 1;
            b.weight("far", far())?;
            Ok(vec![x])
        };
        b.cond(p, None, then, |_| Ok(vec![x]))
    });
    let expected = "compiling `then`: a value is f32[2] @gpu:0, but the session's devices are: test";
    assert_eq!(message(session.compile(&graph)), expected);
    session.debug().set_source_tracebacks(true);
    let error = message(session.compile(&graph));
    let place = format!("{expected} (built at {}:{line}:", file!());
    assert!(error.starts_with(&place), "{error}");
}

#[test]
fn graph_text_is_read_from_files() {
    let path = std::env::temp_dir().join(format!("perihelion-engine-{}.graph", std::process::id()));
    std::fs::write(&path, named("a").to_string() + &named("b").to_string()).unwrap();
    let compiled = session().compile(&path);
    std::fs::write(&path, "graph g(").unwrap();
    let error = message(session().compile(&path));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(compiled.unwrap().names().collect::<Vec<_>>(), ["a", "b"]);
    assert!(error.starts_with(&format!("reading {}: line 1: ", path.display())), "{error}");
}

#[test]
fn files_that_hold_no_graph_are_named() {
    let session = session();
    let check = |path: &str, expected: &str| assert_eq!(message(session.compile(path)), expected);
    check("a.mef", &format!("reading a.mef: {}", std::io::Error::from_raw_os_error(2)));
    check("a.txt", "reading a.txt: expected a file of graph text (.graph) or of compiled models (.mef)");
    assert!(message(session.compile("no/such.graph")).starts_with("reading no/such.graph: "));
}

#[test]
fn types_cross_threads() {
    fn sent<T: Send + Sync>() {}
    sent::<InferenceSession>();
    sent::<CompiledModel>();
    sent::<Model>();
}
