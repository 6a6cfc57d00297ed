//! Saved models: what they are accepted for, and where they may be written.

use std::fs::File;
use std::time::{Duration, SystemTime};

use engine::InferenceSession;

use super::*;
use crate::TextModel;

fn session() -> InferenceSession {
    InferenceSession::new([Arc::new(cpu::Cpu::new(1)) as Arc<dyn engine::Device>]).unwrap()
}

/// A copy of the storyteller that was written an hour ago.
fn model(folder: &Path) -> PathBuf {
    let path = folder.join("model.gguf");
    std::fs::copy(storyteller(), &path).unwrap();
    written(&path, Duration::from_secs(3600));
    path
}

/// Makes a file one that was written so long ago.
fn written(path: &Path, ago: Duration) {
    File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - ago).unwrap();
}

fn of(model: &Path) -> PipelineConfig {
    PipelineConfig::new(model.display().to_string()).kv_cache_page_size(64_usize)
}

fn load(config: &PipelineConfig) -> Result<(), Error> {
    TextModel::from_plan(&session(), plan_of(config)?).map(drop)
}

/// Changes a byte in the middle of the file's last tensor.
fn change(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let place = bytes.len() - 1000;
    bytes[place] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_saved_model_is_for_the_weights_it_was_made_of() {
    let folder = tempfile::tempdir().unwrap();
    let (model, saved) = (model(folder.path()), folder.path().join("model.mef"));
    load(&of(&model).save_to_serialized_model_path(saved.clone())).unwrap();
    let again = of(&model).serialized_model_path(saved.clone());
    load(&again).unwrap();
    // The same length and time are believed; another time is not, and then every byte counts.
    let time = model.metadata().unwrap().modified().unwrap();
    change(&model);
    File::options().write(true).open(&model).unwrap().set_modified(time).unwrap();
    load(&again).unwrap();
    written(&model, Duration::from_secs(60));
    let error = load(&again).unwrap_err().to_string();
    assert!(error.contains("weights of the checksum ") && error.contains("model.gguf has"), "{error}");
    change(&model);
    load(&again).unwrap();
    // Another length needs no look.
    let longer = File::options().append(true).open(&model).unwrap();
    longer.set_len(longer.metadata().unwrap().len() + 1).unwrap();
    assert!(wrong(&again)[0].1.contains(" bytes instead of "), "{:?}", wrong(&again));
}

#[test]
fn weights_in_memory_are_compared_whole() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("model.mef");
    let bytes = std::fs::read(storyteller()).unwrap();
    let load = |bytes: &[u8], config: PipelineConfig| {
        let weights = weights::Weights::from_bytes("memory", tensor::Bytes::new(bytes.to_vec())).unwrap();
        TextModel::from_plan(&session(), config.plan_weights(weights, Path::new(""), MACHINE)?).map(drop)
    };
    load(&bytes, PipelineConfig::default().save_to_serialized_model_path(saved.clone())).unwrap();
    let again = PipelineConfig::default().serialized_model_path(saved);
    load(&bytes, again.clone()).unwrap();
    let mut other = bytes;
    let place = other.len() - 1000;
    other[place] ^= 1;
    assert!(load(&other, again).unwrap_err().to_string().contains("memory has"));
}

#[test]
fn the_files_of_saved_models_are_checked_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let (model, saved) = (model(folder.path()), folder.path().join("model.mef"));
    let text = folder.path().join("a.json");
    std::fs::write(&text, "{}").unwrap();
    for (path, part) in [(folder.path().join("nowhere.mef"), "nowhere.mef"), (text, "a.json")] {
        check_wrong(
            &of(&model).serialized_model_path(path),
            "serialized_model_path",
            &[part, "give a file that"],
        );
    }
    for (path, part) in [
        (folder.path().join("nowhere/x.mef"), "make it, or give another file"),
        (folder.path().to_path_buf(), "it is a folder"),
        (model.join("x.mef"), "is a file, not a folder"),
    ] {
        check_wrong(
            &of(&model).save_to_serialized_model_path(path),
            "save_to_serialized_model_path",
            &[part],
        );
    }
    load(&of(&model).save_to_serialized_model_path(saved.clone())).unwrap();
    let other = of(&model).kv_cache_page_size(32_usize).serialized_model_path(saved.clone());
    check_wrong(&other, "serialized_model_path", &["kv_cache_page_size 64 instead of 32"]);
    let other = of(&model).reproducible(Reproducible::Machine).serialized_model_path(saved.clone());
    check_wrong(&other, "serialized_model_path", &["reproducible any instead of machine"]);
    let other = of(&model).exact_activations(true).serialized_model_path(saved);
    check_wrong(&other, "serialized_model_path", &["exact_activations false instead of true"]);
}

#[cfg(unix)]
#[test]
fn a_model_is_not_overwritten_by_what_is_made_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let (soft, hard) = (folder.path().join("soft.mef"), folder.path().join("hard.mef"));
    std::os::unix::fs::symlink(&model, &soft).unwrap();
    std::fs::hard_link(&model, &hard).unwrap();
    let roundabout = folder.path().join("./model.gguf");
    let beside = folder.path().join("tokenizer.json");
    std::fs::write(&beside, "{}").unwrap();
    for target in [model.clone(), soft, hard, roundabout, beside] {
        check_wrong(
            &of(&model).save_to_serialized_model_path(target),
            "save_to_serialized_model_path",
            &["is one of the model's own files: choose another path"],
        );
    }
}
