//! Each crate depends on lower layers only, and ARCHITECTURE.md names every crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates by layer, lowest first. A crate may depend on lower layers only.
const LAYERS: &[&[&str]] = &[
    &["tensor", "extension", "storyteller"],
    &["graph", "weights", "extensions"],
    &["conformance", "engine", "models", "sources", "text"],
    &["pipelines", "cpu", "far", "webgpu"],
    &["serve"],
    &["perihelion"],
    &["cli"],
    &["python"],
];

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

/// Modules of one folder whose arrows run in a circle, by folder. None may be added.
const CIRCLES: &[&str] = &[
    // One concept: a graph holds ops, and the ops of control flow hold graphs.
    "graph: graph ops",
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

/// The modules of a crate: for each file its path (`config/hugging_face/mod.rs` is `config::hugging_face`) and its source
/// without comments and tests.
fn modules(name: &str) -> BTreeMap<Vec<String>, String> {
    let root = repository().join("crates").join(name).join("src");
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let within = path.strip_prefix(&root).unwrap().with_extension("");
                let mut module: Vec<String> =
                    within.iter().map(|part| part.to_str().unwrap().to_string()).collect();
                module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
                found.insert(module, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let is_test = |module: &[String]| {
        let (last, folder) = module.split_last()?;
        Some(last == "tests" || found.get(folder)?.contains(&format!("#[cfg(test)]\nmod {last};")))
    };
    let tests: Vec<_> = found.keys().filter(|module| is_test(module) == Some(true)).cloned().collect();
    found.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    found.values_mut().for_each(|source| *source = without_tests(source));
    found
}

/// The lines of a file before its tests, without comments.
fn without_tests(source: &str) -> String {
    let end = source.match_indices("#[cfg(test)]\n").find(|(start, mark)| {
        let next = source[start + mark.len()..].lines().next().unwrap_or_default();
        next.contains("mod ") && next.ends_with('{')
    });
    let code = &source[..end.map_or(source.len(), |(start, _)| start)];
    code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// The paths that start with a word: `crate::{a::{B, C}, d}` is `a::B`, `a::C` and `d`.
fn paths(source: &str, start: &str) -> Vec<Vec<String>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let begins = source.match_indices(start).filter(|(place, _)| !source[..*place].ends_with(is_word));
    let mut found = Vec::new();
    for (place, _) in begins {
        expand(&source[place + start.len()..], &mut Vec::new(), &mut found);
    }
    found
}

/// Adds the paths at the start of a text, and gives the rest of it.
fn expand<'a>(text: &'a str, before: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(rest, before, found).trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (word, mut rest) = text.split_at(end);
    before.push(word.to_string());
    match rest.trim_start().strip_prefix("::") {
        Some(more) => rest = expand(more, before, found),
        None => found.push(before.iter().filter(|word| !word.is_empty()).cloned().collect()),
    }
    before.pop();
    match rest.trim_start().strip_prefix("as ") {
        Some(alias) => alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'),
        None => rest,
    }
}

/// The arrows between the modules of a crate: which module of which folder uses which other one of the same folder.
fn arrows(name: &str) -> BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> {
    let modules = modules(name);
    // What a module has by another name, and where it comes from.
    let mut names: BTreeMap<(Vec<String>, String), Vec<String>> = BTreeMap::new();
    let within = |module: &[String], path: Vec<String>| {
        let path = [module, &path].concat();
        (1..=path.len()).rev().map(|end| path[..end].to_vec()).find(|path| modules.contains_key(path))
    };
    for (module, source) in &modules {
        for path in paths(source, "use ").into_iter().chain(paths(source, "use self::")) {
            let Some(name) = path.last().cloned() else { continue };
            if let Some(from) = within(module, path).filter(|from| from.len() > module.len()) {
                names.insert((module.clone(), name), from);
            }
        }
    }
    let mut arrows: BTreeMap<_, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, source) in &modules {
        let mut used: Vec<(Vec<String>, Vec<String>)> =
            paths(source, "crate::").into_iter().map(|path| (Vec::new(), path)).collect();
        for (level, start) in ["super::", "super::super::", "super::super::super::"].into_iter().enumerate() {
            if let Some(end) = module.len().checked_sub(level + 1) {
                used.extend(paths(source, start).into_iter().map(|path| (module[..end].to_vec(), path)));
            }
        }
        for (from, path) in used {
            let Some(first) = path.first() else { continue };
            let target = match names.get(&(from.clone(), first.clone())) {
                Some(target) => Some(target.clone()),
                None => within(&from, path),
            };
            let Some(target) = target else { continue };
            let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(own), Some(other)) = (module.get(shared), target.get(shared)) {
                let folder = arrows.entry(module[..shared].to_vec()).or_default();
                folder.entry(own.clone()).or_default().insert(other.clone());
            }
        }
    }
    arrows
}

/// The modules of a folder that reach themselves.
fn circle(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reaches_itself = |start: &&String| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&String> = arrows[*start].iter().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(arrows.get(module).into_iter().flatten());
            }
        }
        seen.contains(*start)
    };
    arrows.keys().filter(reaches_itself).cloned().collect()
}

#[test]
fn arrows_between_modules_run_one_way() {
    let mut found = Vec::new();
    for name in LAYERS.iter().copied().flatten() {
        for (folder, arrows) in arrows(name) {
            let circle = circle(&arrows);
            if !circle.is_empty() {
                let folder = [vec![name.to_string()], folder].concat().join("/");
                found.push(format!("{folder}: {}", circle.join(" ")));
            }
        }
    }
    assert_eq!(found, CIRCLES, "left: the circles that are there; right: those that are known");
}

#[test]
fn plans_know_no_runtime_runs_no_configuration_and_errors_nothing() {
    let arrows = &arrows("pipelines")[&Vec::new()];
    let uses = |module: &str, other: &str| arrows.get(module).is_some_and(|used| used.contains(other));
    assert!(uses("tasks", "plan") && uses("tasks", "run"), "{arrows:?}");
    assert!(!uses("plan", "run"), "plans use the runtime");
    assert!(!uses("run", "plan"), "the runtime uses plans");
    assert_eq!(arrows.get("error"), None, "errors hold facts alone");
}
