//! `peri tokenize`.

use crate::support::{peri_reading, storyteller};

fn tokenize(arguments: &[&str], input: &str) -> String {
    peri_reading(&[&["tokenize"], arguments].concat(), input.as_bytes()).text()
}

#[test]
fn lines_become_ids_and_ids_become_lines() {
    let text = "Once upon a time\nA fox — and a crow: « naïve » 🦊\n\n  two  spaces\n";
    let ids = tokenize(&[&storyteller()], text);
    assert_eq!(ids.lines().next(), Some("[0,2352,607,260,527]"));
    assert_eq!(ids.lines().count(), 4);
    assert_eq!(tokenize(&[&storyteller(), "--decode"], &ids), text);
}

#[test]
fn the_built_in_tokenizer_needs_no_file() {
    assert_eq!(tokenize(&[], "Once upon a time\n"), "[0,2352,607,260,527]\n");
    assert_eq!(tokenize(&["--no-special"], "Once upon a time"), "[2352,607,260,527]\n");
    assert_eq!(tokenize(&[], ""), "");
}

#[test]
fn the_whole_input_may_be_one_text() {
    let text = "The king\nand his daughters\n";
    let ids = tokenize(&["--whole"], text);
    assert_eq!(ids.lines().count(), 1);
    let decoded = tokenize(&["--decode", "--json"], &ids);
    assert_eq!(serde_json::from_str::<String>(&decoded).unwrap(), text);
}

#[test]
fn tokenizers_of_folders() {
    let Some(folder) = testdata::shared("stories260k/hf") else { return };
    let path = |name: &str| folder.join(name).display().to_string();
    let ids = tokenize(&[&path("")], "Once upon a time");
    assert!(ids.starts_with("[1,"), "{ids}");
    for file in ["tokenizer.json", "tokenizer.model"] {
        assert_eq!(tokenize(&[&path(file)], "Once upon a time"), ids, "{file}");
    }
    assert_eq!(tokenize(&[&path(""), "--decode"], &ids), "Once upon a time\n");
}
