//! Damaged and hostile files, from opening to the first tokens: refused with an error, or run; never a panic.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use perihelion::driver::DType;
use perihelion::pipelines::{EventKind, Generator, Request};
use serde::Deserialize;

/// One row of the index of malformed files: an edit of a real model.
#[derive(Deserialize)]
struct Entry {
    file: String,
    format: String,
    base: Option<String>,
    truncate: Option<usize>,
    #[serde(default)]
    patch: Vec<(usize, String)>,
    expect: String,
}

#[derive(Deserialize)]
struct Index {
    files: Vec<Entry>,
}

/// Loads a model and lets it write a few tokens.
fn generate(path: &Path) -> Result<(), String> {
    let model = crate::support::load_as(path, None, 1, 64, DType::F32).map_err(|error| error.to_string())?;
    let length = model.plan().context_length().min(64);
    let plan = model.plan().with(|config| config.max_length(length)).map_err(|error| error.to_string())?;
    let mut generator = Generator::with_plan(Arc::new(model), &plan).map_err(|error| error.to_string())?;
    let request = Request { prompt: vec![1, 5, 9], max_new_tokens: Some(4), ..Request::default() };
    generator.add(request).map_err(|error| error.to_string())?;
    while !generator.is_idle() {
        for event in generator.step().map_err(|error| format!("while running: {error}"))? {
            if let EventKind::Failed(error) = event.kind {
                return Err(format!("while running: {error}"));
            }
        }
    }
    Ok(())
}

#[test]
fn damaged_models_are_refused_or_run() {
    let Some(folder) = testdata::shared("malformed") else { return };
    let index: Index = serde_json::from_str(&fs::read_to_string(folder.join("index.json")).unwrap()).unwrap();
    let scratch = std::env::temp_dir().join(format!("perihelion-hostile-{}", std::process::id()));
    fs::create_dir_all(&scratch).unwrap();
    let mut checked = 0;
    for entry in index.files.iter().filter(|entry| entry.format == "gguf") {
        let Some(base) = &entry.base else { continue };
        let mut bytes = fs::read(folder.join("..").join(base)).unwrap();
        bytes.truncate(entry.truncate.unwrap_or(bytes.len()));
        for (offset, byte) in &entry.patch {
            bytes[*offset] = u8::from_str_radix(byte, 16).unwrap();
        }
        let path = scratch.join("model.gguf");
        fs::write(&path, bytes).unwrap();
        let result = generate(&path);
        match &entry.expect[..] {
            "reject" => assert!(result.is_err(), "{} ran", entry.file),
            // Weights that are NaN leave the sampler no token to choose, which it says.
            "accept" => assert!(
                result.as_ref().err().is_none_or(|error| error.contains("no token to choose")),
                "{}: {result:?}",
                entry.file
            ),
            _ => {}
        }
        checked += 1;
    }
    fs::remove_dir_all(&scratch).unwrap();
    assert!(checked >= 20, "only {checked} edits of real models in the index");
}
