//! Parts of tests that run in a process of their own: for what they write on standard error, and for environment
//! variables.

use std::env;
use std::process::Command;

/// What a child process wrote.
pub struct Written {
    /// On standard output, with the lines of the test program.
    pub output: String,
    /// On standard error.
    pub errors: String,
}

/// Tells a child process which body it runs.
const BODY: &str = "PERIHELION_TEST_BODY";
/// The exit code of a child that ran its body to the end.
const BODY_RAN: i32 = 77;

/// Runs `body` in a process of its own with some environment variables; gives what it wrote.
///
/// The process is this program again, told to run `test` alone. At the call with the same `label`, `body` runs and the
/// process ends; calls before it give nothing, so a test makes all its calls before it asserts. Variables that change
/// sessions are removed unless they are given.
///
/// # Panics
/// If the body fails, or the child does not come to it.
pub fn in_child(test: &str, label: &str, variables: &[(&str, &str)], body: impl FnOnce()) -> Written {
    let name = format!("{test} {label}");
    if let Ok(wanted) = env::var(BODY) {
        if wanted == name {
            body();
            std::process::exit(BODY_RAN);
        }
        // The call of another label, in a child that is on its way to its own.
        return Written { output: String::new(), errors: String::new() };
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(BODY, &name);
    for variable in ["PERIHELION_LOG", "PERIHELION_DEBUG", "PERIHELION_ENABLE_PROFILING", "RUST_BACKTRACE"] {
        command.env_remove(variable);
    }
    command.env("PERIHELION_CACHE_DIR", "off").envs(variables.iter().copied());
    let child = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let written = Written { output: text(&child.stdout), errors: text(&child.stderr) };
    assert_eq!(child.status.code(), Some(BODY_RAN), "{name}: {}\n{}", written.output, written.errors);
    written
}

/// Whether this process is a child of [`in_child`].
pub fn is_child() -> bool {
    env::var_os(BODY).is_some()
}
