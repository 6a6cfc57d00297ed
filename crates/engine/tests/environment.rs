//! What a crashing kernel does to a process with `PERIHELION_DEBUG`. The test runs this program again, as a child.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::Arc;

use graph::Graph;
use perihelion_engine::{Device, InferenceSession, Kernel, KernelCall, NodeTypes};
use tensor::Buffer;

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

/// A device whose kernels panic.
struct Crashing;

impl Device for Crashing {
    fn name(&self) -> &str {
        "crashing"
    }

    fn kernel(&self, _node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        Some(Arc::new(CrashingKernel))
    }
}

struct CrashingKernel;

impl Kernel for CrashingKernel {
    fn name(&self) -> String {
        "crash".to_string()
    }

    fn run(&self, _call: KernelCall<'_, '_>) -> Result<(), String> {
        panic!("the kernel crashed")
    }
}

#[test]
fn child_that_crashes() {
    if !is_child("child_that_crashes") {
        return;
    }
    let graph = Graph::parse("graph g(%x: f32[n]) { %y = neg(%x) return %y }").unwrap();
    let session = InferenceSession::new([Arc::new(Crashing) as Arc<dyn Device>]).unwrap();
    let model = session.load(&graph, &()).unwrap();
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
