//! `peri completions` and `peri man`: made from the same flags that `--help` shows.

use crate::support::{Folder, command, peri, storyteller};

/// Commands, each with one of its flags.
const FLAGS: [(&str, &str); 17] = [
    ("run", "--template"),
    ("generate", "--temperature"),
    ("encode", "--pooling"),
    ("rerank", "--query"),
    ("classify", "--activation"),
    ("inspect", "--tensors"),
    ("bench", "--shared-prefix"),
    ("tokenize", "--decode"),
    ("plan", "--max-cache-batch-size"),
    ("eval", "--logits-out"),
    ("doctor", "--no-bench"),
    ("warm-cache", "--target"),
    ("quantize", "--importance"),
    ("models", "--json"),
    ("list", "--json"),
    ("pull", "--dry-run"),
    ("man", "--out"),
];

/// The completions that bash offers for the last of these words.
fn complete(words: &[&str], cache: &Folder) -> Vec<String> {
    let mut command = command(&[&["--", "peri"], words].concat());
    let output = command
        .env("PERI_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .env("HF_HUB_CACHE", cache.path())
        .current_dir(cache.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().to_string()).collect()
}

#[test]
fn shells_have_scripts_that_ask_this_binary() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = peri(&["completions", shell]).text();
        assert!(script.contains("PERI_COMPLETE") && script.contains("peri"), "{shell}: {script}");
    }
    assert_eq!(peri(&["completions", "tcsh"]).code, Some(2));
}

#[test]
fn commands_and_flags_are_completed() {
    let cache = Folder::new("complete-flags");
    let commands = complete(&[""], &cache);
    for (command, flag) in FLAGS {
        assert!(commands.contains(&command.to_string()), "{command}: {commands:?}");
        let flags = complete(&[command, &flag[..flag.len() - 1]], &cache);
        assert!(flags.contains(&flag.to_string()), "{command} {flag}: {flags:?}");
    }
    assert!(complete(&["generate", "--kv-cache-p"], &cache).contains(&"--kv-cache-page-size".to_string()));
}

#[test]
fn values_of_enumerated_flags_are_completed() {
    let cache = Folder::new("complete-values");
    let cases = [
        ("generate", "--cache-strategy", "paged"),
        ("generate", "--quantization-encoding", "q4_k"),
        ("generate", "--rope-type", "neox"),
        ("generate", "--engine", "max"),
        ("generate", "--device-specs", "cpu"),
        ("chat", "--template", "plain"),
        ("encode", "--pooling", "mean"),
        ("rerank", "--activation", "sigmoid"),
        ("pull", "--weights-format", "gguf"),
        ("pull", "--quantization-encoding", "q8_0"),
        ("bench", "--output", "csv"),
        ("completions", "", "zsh"),
    ];
    for (command, flag, value) in cases {
        let words = if flag.is_empty() { vec![command, ""] } else { vec![command, flag, ""] };
        let values = complete(&words, &cache);
        assert!(values.contains(&value.to_string()), "{command} {flag}: {values:?}");
    }
    assert!(complete(&["config", "show", "--origin", ""], &cache).contains(&"file".to_string()));
}

#[test]
fn models_of_the_cache_and_files_are_completed() {
    let cache = Folder::new("complete-models");
    std::fs::create_dir_all(cache.path().join("models--ada--tiny/blobs")).unwrap();
    std::fs::copy(storyteller(), cache.path().join("story.gguf")).unwrap();
    for words in [&["inspect", ""][..], &["chat", "ad"], &["generate", "-m", "ada"], &["models", "rm", ""]] {
        let names = complete(words, &cache);
        assert!(names.contains(&"ada/tiny".to_string()), "{words:?}: {names:?}");
    }
    let files = complete(&["inspect", "sto"], &cache);
    assert!(files.contains(&"story.gguf".to_string()), "{files:?}");
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
