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
