//! The table of `docs/models.md`: made from the architectures, the published configurations and the checkpoints that the
//! tests run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use perihelion_models::{ARCHITECTURES, ENCODERS, FRAMES, Model, Parameters};
use serde_json::Value;
use tensor::DType;

use crate::Published;

/// The length whose cache the table shows.
const TOKENS: usize = 8192;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The architecture that a configuration names.
fn architecture(config: &Value) -> String {
    config["architectures"][0].as_str().expect("an architecture").to_string()
}

/// Published models by their architecture, smallest first.
fn by_architecture(published: Vec<Published>) -> BTreeMap<String, Vec<Published>> {
    let mut models: BTreeMap<String, Vec<Published>> = BTreeMap::new();
    for model in published {
        models.entry(architecture(&model.config)).or_default().push(model);
    }
    models.values_mut().for_each(|models| models.sort_by_key(|model| model.parameters));
    models
}

/// The formats in which the tests run checkpoints of each architecture.
fn tested_formats(folders: &[&str]) -> BTreeMap<String, String> {
    let mut formats: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let folders: Vec<PathBuf> =
        folders.iter().map(|name| root().join("crates/perihelion/tests/models").join(name)).collect();
    for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let folder = entry.unwrap().path();
        let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
        let own = formats.entry(architecture(&serde_json::from_str(&config).unwrap())).or_default();
        // GGUF sorts before safetensors.
        own.extend(
            ["GGUF", "safetensors"]
                .into_iter()
                .zip(["model.gguf", "model.safetensors"])
                .filter_map(|(format, file)| folder.join(file).exists().then_some(format)),
        );
    }
    let joined = |formats: BTreeSet<&str>| formats.into_iter().collect::<Vec<_>>().join(", ");
    formats.into_iter().map(|(name, formats)| (name, joined(formats))).collect()
}

/// A number of bytes, in the units of memory that people buy.
fn gigabytes(bytes: usize) -> String {
    let gigabytes = bytes as f64 / 1e9;
    if gigabytes >= 10.0 {
        format!("{gigabytes:.0} GB")
    } else if gigabytes >= 0.1 {
        format!("{gigabytes:.1} GB")
    } else {
        format!("{:.0} MB", bytes as f64 / 1e6)
    }
}

fn millions(parameters: usize) -> String {
    format!("{:.0} M", parameters as f64 / 1e6)
}

fn billions(parameters: usize) -> String {
    format!("{:.1} B", parameters as f64 / 1e9)
}

fn row(model: &Published, architecture: &str, formats: &str) -> String {
    let open = Model::from(model.open().1);
    let Parameters { all, active } = open.parameters().unwrap();
    let active = if active < all { format!(", {} active", billions(active)) } else { String::new() };
    let bytes = TOKENS * open.state.bytes_per_token(DType::BF16) + open.state.bytes_per_slot();
    let cache = gigabytes(bytes);
    let template = model.template.as_deref().map_or(String::new(), |template| format!("`{template}`"));
    format!(
        "| {} | `{}` | {formats} | {template} | {}{active} | {} | {} | {cache} |",
        model.name,
        architecture,
        billions(all),
        gigabytes(2 * all),
        gigabytes(all * 9 / 16),
    )
}

fn table() -> String {
    let (published, formats) =
        (by_architecture(crate::published()), tested_formats(&["goldens", "rerankers"]));
    let mut table = String::from(
        "| model | architecture | tested from | template | parameters | bf16 | q4_k | 8,192 tokens |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let decoders = ARCHITECTURES.iter().map(|own| (own.hugging_face, own.examples));
    let frames = FRAMES.iter().map(|own| (own.hugging_face, own.examples));
    for (name, examples) in decoders.chain(frames) {
        let formats = formats.get(name).unwrap_or_else(|| panic!("no checkpoint of {name} is tested"));
        for model in published.get(name).map(Vec::as_slice).unwrap_or_default() {
            writeln!(table, "{}", row(model, name, formats)).unwrap();
        }
        if !published.contains_key(name) {
            writeln!(table, "| {} | `{name}` | {formats} | | | | | |", examples[0]).unwrap();
        }
    }
    table
}

/// Those of which a model was published; encoders keep nothing of a text.
fn table_of_encoders() -> String {
    let published = by_architecture(crate::encoders());
    let formats = tested_formats(&["encoders", "embedders"]);
    let mut table = String::from(
        "| model | architecture | tested from | parameters | bf16 | q4_k |\n|---|---|---|---|---|---|\n",
    );
    let mut seen = BTreeSet::new();
    let names = ENCODERS.iter().map(|encoder| encoder.hugging_face);
    for name in names.filter(|name| seen.insert(*name)) {
        for model in published.get(name).into_iter().flatten() {
            let (all, formats) = (Model::from(model.encoder()).parameters().unwrap().all, &formats[name]);
            writeln!(
                table,
                "| {} | `{name}` | {formats} | {} | {} | {} |",
                model.name,
                millions(all),
                gigabytes(2 * all),
                gigabytes(all * 9 / 16)
            )
            .unwrap();
        }
    }
    table
}

#[test]
fn the_tables_of_models_are_true() {
    let docs = std::fs::read_to_string(root().join("docs/models.md")).unwrap();
    for table in [table(), table_of_encoders()] {
        assert!(docs.contains(&table), "docs/models.md lacks this table:\n{table}");
    }
    if let Some(folder) = testdata::shared("chat-templates/templates") {
        for model in crate::published() {
            let Some(template) = &model.template else { continue };
            assert!(
                folder.join(format!("{template}.jinja")).exists(),
                "{}: no template {template}",
                model.name
            );
        }
    }
}
