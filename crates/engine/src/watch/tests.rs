//! What is found, logged, clamped, traced and waited for when settings ask.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use graph::ops::Unary;
use graph::{Graph, Type};
use tensor::{Buffer, DType, Tensor};
use tracing::field::{Field, Visit};

use super::*;
use crate::testing::{TestFolder, build, f32, reference_session};
use crate::{Call, Device, InferenceSession, Kernel, Marker, Model, NodeTypes, PackError, PackedWeight};

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

#[test]
fn the_first_nan_is_found() {
    let session = reference_session();
    let before = load(&session, &root());
    session.debug().set_nan_check(true);
    let error = run(&load(&session, &root()), &[-1.0, 4.0]).unwrap_err();
    assert_eq!(error, "step 1, sqrt: result 0, f32[2], is NaN at [1]");
    assert!(run(&before, &[4.0]).unwrap()[0].is_nan(), "what was compiled before stays as it is");
    session.debug().set_source_tracebacks(true);
    let error = run(&load(&session, &root()), &[4.0]).unwrap_err();
    assert!(error.contains(" (built at ") && error.contains(".rs:"), "{error}");
}

#[test]
fn the_highest_assert_level_asks_for_finite_outputs() {
    let session = reference_session();
    session.set_mojo_assert_level(AssertLevel::All);
    let error = run(&load(&session, &root()), &[-1e9]).unwrap_err();
    assert_eq!(error, "output 0: f32[1] is NaN or infinite at [0]");
}

#[test]
fn indices_out_of_range_fail_or_are_clamped() {
    let graph = build("rows", |b| {
        let table = b.constant(Tensor::from_slice([3], &[1f32, 2.0, 3.0]));
        let ids = b.input("ids", Type::new(DType::I32, [graph::Dim::symbol("n")]));
        Ok(vec![b.gather(table, ids, 0)?])
    });
    let session = reference_session();
    let ids = Buffer::from_slice([4], &[-9i32, -1, 1, 7]);
    let run = |model: &Model| model.execute(std::slice::from_ref(&ids)).map(|y| y[0].to_vec::<f32>());
    assert!(run(&load(&session, &graph)).unwrap_err().to_string().starts_with("step 0, gather: "));
    for (level, warnings) in [(AssertLevel::None, 0), (AssertLevel::Warn, 1)] {
        session.set_mojo_assert_level(level);
        let model = load(&session, &graph);
        let lines = logged(|| assert_eq!(run(&model).unwrap(), [1.0, 3.0, 2.0, 3.0]));
        assert_eq!(lines.len(), warnings, "{lines:?}");
    }
}

#[test]
fn all_ops_with_indices_fail_or_clamp() {
    // Of [1, 2, 3, 4] or [[1, 2], [3, 4]], with indices of which two are beyond it.
    let cases = [
        ("%y = gather_nd(%m, %i)", vec![4i64, -9], vec![3f32]),
        ("%y = scatter(%x, %u, %i) {axis = 0}", vec![7, -7], vec![9.0, 2.0, 3.0, 8.0]),
        ("%y = scatter_nd(%m, %s, %i)", vec![5, -5], vec![1.0, 2.0, 8.0, 4.0]),
    ];
    for (node, indices, expected) in cases {
        let text = format!(
            "graph g(%x: f32[4], %m: f32[2, 2], %u: f32[2], %s: f32[], %i: i64[2]) {{ {node} return %y }}"
        );
        let x = [1f32, 2.0, 3.0, 4.0];
        let inputs = [
            Buffer::from_slice([4], &x),
            Buffer::from_slice([2, 2], &x),
            Buffer::from_slice([2], &[8f32, 9.0]),
            Buffer::from_slice([], &[8f32]),
            Buffer::from_slice([2], &indices),
        ];
        check_levels(&Graph::parse(&text).unwrap(), &inputs, &expected);
    }
}

#[test]
fn starts_of_slices_fail_or_clamp() {
    let x = || Buffer::from_slice([5], &[1f32, 2.0, 3.0, 4.0, 5.0]);
    let window = "graph g(%x: f32[5], %start: i32[]) {
                    %step = constant [2] : i32[]
                    %y = dynamic_slice(%x, %start, %step) {axis = 0, size = [2]}
                    return %y
                  }";
    let window = Graph::parse(window).unwrap();
    for (start, expected) in [(9, [3.0, 5.0]), (3, [3.0, 5.0]), (-1, [3.0, 5.0]), (-9, [1.0, 3.0])] {
        check_levels(&window, &[x(), Buffer::from_slice([], &[start])], &expected);
    }
    let load = "graph g(%x: mut f32[5], %start: i64[1]) {
                  %y = load_slice(%x, %start) {shape = [3], steps = [2]}
                  return %y
                }";
    check_levels(&Graph::parse(load).unwrap(), &[x(), Buffer::from_slice([1], &[4i64])], &[1.0, 3.0, 5.0]);
    let store = "graph g(%x: mut f32[5], %new: f32[2], %start: i64[1]) {
                   store_slice(%x, %new, %start) {steps = [1]}
                   %y = load(%x)
                   return %y
                 }";
    let inputs = [x(), Buffer::from_slice([2], &[7f32, 8.0]), Buffer::from_slice([1], &[4i64])];
    check_levels(&Graph::parse(store).unwrap(), &inputs, &[1.0, 2.0, 3.0, 7.0, 8.0]);
}

/// A call fails at the usual level, and clamps at the lower ones, of which one warns.
fn check_levels(graph: &Graph, inputs: &[Buffer], expected: &[f32]) {
    let session = reference_session();
    assert!(load(&session, graph).execute(inputs).is_err(), "{graph}");
    for (level, warnings) in [(AssertLevel::None, 0), (AssertLevel::Warn, 1)] {
        session.set_mojo_assert_level(level);
        let model = load(&session, graph);
        let lines =
            logged(|| assert_eq!(model.execute(inputs).unwrap()[0].to_vec::<f32>(), expected, "{graph}"));
        assert_eq!(lines.len(), warnings, "{lines:?}");
    }
}

#[test]
fn logs_are_as_loud_as_asked() {
    let session = reference_session();
    let lines = |session: &InferenceSession| {
        let model = load(session, &root());
        logged(|| drop(run(&model, &[-1.0])))
    };
    assert!(lines(&session).is_empty());
    session.set_mojo_log_level("DEBUG").unwrap();
    let expected = ["DEBUG perihelion::kernel: call", "INFO perihelion::kernel: new sizes"];
    assert_eq!(lines(&session), expected);
    session.set_mojo_log_level("TRACE").unwrap();
    assert!(lines(&session).contains(&"TRACE perihelion::kernel: sqrt (reference)".to_string()));
    session.set_mojo_log_level("NOTSET").unwrap();
    session.debug().set_op_log_level(LogLevel::Info);
    assert_eq!(lines(&session), ["neg", "sqrt", "exp"].map(|op| format!("INFO perihelion::op: {op}")));
}

#[test]
fn compiling_can_be_watched_and_stopped() {
    let (session, folder) = (reference_session(), TestFolder::new("dumps"));
    session.debug().set_ir_output_dir(folder.path());
    session.compile(&root()).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("root.00.input.graph"), root().to_string());
    assert!(read("root.01.inline_calls.graph").starts_with("graph root("));
    assert!(read("root.plan.txt").starts_with("plan root on reference"));
    session.debug().set_pre_jit(true);
    let error = session.compile(&root()).unwrap_err().to_string();
    assert_eq!(error, "compiling `root` stopped after its passes, as the debug option `pre_jit` asks");
}

#[test]
fn errors_carry_the_stack() {
    let session = reference_session();
    session.debug().set_nan_check(true);
    session.debug().set_stack_trace_on_error(true);
    let model = load(&session, &root());
    let Err(error) = model.execute(&[Buffer::from_slice([1], &[1f32])]) else { panic!("NaN is found") };
    let Error::Traced { error, stack } = error else { panic!("a stack is attached: {error}") };
    assert!(matches!(*error, Error::Step { step: 1, .. }));
    assert_eq!(stack.status(), std::backtrace::BacktraceStatus::Captured);
}

#[test]
fn profiled_calls_are_traced_and_summed_up() {
    let (session, folder) = (reference_session(), TestFolder::new("profile"));
    let path = folder.path().join("trace.json");
    session.set_trace_file(&path);
    session.gpu_profiling("on").unwrap();
    let model = load(&session, &root());
    run(&model, &[-1.0]).unwrap();
    run(&model, &[-1.0]).unwrap();
    let counts: Vec<(String, usize)> =
        session.profile_summary().iter().map(|(name, count, _)| (name.to_string(), count)).collect();
    assert_eq!(counts, ["exp", "neg", "sqrt"].map(|op| (format!("{op} (reference)"), 2)));
    drop((session, model));
    let events: Vec<serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let ops = events.iter().filter(|event| event["cat"] == "op").count();
    assert_eq!((ops, events.len()), (6, 9));
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

    fn target(&self) -> String {
        "lazy".to_string()
    }

    fn kernel(&self, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        match node.op {
            graph::Op::Unary(Unary::Neg) => Some(Arc::new(Nothing)),
            graph::Op::Unary(Unary::Abs) => Some(Arc::new(InPlace)),
            _ => None,
        }
    }

    fn packing(&self, _node: &NodeTypes<'_>, _position: usize) -> Option<String> {
        None
    }

    fn pack(&self, layout: &str, _weight: &Tensor) -> Result<PackedWeight, PackError> {
        Err(PackError::Unfit(layout.to_string()))
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

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
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

    fn run(&self, _call: Call<'_, '_>) -> Result<(), String> {
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
