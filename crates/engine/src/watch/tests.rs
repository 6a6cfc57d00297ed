//! Uninitialized reads, and devices that are waited for and marked when settings ask.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use graph::Graph;
use graph::ops::Unary;
use tensor::Buffer;
use tracing::field::{Field, Visit};

use super::*;
use crate::testing::{TestFolder, build, f32};
use crate::{Device, InferenceSession, Kernel, KernelCall, Marker, Model, NodeTypes};

/// Notes events as `LEVEL target: message`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let metadata = event.metadata();
        let line = format!("{} {}: {}", metadata.level(), metadata.target(), message.0);
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

fn logged(body: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), body);
    let lines = log.0.lock().unwrap();
    lines.clone()
}

/// `√(-x)`: NaN where x is positive.
fn root() -> Graph {
    build("root", |b| {
        let x = b.input("x", f32(&["n"]));
        let minus = b.unary(Unary::Neg, x)?;
        let root = b.unary(Unary::Sqrt, minus)?;
        Ok(vec![b.unary(Unary::Exp, root)?])
    })
}

fn run(model: &Model, x: &[f32]) -> Result<Vec<f32>, String> {
    let x = Buffer::from_slice([x.len()], x);
    model.execute(&[x]).map(|y| y[0].to_vec()).map_err(|error| error.to_string())
}

fn load(session: &InferenceSession, graph: &Graph) -> Model {
    let options = crate::CompileOptions { passes: crate::Passes::None, ..Default::default() };
    session.init(&session.compile_with(graph, &options).unwrap(), &()).unwrap()
}

/// Has a kernel that leaves its result as it is and one that works in place, and counts what is asked of it.
#[derive(Default)]
struct Lazy {
    waits: AtomicUsize,
    marks: AtomicUsize,
}

impl Device for Lazy {
    fn name(&self) -> &str {
        "lazy"
    }

    fn kernel(&self, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        match node.op {
            graph::Op::Unary(Unary::Neg) => Some(Arc::new(Nothing)),
            graph::Op::Unary(Unary::Abs) => Some(Arc::new(InPlace)),
            _ => None,
        }
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn marker(&self) -> Option<&dyn Marker> {
        Some(self)
    }
}

impl Marker for Lazy {
    fn push(&self, _name: &str) {
        self.marks.fetch_add(1, Ordering::Relaxed);
    }

    fn pop(&self) {
        self.marks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Leaves the contents of its operand in its result.
struct InPlace;

impl Kernel for InPlace {
    fn name(&self) -> String {
        "in_place".to_string()
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        match &call.inputs[0] {
            Operand::View(view) => call.outputs[0].bytes.copy_from_slice(view.bytes),
            _ => assert!(matches!(call.inputs[0], Operand::InResult)),
        }
        Ok(())
    }
}

struct Nothing;

impl Kernel for Nothing {
    fn name(&self) -> String {
        "nothing".to_string()
    }

    fn run(&self, _call: KernelCall<'_, '_>) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn uninitialized_reads_are_found() {
    let device = Arc::new(Lazy::default());
    let session = InferenceSession::new([Arc::clone(&device) as Arc<dyn Device>]).unwrap();
    session.debug().set_uninitialized_read_check(true);
    let unwritten = "reads element 0 of operand 0, f32[2], which no step wrote";
    let error = run(&load(&session, &root()), &[1.0, 2.0]).unwrap_err();
    assert_eq!(error, format!("step 1, sqrt: {unwritten}"));
    session.debug().set_uninitialized_read_mode(UninitializedReadMode::Report);
    let model = load(&session, &root());
    let lines = logged(|| drop(run(&model, &[1.0, 2.0]).unwrap()));
    assert_eq!(lines, [format!("WARN perihelion::check: {unwritten}")]);
    let last = build("last", |b| {
        let x = b.input("x", f32(&["n"]));
        Ok(vec![b.unary(Unary::Neg, x)?])
    });
    session.debug().set_uninitialized_read_mode(UninitializedReadMode::Abort);
    let error = run(&load(&session, &last), &[1.0]).unwrap_err();
    assert_eq!(error, "output 0: element 0 of f32[1] was never written");
}

#[test]
fn uninitialized_reads_are_found_in_place_and_across_parts() {
    let session = InferenceSession::new([Arc::new(Lazy::default()) as Arc<dyn Device>]).unwrap();
    session.debug().set_uninitialized_read_check(true);
    let in_place = "graph g(%x: f32[n]) { %a = neg(%x) %b = abs(%a) %y = exp(%b) return %y }";
    let in_place = load(&session, &Graph::parse(in_place).unwrap());
    assert!(in_place.program().to_string().contains("in_place(%0 in place)"), "{}", in_place.program());
    let expected = "step 1, abs: reads element 0 of operand 0, f32[2], which no step wrote";
    assert_eq!(run(&in_place, &[1.0, 2.0]).unwrap_err(), expected);
    let behind = "graph g(%x: f32[n]) {
        %a = neg(%x)
        %p = constant [true] : bool[]
        %b = cond(%p, %a) {then = graph then(%x: f32[k]) { %y = exp(%x) return %y }, otherwise = @then}
        return %b
      }";
    let error = run(&load(&session, &Graph::parse(behind).unwrap()), &[1.0, 2.0]).unwrap_err();
    assert_eq!(error, "step 2, exp: reads element 0 of operand 0, f32[2], which no step wrote");
}

#[test]
fn devices_are_waited_for_and_marked_when_asked() {
    let device = Arc::new(Lazy::default());
    let session = InferenceSession::new([Arc::clone(&device) as Arc<dyn Device>]).unwrap();
    let model = load(&session, &root());
    let counts = |device: &Lazy| [&device.waits, &device.marks].map(|count| count.load(Ordering::Relaxed));
    run(&model, &[1.0]).unwrap();
    assert_eq!(counts(&device), [0, 0]);
    session.debug().set_device_sync_mode(true);
    run(&model, &[1.0]).unwrap();
    assert_eq!(counts(&device), [3, 0]);
    session.debug().set_device_sync_mode(false);
    let folder = TestFolder::new("marks");
    session.set_trace_file(folder.path().join("trace.json"));
    session.gpu_profiling("on").unwrap();
    run(&load(&session, &root()), &[1.0]).unwrap();
    assert_eq!(counts(&device), [3, 6]);
    session.write_trace().unwrap();
}
