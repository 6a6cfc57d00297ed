//! The documents tell the truth: every `peri` command in a `console` block runs, and prints what the block shows.
//!
//! A command is a line that starts with `$ `; what follows is its output, up to the next command. `[...]` on a line of
//! its own stands for any lines, `...` within a line for any text, and the line of timings on standard error is not
//! compared. Lines that start with `peri: ` are on standard error, and make the command one that must fail.
#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Stdio};

const DOCUMENTS: [&str; 7] = [
    "README.md",
    "ARCHITECTURE.md",
    "docs/add-a-kernel.md",
    "docs/add-a-pass.md",
    "docs/add-a-quantization.md",
    "docs/add-an-architecture.md",
    "docs/add-an-op.md",
];

/// A command, and what it is said to print.
struct Example {
    document: &'static str,
    command: String,
    output: Vec<String>,
}

#[test]
fn examples_print_what_they_show() {
    let examples: Vec<Example> = DOCUMENTS.iter().flat_map(|document| examples(document)).collect();
    let commands: Vec<&str> = examples.iter().map(|example| &example.command[..]).collect();
    let shown = [
        "generate", "inspect", "bench", "tokenize", "list", "config", "plan", "eval", "doctor", "encode",
        "pull", "chat", "render",
    ];
    for command in shown {
        let named = |line: &&str| line.contains(&format!("peri {command}"));
        assert!(commands.iter().any(named), "no example of {command} among {commands:#?}");
    }
    let failures: Vec<String> = examples.iter().filter_map(|example| run(example).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn the_readme_has_the_exit_codes_of_the_help() {
    let help = Command::new(env!("CARGO_BIN_EXE_peri")).arg("--help").output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    let codes: Vec<(&str, &str)> = help
        .split("Exit codes:\n")
        .nth(1)
        .unwrap()
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .collect();
    assert_eq!(codes.len(), 6, "{codes:?}");
    let readme = read("README.md");
    for (code, meaning) in codes {
        let row = format!("| {code} | {} |", meaning.trim());
        assert!(readme.contains(&row), "README.md lacks {row}");
    }
}

fn read(document: &str) -> String {
    std::fs::read_to_string(testdata::repository().join(document)).unwrap()
}

fn examples(document: &'static str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for line in read(document).lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match line.strip_prefix("$ ") {
                Some(command) => {
                    let command = command.replace("cargo run --release --", "peri");
                    examples.push(Example { document, command, output: Vec::new() });
                }
                None => examples.last_mut().expect("output follows a command").output.push(line.to_string()),
            },
        }
    }
    // The others are cargo's.
    examples.retain(|example| example.command.split(['|', ' ']).any(|word| word == "peri"));
    examples
}

/// Runs an example as a shell would; says what differs.
fn run(example: &Example) -> Result<(), String> {
    let Example { document, command, output: expected } = example;
    let folder = Path::new(env!("CARGO_BIN_EXE_peri")).parent().unwrap().display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let shell = Command::new("sh")
        .args(["-c", command])
        .current_dir(testdata::repository())
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&shell.stdout), String::from_utf8_lossy(&shell.stderr));
    let fails = expected.iter().any(|line| line.starts_with("peri: "));
    if shell.status.success() == fails {
        return Err(format!("{document}: {command}: {}\n{stderr}", shell.status));
    }
    let got: Vec<&str> = if fails { stderr.lines().collect() } else { stdout.lines().collect() };
    let expected: Vec<&str> =
        expected.iter().map(|line| &line[..]).filter(|line| !line.starts_with("[load ")).collect();
    if expected.is_empty() || !comparable(command) || same(&expected, &got) {
        return Ok(());
    }
    let (expected, got) = (expected.join("\n"), got.join("\n"));
    Err(format!("{document}: {command}\nis said to print\n{expected}\nand prints\n{got}"))
}

/// Texts are those of the instruction sets that nearly all machines have; portable code rounds differently.
fn comparable(command: &str) -> bool {
    #[cfg(target_arch = "x86_64")]
    let common = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let common = false;
    common || !command.contains("peri generate")
}

/// Whether lines are as expected, `[...]` being any number of them.
fn same(expected: &[&str], got: &[&str]) -> bool {
    match (expected, got) {
        ([], []) => true,
        (["[...]", rest @ ..], _) => (0..=got.len()).any(|skipped| same(rest, &got[skipped..])),
        ([line, expected @ ..], [other, got @ ..]) => alike(line, other) && same(expected, got),
        _ => false,
    }
}

/// Whether a line is as expected, `...` being any text.
fn alike(expected: &str, got: &str) -> bool {
    match expected.split_once("...") {
        Some((start, end)) => got.strip_prefix(start).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && alike(end, &rest[at..]))
        }),
        None => expected == got,
    }
}

#[test]
fn marks_stand_for_what_is_left_out() {
    assert!(same(&["a", "[...]", "d ... f"], &["a", "b", "c", "d e f"]));
    assert!(same(&["a", "[...]"], &["a"]));
    assert!(!same(&["a", "[...]", "c"], &["a", "b"]));
    assert!(!same(&["a"], &["a", "b"]));
    assert!(!alike("a ... c", "a b d") && alike("a...", "a"));
}
