//! "Profiling": calls of the CPU are measured, traced and summed up.

use std::fs;
use std::time::{Duration, Instant};

use perihelion::driver::Buffer;
use perihelion::engine::{InferenceSession, Profiling};
use serde_json::Value;

use crate::support::{folder, in_child, load_unfused, message, parse, root, run, session, sum, weights};

/// Events of a trace, as their category and name.
fn events(trace: &str) -> Vec<(String, String)> {
    // An array that is still written has no end.
    let closed = format!("{}]", trace.trim_end().trim_end_matches(']').trim_end().trim_end_matches(','));
    let events: Vec<Value> = serde_json::from_str(&closed).unwrap();
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_string();
    let spans = events.iter().filter(|event| event["ph"] == "X");
    spans.map(|event| (text(event, "cat"), text(event, "name"))).collect()
}

fn count(events: &[(String, String)], category: &str) -> usize {
    events.iter().filter(|(found, _)| found == category).count()
}

#[test]
fn profiled_calls_go_into_a_trace_and_a_summary() {
    let (session, path) = (session(), folder("profile").join("trace.json"));
    session.set_trace_file(&path);
    session.gpu_profiling("on").unwrap();
    let model = load_unfused(&session, &root());
    for _ in 0..2 {
        run(&model, &[-1.0]).unwrap();
    }
    let summary: Vec<(String, usize, f64)> =
        session.profile_summary().iter().map(|(name, count, time)| (name.to_string(), count, time)).collect();
    assert_eq!(summary.len(), 3, "{summary:?}");
    assert!(
        summary.iter().all(|(name, count, time)| !name.contains("reference") && *count == 2 && *time > 0.0)
    );
    let events_so_far = fs::read_to_string(session.write_trace().unwrap().unwrap()).unwrap();
    let events = events(&events_so_far);
    assert_eq!((count(&events, "call"), count(&events, "op"), events.len()), (2, 6, 8));
    let names: Vec<&str> = events.iter().filter(|(cat, _)| cat == "op").map(|(_, name)| &name[..]).collect();
    assert_eq!(names, ["neg", "sqrt", "exp"].repeat(2));
    // A model that was compiled before is still measured, and the file is complete when session and models are gone.
    session.gpu_profiling(Profiling::Off).unwrap();
    run(&load_unfused(&session, &root()), &[-1.0]).unwrap();
    run(&model, &[-1.0]).unwrap();
    drop((session, model));
    let whole: Vec<Value> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(whole.iter().filter(|event| event["cat"] == "call").count(), 3);
}

#[test]
fn detailed_profiles_have_phases_and_the_shapes_of_kernels() {
    let (session, folder) = (session(), folder("detailed"));
    session.set_trace_file(folder.join("trace.json"));
    session.gpu_profiling("detailed").unwrap();
    let model = session.load(&sum("sum"), &weights()).unwrap();
    run(&model, &[1.0, 2.0]).unwrap();
    session.record_range("around", "caller", Instant::now(), Duration::ZERO).unwrap();
    let trace = fs::read_to_string(session.write_trace().unwrap().unwrap()).unwrap();
    let events = events(&trace);
    for (category, expected) in [("call", 1), ("phase", 2), ("op", 1), ("kernel", 1), ("caller", 1)] {
        assert_eq!(count(&events, category), expected, "{category}: {trace}");
    }
    assert!(trace.contains("f32[2], f32[2] → f32[2]"), "{trace}");
}

#[test]
fn nothing_is_measured_unless_asked() {
    let (session, path) = (session(), folder("unasked").join("trace.json"));
    session.set_trace_file(&path);
    run(&load_unfused(&session, &root()), &[-1.0]).unwrap();
    session.record_range("around", "caller", Instant::now(), Duration::ZERO).unwrap();
    assert_eq!((session.profile_summary().iter().count(), session.write_trace().unwrap()), (0, None));
    drop(session);
    assert!(!path.exists());
}

#[test]
fn artifacts_are_measured_and_checked_as_the_loading_session_says() {
    let path = folder("watched").join("roots.mef");
    let graph = parse("graph roots(%x: f32[n]) { %y = sqrt(%x) return %y }");
    let making = session();
    making.gpu_profiling("on").unwrap();
    making.use_old_top_k_kernel("on");
    making.compile(&graph).unwrap().export_mef(&path).unwrap();
    let loading = session();
    let model = loading.load(&path, &()).unwrap();
    run(&model, &[4.0]).unwrap();
    assert_eq!(loading.profile_summary().iter().count(), 0);
    // Settings that change the plan stay as they were compiled.
    assert!(loading.compile(&path).unwrap().to_string().contains("with old_top_k = true\n"));
    loading.gpu_profiling("detailed").unwrap();
    loading.debug().set_nan_check(true);
    loading.set_trace_file(path.with_extension("json"));
    let model = loading.load(&path, &()).unwrap();
    run(&model, &[4.0]).unwrap();
    assert_eq!(loading.profile_summary().iter().count(), 1);
    assert_eq!(message(run(&model, &[-1.0])), "step 0, sqrt: result 0, f32[1], is NaN at [0] (1 NaN, 0 Inf)");
}

#[test]
fn the_environment_starts_profiling_and_names_the_trace() {
    const TEST: &str = "profiling::the_environment_starts_profiling_and_names_the_trace";
    let named = folder("environment").join("named.json");
    let call = || {
        let session = InferenceSession::new([]).unwrap();
        let model = session.load(&root(), &()).unwrap();
        model.execute(&[Buffer::from_slice([1], &[-1f32])]).unwrap();
        drop((session, model));
    };
    let path = ("PERIHELION_TRACE_FILE", named.to_str().unwrap());
    in_child(TEST, "off", &[path], call);
    let without = named.exists();
    in_child(TEST, "on", &[path, ("PERIHELION_ENABLE_PROFILING", "detailed")], call);
    assert!(!without, "it is off unless asked");
    let events = events(&fs::read_to_string(&named).unwrap());
    assert!(count(&events, "call") == 1 && count(&events, "kernel") >= 1, "{events:?}");
}

/// Stands in for NVIDIA's library: writes the ranges into a file.
#[cfg(target_os = "linux")]
const RANGES: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    static int line(const char* word, const char* name) {
        FILE* file = fopen(getenv("PERIHELION_TEST_RANGES"), "a");
        fprintf(file, "%s %s\n", word, name);
        return fclose(file);
    }
    int nvtxRangePushA(const char* name) { return line("push", name); }
    int nvtxRangePop(void) { return line("pop", ""); }
"#;

#[cfg(target_os = "linux")]
#[test]
fn steps_of_profiled_calls_are_nvtx_ranges() {
    const TEST: &str = "profiling::steps_of_profiled_calls_are_nvtx_ranges";
    let folder = folder("nvtx");
    let (source, ranges) = (folder.join("nvtx.c"), folder.join("ranges.txt"));
    if !crate::support::is_child() {
        fs::write(&source, RANGES).unwrap();
        let library = folder.join("libnvtx3interop.so.1");
        let mut compiler = std::process::Command::new("cc");
        let compiled = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        if !compiled.is_ok_and(|status| status.success()) {
            return eprintln!("skipped: there is no C compiler");
        }
    }
    let variables =
        [("LD_LIBRARY_PATH", folder.to_str().unwrap()), ("PERIHELION_TEST_RANGES", ranges.to_str().unwrap())];
    in_child(TEST, "ranges", &variables, || {
        let session = InferenceSession::new([]).unwrap();
        session.set_trace_file(ranges.with_extension("json"));
        run(&load_unfused(&session, &root()), &[-1.0]).unwrap();
        session.gpu_profiling("on").unwrap();
        run(&load_unfused(&session, &root()), &[-1.0]).unwrap();
    });
    let lines = fs::read_to_string(&ranges).unwrap();
    let expected = ["neg", "sqrt", "exp"].map(|op| format!("push {op}\npop \n")).concat();
    assert_eq!(lines, expected);
}
