//! Help texts: short ones fit on a screen, long ones are grouped and wrapped.

use crate::support::{Outcome, command, peri};

/// Every command, with its words.
const COMMANDS: [&[&str]; 29] = [
    &[],
    &["run"],
    &["chat"],
    &["generate"],
    &["serve"],
    &["key"],
    &["encode"],
    &["rerank"],
    &["classify"],
    &["pull"],
    &["models"],
    &["models", "list"],
    &["models", "show"],
    &["models", "rm"],
    &["models", "du"],
    &["inspect"],
    &["plan"],
    &["bench"],
    &["eval"],
    &["tokenize"],
    &["render"],
    &["warm-cache"],
    &["quantize"],
    &["config", "show"],
    &["config", "check"],
    &["list"],
    &["doctor"],
    &["completions"],
    &["man"],
];

fn help(words: &[&str], flag: &str, columns: usize) -> String {
    let output = command(&[words, &[flag]].concat()).env("COLUMNS", columns.to_string()).output().unwrap();
    let outcome = Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    outcome.text()
}

/// The text below a heading.
fn section<'a>(help: &'a str, heading: &str) -> &'a str {
    let start = help.find(&format!("\n{heading}:\n")).unwrap_or_else(|| panic!("no {heading} in\n{help}"));
    let text = &help[start + heading.len() + 3..];
    // The next heading starts a line.
    let end = text
        .match_indices('\n')
        .find(|(at, _)| text[at + 1..].chars().next().is_some_and(|c| !c.is_whitespace()));
    end.map_or(text, |(at, _)| &text[..at])
}

#[test]
fn short_help_fits_on_a_screen() {
    for words in COMMANDS {
        for columns in [80, 100] {
            let text = help(words, "-h", columns);
            let lines = text.lines().count();
            assert!(lines <= 35, "{words:?} at {columns} columns: {lines} lines\n{text}");
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{words:?}\n{text}");
        }
    }
}

#[test]
fn every_command_is_checked() {
    let text = help(&[], "-h", 100);
    for line in section(&text, "Commands").lines() {
        let name = line.split_whitespace().next().unwrap();
        assert!(name == "help" || COMMANDS.iter().any(|words| words.first() == Some(&name)), "{name}");
    }
}

#[test]
fn long_help_is_wrapped_at_the_width_of_the_terminal() {
    for words in COMMANDS {
        let text = help(words, "--help", 80);
        let long = text.lines().find(|line| line.chars().count() > 80);
        // Examples are commands, which stay on their lines.
        assert!(
            long.is_none_or(|line| line.trim_start().starts_with("peri ")
                || line.contains("| peri")
                || line.contains("echo '")),
            "{words:?}: {long:?}"
        );
        // A paragraph that is broken where it should not be has a short line in its middle.
        let paragraphs =
            text.split("\n\n").filter(|paragraph| !paragraph.contains(":\n") && !paragraph.starts_with(' '));
        for paragraph in paragraphs.filter(|paragraph| paragraph.lines().count() > 2) {
            let lines: Vec<&str> = paragraph.lines().collect();
            for pair in lines.windows(2) {
                let next = pair[1].split(' ').next().unwrap();
                assert!(pair[0].len() + 1 + next.len() > 80, "{words:?}: broken after {:?}", pair[0]);
            }
        }
    }
}

#[test]
fn flags_are_grouped() {
    for words in [&["generate"][..], &["chat"], &["run"]] {
        for flag in ["-h", "--help"] {
            let text = help(words, flag, 100);
            let sampling = section(&text, "Sampling");
            for name in ["--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty", "--seed"] {
                assert!(sampling.contains(name), "{words:?} {flag}: {name} in\n{text}");
            }
        }
        let long = help(words, "--help", 100);
        let pipeline = section(&long, "Pipeline configuration");
        let short = help(words, "-h", 100);
        for name in ["--kv-cache-page-size", "--cache-strategy", "--trust-remote-code", "--rope-type"] {
            assert!(pipeline.contains(name) && !short.contains(name), "{words:?}: {name}");
        }
    }
}

#[test]
fn letters_mean_what_they_mean_to_llama_cpp() {
    let text = help(&["generate"], "-h", 100);
    for flag in [
        "-m, --model",
        "-p, --prompt",
        "-n, --max-new-tokens",
        "-c, --max-length",
        "-t, --threads",
        "-s, --seed",
    ] {
        assert!(text.contains(flag), "{flag}: {text}");
    }
    let text = help(&["bench"], "-h", 100);
    for flag in [
        "-m, --model",
        "-p, --prompt",
        "-n, --generate",
        "-d, --depth",
        "-t, --threads",
        "-r, --repetitions",
        "-o, --output",
    ] {
        assert!(text.contains(flag), "{flag}: {text}");
    }
}

#[test]
fn the_version_has_the_target_and_the_instruction_set() {
    let text = peri(&["--version"]).text();
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.starts_with(&format!("peri {version} (")) && text.lines().count() == 1, "{text}");
    assert!(text.contains(std::env::consts::ARCH) && text.contains(std::env::consts::OS), "{text}");
    let instructions = text.trim_end().trim_end_matches(')').rsplit(", ").next().unwrap();
    assert!(["portable", "avx2", "avx512", "neon"].iter().any(|set| instructions.contains(set)), "{text}");
    assert_eq!(peri(&["-V"]).text(), format!("peri {version}\n"));
    if testdata::repository().join(".git").exists() {
        assert!(text.contains("(commit "), "{text}");
    }
}

#[test]
fn verbs_of_other_tools_get_a_hint() {
    let cases = [
        ("server", "`peri serve`"),
        ("ps", "no model stays loaded"),
        ("ls", "`peri models`"),
        ("rm", "`peri models rm NAME`"),
        ("download", "`peri pull"),
        ("show", "`peri inspect"),
        ("embed", "`peri encode`"),
        ("score", "`peri rerank`"),
        ("llama.gguf", "`peri run llama.gguf`"),
        ("Qwen/Qwen3-0.6B", "`peri run Qwen/Qwen3-0.6B`"),
    ];
    for (verb, hint) in cases {
        let outcome = peri(&[verb]);
        assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(2), 1), "{outcome:?}");
        assert!(outcome.stderr.contains(hint), "{verb}: {outcome:?}");
    }
}
