//! `peri doctor`.

use serde_json::Value;

use crate::support::{Folder, Outcome, command};

const INSTRUCTION_SET: &str = "PERIHELION_INSTRUCTION_SET";

/// Runs it with caches of its own.
fn doctor(caches: &Folder, arguments: &[&str]) -> Outcome {
    let output = command(&[&["doctor"], arguments].concat())
        .env("PERIHELION_CACHE_DIR", caches.path().join("cache"))
        .env("HF_HUB_CACHE", caches.path().join("hub"))
        .env("HF_TOKEN", "hf_secret")
        .output()
        .unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn a_working_machine_passes() {
    let caches = Folder::new("doctor-well");
    let text = doctor(&caches, &["--json"]).text();
    assert!(!text.contains("hf_secret"), "{text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["ok"], &report["self_test"]["ok"]), (&true.into(), &true.into()), "{text}");
    assert_eq!(report["environment"]["HF_TOKEN"], "(hidden)");
    assert!(report["cpu"]["threads"].as_u64().unwrap() > 0);
    assert!(report["limits"]["read_bytes_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!((&report["hub_cache"]["repos"], &report["compile_cache"]["entries"]), (&0.into(), &0.into()));
    // The self-test compiled the built-in model, and left it in the cache.
    let report: Value = serde_json::from_str(&doctor(&caches, &["--no-bench", "--json"]).text()).unwrap();
    let cache = &report["compile_cache"];
    assert!(cache["entries"].as_u64() > Some(0) && cache["bytes"].as_u64() > Some(0), "{report}");
    assert_eq!((&cache["limit_bytes"], &cache["damaged"]), (&(1u64 << 30).into(), &Value::Array(vec![])));
    assert_eq!(cache["folder"], caches.path().join("cache/compiled").display().to_string());
    // Compiled models of another version are counted, and are no problem.
    let compiled = caches.path().join("cache/compiled");
    let entry = std::fs::read_dir(&compiled).unwrap().next().unwrap().unwrap().path();
    let mut newer = std::fs::read(entry).unwrap();
    newer[8] = 99;
    std::fs::write(compiled.join("newer.mef"), newer).unwrap();
    let text = doctor(&caches, &["--no-bench"]).text();
    assert!(text.contains(" models, 1 of them from another version, "), "{text}");
    assert!(text.contains(" of at most 1.00 GiB"), "{text}");
}

#[test]
fn the_environment_limits_the_instruction_set() {
    let caches = Folder::new("doctor-instruction-set");
    let doctor = |set: &str| {
        let mut doctor = command(&["doctor", "--no-bench", "--json"]);
        doctor
            .env("PERIHELION_CACHE_DIR", "off")
            .env("HF_HUB_CACHE", caches.path())
            .envs([(INSTRUCTION_SET, set)]);
        doctor.output().unwrap()
    };
    let report: Value = serde_json::from_slice(&doctor("portable").stdout).unwrap();
    assert!(report["cpu"]["used"].as_str().unwrap().ends_with(" portable"), "{report}");
    let unknown = doctor("sse9");
    let errors = String::from_utf8(unknown.stderr).unwrap();
    assert!(
        errors.contains("the PERIHELION_INSTRUCTION_SET is `sse9`, expected one of portable, "),
        "{errors}"
    );
    assert_eq!(unknown.status.code(), Some(1));
    let text = |set: &str| {
        let generate = command(&["generate", "Once upon a time", "-n", "24", "--seed", "7"])
            .env(INSTRUCTION_SET, set)
            .output();
        String::from_utf8(generate.unwrap().stdout).unwrap()
    };
    let answer = text("portable");
    assert!(answer.len() > 20, "{answer}");
    assert_eq!(answer, text(""));
}

#[test]
fn damaged_caches_exit_with_1() {
    let caches = Folder::new("doctor-damage");
    let (compiled, blobs) =
        (caches.path().join("cache/compiled"), caches.path().join("hub/models--a--b/blobs"));
    std::fs::create_dir_all(&compiled).unwrap();
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(compiled.join("bad.mef"), "damaged").unwrap();
    std::fs::write(compiled.join("worse.mef"), "damaged").unwrap();
    std::fs::write(blobs.join("x.incomplete"), "123").unwrap();
    let outcome = doctor(&caches, &["--no-bench"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.stderr.contains("something is broken: damaged in the compile cache"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.ends_with(" (problems in all: 2)\n"), "{}", outcome.stderr);
    assert!(
        outcome.stdout.contains("bad.mef")
            && outcome.stdout.contains("worse.mef")
            && outcome.stdout.contains("x.incomplete"),
        "{}",
        outcome.stdout
    );
    assert!(outcome.stdout.ends_with("something is broken\n"), "{}", outcome.stdout);
    let report: Value = serde_json::from_str(&doctor(&caches, &["--no-bench", "--json"]).stdout).unwrap();
    assert_eq!((&report["ok"], &report["hub_cache"]["repos"]), (&false.into(), &1.into()));
    assert_eq!(report["compile_cache"]["damaged"].as_array().unwrap().len(), 2);
}
