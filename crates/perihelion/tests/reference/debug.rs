//! "Models, graphs, debugging": what `DebugConfig` checks, writes and stops, and which of its three layers wins.

use std::fs;

use perihelion::driver::{DType, cpu};
use perihelion::engine::{
    AssertLevel, DebugConfig, Error, InferenceSession, PrintStyle, UninitializedReadMode,
};
use perihelion::graph::{Builder, Graph, SourceLocation, Type, dims};

use crate::support::{compiler, folder, in_child, load_unfused, message, parse, root, run, session};

#[test]
fn nan_check_names_the_first_step_that_makes_one() {
    let session = session();
    let before = load_unfused(&session, &root());
    session.debug().set_nan_check(true);
    let model = load_unfused(&session, &root());
    assert_eq!(
        message(run(&model, &[-1.0, 4.0])),
        "step 1, sqrt: result 0, f32[2], is NaN at [1] (1 NaN, 0 Inf)"
    );
    assert_eq!(run(&model, &[0.0]).unwrap(), [1.0]);
    assert!(run(&before, &[4.0]).unwrap()[0].is_nan(), "what was compiled before stays as it is");
}

/// Ops that do not write their result, and that write only the first element.
const LAZY: &str = r#"
    use perihelion_extension::{Call, Op, Operand, Types, extension};

    struct Lazy;

    impl Op for Lazy {
        const NAME: &'static str = "lazy";
        const OPERANDS: &'static [Operand] = &[Operand::tensor("x")];

        fn infer(types: &mut Types<'_>) -> Result<(), String> {
            types.set_like(0, 0)
        }

        fn run(call: &mut Call<'_>) -> Result<(), String> {
            call.result::<f32>(0)?[0] = 1.0;
            Ok(())
        }
    }

    extension! { name: "lazy", version: "0", ops: [Lazy] }
"#;

#[test]
fn uninitialized_reads_fail_or_are_reported() {
    const TEST: &str = "debug::uninitialized_reads_fail_or_are_reported";
    let Some(compiler) = compiler() else { return };
    let source = folder("lazy").join("lazy.rs");
    fs::write(&source, LAZY).unwrap();
    let extensions = perihelion::engine::Extensions::load_all_with([&source], &compiler).unwrap();
    let graph = |after: &str| {
        let node = "custom(%x) {op = lazy, results = [f32[n]]}";
        parse(&format!("graph g(%x: f32[n]) {{ %a = {node} {after} }}"))
    };
    let load = |mode: UninitializedReadMode, graph: &Graph| {
        let builder = InferenceSession::builder().custom_extensions(extensions.clone());
        let session = builder.compile_cache(None).build().unwrap();
        session.debug().set_uninitialized_read_check(true);
        session.debug().set_uninitialized_read_mode(mode);
        load_unfused(&session, graph)
    };
    let (read, output) = (graph("%y = neg(%a) return %y"), graph("return %a"));
    let report = in_child(TEST, "report", &[], || {
        run(&load(UninitializedReadMode::Report, &read), &[1.0, 2.0]).unwrap();
    });
    let abort = load(UninitializedReadMode::Abort, &read);
    let unwritten = "reads element 1 of operand 0, f32[2], which no step wrote";
    assert_eq!(message(run(&abort, &[1.0, 2.0])), format!("step 1, neg: {unwritten}"));
    assert_eq!(run(&abort, &[1.0]).unwrap(), [-1.0], "all was written");
    let error = message(run(&load(UninitializedReadMode::Abort, &output), &[1.0, 2.0]));
    assert_eq!(error, "output 0: element 1 of f32[2] was never written");
    assert_eq!(report.errors.lines().count(), 1, "{}", report.errors);
    assert!(report.errors.contains(&format!("WARN perihelion::check: {unwritten}")), "{}", report.errors);
}

#[test]
fn source_tracebacks_name_the_line_that_built_an_op() {
    let session = session();
    session.debug().set_nan_check(true);
    let mut b = Builder::new("g");
    let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    let line = line!() + 1;
    let y = b.sqrt(x).unwrap();
    let graph = b.finish(&[y]).unwrap();
    let plain = "step 0, sqrt: result 0, f32[1], is NaN at [0] (1 NaN, 0 Inf)";
    assert_eq!(message(run(&session.load(&graph, &()).unwrap(), &[-1.0])), plain);
    session.debug().set_source_tracebacks(true);
    let error = message(run(&session.load(&graph, &()).unwrap(), &[-1.0]));
    assert!(
        error.starts_with(plain) && error.contains(&format!(" (built at {}:{line}:", file!())),
        "{error}"
    );
    let mut b = Builder::new("g");
    b.set_location(Some(SourceLocation::Other { file: "model.py".into(), line: 3, column: None }));
    let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    let y = b.sqrt(x).unwrap();
    let model = session.load(&b.finish(&[y]).unwrap(), &()).unwrap();
    assert_eq!(message(run(&model, &[-1.0])), format!("{plain} (built at model.py:3)"));
}

#[test]
fn errors_carry_the_stack_of_the_caller_if_asked() {
    let session = session();
    session.debug().set_nan_check(true);
    let model = load_unfused(&session, &root());
    assert!(matches!(run(&model, &[1.0]), Err(Error::Step { step: 1, .. })));
    session.debug().set_stack_trace_on_error(true);
    let error = run(&model, &[1.0]).unwrap_err();
    assert!(matches!(&error, Error::Traced { error, .. } if matches!(**error, Error::Step { step: 1, .. })));
    assert!(error.to_string().contains("errors_carry_the_stack_of_the_caller_if_asked"), "{error}");
}

#[test]
fn compiling_writes_each_pass_and_stops_before_kernels_if_asked() {
    let (session, folder) = (session(), folder("passes"));
    session.debug().set_ir_output_dir(&folder);
    session.compile(&root()).unwrap();
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("root.00.input.graph"), root().to_string());
    assert!(read("root.01.inline_calls.graph").starts_with("graph root("));
    assert!(read("root.plan.txt").starts_with("plan root on cpu"));
    session.debug().set_pre_jit(true);
    let stopped = "compiling `root` stopped after its passes, because the debug option `pre_jit` is set";
    assert_eq!(message(session.compile(&root())), stopped);
}

#[test]
fn device_sync_mode_and_print_style_act_at_once() {
    let (session, sink) = (session(), crate::support::Sink::default());
    session.set_print_sink(sink.clone());
    let mut b = Builder::new("g");
    let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    b.print(x, "x").unwrap();
    let model = session.load(&b.finish(&[x]).unwrap(), &()).unwrap();
    session.debug().set_device_sync_mode(true);
    session.debug().set_print_style(PrintStyle::Full);
    assert_eq!(run(&model, &[2.0]).unwrap(), [2.0]);
    assert_eq!(sink.take(), "x = tensor<1xf32> [2.000000e+00]\n");
    session.debug().reset();
    run(&model, &[2.0]).unwrap();
    assert!(sink.take().starts_with("x = tensor([["));
    assert!(!session.debug().device_sync_mode());
}

#[test]
fn sensible_mode_turns_on_the_checks_and_later_settings_win() {
    let session = InferenceSession::new([cpu()]).unwrap();
    let debug = session.debug();
    debug.sensible_mode();
    assert!(debug.nan_check() && debug.device_sync_mode() && debug.source_tracebacks());
    assert!(debug.stack_trace_on_error() && debug.stack_trace_on_crash());
    assert_eq!(debug.assert_level(), Some(AssertLevel::All));
    assert!(!debug.uninitialized_read_check() && !debug.pre_jit());
    assert!(run(&load_unfused(&session, &root()), &[1.0]).is_err());
    debug.set_nan_check(false);
    debug.set_assert_level(AssertLevel::Safe);
    assert!(run(&load_unfused(&session, &root()), &[1.0]).unwrap()[0].is_nan());
    debug.reset();
    assert!(!debug.device_sync_mode() && debug.assert_level().is_none());
}

#[test]
fn sessions_override_the_process_and_the_process_the_environment() {
    const TEST: &str = "debug::sessions_override_the_process_and_the_process_the_environment";
    // Whether √-1 fails the call.
    let fails = |session: &InferenceSession| run(&load_unfused(session, &root()), &[1.0]).is_err();
    let variables = [("PERIHELION_DEBUG", "assert-level=warn,nap-check,sensible,assert-level=warn")];
    let written = in_child(TEST, "layers", &variables, || {
        let [one, other] = [(); 2].map(|()| InferenceSession::new([]).unwrap());
        assert_eq!(other.kernel_settings().assert_level, AssertLevel::Warn, "the later one of two wins");
        assert!(other.debug().source_tracebacks(), "as `sensible` says");
        assert!(fails(&one) && fails(&other), "the environment");
        DebugConfig::process().set_nan_check(false);
        assert!(!fails(&one) && !fails(&other), "the process");
        one.debug().set_nan_check(true);
        assert!(fails(&one) && !fails(&other), "one session");
        one.debug().reset();
        assert!(!fails(&one));
        DebugConfig::process().reset();
        assert!(fails(&one) && fails(&other));
    });
    let wrong = in_child(TEST, "wrong", &[("PERIHELION_DEBUG", "assert-level=loud")], || {
        let expected = "the PERIHELION_DEBUG assert-level is `loud`, expected one of none, warn, safe, all";
        assert_eq!(message(InferenceSession::new([])), expected);
    });
    assert_eq!(written.errors.lines().count(), 1, "{}", written.errors);
    assert!(written.errors.contains("PERIHELION_DEBUG names `nap-check`"), "{}", written.errors);
    assert_eq!(wrong.errors, "");
}
