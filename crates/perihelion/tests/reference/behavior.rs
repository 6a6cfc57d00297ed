//! What the reference says and no other test shows.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use perihelion::driver::{self, Buffer, Tensor};
use perihelion::engine::extension::Compiler;
use perihelion::engine::{CompileOptions, Error, Extensions, InferenceSession, Model};
use perihelion::graph::{Graph, Module};
use testdata::repository;

/// A folder for one test, empty at first.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("reference_{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn session() -> InferenceSession {
    InferenceSession::new([driver::cpu()]).unwrap()
}

/// `x + w`.
fn sum() -> Graph {
    Graph::parse(r#"graph sum(%x: f32[2]) { %w = weight "w" : f32[2] %y = add(%x, %w) return %y }"#).unwrap()
}

fn weights() -> HashMap<String, Tensor> {
    HashMap::from([("w".to_string(), Tensor::from_slice([2], &[10f32, 20.0]))])
}

/// The output for `[1, 2]`.
fn run(model: &Model) -> Vec<f32> {
    model.execute(&[Buffer::from_slice([2], &[1f32, 2.0])]).unwrap()[0].to_vec()
}

fn message<T>(result: Result<T, Error>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn paths_are_loaded_or_compiled_and_initialized() {
    let (session, folder) = (session(), folder("paths"));
    let (text, artifact) = (folder.join("sum.graph"), folder.join("sum.mef"));
    fs::write(&text, sum().to_string()).unwrap();
    session.compile(&text).unwrap().export_mef(&artifact).unwrap();
    for path in [&text, &artifact] {
        assert_eq!(run(&session.load(path, &weights()).unwrap()), [11.0, 22.0]);
        let compiled = session.compile(path).unwrap();
        assert_eq!(run(&session.init(&compiled, &weights()).unwrap()), [11.0, 22.0]);
        assert_eq!(run(&session.init_all(&compiled, &weights()).unwrap()["sum"]), [11.0, 22.0]);
    }
    assert_eq!(message(session.load("no/such.mef", &())).split(": ").next(), Some("reading no/such.mef"));
}

#[test]
fn what_is_compiled_is_saved_and_starts_again() {
    let (session, folder) = (session(), folder("saved"));
    let compiled = session.compile(&sum()).unwrap();
    assert_eq!(format!("{compiled:?}"), "CompiledModel(sum)");
    let path = folder.join("sum.mef");
    compiled.export_mef(&path).unwrap();
    let read = InferenceSession::new([]).unwrap().compile(&path).unwrap();
    assert_eq!(read.to_string(), compiled.to_string());
    let missing = "model `sum`: no weight `w` in the registry, expected f32[2]";
    assert_eq!(message(session.init(&read, &())), missing);
    assert_eq!(run(&session.init(&read, &weights()).unwrap()), [11.0, 22.0]);
}

#[test]
fn weights_come_from_any_producer_of_dlpack() {
    let producer = Buffer::from_slice([2], &[10f32, 20.0]);
    let registry = HashMap::from([("w".to_string(), Arc::new(producer.to_dlpack().unwrap()))]);
    let model = session().load(&sum(), &registry).unwrap();
    assert!(producer.write().is_err(), "the model reads it where it lies");
    drop((producer, registry));
    assert_eq!(run(&model), [11.0, 22.0]);
    let buffers = BTreeMap::from([("w".to_string(), Buffer::from_slice([2], &[30f32, 40.0]))]);
    assert_eq!(run(&session().load(&sum(), &buffers).unwrap()), [31.0, 42.0]);
}

#[test]
fn detailed_profiles_have_phases_and_kernels() {
    let (session, folder) = (session(), folder("profile"));
    session.set_trace_file(folder.join("trace.json"));
    session.gpu_profiling("detailed").unwrap();
    let compiled = session.compile(&sum()).unwrap();
    run(&session.init(&compiled, &weights()).unwrap());
    let trace = fs::read_to_string(session.write_trace().unwrap().unwrap()).unwrap();
    for category in ["call", "phase", "op", "kernel"] {
        assert!(trace.contains(&format!("\"{category}\"")), "{category}: {trace}");
    }
    assert!(trace.contains("f32[2]"), "{trace}");
    assert_eq!(session.profile_summary().iter().count(), 1);
    let path = folder.join("sum.mef");
    compiled.export_mef(&path).unwrap();
    let settings = |session: &InferenceSession| session.compile(&path).unwrap().to_string();
    assert!(settings(&session).contains("profiling = detailed"));
    assert!(!settings(&InferenceSession::new([]).unwrap()).contains("profiling"));
}

#[test]
fn accelerators_that_are_not_there_say_why() {
    assert_eq!(driver::accelerator_count(), 0);
    let error = driver::accelerator(0).err().expect("this build has none").to_string();
    assert!(error.starts_with("gpu:0 is not available: found "), "{error}");
    assert!(error.ends_with("this build has no accelerator support"), "{error}");
    let cpus = driver::load_devices(&driver::scan_available_devices()).unwrap();
    assert!(cpus.len() == 1 && cpus[0].is_host());
}

#[test]
fn libraries_of_mojo_are_refused() {
    let folder = folder("mojo");
    for name in ["ops.mojopkg", "ops.mojoc", "ops.mojo"] {
        let path = folder.join(name);
        fs::write(&path, "fn main(): pass").unwrap();
        let error = message(Extensions::load(&path));
        let path = path.canonicalize().unwrap();
        assert!(error.starts_with(&format!("extension {}: ", path.display())), "{error}");
    }
}

#[test]
fn several_models_share_the_extensions_of_a_compile() {
    let compiler = Compiler { cache: Some(folder("extensions")), ..Compiler::from_env() };
    if std::process::Command::new(&compiler.rustc).arg("-V").output().is_err() {
        return eprintln!("skipped: there is no `{}`", compiler.rustc.display());
    }
    let source = repository().join("examples/extensions/leaky_relu.rs");
    let custom_extensions = Extensions::load_all_with([source], &compiler).unwrap();
    let graph = |name: &str| {
        let op = "custom(%x) {op = leaky_relu, results = [f32[2]], slope = 0.5}";
        Graph::parse(&format!("graph {name}(%x: f32[2]) {{ %y = {op} return %y }}")).unwrap()
    };
    let module = Module { graphs: vec![graph("a"), graph("b")] };
    let session = session();
    assert!(session.load_all(&module, &()).is_err());
    let options = CompileOptions { custom_extensions, ..CompileOptions::default() };
    let models = session.load_all_with(&module, &(), &options).unwrap();
    let x = Buffer::from_slice([2], &[-1f32, 2.0]);
    for model in models.values() {
        assert_eq!(model.execute(std::slice::from_ref(&x)).unwrap()[0].to_vec::<f32>(), [-0.5, 2.0]);
    }
    assert_eq!(models.keys().collect::<Vec<_>>(), ["a", "b"]);
}
