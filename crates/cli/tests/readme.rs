//! The documents tell the truth: a reader who types the commands of their `console` blocks one after another, in one
//! shell, in a fresh checkout and a fresh home, sees what the blocks show.
//!
//! A command is a line that starts with `$ `; its output follows. `[...]` on a line of its own stands for any lines,
//! `...` within a line for any text, and the line of timings on standard error is not compared. Lines that start with
//! `peri: ` are on standard error, and make the command one that must fail.
//!
//! `sh` blocks need a network or models that are not here. Their `peri` commands are parsed, not run.
#![cfg(unix)]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "docs/command.md",
    "docs/compare-logits.md",
    "docs/add-a-kernel.md",
    "docs/add-a-pass.md",
    "docs/add-a-quantization.md",
    "docs/add-an-architecture.md",
    "docs/add-an-op.md",
    "docs/embed.md",
    "docs/generate.md",
    "docs/library.md",
    "docs/measure.md",
    "docs/models.md",
    "docs/performance.md",
    "docs/production.md",
    "docs/quantize.md",
    "docs/serve.md",
    "docs/troubleshooting.md",
];

/// A command, and the output shown below it.
struct Example {
    document: &'static str,
    command: String,
    output: Vec<String>,
}

/// The exit code and output of a command.
struct Outcome {
    code: i32,
    stdout: String,
    stderr: String,
}

#[test]
fn examples_print_what_they_show() {
    let documents: Vec<Vec<Example>> = DOCUMENTS.iter().map(|document| examples(document)).collect();
    let commands: Vec<&str> = documents.iter().flatten().map(|example| &example.command[..]).collect();
    let shown = [
        "generate", "inspect", "bench", "tokenize", "list", "config", "plan", "eval", "doctor", "encode",
        "pull", "chat", "render", "models", "serve",
    ];
    for command in shown {
        let named = |line: &&str| line.contains(&format!("peri {command}"));
        assert!(commands.iter().any(named), "no example of {command} among {commands:#?}");
    }
    let failures: Vec<String> = documents.iter().flat_map(|examples| run(examples)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn commands_of_sh_blocks_have_flags_that_exist() {
    let commands: Vec<(&str, String)> = DOCUMENTS
        .iter()
        .flat_map(|document| shell_commands(document).into_iter().map(move |command| (*document, command)))
        // A feature that is off by default.
        .filter(|(_, command)| cfg!(feature = "otlp") || !command.contains("--otlp"))
        .collect();
    assert!(commands.len() > 25, "{commands:#?}");
    for (document, command) in commands {
        let peri = env!("CARGO_BIN_EXE_peri");
        let script = format!("'{peri}' {} --help", command.strip_prefix("peri ").unwrap());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{document}: {command}: {error}");
    }
}

#[test]
fn the_readme_counts_what_peri_list_names() {
    let json = Command::new(env!("CARGO_BIN_EXE_peri")).args(["list", "--json"]).output().unwrap().stdout;
    let list: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let architectures = list["architectures"].as_object().unwrap();
    let encodings = architectures["LlamaForCausalLM"]["supported_encodings"].as_array().unwrap().len();
    let readme = read("README.md");
    let number_before = |words: &str| -> usize {
        let (before, _) = readme.split_once(words).unwrap_or_else(|| panic!("README.md lacks {words:?}"));
        before.split_whitespace().last().unwrap().parse().unwrap()
    };
    assert!(architectures.len() > number_before(" [architectures](docs/models.md) run"));
    assert_eq!(encodings, number_before(" encodings from f32"));
}

#[test]
fn the_documentation_has_the_exit_codes_of_the_help() {
    let help = Command::new(env!("CARGO_BIN_EXE_peri")).arg("--help").output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    let codes: Vec<(&str, &str)> = help
        .split("Exit codes:\n")
        .nth(1)
        .unwrap()
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .collect();
    assert_eq!(codes.len(), 7, "{codes:?}");
    let page = read("docs/troubleshooting.md");
    for (code, meaning) in codes {
        let row = format!("| {code} | {} |", meaning.trim());
        assert!(page.contains(&row), "docs/troubleshooting.md lacks {row}");
    }
}

fn read(document: &str) -> String {
    std::fs::read_to_string(testdata::repository().join(document)).unwrap()
}

/// The `peri` commands of the `sh` blocks of a document, each in one line, without the commands that they read from.
fn shell_commands(document: &str) -> Vec<String> {
    let page = read(document);
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let joined: Vec<String> = blocks.map(|block| block.replace("\\\n", " ")).collect();
    let lines = joined.iter().flat_map(|block| block.lines());
    let commands = lines.filter_map(|line| line.split(" # ").next()?.rsplit(" | ").next());
    commands.filter(|command| command.starts_with("peri ")).map(str::to_string).collect()
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
    // Building and testing are what runs this.
    examples.retain(|example| !example.command.starts_with("cargo "));
    examples
}

/// Types the commands of a document into one shell; gives what differs.
fn run(examples: &[Example]) -> Vec<String> {
    let Some(first) = examples.first() else { return Vec::new() };
    let checkout = Checkout::new(first.document);
    let outcomes = checkout.session(examples);
    examples.iter().zip(outcomes).filter_map(|(example, outcome)| compare(example, &outcome).err()).collect()
}

/// What differs between an example and its outcome.
fn compare(example: &Example, outcome: &Outcome) -> Result<(), String> {
    let Example { document, command, output: expected } = example;
    let Outcome { code, stdout, stderr } = outcome;
    let fails = expected.iter().any(|line| line.starts_with("peri: "));
    if (*code == 0) == fails {
        return Err(format!("{document}: {command}: exit code {code}\n{stderr}"));
    }
    let got: Vec<&str> = if fails { stderr.lines().collect() } else { stdout.lines().collect() };
    let expected: Vec<&str> =
        expected.iter().map(|line| &line[..]).filter(|line| !line.starts_with("[load ")).collect();
    if expected.is_empty() || same(&expected, &got) {
        return Ok(());
    }
    let (expected, got) = (expected.join("\n"), got.join("\n"));
    Err(format!("{document}: {command}\nis said to print\n{expected}\nand prints\n{got}"))
}

/// A fresh folder with the files of the repository, and an empty home next to it.
struct Checkout(PathBuf);

impl Checkout {
    fn new(document: &str) -> Checkout {
        let name = document.replace(['/', '.'], "-");
        let root = std::env::temp_dir().join(format!("peri-readme-{}-{name}", std::process::id()));
        std::fs::create_dir_all(root.join("checkout")).unwrap();
        std::fs::create_dir_all(root.join("home")).unwrap();
        std::fs::create_dir_all(root.join("outcomes")).unwrap();
        for entry in std::fs::read_dir(testdata::repository()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if !["target", ".git"].iter().any(|left_out| name == *left_out) {
                std::os::unix::fs::symlink(entry.path(), root.join("checkout").join(name)).unwrap();
            }
        }
        Checkout(root)
    }

    /// Runs commands in one shell, whose folder, variables and files last from one to the next.
    fn session(&self, examples: &[Example]) -> Vec<Outcome> {
        let outcomes = self.0.join("outcomes");
        let mut script = String::new();
        for (index, example) in examples.iter().enumerate() {
            let file = |kind: &str| outcomes.join(format!("{index}.{kind}")).display().to_string();
            let (out, err, code) = (file("out"), file("err"), file("code"));
            writeln!(script, "{{ {}\n}} >'{out}' 2>'{err}' </dev/null; echo $? >'{code}'", example.command)
                .unwrap();
        }
        let binaries = Path::new(env!("CARGO_BIN_EXE_peri")).parent().unwrap().display().to_string();
        let path = format!("{binaries}:{}", std::env::var("PATH").unwrap_or_default());
        let status = Command::new("sh")
            .args(["-c", &script])
            .current_dir(self.0.join("checkout"))
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.0.join("home"))
            .stdin(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        let read = |index: usize, kind: &str| {
            std::fs::read_to_string(outcomes.join(format!("{index}.{kind}"))).unwrap()
        };
        let outcome = |index| Outcome {
            code: read(index, "code").trim().parse().unwrap(),
            stdout: read(index, "out"),
            stderr: read(index, "err"),
        };
        (0..examples.len()).map(outcome).collect()
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        // Links are removed, not what they lead to.
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
