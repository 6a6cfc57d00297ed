//! Ops of libraries within graphs on the CPU: built, checked, run, shadowed, saved and cached.

use std::fs;

use perihelion::driver::{Buffer, DType, Tensor};
use perihelion::engine::{Artifact, CompileCache, Extensions, InferenceSession};
use perihelion::graph::ops::{Attribute, Attributes};
use perihelion::graph::{Builder, Graph, Type, dims};
use testdata::repository;

use crate::support::{FAULTY, LEAKY, extensions as load, folder, message, run};

const EXACT: &str = "crates/extensions/tests/sources/exact.rs";
const SHADOW: &str = "crates/extensions/tests/sources/shadow.rs";

fn session(extensions: &Extensions) -> InferenceSession {
    let builder = InferenceSession::builder().custom_extensions(extensions.clone());
    builder.compile_cache(None).build().unwrap()
}

/// `neg(op(neg(x)))`, with sizes known when it runs.
fn around(op: &str) -> Graph {
    let text = format!(
        "graph around(%x: f32[n]) {{
           %a = neg(%x)
           %b = custom(%a) {{op = {op}, results = [f32[n]]}}
           %c = neg(%b)
           return %c
         }}"
    );
    Graph::parse(&text).unwrap()
}

#[test]
fn an_op_of_a_library_runs_between_ops_of_the_cpu() {
    let Some(extensions) = load(&[LEAKY]) else { return };
    let session = session(&extensions);
    let mut b = Builder::new("net");
    let x = b.input("x", Type::new(DType::F32, dims!["n"]));
    let slope = Attributes::default().with("slope", Attribute::Float(0.5));
    let y = b.custom(session.custom_extensions(), "leaky_relu", &[x], vec![b.ty(x).clone()], slope).unwrap();
    let z = b.add(y[0], x).unwrap();
    let graph = b.finish(&[z]).unwrap();
    let compiled = session.compile(&graph).unwrap();
    let plan = compiled.to_string();
    assert!(plan.contains("leaky_relu[leaky_relu 1.0]('x')"), "{plan}");
    let model = session.init(&compiled, &()).unwrap();
    for size in [0, 1, 5, 1000] {
        let x: Vec<f32> = (0..size).map(|i| i as f32 - 2.0).collect();
        let expected: Vec<f32> = x.iter().map(|&x| x + if x > 0.0 { x } else { 0.5 * x }).collect();
        assert_eq!(run(&model, &x).unwrap(), expected);
    }
    let again = session.load(&Graph::parse(&graph.to_string()).unwrap(), &()).unwrap();
    assert_eq!(run(&again, &[-2.0, 3.0]).unwrap(), [-3.0, 6.0]);
}

#[test]
fn nodes_in_text_are_checked_like_built_ones() {
    let Some(extensions) = load(&[LEAKY]) else { return };
    let session = session(&extensions);
    let check = |node: &str, expected: &str| {
        let text = format!("graph g(%x: f32[2], %b: mut f32[2]) {{ %y = {node} return %y }}");
        let error = message(session.compile(&Graph::parse(&text).unwrap()));
        assert_eq!(error, format!("compiling `g`: `leaky_relu` of leaky_relu 1.0: {expected}"));
    };
    let op = "op = leaky_relu, results = [f32[2]]";
    check(&format!("custom(%x, %x) {{{op}}}"), "takes 1 operands (x), got 2");
    check(&format!("custom(%x) {{{op}, slop = 1.0}}"), "there is no parameter `slop`");
    check(
        &format!("custom(%x) {{{op}, slope = steep}}"),
        "the parameter `slope` is steep, expected a finite f64",
    );
    let buffer = "operand 0 (x) is mut f32[2], expected a tensor";
    check(&format!("inplace_custom(%b) {{{op}, writes = [0]}}"), buffer);
    let lie = "result 0 is stated as f64[2], but it makes f32[2]";
    check("custom(%x) {op = leaky_relu, results = [f64[2]]}", lie);
}

#[test]
fn faulty_ops_fail_their_call_and_no_other() {
    let Some(extensions) = load(&[FAULTY]) else { return };
    let session = session(&extensions);
    let model = session.load(&around("panics"), &()).unwrap();
    let panicked = "step 1, custom: `panics` of faulty 0: it panicked: -1 is negative";
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(message(run(&model, &[1.0])), panicked);
                    assert_eq!(run(&model, &[-1.0, -2.0]).unwrap(), [-2.0, -4.0]);
                }
            });
        }
    });
    let lie = "compiling `around`: `lies_about_shape` of faulty 0: result 0 is stated as f32 with 1 axes, but it makes \
               f32[7, 7]";
    assert_eq!(message(session.compile(&around("lies_about_shape"))), lie);
    let refuses = session.load(&around("refuses"), &()).unwrap();
    assert_eq!(message(run(&refuses, &[1.0])), "step 1, custom: `refuses` of faulty 0: [1] is too much");
}

#[test]
fn wrong_result_dtypes_are_found_while_compiling() {
    let Some(extensions) = load(&[FAULTY]) else { return };
    let error = message(session(&extensions).compile(&around("lies_about_elements")));
    let expected = "compiling `around`: `lies_about_elements` of faulty 0: result 0 is stated as f32 with 1 axes, but it \
                    makes f64[64]";
    assert_eq!(error, expected);
}

#[test]
fn parallel_loops_run_on_the_threads_of_the_cpu() {
    let Some(extensions) = load(&[FAULTY]) else { return };
    let model = session(&extensions).load(&around("thread_panics"), &()).unwrap();
    let error = message(run(&model, &[1.0]));
    assert!(error.contains("`thread_panics` of faulty 0: it panicked: assertion"), "{error}");
    assert!(error.contains("the sixth chunk"), "{error}");
}

#[test]
fn an_op_replaces_the_built_in_op_of_its_name() {
    let Some(extensions) = load(&[SHADOW]) else { return };
    let text = "graph g(%x: f32[1, 2]) {
                  %w = constant [1.0, 0.0, 0.0, 1.0] : f32[2, 2]
                  %a = linear(%x, %w)
                  %y = silu(%a)
                  return %y
                }";
    let graph = Graph::parse(text).unwrap();
    let model = session(&extensions).load(&graph, &()).unwrap();
    let outputs = model.execute(&[Buffer::from_slice([1, 2], &[1f32, 2.0])]).unwrap();
    assert_eq!(outputs[0].to_vec::<f32>(), [1001.0, 1002.0], "though a pass would fuse the built-in op");
    let branch = "graph g(%p: bool[], %x: f32[2]) {
                    %y = cond(%p, %x) {
                      then = graph then(%x: f32[2]) { %y = silu(%x) return %y },
                      otherwise = graph otherwise(%x: f32[2]) { return %x }
                    }
                    return %y
                  }";
    let model = session(&extensions).load(&Graph::parse(branch).unwrap(), &()).unwrap();
    for (predicate, expected) in [(true, [1001.0, 1002.0]), (false, [1.0, 2.0])] {
        let predicate = Buffer::from_tensor(&Tensor::from_bools([0; 0], &[predicate]));
        let y = model.execute(&[predicate, Buffer::from_slice([2], &[1f32, 2.0])]).unwrap();
        assert_eq!(y[0].to_vec::<f32>(), expected, "in a graph that a node runs");
    }
    let text = "graph g(%x: f32[2]) { %y = concat(%x, %x) {axis = 0} return %y }";
    let error = message(session(&extensions).compile(&Graph::parse(text).unwrap()));
    let expected = "compiling `g`: `concat` of shadow 1.0 shadows the built-in op, but cannot stand for it: `concat` \
                    of shadow 1.0: takes 1 operands (x), got 2";
    assert_eq!(error, expected);
}

#[test]
fn parameters_reach_ops_with_every_bit() {
    let Some(extensions) = load(&[EXACT]) else { return };
    let session = session(&extensions);
    let (number, whole) = (1.0 / 3.0, (1 << 53) + 1);
    let parameters =
        Attributes::default().with("number", Attribute::Float(number)).with("whole", Attribute::Int(whole));
    let results = vec![Type::new(DType::F64, [1]), Type::new(DType::I64, [1])];
    let mut b = Builder::new("shown");
    let shown = b.custom(session.custom_extensions(), "parameters", &[], results, parameters).unwrap();
    let graph = b.finish(&shown).unwrap();
    let path = folder("exact").join("model.mef");
    session.compile(&graph).unwrap().export_mef(&path).unwrap();
    for model in [session.load(&graph, &()).unwrap(), session.load(&path, &()).unwrap()] {
        let outputs = model.execute(&[]).unwrap();
        assert_eq!((outputs[0].to_vec::<f64>(), outputs[1].to_vec::<i64>()), (vec![number], vec![whole]));
    }
}

#[test]
fn artifacts_name_the_extensions_they_need() {
    let Some(extensions) = load(&[LEAKY]) else { return };
    let path = folder("custom_artifact").join("model.mef");
    let with = session(&extensions);
    with.compile(&around("leaky_relu")).unwrap().export_mef(&path).unwrap();
    assert!(Artifact::open(&path).unwrap().target().contains(" with leaky_relu 1.0 ("));
    let model = with.load(&path, &()).unwrap();
    assert_eq!(run(&model, &[2.0, -3.0]).unwrap(), [0.02, -3.0]);
    let without = message(session(&Extensions::default()).load(&path, &()));
    let needs =
        "it needs the extension leaky_relu 1.0, and the session has none: load it and give it to the session";
    assert_eq!(without, format!("artifact {}: {needs}", path.display()));
    let other = message(session(&load(&[FAULTY]).unwrap()).load(&path, &()));
    assert!(
        other.contains("needs the extension leaky_relu 1.0, and the session has faulty 0: load it"),
        "{other}"
    );
    let plain = Graph::parse("graph g(%x: f32[n]) { %y = neg(%x) return %y }").unwrap();
    with.compile(&plain).unwrap().export_mef(&path).unwrap();
    session(&Extensions::default()).load(&path, &()).unwrap();
}

#[test]
fn a_changed_extension_misses_the_compile_cache() {
    let Some(extensions) = load(&[LEAKY]) else { return };
    let folder = folder("custom_cache");
    let changed = folder.join("leaky_relu.rs");
    let text = fs::read_to_string(repository().join(LEAKY)).unwrap();
    fs::write(&changed, text.replace("slope * x", "slope * x - 1.0")).unwrap();
    let changed = load(&[changed.to_str().unwrap()]).unwrap();
    let results = [&extensions, &changed, &extensions].map(|extensions| {
        let builder = InferenceSession::builder();
        let cache = CompileCache::at(folder.join("cache"));
        let session = builder.custom_extensions(extensions.clone()).compile_cache(cache).build().unwrap();
        run(&session.load(&around("leaky_relu"), &()).unwrap(), &[2.0, -3.0]).unwrap()
    });
    assert_eq!(results, [[0.02, -3.0], [1.02, -3.0], [0.02, -3.0]]);
}

/// The blocks of a kind in the page about extensions, without their indentation.
fn blocks(kind: &str) -> Vec<String> {
    let page = fs::read_to_string(repository().join("docs/write-an-extension.md")).unwrap();
    let start = format!("```{kind}\n");
    let blocks = page.split(&start).skip(1);
    let text = |block: &str| {
        let lines = block.lines().take_while(|line| line.trim() != "```");
        lines.map(|line| line.trim_start_matches("   ").to_string() + "\n").collect()
    };
    blocks.map(text).collect()
}

#[test]
fn the_code_of_the_page_about_extensions_runs() {
    let source = folder("page").join("safe_math.rs");
    let code = blocks("rust,ignore").concat();
    fs::write(&source, code).unwrap();
    let Some(extensions) = load(&[source.to_str().unwrap()]) else { return };
    let node = blocks("text").concat();
    let graph = Graph::parse(&format!("graph logs(%x: f32[n]) {{ {node} return %y }}")).unwrap();
    let model = session(&extensions).load(&graph, &()).unwrap();
    let x: Vec<f32> = (0..10_000).map(|i| i as f32 - 5000.0).collect();
    let expected: Vec<f32> = x.iter().map(|x| (x.abs() + 0.5).ln()).collect();
    assert_eq!(run(&model, &x).unwrap(), expected);
}
