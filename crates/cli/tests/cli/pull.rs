//! `peri pull`, from a hub on this machine.

use crate::hub::{COMMIT, Files, Hub};
use crate::support::{Folder, Outcome};

fn files() -> Files {
    vec![
        ("config.json", b"{}".to_vec()),
        ("tiny-Q4_0.gguf", b"GGUF four".to_vec()),
        ("tiny-Q8_0.gguf", b"GGUF eight".to_vec()),
    ]
}

/// Runs `peri pull` with a cache of its own.
fn pull(hub: &Hub, cache: &Folder, arguments: &[&str], offline: bool) -> Outcome {
    hub.peri(cache, &[&["pull"], arguments].concat(), offline)
}

#[test]
fn pull_lists_files_then_downloads_them() {
    let (hub, cache) = (Hub::start(files()), Folder::new("pull"));
    let snapshot = cache.path().join("models--ada--tiny/snapshots").join(COMMIT);
    let arguments = ["ada/tiny", "--quantization-encoding", "q8_0"];
    let dry = pull(&hub, &cache, &[&arguments[..], &["--dry-run"]].concat(), false).text();
    assert!(dry.ends_with("nothing was downloaded (--dry-run)\n") && !snapshot.exists(), "{dry}");

    let outcome = pull(&hub, &cache, &arguments, false);
    // They come side by side.
    let mut arrived: Vec<&str> = outcome.stderr.lines().collect();
    arrived.sort_unstable();
    assert_eq!(arrived, ["config.json: 2 B", "tiny-Q8_0.gguf: 10 B"]);
    let text = outcome.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "ada/tiny at 0123456789ab");
    assert_eq!(lines[2], "  tiny-Q8_0.gguf          10 B");
    assert!(lines[3].starts_with("12 B to download, ") && lines[3].ends_with(" free"), "{text}");
    assert_eq!(lines[4], format!("in {}", snapshot.display()));
    assert_eq!(std::fs::read_to_string(snapshot.join("tiny-Q8_0.gguf")).unwrap(), "GGUF eight");

    let again = pull(&hub, &cache, &["ada/tiny", "*.gguf", "--json"], true);
    let value = &again.json_lines()[0];
    assert_eq!(value["bytes_to_fetch"], 0);
    assert_eq!((&value["commit"], &value["files"][0]["cached"]), (&COMMIT.into(), &true.into()));
    assert_eq!(value["files"][0]["path"], snapshot.join("tiny-Q8_0.gguf").display().to_string());
    // What is here is looked at, and this is no model.
    let damaged = pull(&hub, &cache, &arguments, true);
    assert!(damaged.code == Some(3) && damaged.stderr.contains("GGUF version 1734960416"), "{damaged:?}");
    let quiet = pull(&hub, &cache, &["ada/tiny", "*.json", "--force-download", "--quiet"], false);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
}

#[test]
fn pull_errors_suggest_a_fix() {
    let (hub, cache) = (Hub::start(files()), Folder::new("no-pull"));
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["ada/tiny"], 2, &["choose one of q4_0, q8_0", "--quantization-encoding"]),
        (&["ada/tiny", "--quantization-encoding", "q6_k"], 2, &["no weights in q6_k: it has q4_0, q8_0"]),
        (&["ada/tiny", "--quantization-encoding", "q4k"], 2, &["did you mean q4_k?"]),
        (&["ada/tiny", "--weights-format", "pytorch"], 2, &["no weights in pytorch: it has gguf"]),
        (&["ada/tiny", "tiny.gguf"], 2, &["has no file `tiny.gguf`", "did you mean"]),
        (&["ada/other"], 3, &["no repository ada/other", "check the spelling"]),
        (&["../ada"], 2, &["repository `../ada`"]),
    ];
    for (arguments, code, parts) in cases {
        let outcome = pull(&hub, &cache, arguments, false);
        assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(*code), 1), "{outcome:?}");
        assert!(parts.iter().all(|part| outcome.stderr.contains(part)), "{outcome:?}");
    }
    let outcome = pull(&hub, &cache, &["ada/tiny"], true);
    assert!(outcome.code == Some(3) && outcome.stderr.contains("HF_HUB_OFFLINE"), "{outcome:?}");
}
