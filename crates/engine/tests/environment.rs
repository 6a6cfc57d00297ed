//! What `PERIHELION_DEBUG` and crashes do to a process: each test runs this program again, as a child.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::Arc;

use graph::Graph;
use perihelion_engine::{
    AssertLevel, Call, DebugConfig, Device, InferenceSession, Kernel, NodeTypes, PackError, PackedWeight,
    ReferenceDevice,
};
use tensor::{Buffer, Tensor};

/// Says which part a child plays; tests that are none pass.
const ROLE: &str = "PERIHELION_TEST_ROLE";

/// Runs a test of this program alone, as a child.
fn child(test: &str, debug: Option<&str>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, test);
    command.env_remove("PERIHELION_DEBUG").env_remove("RUST_BACKTRACE");
    command.envs(debug.map(|debug| ("PERIHELION_DEBUG", debug)));
    command.output().unwrap()
}

fn is_child(test: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == test)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn session(device: impl Device + 'static) -> Result<InferenceSession, perihelion_engine::Error> {
    InferenceSession::new([Arc::new(device) as Arc<dyn Device>])
}

#[test]
fn child_with_options() {
    if !is_child("child_with_options") {
        return;
    }
    let process = DebugConfig::process();
    // The environment is below what the process sets, which is below what a session sets.
    assert!(process.nan_check() && process.source_tracebacks());
    assert_eq!(process.assert_level(), Some(AssertLevel::Warn), "single options win over `sensible`");
    let session = session(ReferenceDevice).unwrap();
    assert!(session.debug().nan_check() && session.kernel_settings().nan_check);
    process.set_nan_check(false);
    assert!(!session.debug().nan_check());
    session.debug().set_nan_check(true);
    assert!(session.debug().nan_check());
    session.debug().reset();
    assert!(!session.debug().nan_check());
    process.reset();
    assert!(session.debug().nan_check());
}

#[test]
fn the_environment_yields_to_the_process_and_that_to_sessions() {
    let output = child("child_with_options", Some("assert-level=warn,nap-check,sensible,assert-level=warn"));
    assert!(output.status.success(), "{}", errors(&output));
    let warning = "warning: PERIHELION_DEBUG names `nap-check`, which is no debug option\n";
    assert_eq!(errors(&output), warning, "once, though it is read often");
}

#[test]
fn child_with_a_wrong_option() {
    if !is_child("child_with_a_wrong_option") {
        return;
    }
    let error = session(ReferenceDevice).expect_err("a wrong option").to_string();
    let expected = "the PERIHELION_DEBUG assert-level is `loud`, expected one of none, warn, safe, all";
    assert_eq!(error, expected);
}

#[test]
fn values_that_options_cannot_have_stop_sessions() {
    let output = child("child_with_a_wrong_option", Some("assert-level=loud"));
    assert!(output.status.success(), "{}", errors(&output));
}

/// A device whose kernels panic.
struct Crashing;

impl Device for Crashing {
    fn name(&self) -> &str {
        "crashing"
    }

    fn target(&self) -> String {
        "crashing".to_string()
    }

    fn kernel(&self, _node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        Some(Arc::new(CrashingKernel))
    }

    fn packing(&self, _node: &NodeTypes<'_>, _position: usize) -> Option<String> {
        None
    }

    fn pack(&self, layout: &str, _weight: &Tensor) -> Result<PackedWeight, PackError> {
        Err(PackError::Unfit(format!("{layout} is no layout")))
    }

    fn parallel_for(&self, chunks: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..chunks).for_each(body);
    }
}

struct CrashingKernel;

impl Kernel for CrashingKernel {
    fn name(&self) -> String {
        "crash".to_string()
    }

    fn run(&self, _call: Call<'_, '_>) -> Result<(), String> {
        panic!("the kernel crashed")
    }
}

#[test]
fn child_that_crashes() {
    if !is_child("child_that_crashes") {
        return;
    }
    let graph = Graph::parse("graph g(%x: f32[n]) { %y = neg(%x) return %y }").unwrap();
    let model = session(Crashing).unwrap().load(&graph, &()).unwrap();
    let call = || model.execute(&[Buffer::from_slice([1], &[1f32])]).map(drop);
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    eprintln!("after the call");
    // Panics of others print none.
    assert!(catch_unwind(|| panic!("no kernel")).is_err());
}

#[test]
fn crashes_of_calls_print_a_stack_where_asked() {
    const HEAD: &str = "stack trace of the crash:\n";
    let output = child("child_that_crashes", Some("stack-trace-on-crash"));
    let text = errors(&output);
    assert!(output.status.success(), "{text}");
    let (during, after) = text.split_once("after the call").expect("the child says so");
    let (_, stack) = during.split_once(HEAD).unwrap_or_else(|| panic!("no stack in {text}"));
    assert!(stack.contains("CrashingKernel"), "{stack}");
    assert!(after.contains("no kernel") && !after.contains(HEAD), "{after}");
    let output = child("child_that_crashes", None);
    assert!(output.status.success() && !errors(&output).contains(HEAD), "{}", errors(&output));
}
