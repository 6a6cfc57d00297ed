//! The contents of an artifact (`.mef`), for `peri inspect`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use engine::{Artifact, ArtifactWeight, CompileOptions, CompiledModel, InferenceSession};
use pipelines::MemoryBytes;

use crate::exit::{BadModel, one_line};
use crate::model;

/// The parts of an artifact to show.
pub(crate) struct Show {
    /// Every weight.
    pub(crate) weights: bool,
    /// The plans; for the kind of machine that the artifact was made for, if it does not run here.
    pub(crate) plan: bool,
    /// Everything, as JSON.
    pub(crate) json: bool,
}

/// Shows an artifact after verifying its checksums.
pub(crate) fn show(path: &Path, show: &Show) -> anyhow::Result<()> {
    let bad = |error: engine::Error| BadModel(error.to_string());
    let artifact = Artifact::open(path).map_err(bad)?;
    artifact.verify().map_err(bad)?;
    let session = model::session(1, [])?;
    let compiled = session.compile(path).map_err(|error| error.to_string());
    let mut out = std::io::stdout().lock();
    if show.json {
        writeln!(out, "{:#}", json(&artifact, compiled.as_ref().err()))?;
        return Ok(());
    }
    for (name, value) in facts(&artifact, compiled.as_ref().err()) {
        writeln!(out, "{name:<16} {value}")?;
    }
    if show.weights {
        writeln!(out, "\n{}", table(&artifact))?;
    }
    if show.plan {
        let compiled = compiled.or_else(|error| elsewhere(&session, &artifact, path).ok_or(error));
        writeln!(out, "\n{}", compiled.map_err(BadModel)?)?;
    }
    Ok(out.flush()?)
}

/// The artifact as the kind of machine reads it that it was made for; `None` if that kind is unknown.
fn elsewhere(session: &InferenceSession, artifact: &Artifact, path: &Path) -> Option<CompiledModel> {
    let target = Some(artifact.target().parse().ok()?);
    session.compile_with(path, &CompileOptions { target, ..CompileOptions::default() }).ok()
}

/// Names and values, in the order they print.
fn facts(artifact: &Artifact, obstacle: Option<&String>) -> Vec<(&'static str, String)> {
    let models = artifact.models().map(|model| {
        let (text, constants) = (memory(model.text), memory(model.constant_bytes));
        match model.constants {
            0 => format!("{} ({text} of text)", one_line(model.name)),
            count => format!("{} ({text} of text, {count} constants of {constants})", one_line(model.name)),
        }
    });
    let models: Vec<String> = models.collect();
    vec![
        ("made by", one_line(artifact.maker())),
        ("made for", one_line(&format!("{} ({})", artifact.device(), artifact.target()))),
        ("runs here", obstacle.map_or("yes".to_string(), |error| one_line(&format!("no: {error}")))),
        ("models", models.join(", ")),
        ("weights", weights(artifact)),
        ("file", format!("{} in {} sections, intact", memory(artifact.bytes()), artifact.sections())),
    ]
}

/// The number and bytes of the weights in each layout.
fn weights(artifact: &Artifact) -> String {
    let mut layouts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for weight in artifact.weights() {
        let entry = layouts.entry(layout(&weight)).or_default();
        *entry = (entry.0 + 1, entry.1 + weight.bytes);
    }
    let words: Vec<String> = layouts
        .into_iter()
        .map(|(layout, (count, bytes))| one_line(&format!("{count} {layout} of {}", memory(bytes))))
        .collect();
    if words.is_empty() { "none in the file".to_string() } else { words.join(", ") }
}

fn table(artifact: &Artifact) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(["weight", "type", "layout", "bytes"]);
    for weight in artifact.weights() {
        let name = one_line(weight.name.unwrap_or("(constant)"));
        table.add_row([name, one_line(weight.ty), one_line(layout(&weight)), weight.bytes.to_string()]);
    }
    table.column_mut(3).expect("four columns").set_cell_alignment(CellAlignment::Right);
    table
}

fn layout<'a>(weight: &ArtifactWeight<'a>) -> &'a str {
    weight.layout.unwrap_or("row-major")
}

fn json(artifact: &Artifact, obstacle: Option<&String>) -> serde_json::Value {
    let models = artifact.models().map(|model| {
        serde_json::json!({
            "name": model.name,
            "text_bytes": model.text,
            "constants": model.constants,
            "constant_bytes": model.constant_bytes,
        })
    });
    let weights = artifact.weights().map(|weight| {
        serde_json::json!({
            "name": weight.name,
            "type": weight.ty,
            "layout": weight.layout,
            "bytes": weight.bytes,
        })
    });
    serde_json::json!({
        "made_by": artifact.maker(),
        "device": artifact.device(),
        "target": artifact.target(),
        "obstacle": obstacle,
        "models": models.collect::<Vec<_>>(),
        "weights": weights.collect::<Vec<_>>(),
        "bytes": artifact.bytes(),
        "sections": artifact.sections(),
    })
}

fn memory(bytes: usize) -> MemoryBytes {
    MemoryBytes(bytes as u64)
}
