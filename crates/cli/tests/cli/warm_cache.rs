//! `peri warm-cache`.

use serde_json::Value;

use crate::support::{Folder, command, peri, storyteller};

#[test]
fn saved_models_start_and_their_size_is_reported() {
    let folder = Folder::new("warm");
    let (model, target) = (storyteller(), folder.path().join("model.mef").display().to_string());
    let text = peri(&["warm-cache", &model, "--target", &target, "--json"]).text();
    let warmed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&warmed["serialized_model_path"], &warmed["files"][0]),
        (&target.clone().into(), &model.clone().into())
    );
    let bytes = std::fs::metadata(&target).unwrap().len();
    assert_eq!(warmed["serialized_bytes"], bytes);
    assert!(warmed["seconds"]["compile"].as_f64().unwrap() > 0.0);
    let (given, other) = (folder.path().join("flag.mef"), folder.path().join("variable.mef"));
    let mut command = command(&["warm-cache", &model, "--target", &given.display().to_string()]);
    let output = command.env("PERI_SAVE_TO_SERIALIZED_MODEL_PATH", &other).output().unwrap();
    assert!(output.status.success() && given.exists() && !other.exists(), "{output:?}");
    let plan = ["plan", "--json", &model, "--serialized-model-path", &target];
    let plan: Value = serde_json::from_str(&peri(&plan).text()).unwrap();
    assert_eq!(plan["fits"], true);
}

#[test]
fn without_a_target_nothing_is_saved() {
    let text = peri(&["warm-cache"]).text();
    assert!(text.starts_with("storyteller: found in "), "{text}");
    assert!(text.ends_with("the compiled model was not saved: name a file with --target\n"), "{text}");
}

#[test]
fn models_are_saved_for_other_machines() {
    let folder = Folder::new("warm-for");
    let path = folder.path().join("other.mef").display().to_string();
    let arm = std::env::consts::ARCH == "aarch64";
    let target = if arm { "x86_64 avx512" } else { "aarch64 neon" };
    let text = peri(&["warm-cache", &storyteller(), "--target", &path, "--compile-for", target]).text();
    assert!(text.contains(&format!("saved to {path} (")), "{text}");
    let text = peri(&["inspect", &path, "--plan"]).text();
    assert!(text.contains(&format!("made for         cpu ({target})\n")), "{text}");
    assert!(
        text.contains(&format!(
            "runs here        no: artifact {path}: it was compiled for cpu ({target}), but"
        )),
        "{text}"
    );
    assert!(text.contains(&format!(" on cpu for {target}\n")) && text.contains("linear["), "{text}");
    let failed = peri(&["generate", &path, "Once"]);
    let facts = format!("it was compiled for cpu ({target}), but this session has cpu (");
    assert!(failed.code != Some(0) && failed.stderr.contains(&facts), "{}", failed.stderr);

    let baseline = format!("{} portable", std::env::consts::ARCH);
    peri(&["warm-cache", &storyteller(), "--target", &path, "--compile-for", &baseline]).text();
    let generate = |model: &str| peri(&["generate", model, "Once", "-n", "8", "--temperature", "0"]).text();
    assert_eq!(generate(&path), generate(&storyteller()));

    for (target, expected) in [
        ("neon", "--compile-for: the target is `neon`, expected an architecture and an instruction set"),
        ("gpu sm_90", "the target is `gpu sm_90`, expected one of x86_64 portable, "),
    ] {
        let failed = peri(&["warm-cache", &storyteller(), "--target", &path, "--compile-for", target]);
        assert_eq!(failed.code, Some(2), "{}", failed.stderr);
        assert!(failed.stderr.contains(expected), "{}", failed.stderr);
    }
    let failed = peri(&["warm-cache", "--compile-for", "aarch64 neon"]);
    assert_eq!(failed.code, Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("--compile-for makes a file: name it with --target"), "{}", failed.stderr);
}
