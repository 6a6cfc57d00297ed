//! Each crate depends on lower layers only, and ARCHITECTURE.md names every crate.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates by layer, lowest first. A crate may depend on lower layers only.
const LAYERS: &[&[&str]] = &[
    &["tensor", "extension", "storyteller"],
    &["graph", "weights", "extensions"],
    &["conformance", "engine", "models", "sources", "text"],
    &["pipelines", "cpu"],
    &["serve"],
    &["cli", "perihelion"],
    &["python"],
];

/// The modules of `pipelines`, each with the others that it may use besides the leaves.
const PIPELINES: &[(&str, &[&str])] = &[("plan", &[]), ("run", &[]), ("tasks", &["plan", "run"])];

/// Used by tests of every layer; depends on nothing.
const TEST_ONLY: &[&str] = &["testdata"];

/// Crates that promise to have no `unsafe` code.
const SAFE: &[&str] = &[
    "graph",
    "weights",
    "conformance",
    "engine",
    "models",
    "sources",
    "text",
    "pipelines",
    "serve",
    "cli",
    "perihelion",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Each crate's folder and the crates of ours it depends on, tests and benches not counted.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let folders = fs::read_dir(repository().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let names: Vec<String> =
        folders.map(|path| path.file_name().unwrap().to_str().unwrap().to_string()).collect();
    let of = |name: &String| {
        let manifest = fs::read_to_string(repository().join("crates").join(name).join("Cargo.toml")).unwrap();
        let mut section = "";
        let mut found = Vec::new();
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line.trim();
            } else if section == "[dependencies]" || section == "[build-dependencies]" {
                let dependency = line.split(['.', ' ', '=']).next().unwrap().to_string();
                found.extend(names.contains(&dependency).then_some(dependency));
            }
        }
        found
    };
    names.iter().map(|name| (name.clone(), of(name))).collect()
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|crates| crates.contains(&name))
}

#[test]
fn crates_depend_on_lower_layers_only() {
    let dependencies = dependencies();
    assert!(
        dependencies["engine"].contains(&"graph".to_string()),
        "the manifests are read: {dependencies:?}"
    );
    for (name, known) in &dependencies {
        if TEST_ONLY.contains(&&name[..]) {
            assert!(known.is_empty(), "{name} depends on {known:?}");
            continue;
        }
        let own = layer(name).unwrap_or_else(|| panic!("crates/{name} is in no layer"));
        for other in known {
            let below = layer(other).is_some_and(|layer| layer < own);
            // Devices are in the same layer as the pipelines but depend only on what a device needs.
            assert!(below, "{name} (layer {own}) depends on {other}");
        }
    }
    assert!(!dependencies["cpu"].contains(&"models".to_string()), "a device never names a model");
    assert!(!dependencies["engine"].contains(&"weights".to_string()), "the engine knows no file format");
}

#[test]
fn safe_crates_forbid_unsafe() {
    for name in SAFE {
        let root = repository().join("crates").join(name).join("src/lib.rs");
        let source = fs::read_to_string(root).unwrap();
        assert!(source.contains("#![forbid(unsafe_code)]"), "{name} does not forbid unsafe code");
    }
}

/// Attack S16: a dependency that is not what it was when it was chosen.
#[test]
fn dependencies_come_from_the_registry_and_have_digests() {
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let mut others = 0;
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let value = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            value.map(|value| value.trim_matches('"'))
        };
        let name = field("name").unwrap();
        match field("source") {
            None => assert!(name.starts_with("perihelion"), "{name} is not of this workspace"),
            Some(source) => {
                assert_eq!(source, "registry+https://github.com/rust-lang/crates.io-index", "{name}");
                let digest = field("checksum").unwrap_or_else(|| panic!("{name} has no digest"));
                assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
                others += 1;
            }
        }
    }
    assert!(others > 100, "only {others} dependencies were found");
}

#[test]
fn architecture_md_names_every_crate() {
    let map = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    for name in dependencies().keys() {
        assert!(map.contains(&format!("`{name}`")), "ARCHITECTURE.md does not name `{name}`");
    }
}

/// The text of each source file below a folder, without tests and comments.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.push((path, lines.collect::<Vec<_>>().join("\n")));
        }
    }
    found
}

#[test]
fn folders_of_pipelines_use_each_other_one_way() {
    let root = repository().join("crates/pipelines/src");
    for (folder, may_use) in PIPELINES {
        for (path, text) in sources(&root.join(folder)) {
            let others = PIPELINES.iter().map(|(other, _)| other).filter(|other| *other != folder);
            for other in others.filter(|other| !may_use.contains(other)) {
                let uses = text.contains(&format!("crate::{other}::"));
                assert!(!uses, "{} uses `{other}`, which `{folder}` does not know", path.display());
            }
        }
    }
    for (path, text) in sources(&root.join("error")) {
        assert!(!text.contains("crate::"), "{} holds more than facts", path.display());
    }
}
