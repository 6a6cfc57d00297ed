//! Extensions are built with the compilers that are there, loaded, and called.

mod examples;
mod failures;
mod packages;
mod sources;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use perihelion_extensions::{Argument, Array, ArrayMut, Compiler, Guards, Library, Operand};
use tensor::{DType, Element, Shape, Tensor};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder of a test's own, empty at first.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The compiler of sources, with a cache for the tests; `None`, with a word to the reader, where there is none.
fn compiler() -> Option<Compiler> {
    let compiler = Compiler {
        cache: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")),
        ..Compiler::from_env()
    };
    runs(compiler.rustc.as_os_str().to_str().unwrap(), "-V").then_some(compiler)
}

/// Whether a program is there; says so if not.
fn runs(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: there is no `{program}`");
    }
    found
}

/// The library of a source of Rust, compiled.
fn compiled(source: &Path) -> Option<Library> {
    Some(Library::open(source, &compiler()?).unwrap_or_else(|error| panic!("{error}")))
}

/// The library of a source of C, compiled in a folder of the test's own.
fn compiled_c(test: &str, source: &Path) -> Option<PathBuf> {
    let library = folder(test).join(format!("lib{test}.so"));
    let include = repository().join("crates/extension/include");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", "-I"]);
    let output = cc.arg(include).arg(source).arg("-o").arg(&library).output();
    let Ok(output) = output else {
        eprintln!("skipped: there is no `cc`");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(library)
}

/// The library of `examples/extensions/statistics`, built once.
fn statistics() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("statistics");
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let manifest = repository().join("examples/extensions/statistics/Cargo.toml");
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--offline", "--quiet", "--manifest-path"]).arg(manifest);
        let output = command.arg("--target-dir").arg(&target).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target.join(format!("release/{}statistics{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX))
    })
}

/// Calls an op of a library with tensors to read. Gives one result, of the type stated.
fn call(
    library: &Library,
    op: &str,
    arguments: &[(&str, Argument)],
    inputs: &[&Tensor],
    (dtype, shape): (DType, &[usize]),
) -> Result<Vec<u8>, String> {
    let op = library.op(op).unwrap();
    let arguments: Vec<_> = arguments.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    let mut bytes = vec![0; dtype.bytes_for_shape(&Shape::new(shape)).unwrap()];
    let mut operands: Vec<Operand<'_>> = inputs.iter().map(|tensor| read(tensor)).collect();
    let result = ArrayMut { dtype, shape: Shape::new(shape), bytes: &mut bytes };
    op.run(&arguments, &mut operands, &mut [result], &threads, Guards::On)?;
    Ok(bytes)
}

fn read(tensor: &Tensor) -> Operand<'_> {
    Operand::Read(Array { dtype: tensor.dtype(), shape: *tensor.shape(), bytes: tensor.bytes() })
}

fn numbers<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// A thread for each chunk.
fn threads(chunks: usize, body: &(dyn Fn(usize) + Sync)) {
    std::thread::scope(|scope| {
        for chunk in 0..chunks {
            scope.spawn(move || body(chunk));
        }
    });
}
