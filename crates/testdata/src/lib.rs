//! Where tests find real models and reference results.
//!
//! Two places hold data. `crates/storyteller` travels with the repository, so tests on it run on every clone.
//! `../shared/data/` (next to the checkout) is large and optional: a test on it is skipped, and says so,
//! where that folder is absent. `PERIHELION_TEST_DATA` names another place for it. `PERIHELION_SKIPPED_TESTS` names a
//! file to which each skip is appended, so that the script that runs the tests can count them.

pub mod child;
pub mod hub;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the system's message about a missing file or folder begins.
pub const NO_SUCH_FILE: &str = if cfg!(windows) { "The system cannot find the " } else { "No such file" };

/// The root of this repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository root exists")
}

/// A file that travels with the repository: `asset("storyteller/model.gguf")`.
///
/// # Panics
/// When the file is missing, since every clone has it.
pub fn asset(path: &str) -> PathBuf {
    let full = repository().join("crates").join(path);
    assert!(full.exists(), "crates/{path} is missing from this checkout");
    full
}

/// A file or folder of the shared test data, or `None` with a line that says the test was skipped.
///
/// ```
/// let Some(model) = perihelion_testdata::shared("stories260k/gguf/stories260K-F32.gguf") else { return };
/// assert!(model.exists());
/// ```
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = match std::env::var_os("PERIHELION_TEST_DATA") {
        Some(root) => PathBuf::from(root),
        None => repository().join("../shared/data"),
    };
    if !root.is_dir() {
        skip(&format!("{path}: no shared test data at {}", root.display()));
        return None;
    }
    let full = root.join(path);
    assert!(full.exists(), "the shared test data at {} lacks {path}", root.display());
    Some(full)
}

/// A Python interpreter that has PyTorch and Transformers: that of `PERIHELION_TEST_TRANSFORMERS`, else `python3` if it has
/// them. `None`, with a line that says the test was skipped, if neither is there. `.ci/run` says it once more at its end.
///
/// # Panics
/// If the variable names one that lacks a package.
pub fn transformers() -> Option<PathBuf> {
    let named = std::env::var_os("PERIHELION_TEST_TRANSFORMERS").filter(|path| !path.is_empty());
    let python = PathBuf::from(named.clone().unwrap_or_else(|| "python3".into()));
    let run = Command::new(&python).args(["-c", "import torch, transformers"]).output();
    if run.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(named.is_none(), "{} cannot import torch and transformers", python.display());
    eprintln!(
        "skipped: python3 cannot import torch and transformers: name one that can as PERIHELION_TEST_TRANSFORMERS"
    );
    None
}

/// Whether a test has a GPU: `absence` says why there is none. A test without one is skipped, and says so.
///
/// # Panics
/// If there is none though `PERIHELION_ACCELERATOR` says which kind to use.
pub fn has_gpu(absence: Option<String>) -> bool {
    if let Some(absence) = &absence {
        assert!(std::env::var_os("PERIHELION_ACCELERATOR").is_none(), "{absence}");
        eprintln!("skipped: {absence}");
    }
    absence.is_none()
}

/// Whether the GPU of tests is a software adapter, whose results are the CPU's to the bit. Cards need not divide and take roots
/// as IEEE 754 says.
pub fn is_gpu_software() -> bool {
    std::env::var("PERIHELION_ACCELERATOR").is_ok_and(|choice| choice == "software")
}

/// Compares a GPU's results with the CPU's: to the bit on a software adapter, else with an error of `relative` times the
/// largest of the CPU's. One NaN is as good as another.
///
/// # Panics
/// If they differ; the message begins with `what`.
pub fn check_gpu_results(what: &str, got: &[f32], expected: &[f32], relative: f32) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let bound = if is_gpu_software() { 0.0 } else { relative * largest };
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let is_same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
        let is_near = bound > 0.0 && (got - expected).abs() <= bound;
        assert!(
            is_same || is_near,
            "{what}: [{i}] is {got:e}, the CPU has {expected:e}, at most {largest:e}"
        );
    }
}

/// Says that a test was skipped, and why.
///
/// # Panics
/// If the list of skipped tests cannot be written.
pub fn skip(reason: &str) {
    let skip = format!("skipped: {reason}\n");
    eprint!("{skip}");
    if let Some(log) = std::env::var_os("PERIHELION_SKIPPED_TESTS") {
        let log = OpenOptions::new().create(true).append(true).open(log);
        log.and_then(|mut log| log.write_all(skip.as_bytes()))
            .expect("the list of skipped tests can be written");
    }
}
