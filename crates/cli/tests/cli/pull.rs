//! `peri pull`, from a hub on this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use crate::support::{Folder, Outcome, command};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A file of a hub: a name, an ETag, a content.
pub(crate) type File = (&'static str, &'static str, &'static str);

const FILES: &[File] = &[
    ("config.json", "one", "{}"),
    ("tiny-Q4_0.gguf", "two", "GGUF four"),
    ("tiny-Q8_0.gguf", "three", "GGUF eight"),
];

/// Starts a hub with the repository `ada/tiny`, whose safetensors files are bf16; gives its address.
pub(crate) fn hub(files: &'static [File]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let reader = BufReader::new(stream.try_clone().unwrap());
            let mut lines = reader.lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            let line = lines.next().unwrap_or_default();
            lines.for_each(drop);
            let (status, etag, content) = answer(files, line.split(' ').nth(1).unwrap_or_default());
            let head =
                format!("HTTP/1.1 {status} X\r\nETag: \"{etag}\"\r\nContent-Length: {}\r\n", content.len());
            let content = if line.starts_with("HEAD") { "" } else { &content };
            write!(stream, "{head}Connection: close\r\n\r\n{content}").unwrap();
        }
    });
    address
}

fn answer(files: &[File], path: &str) -> (u16, &'static str, String) {
    if path.starts_with("/api/models/ada/tiny/") {
        let file = |&(name, _, content): &File| serde_json::json!({"rfilename": name, "size": content.len()});
        let siblings: Vec<_> = files.iter().map(file).collect();
        let safetensors = serde_json::json!({"parameters": {"BF16": 1}});
        return (
            200,
            "",
            serde_json::json!({"id": "ada/tiny", "sha": COMMIT, "siblings": siblings, "safetensors": safetensors})
                .to_string(),
        );
    }
    let found = files.iter().find(|(name, ..)| path == format!("/ada/tiny/resolve/{COMMIT}/{name}"));
    found.map_or((404, "", String::new()), |&(_, etag, content)| (200, etag, content.to_string()))
}

/// Runs `peri pull` with a cache of its own.
fn pull(endpoint: &str, cache: &Folder, arguments: &[&str], offline: bool) -> Outcome {
    let mut command = command(&[&["pull"], arguments].concat());
    command.env("HF_ENDPOINT", endpoint).env("HF_HUB_CACHE", cache.path()).env("HF_HOME", cache.path());
    command.env_remove("HF_TOKEN").env("HF_HUB_OFFLINE", if offline { "1" } else { "0" });
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn says_what_it_takes_and_fetches_it() {
    let (hub, cache) = (hub(FILES), Folder::new("pull"));
    let snapshot = cache.path().join("models--ada--tiny/snapshots").join(COMMIT);
    let arguments = ["ada/tiny", "--quantization-encoding", "q8_0"];
    let dry = pull(&hub, &cache, &[&arguments[..], &["--dry-run"]].concat(), false).text();
    assert!(dry.ends_with("nothing was fetched (--dry-run)\n") && !snapshot.exists(), "{dry}");

    let outcome = pull(&hub, &cache, &arguments, false);
    // They come side by side.
    let mut arrived: Vec<&str> = outcome.stderr.lines().collect();
    arrived.sort_unstable();
    assert_eq!(arrived, ["config.json: 2 B", "tiny-Q8_0.gguf: 10 B"]);
    let text = outcome.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "ada/tiny at 0123456789ab");
    assert_eq!(lines[2], "  tiny-Q8_0.gguf          10 B");
    assert!(lines[3].starts_with("12 B to fetch, ") && lines[3].ends_with(" free"), "{text}");
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
fn refusals_say_what_to_do() {
    let (hub, cache) = (hub(FILES), Folder::new("no-pull"));
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["ada/tiny"], 2, &["choose one of q4_0, q8_0", "--quantization-encoding"]),
        (&["ada/tiny", "--quantization-encoding", "q6_k"], 2, &["no weights in q6_k: it has q4_0, q8_0"]),
        (&["ada/tiny", "--quantization-encoding", "q4k"], 2, &["did you mean q4_k?"]),
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
