//! Ctrl-C and SIGTERM during generation, and while a file is written.

use std::io::Read;
use std::process::{Child, Command};

use crate::support::{Folder, command, storyteller};

/// Starts a long generation, waits for its first bytes, and sends a signal.
fn interrupted(
    signal: &str,
    arguments: &[&str],
    prompts: usize,
    first: usize,
) -> (Option<i32>, String, String) {
    let prompts = vec!["Once upon a time"; prompts];
    let long = ["generate", "--ignore-eos", "--seed", "1", "--threads", "1"];
    let mut child = command(&[&long[..], arguments, &prompts[..]].concat()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut text = vec![0; first];
    stdout.read_exact(&mut text).unwrap();
    send(signal, &child);
    stdout.read_to_end(&mut text).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(text).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn send(signal: &str, child: &Child) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn the_text_so_far_is_kept() {
    let (code, text, figures) = interrupted("-INT", &["--max-new-tokens", "450"], 64, 30);
    assert_eq!(code, Some(130));
    assert!(text.starts_with("Once upon a time") && text.ends_with('\n'), "{text:?}");
    assert!(text.len() > 30 && text.matches("Once upon a time").count() >= 64, "each prompt: {text:?}");
    assert!(figures.trim().starts_with("[load ") && !figures.contains("peri:"), "{figures}");
}

#[test]
fn json_marks_interrupted_answers() {
    // 32 start and end together; the rest is under way or waits when the first line comes.
    let (code, text, _) = interrupted("-INT", &["--json", "--max-new-tokens", "60"], 192, 1);
    assert_eq!(code, Some(130));
    let reasons: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["finish_reason"].to_string())
        .collect();
    let count = |reason: &str| reasons.iter().filter(|found| found.trim_matches('"') == reason).count();
    assert_eq!(reasons.len(), 192);
    assert!(count("length") >= 32 && count("interrupted") > 0, "{reasons:?}");
    assert_eq!(count("length") + count("interrupted"), 192);
}

#[test]
fn sigterm_stops_in_order_with_143() {
    let (code, text, figures) = interrupted("-TERM", &["--max-new-tokens", "450"], 64, 30);
    assert_eq!(code, Some(143));
    assert!(text.matches("Once upon a time").count() >= 64 && text.ends_with('\n'), "{text:?}");
    assert!(figures.trim().starts_with("[load "), "{figures}");
}

#[test]
fn quantizing_leaves_no_unfinished_file() {
    let folder = Folder::new("quantize-interrupted");
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    for name in ["model.gguf", "model.mef"] {
        let target = folder.path().join(name).display().to_string();
        let arguments = ["quantize", &storyteller(), "--to", "q3_k_l", "--out", &target, "--quiet"];
        let mut child = command(&arguments).env("RAYON_NUM_THREADS", "1").spawn().unwrap();
        while files() == 0 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        send("-INT", &child);
        assert_eq!((child.wait().unwrap().code(), files()), (Some(130), 0), "{name}");
    }
}
