//! `peri completions` and `peri man`: made for every command, with its flags.

use crate::support::{Folder, peri};

/// Commands, and a flag that each has.
const FLAGS: [(&str, &str); 12] = [
    ("generate", "--temperature"),
    ("encode", "--pooling"),
    ("inspect", "--tensors"),
    ("bench", "--shared-prefix"),
    ("tokenize", "--decode"),
    ("plan", "--max-cache-batch-size"),
    ("eval", "--logits-out"),
    ("doctor", "--no-bench"),
    ("warm-cache", "--target"),
    ("list", "--json"),
    ("pull", "--dry-run"),
    ("man", "--out"),
];

#[test]
fn shells_complete_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = peri(&["completions", shell]).text();
        for (command, flag) in FLAGS {
            let flag = if shell == "fish" { flag.trim_start_matches("--") } else { flag };
            assert!(script.contains(command) && script.contains(flag), "{shell}: {command} {flag}");
        }
        // A flag of the table of settings.
        assert!(script.contains("kv-cache-page-size"), "{shell}");
    }
    assert_eq!(peri(&["completions", "tcsh"]).code, Some(2));
}

#[test]
fn every_command_has_a_page() {
    let folder = Folder::new("man");
    let out = folder.path().join("man1");
    peri(&["man", "--out", &out.display().to_string()]).text();
    assert!(out.join("peri.1").exists() && out.join("peri-config-show.1").exists());
    for (command, flag) in FLAGS {
        let page = std::fs::read_to_string(out.join(format!("peri-{command}.1"))).unwrap();
        assert!(page.contains(&flag.replace('-', "\\-")), "{command}: {flag}: {page}");
    }
    let help = peri(&["--help"]).text();
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    for command in
        commands.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help")
    {
        assert!(out.join(format!("peri-{command}.1")).exists(), "{command}");
    }
}

#[test]
fn one_page_goes_to_standard_output() {
    let page = peri(&["man", "config", "show"]).text();
    assert!(page.contains(".TH") && page.contains("\\-\\-origin"), "{page}");
    let outcome = peri(&["man", "dance"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("there is no command `dance`"), "{}", outcome.stderr);
}
