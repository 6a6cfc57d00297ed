//! "Kernels and checks": what the settings of a session change in what the CPU computes, checks and logs.

use perihelion::driver::{Buffer, DType, Element, Tensor, bf16, f16};
use perihelion::engine::{AssertLevel, InferenceSession, LogLevel, SplitKReductionPrecision};
use perihelion::graph::{Builder, Graph, Type, dims};

use crate::support::{FAULTY, extensions, in_child, load_unfused, message, parse, root, run, session};

/// `x · wᵀ` of f32, and `a · b`.
fn products() -> Graph {
    parse(
        r#"graph products(%x: f32[n, 4], %a: f32[n, 4], %b: f32[4, 1]) {
             %w = weight "w" : f32[2, 4]
             %y = linear(%x, %w)
             %z = matmul(%a, %b)
             return %y, %z
           }"#,
    )
}

/// Both products of rows of four, with weights whose scale is 2.
fn multiply(session: &InferenceSession, rows: &[f32]) -> [Vec<f32>; 2] {
    let w = |_: &str| Some(Tensor::from_slice([2, 4], &[896f32, 2.0, 2.0, 2.0, 0.0, 34.0, 0.0, 2.0]));
    let model = session.load(&products(), &w).unwrap();
    let (x, b) = (
        Buffer::from_slice([rows.len() / 4, 4], rows),
        Buffer::from_slice([4, 1], &[448f32, 17.0, 0.0, 19.0]),
    );
    let outputs = model.execute(&[x.clone(), x, b]).unwrap();
    [0, 1].map(|output| outputs[output].to_vec())
}

#[test]
fn fp8_products_round_to_eight_bits_with_one_scale_per_tensor() {
    let session = session();
    let row = [448f32, 17.0, 19.0, 1.1];
    let exact = multiply(&session, &row);
    session.enable_per_tensor_fp8_quantize("on");
    // f8e4m3 has three bits behind the leading one, so with a scale of 1, 17 becomes 16, 19 becomes 20 and 1.1 becomes
    // 1.125. The weights are divided by 2, where 34 / 2 becomes 16, and the sums multiplied by it.
    let [linear, matmul] = multiply(&session, &row);
    assert_eq!(linear, [2.0 * (448.0 * 448.0 + 16.0 + 20.0 + 1.125), 2.0 * (16.0 * 16.0 + 1.125)]);
    assert_eq!(matmul, [448.0 * 448.0 + 16.0 * 16.0 + 1.125 * 20.0]);
    assert!(exact[0] != linear && exact[1] != matmul);
    // The scale of a tensor is that of all its rows: a row alone is rounded less.
    let small = [1.1f32; 4];
    let [both, _] = multiply(&session, &[row, small].concat());
    let [alone, _] = multiply(&session, &small);
    assert_eq!(both[2..], [2.0 * 1.125 * 451.0, 2.0 * 1.125 * 17.0]);
    let scale = 1.1f32 / 448.0;
    assert_eq!(alone, [451.0, 17.0].map(|sum: f32| 448.0 * sum * (scale * 2.0)));
    session.enable_per_tensor_fp8_quantize("off");
    assert_eq!(multiply(&session, &row), exact);
}

/// A product of three times 512 terms, whose partial sums are `large + 1`.
fn thirds<T: Element + Copy>(session: &InferenceSession, large: T, one: T, zero: T) -> Vec<T> {
    let mut b = Builder::new("g");
    let x = b.input("x", Type::new(T::DTYPE, dims!["m", "k"]));
    let w = b.input("w", Type::new(T::DTYPE, dims!["k", "n"]));
    let y = b.matmul(x, w).unwrap();
    let graph = b.finish(&[y]).unwrap();
    let mut w = vec![zero; 3 * 512];
    for part in 0..3 {
        // In the first and the second half of each part.
        (w[512 * part], w[512 * part + 300]) = (large, one);
    }
    let inputs = [Buffer::from_slice([1, 3 * 512], &[one; 3 * 512]), Buffer::from_slice([3 * 512, 1], &w)];
    session.load(&graph, &()).unwrap().execute(&inputs).unwrap()[0].to_vec()
}

#[test]
fn partial_sums_of_512_terms_are_rounded_if_asked() {
    let session = session();
    let halves = |session: &InferenceSession| {
        let wide = thirds(session, bf16::from_f32(256.0), bf16::ONE, bf16::ZERO)[0].to_f32();
        let half = thirds(session, f16::from_f32(2048.0), f16::ONE, f16::ZERO)[0].to_f32();
        [wide, half, thirds(session, 256f32, 1.0, 0.0)[0]]
    };
    // 771 and 6147 are rounded once.
    let accumulated = [772.0, 6148.0, 771.0];
    assert_eq!(halves(&session), accumulated);
    session.set_split_k_reduction_precision("OUTPUT").unwrap();
    // 257 and 2049 are rounded three times; f32 stays as it is.
    assert_eq!(halves(&session), [768.0, 6144.0, 771.0]);
    session.set_split_k_reduction_precision(SplitKReductionPrecision::Accum).unwrap();
    assert_eq!(halves(&session), accumulated);
}

#[test]
fn each_top_k_kernel_gives_the_same_bits() {
    const N: usize = 2000;
    let x = [0.5f32, -0.0, f32::INFINITY, 3.0, 3.0, -7.0, 0.0, 3.0, 1e-40];
    let graph = parse("graph g(%x: f32[2, n]) { %v, %i = top_k(%x) {k = 5, axis = 1} return %v, %i }");
    // At the start of one row and at the end of another.
    let others = |count: usize| std::iter::repeat_n(f32::NEG_INFINITY, count);
    let first = x.iter().copied().chain(others(N - 9));
    let rows: Vec<f32> = first.chain(others(N - 9)).chain(x.iter().rev().copied()).collect();
    let check = |session: &InferenceSession, name: &str, sorts: bool| {
        let model = session.load(&graph, &()).unwrap();
        let kernels = model.kernel_summaries();
        let kernel = &kernels[0].0;
        assert!(kernel.starts_with(name) && kernel.ends_with(".sort") == sorts, "{kernels:?}");
        let outputs = model.execute(&[Buffer::from_slice([2, N], &rows)]).unwrap();
        let values: Vec<u32> = outputs[0].to_vec::<f32>().iter().map(|value| value.to_bits()).collect();
        (values, outputs[1].to_vec::<i64>())
    };
    let session = session();
    let expected = check(&session, "top_k[f32]", false);
    let inf = f32::INFINITY;
    assert_eq!(
        expected.0,
        [inf, 3.0, 3.0, 3.0, 0.5].repeat(2).iter().map(|v| v.to_bits()).collect::<Vec<_>>()
    );
    let second = [6, 1, 4, 5, 8].map(|i| i + N as i64 - 9);
    assert_eq!(expected.1[..5], [2, 3, 4, 7, 0], "the first of equals comes first");
    assert_eq!(expected.1[5..], second, "the first of equals comes first");
    session.use_fi_topk_kernel("on");
    assert_eq!(check(&session, "bounded_top_k[f32]", false), expected);
    session.use_old_top_k_kernel("on");
    assert_eq!(check(&session, "top_k[f32]", true), expected, "whatever `use_fi_topk_kernel` says");
    session.use_fi_topk_kernel("off");
    assert_eq!(check(&session, "top_k[f32]", true), expected);
    session.use_old_top_k_kernel("off");
    assert_eq!(check(&session, "top_k[f32]", false), expected);
}

#[test]
fn four_words_turn_settings_off_and_all_others_on() {
    type Set = fn(&InferenceSession, &str);
    let setters: [(&str, Set); 3] = [
        ("per_tensor_fp8_quantize = true", |session, word| session.enable_per_tensor_fp8_quantize(word)),
        ("fi_top_k = true", |session, word| session.use_fi_topk_kernel(word)),
        ("old_top_k = true", |session, word| session.use_old_top_k_kernel(word)),
    ];
    let (session, graph) = (session(), root());
    for (shown, set) in setters {
        for (word, on) in [("on", true), ("false", false), ("", true), ("OFF", false), ("nope", true)] {
            set(&session, word);
            assert_eq!(session.compile(&graph).unwrap().to_string().contains(shown), on, "{shown}: {word}");
        }
        for (word, on) in [("No", false), ("1", true), ("0", false)] {
            set(&session, word);
            assert_eq!(session.compile(&graph).unwrap().to_string().contains(shown), on, "{shown}: {word}");
        }
    }
}

#[test]
fn environment_variables_set_what_sessions_start_with() {
    const TEST: &str = "kernels::environment_variables_set_what_sessions_start_with";
    let variables = [
        ("ENABLE_PER_TENSOR_FP8_QUANTIZE", "1"),
        ("USE_FI_TOPK_KERNEL", "yes"),
        ("USE_OLD_TOP_K_KERNEL", "off"),
        ("PERIHELION_ENABLE_PROFILING", "detailed"),
    ];
    let written = in_child(TEST, "settings", &variables, || {
        let session = InferenceSession::new([]).unwrap();
        eprintln!("{}", session.kernel_settings());
        session.gpu_profiling("off").unwrap();
        eprintln!("{}", session.kernel_settings());
    });
    let wrong = in_child(TEST, "wrong", &[("PERIHELION_ENABLE_PROFILING", "loud")], || {
        eprintln!("{}", message(InferenceSession::new([])));
    });
    let expected = "per_tensor_fp8_quantize = true, profiling = detailed, fi_top_k = true\n\
                    per_tensor_fp8_quantize = true, fi_top_k = true\n";
    assert_eq!(written.errors, expected);
    let expected = "the PERIHELION_ENABLE_PROFILING is `loud`, expected one of off, on, detailed\n";
    assert_eq!(wrong.errors, expected);
}

/// A graph, its inputs, and its first output if indices out of range are clamped.
struct Case {
    graph: Graph,
    inputs: Vec<Buffer>,
    clamped: Vec<f32>,
}

/// Every op that takes indices, with some out of range.
fn out_of_range() -> Vec<Case> {
    let four = || Buffer::from_slice([4], &[1f32, 2.0, 3.0, 4.0]);
    let five = || Buffer::from_slice([5], &[1f32, 2.0, 3.0, 4.0, 5.0]);
    let case = |text: &str, inputs: Vec<Buffer>, clamped: &[f32]| Case {
        graph: parse(text),
        inputs,
        clamped: clamped.to_vec(),
    };
    let mut cases = vec![
        case(
            "graph gather(%x: f32[4], %i: i64[n]) { %y = gather(%x, %i) {axis = 0} return %y }",
            vec![four(), Buffer::from_slice([4], &[-9i64, -1, 1, 7])],
            &[1.0, 4.0, 2.0, 4.0],
        ),
        case(
            "graph gather_nd(%x: f32[2, 2], %i: i64[2]) { %y = gather_nd(%x, %i) return %y }",
            vec![Buffer::from_slice([2, 2], &[1f32, 2.0, 3.0, 4.0]), Buffer::from_slice([2], &[4i64, -9])],
            &[3.0],
        ),
        case(
            "graph scatter(%x: f32[4], %u: f32[2], %i: i64[2]) {
               %y = scatter(%x, %u, %i) {axis = 0} return %y
             }",
            vec![four(), Buffer::from_slice([2], &[8f32, 9.0]), Buffer::from_slice([2], &[7i64, -7])],
            &[9.0, 2.0, 3.0, 8.0],
        ),
        case(
            "graph scatter_nd(%x: f32[2, 2], %u: f32[], %i: i64[2]) {
               %y = scatter_nd(%x, %u, %i) return %y
             }",
            vec![
                Buffer::from_slice([2, 2], &[1f32, 2.0, 3.0, 4.0]),
                Buffer::from_slice([], &[8f32]),
                Buffer::from_slice([2], &[5i64, -5]),
            ],
            &[1.0, 2.0, 8.0, 4.0],
        ),
        case(
            "graph load_slice(%x: mut f32[5], %start: i64[1]) {
               %y = load_slice(%x, %start) {shape = [3], steps = [2]} return %y
             }",
            vec![five(), Buffer::from_slice([1], &[4i64])],
            &[1.0, 3.0, 5.0],
        ),
        case(
            "graph store_slice(%x: mut f32[5], %new: f32[2], %start: i64[1]) {
               store_slice(%x, %new, %start) {steps = [1]} %y = load(%x) return %y
             }",
            vec![five(), Buffer::from_slice([2], &[7f32, 8.0]), Buffer::from_slice([1], &[4i64])],
            &[1.0, 2.0, 3.0, 7.0, 8.0],
        ),
    ];
    for (start, clamped) in [(9, [3.0, 5.0]), (3, [3.0, 5.0]), (-1, [3.0, 5.0]), (-9, [1.0, 3.0])] {
        cases.push(case(
            "graph dynamic_slice(%x: f32[5], %start: i32[]) {
               %step = constant [2] : i32[]
               %y = dynamic_slice(%x, %start, %step) {axis = 0, size = [2]}
               return %y
             }",
            vec![five(), Buffer::from_slice([], &[start])],
            &clamped,
        ));
    }
    cases
}

impl Case {
    fn run(&self, session: &InferenceSession) -> Result<Vec<f32>, String> {
        let model = load_unfused(session, &self.graph);
        let outputs = model.execute(&self.inputs).map_err(|error| error.to_string())?;
        Ok(outputs[0].to_vec())
    }
}

#[test]
fn indices_out_of_range_fail_at_safe_and_all() {
    for level in [None, Some(AssertLevel::Safe), Some(AssertLevel::All)] {
        let session = session();
        level.into_iter().for_each(|level| session.set_mojo_assert_level(level));
        for case in out_of_range() {
            let name = case.graph.name();
            let error = case.run(&session).expect_err(name);
            assert!(error.starts_with("step ") && error.contains(&format!(", {name}: ")), "{error}");
        }
    }
}

#[test]
fn indices_out_of_range_are_clamped_at_none_and_warn() {
    let session = session();
    for level in [AssertLevel::None, AssertLevel::Warn] {
        session.set_mojo_assert_level(level);
        for case in out_of_range() {
            assert_eq!(case.run(&session).as_ref(), Ok(&case.clamped), "{level}: {}", case.graph);
        }
    }
    let model = session.load(&out_of_range()[0].graph, &()).unwrap();
    session.debug().set_assert_level(AssertLevel::Safe);
    assert_eq!(session.kernel_settings().assert_level, AssertLevel::Safe, "the same setting");
    assert!(model.execute(&out_of_range()[0].inputs).is_ok(), "a compiled model stays as it is");
    assert!(out_of_range()[0].run(&session).is_err(), "the next compile does not");
}

#[test]
fn clamping_warns_on_standard_error_at_warn_only() {
    const TEST: &str = "kernels::clamping_warns_on_standard_error_at_warn_only";
    let clamp = |level: AssertLevel| {
        let session = InferenceSession::new([]).unwrap();
        session.set_mojo_assert_level(level);
        out_of_range().iter().for_each(|case| assert_eq!(case.run(&session).unwrap(), case.clamped));
    };
    let none = in_child(TEST, "none", &[], || clamp(AssertLevel::None));
    let warn = in_child(TEST, "warn", &[], || clamp(AssertLevel::Warn));
    let silenced = in_child(TEST, "silenced", &[("PERIHELION_LOG", "error")], || clamp(AssertLevel::Warn));
    assert_eq!((&none.errors[..], &silenced.errors[..]), ("", ""));
    let lines: Vec<&str> = warn.errors.lines().map(str::trim_start).collect();
    let ops = out_of_range().iter().map(|case| case.graph.name().to_string()).collect::<Vec<_>>();
    assert_eq!(lines.len(), ops.len(), "{lines:?}");
    for (line, op) in lines.iter().zip(ops) {
        let start = "WARN perihelion::check: indices out of range were clamped";
        assert!(line.starts_with(start) && line.contains(&format!("op=\"{op}\"")), "{line}");
    }
}

#[test]
fn outputs_must_be_finite_at_all() {
    let session = session();
    let before = load_unfused(&session, &root());
    session.set_mojo_assert_level(AssertLevel::All);
    let model = load_unfused(&session, &root());
    assert_eq!(message(run(&model, &[0.0, 4.0])), "output 0: f32[2] is NaN or infinite at [1]");
    assert_eq!(message(run(&model, &[-1e9])), "output 0: f32[1] is NaN or infinite at [0]");
    assert_eq!(run(&model, &[0.0]).unwrap(), [1.0]);
    assert!(run(&before, &[4.0]).unwrap()[0].is_nan());
}

#[test]
fn ops_of_libraries_may_not_write_beyond_their_results_at_all() {
    let Some(extensions) = extensions(&[FAULTY]) else { return };
    let session = InferenceSession::builder().custom_extensions(extensions).build().unwrap();
    session.set_mojo_assert_level(AssertLevel::All);
    let around = |op: &str| {
        let node = format!("custom(%a) {{op = {op}, results = [f32[n]]}}");
        parse(&format!("graph g(%x: f32[n]) {{ %a = neg(%x) %b = {node} %y = neg(%b) return %y }}"))
    };
    for op in ["overruns", "underruns", "scribbles"] {
        let error = message(run(&session.load(&around(op), &()).unwrap(), &[1.0; 3]));
        assert!(error.starts_with(&format!("step 1, custom: `{op}` of faulty 0: ")), "{error}");
    }
    let panics = session.load(&around("panics"), &()).unwrap();
    assert_eq!(run(&panics, &[-1.0, -2.0]).unwrap(), [-2.0, -4.0], "an op that writes its result alone");
}

#[test]
fn log_levels_choose_what_models_log() {
    const TEST: &str = "kernels::log_levels_choose_what_models_log";
    let written = in_child(TEST, "levels", &[], || {
        let (quiet, session) = (InferenceSession::new([]).unwrap(), InferenceSession::new([]).unwrap());
        for level in LogLevel::MEMBERS {
            session.set_mojo_log_level(*level).unwrap();
            let (model, other) = (load_unfused(&session, &root()), load_unfused(&quiet, &root()));
            eprintln!("== {level}");
            run(&model, &[-1.0]).unwrap();
            // A failed call, and one of a session with the default level, which logs nothing.
            model.execute(&[Buffer::zeros(DType::F16, [1])]).unwrap_err();
            run(&other, &[-1.0]).unwrap();
        }
        session.set_mojo_log_level("NOTSET").unwrap();
        session.debug().set_op_log_level(LogLevel::Info);
        let model = load_unfused(&session, &root());
        eprintln!("== ops");
        run(&model, &[-1.0]).unwrap();
    });
    let parts: Vec<&str> = written.errors.split("== ").skip(1).collect();
    assert_eq!(parts.len(), LogLevel::MEMBERS.len() + 1, "{}", written.errors);
    let target = |level: &str, message: &str| format!("{level} perihelion::kernel: {message}");
    // A step, a call, sizes that are new, a call that fails.
    let events = [
        target("TRACE", "sqrt"),
        target("DEBUG", "call"),
        target("INFO", "new sizes"),
        target("ERROR", "input 0"),
    ];
    let shown = [
        ("NOTSET", [false, false, false, false]),
        ("TRACE", [true, true, true, true]),
        ("DEBUG", [false, true, true, true]),
        ("INFO", [false, false, true, true]),
        ("WARNING", [false, false, false, true]),
        ("ERROR", [false, false, false, true]),
        ("CRITICAL", [false, false, false, false]),
    ];
    for (part, (level, expected)) in parts.iter().zip(shown) {
        let (name, lines) = part.split_once('\n').unwrap();
        assert_eq!(name, level);
        let found = events.each_ref().map(|event| lines.contains(&event[..]));
        assert_eq!(found, expected, "{part}");
        assert!(!expected.iter().all(|shown| !shown) || lines.is_empty(), "{part}");
    }
    let ops: Vec<&str> = parts[7].lines().skip(1).map(str::trim_start).collect();
    assert_eq!(ops.len(), 3, "{}", written.errors);
    for (line, op) in ops.iter().zip(["neg", "sqrt", "exp"]) {
        assert!(line.starts_with(&format!("INFO perihelion::op: {op}")), "{line}");
    }
}

#[test]
fn perihelion_log_sets_what_is_shown_and_where_sessions_start() {
    const TEST: &str = "kernels::perihelion_log_sets_what_is_shown_and_where_sessions_start";
    let call = || {
        let session = InferenceSession::new([]).unwrap();
        run(&load_unfused(&session, &root()), &[-1.0]).unwrap();
    };
    let usual = in_child(TEST, "usual", &[], call);
    let debug = in_child(TEST, "debug", &[("PERIHELION_LOG", "warn,perihelion::kernel=debug")], call);
    let wrong = in_child(TEST, "wrong", &[("PERIHELION_LOG", "perihelion=loud")], || {
        eprintln!("{}", message(InferenceSession::new([])));
    });
    assert_eq!(usual.errors, "");
    assert!(debug.errors.contains("DEBUG perihelion::kernel: call model=\"root\""), "{}", debug.errors);
    assert!(
        wrong.errors.contains("perihelion=loud") && wrong.errors.contains("off, error"),
        "{}",
        wrong.errors
    );
}

#[test]
fn names_that_no_setting_has_are_refused_with_those_it_has() {
    let session = session();
    let check = |error: String, expected: &str| assert_eq!(error, expected);
    check(
        message(session.set_mojo_log_level("info")),
        "the log level is `info`, expected one of NOTSET, TRACE, DEBUG, INFO, WARNING, ERROR, CRITICAL",
    );
    check(
        message(session.set_debug_print_options("full", 6, None)),
        "the print style is `full`, expected one of COMPACT, FULL, BINARY, NONE, BINARY_MAX_CHECKPOINT",
    );
    check(
        message(session.set_split_k_reduction_precision("F32")),
        "the split-k reduction precision is `F32`, expected one of ACCUM, OUTPUT",
    );
    check(
        message(session.gpu_profiling("loud")),
        "the profiling mode is `loud`, expected one of off, on, detailed",
    );
    check(
        "ONE".parse::<AssertLevel>().unwrap_err().to_string(),
        "the assert level is `ONE`, expected one of NONE, WARN, SAFE, ALL",
    );
    for name in ["NOTSET", "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] {
        session.set_mojo_log_level(name).unwrap();
        assert_eq!(session.kernel_settings().log_level.to_string(), name);
    }
    for name in ["COMPACT", "FULL", "NONE"] {
        session.set_debug_print_options(name, 6, None).unwrap();
        assert_eq!(session.debug_print_options().style.to_string(), name);
    }
    for name in ["ACCUM", "OUTPUT"] {
        session.set_split_k_reduction_precision(name).unwrap();
        assert_eq!(session.kernel_settings().split_k_reduction_precision.to_string(), name);
    }
}
