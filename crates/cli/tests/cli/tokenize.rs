//! `peri tokenize`.

use serde_json::Value;

use crate::hub::Hub;
use crate::support::{Folder, command, peri_reading, storyteller};

fn tokenize(arguments: &[&str], input: &str) -> String {
    peri_reading(&[&["tokenize"], arguments].concat(), input.as_bytes()).text()
}

#[test]
fn encode_and_decode_round_trip() {
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
fn peri_model_names_the_default_tokenizer() {
    let Some(folder) = testdata::shared("stories260k/hf") else { return };
    let folder = folder.display().to_string();
    let ids = |model: &str, more: &[&str]| {
        let arguments = [&["tokenize", "--string", "Once upon a time"], more].concat();
        let mut command = command(&arguments);
        let output = command.env("PERI_MODEL", model).env("HF_HUB_OFFLINE", "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(ids(&folder, &[]).starts_with("[1,"));
    assert!(ids("nowhere", &[&folder]).starts_with("[1,"));
    assert_eq!(ids("nowhere", &[]), "");
}

#[test]
fn the_whole_input_may_be_one_text() {
    let text = "The king\nand his daughters\n";
    let ids = tokenize(&["--whole"], text);
    assert_eq!(ids.lines().count(), 1);
    let decoded = tokenize(&["--decode", "--json"], &ids);
    assert_eq!(serde_json::from_str::<Value>(&decoded).unwrap()["text"], text);
}

#[test]
fn json_has_ids_pieces_and_offsets() {
    let text = "Once upon a time\n\n  naïve 🦊\r\n";
    let lines = peri_reading(&["tokenize", "--json"], text.as_bytes()).json_lines();
    assert_eq!(
        lines[0],
        serde_json::json!({
            "text": "Once upon a time",
            "ids": [0, 2352, 607, 260, 527],
            "pieces": ["<|bos|>", "Once", "Ġupon", "Ġa", "Ġtime"],
            "offsets": [null, [0, 4], [4, 9], [9, 11], [11, 16]],
        })
    );
    assert_eq!((lines.len(), &lines[1]["text"], &lines[2]["text"]), (3, &"".into(), &"  naïve 🦊".into()));
    // Places cover the text, without holes.
    let offsets: Vec<Option<[usize; 2]>> = serde_json::from_value(lines[2]["offsets"].clone()).unwrap();
    let inside: Vec<[usize; 2]> = offsets.into_iter().flatten().collect();
    assert!(inside.windows(2).all(|pair| pair[0][1] == pair[1][0]), "{inside:?}");
    assert_eq!((inside[0][0], inside.last().unwrap()[1]), (0, "  naïve 🦊".len()));
    if let Some(model) = testdata::shared("minilm-l6-v2") {
        // Places are those in the text as it was, before accents were taken off.
        let arguments = ["tokenize", &model.display().to_string(), "--json", "--string", "Naïve café!"];
        let object = &peri_reading(&arguments, b"").json_lines()[0];
        assert_eq!(object["pieces"], serde_json::json!(["[CLS]", "naive", "cafe", "!", "[SEP]"]));
        assert_eq!(object["offsets"], serde_json::json!([null, [0, 6], [7, 12], [12, 13], null]));
    }
    let decoded = peri_reading(&["tokenize", "--json", "--decode"], b"[0, 2352, 607]\n").json_lines();
    assert_eq!(
        decoded[0],
        serde_json::json!({"text": "Once upon", "ids": [0, 2352, 607], "pieces": ["<|bos|>", "Once", "Ġupon"]})
    );
}

#[test]
fn texts_may_come_from_flags_and_files() {
    let folder = Folder::new("tokenize");
    let file = folder.file("a.txt", "Once upon a time\nOnce");
    let texts = |arguments: &[&str]| {
        let lines =
            peri_reading(&[&["tokenize", "--json"], arguments].concat(), b"from standard input").json_lines();
        lines.iter().map(|line| line["text"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&["--string", "a\nb", "--string=-c"]), ["a\nb", "-c"]);
    assert_eq!(texts(&["--text", &file, "--text", "-"]), ["Once upon a time", "Once", "from standard input"]);
    assert_eq!(texts(&["--text", &file, "--whole"]), ["Once upon a time\nOnce"]);
    let missing = folder.path().join("none").display().to_string();
    let check = |arguments: &[&str], expected: &str| {
        let outcome = peri_reading(&[&["tokenize"], arguments].concat(), b"");
        assert!(outcome.code == Some(2) && outcome.stderr.contains(expected), "{outcome:?}");
    };
    check(&["--text", &missing], &format!("none: {}", testdata::NO_SUCH_FILE));
    check(&["--decode", "--string", "[1]", "--string", "[x]"], "--string, number 2: expected value");
    check(&["--decode", "--text", &file], "a.txt, line 1: expected value at column 1");
}

#[test]
fn only_the_tokenizer_of_a_repo_is_downloaded() {
    let content = std::fs::read(storyteller()).unwrap();
    let size = content.len();
    let hub = Hub::start(vec![("sub/tiny-q4_k_m.gguf", content.clone()), ("tiny-q8_0.gguf", content)]);
    let cache = Folder::new("tokenize-gguf");
    for name in ["ada/tiny", "ada/tiny/sub/tiny-q4_k_m.gguf"] {
        let outcome = hub.peri(&cache, &["tokenize", name, "--string", "Once upon a time"], false);
        assert_eq!(outcome.text(), "[0,2352,607,260,527]\n");
    }
    assert!(
        hub.sent() < size && !cache.path().join("models--ada--tiny").exists(),
        "{} of {size}",
        hub.sent()
    );
    let outcome = hub.peri(&cache, &["tokenize", "ada/tiny", "--string", "x"], true);
    assert!(outcome.code == Some(3) && outcome.stderr.contains("HF_HUB_OFFLINE is set"), "{outcome:?}");
    let outcome = hub.peri(&cache, &["tokenize", "ada/tiny/none.gguf", "--string", "x"], false);
    assert!(outcome.code == Some(2) && outcome.stderr.contains("has no file `none.gguf`"), "{outcome:?}");
    let Some(folder) = testdata::shared("stories260k/hf") else { return };
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let hub =
        Hub::start(vec![("model.safetensors", vec![0; 1000]), ("tokenizer.json", read("tokenizer.json"))]);
    let cache = Folder::new("tokenize-hub");
    let expected = tokenize(&[&folder.join("tokenizer.json").display().to_string()], "Once upon a time");
    for (name, offline) in [("ada/tiny", false), ("ada/tiny", true), ("ada/tiny/tokenizer.json", true)] {
        let outcome = hub.peri(&cache, &["tokenize", name, "--string", "Once upon a time"], offline);
        assert_eq!(outcome.text(), expected, "{name}");
    }
    assert_eq!(std::fs::read_dir(cache.path().join("models--ada--tiny/blobs")).unwrap().count(), 1);
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
