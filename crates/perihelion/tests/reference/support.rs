//! Sessions on the real CPU, small graphs, folders and extensions that these tests share.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use perihelion::driver::{Buffer, Tensor};
use perihelion::engine::extension::Compiler;
use perihelion::engine::{CompileOptions, Error, Extensions, InferenceSession, Model, Passes};
use perihelion::graph::Graph;
pub(crate) use testdata::child::{in_child, is_child};

/// A folder for one test, empty at first. Its child processes find in it what the test wrote.
pub(crate) fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("reference_{test}"));
    if !is_child() {
        let _ = fs::remove_dir_all(&folder);
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A session on the CPU that keeps nothing in the user's compile cache.
pub(crate) fn session() -> InferenceSession {
    InferenceSession::builder().num_threads(3).compile_cache(None).build().unwrap()
}

pub(crate) fn parse(text: &str) -> Graph {
    Graph::parse(text).unwrap()
}

/// `x + w`, named `name`.
pub(crate) fn sum(name: &str) -> Graph {
    parse(&format!(r#"graph {name}(%x: f32[2]) {{ %w = weight "w" : f32[2] %y = add(%x, %w) return %y }}"#))
}

/// The weight of [`sum`].
pub(crate) fn weights() -> HashMap<String, Tensor> {
    HashMap::from([("w".to_string(), Tensor::from_slice([2], &[10f32, 20.0]))])
}

/// `exp(√(-x))`: NaN if x is positive, infinite if it is very negative.
pub(crate) fn root() -> Graph {
    parse("graph root(%x: f32[n]) { %a = neg(%x) %b = sqrt(%a) %y = exp(%b) return %y }")
}

/// A model whose nodes are not fused, so that each is a step.
pub(crate) fn load_unfused(session: &InferenceSession, graph: &Graph) -> Model {
    let options = CompileOptions { passes: Passes::None, ..CompileOptions::default() };
    session.load_with(graph, &(), &options).unwrap()
}

/// The first output for a vector.
pub(crate) fn run(model: &Model, x: &[f32]) -> Result<Vec<f32>, Error> {
    Ok(model.execute(&[Buffer::from_slice([x.len()], x)])?[0].to_vec())
}

pub(crate) fn message<T>(result: Result<T, Error>) -> String {
    result.err().expect("an error").to_string()
}

/// Numbers between -1 and 1 that look random.
pub(crate) fn noise(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i + seed * 31) * 7919 % 2017) as f32 / 1008.5 - 1.0).collect()
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Collects what models print.
#[derive(Clone, Default)]
pub(crate) struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    /// What was printed since the last call.
    pub(crate) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

/// Compiles the sources of extensions into a cache of these tests; `None`, with a line that says so, if there is no
/// compiler.
pub(crate) fn compiler() -> Option<Compiler> {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("extensions");
    let compiler = Compiler { cache: Some(cache), ..Compiler::from_env() };
    if Command::new(&compiler.rustc).arg("-V").output().is_err() {
        eprintln!("skipped: there is no `{}`", compiler.rustc.display());
        return None;
    }
    Some(compiler)
}

/// The extensions of sources, relative to the repository.
pub(crate) fn extensions(sources: &[&str]) -> Option<Extensions> {
    let paths = sources.iter().map(|source| testdata::repository().join(source));
    Some(Extensions::load_all_with(paths, &compiler()?).unwrap_or_else(|error| panic!("{error}")))
}

/// An example of an extension: `x` if it is positive, else `slope · x`.
pub(crate) const LEAKY: &str = "examples/extensions/leaky_relu.rs";
/// Ops that do what ops must not do.
pub(crate) const FAULTY: &str = "crates/extensions/tests/sources/faulty.rs";
