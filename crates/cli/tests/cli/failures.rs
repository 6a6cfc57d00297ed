//! What goes wrong: one line that says what, why and what to do, and an exit code.

use testdata::NO_SUCH_FILE;

use crate::support::{Folder, Outcome, peri, peri_reading, storyteller};

/// Expects a code and one line on standard error with all of `parts`, and nothing on standard output.
fn check(outcome: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    assert_eq!(outcome.stdout, "");
    let line = outcome.stderr.strip_suffix('\n').unwrap();
    assert!(line.starts_with("peri: ") && !line.contains('\n'), "{line}");
    for part in parts {
        assert_eq!(line.matches(part).count(), 1, "once {part:?}: {line}");
    }
}

#[test]
fn invalid_flags_are_errors() {
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["generate", "--temperature", "-1"],
            &["'-1' for '--temperature <T>'", "give 0 for greedy, or a positive number"],
        ),
        (&["generate", "--temperature", "hot"], &["'hot'", "give a number"]),
        (&["generate", "--top-p", "1.5"], &["'1.5' for '--top-p <P>'", "above 0 and up to 1"]),
        (&["generate", "--min-p=-0.1"], &["--min-p", "from 0 to 1"]),
        (&["generate", "--repetition-penalty", "0"], &["--repetition-penalty", "a positive number"]),
        (&["generate", "--top-k", "-3"], &["'-3' for '--top-k <K>'", "or 0 for all tokens"]),
        (&["generate", "--max-length", "long"], &["'long' for '--max-length <N>'", "or auto"]),
        (
            &["generate", "--kv-cache-page-size", "48"],
            &["'48' for '--kv-cache-page-size <N>'", "a power of two"],
        ),
        (
            &["generate", "--cache-strategy", "pagd"],
            &["'pagd' for '--cache-strategy <NAME>'", "did you mean paged?"],
        ),
        (
            &[
                "generate",
                "--engine",
                "huggingface",
                "--cache-strategy",
                "naive",
                "--enable-prefix-caching",
                "x",
            ],
            &[
                "configuration: enable_prefix_caching is true",
                "engine is huggingface: name the folder or repo of a model for it",
            ],
        ),
        (
            &["generate", "--max-ce-batch-size", "auto"],
            &["'auto' for '--max-ce-batch-size <N>'", "at least 1"],
        ),
        (&["generate", "--seed", "x"], &["--seed", "from 0 to 18446744073709551615"]),
        (&["generate", "--max-new-tokens", "0"], &["--max-new-tokens", "at least 1"]),
        (&["generate", "--threads", "-1"], &["'-1' for '--threads <N>'", "from 1 to 1024, or 0"]),
        (&["generate", "--threads", "1000000"], &["--threads", "from 1 to 1024"]),
        (&["bench", "--prompt", "8,0"], &["'0' for '--prompt <TOKENS>'", "at least 1"]),
        (&["tokenize", "--decode", "--whole"], &["cannot be used with"]),
        (&["generate", "--temprature", "1"], &["'--temprature'", "exists: '--temperature'"]),
        (&["quilt"], &["unrecognized subcommand 'quilt'; see `peri --help`"]),
    ];
    for (arguments, parts) in cases {
        check(&peri(arguments), 2, parts);
    }
}

#[test]
fn files_that_are_not_models_are_errors() {
    let folder = Folder::new("no-models");
    let model = std::fs::read(storyteller()).unwrap();
    let empty = folder.path().display().to_string();
    check(
        &peri(&["inspect", &empty]),
        3,
        &[&empty, "no .gguf, .safetensors or PyTorch file", "name the folder or file"],
    );

    let nowhere = folder.path().join("nowhere.gguf").display().to_string();
    for arguments in
        [&["generate", "--model", &nowhere, "x"][..], &["inspect", &nowhere], &["bench", &nowhere]]
    {
        check(&peri(arguments), 3, &["cannot open the model", &nowhere, NO_SUCH_FILE, "check the path"]);
    }
    check(
        &peri(&["generate", "--weights", "x.bin", "x"]),
        3,
        &["cannot open the model", "x.bin", "check the path"],
    );
    check(&peri(&["tokenize", &nowhere]), 3, &["cannot open the tokenizer", &nowhere, NO_SUCH_FILE]);

    let text = folder.file("notes.txt", "These are notes.");
    check(&peri(&["inspect", &text]), 3, &[&text, "neither GGUF, safetensors nor PyTorch", "give a GGUF"]);

    let short = folder.file("short.gguf", &model[..5000]);
    check(&peri(&["generate", "--model", &short, "x"]), 3, &[&short, "malformed GGUF", "may be incomplete"]);
}

#[test]
fn an_unknown_architecture_has_three_lines() {
    let folder = Folder::new("architecture");
    let mut bytes = std::fs::read(storyteller()).unwrap();
    for at in 0..bytes.len() - 5 {
        if &bytes[at..at + 5] == b"llama" {
            bytes[at..at + 5].copy_from_slice(b"alpha");
        }
    }
    let path = folder.file("alpha.gguf", bytes);
    let nearest = "unsupported architecture `alpha`; the nearest that run here: llama, ";
    let outcome = peri(&["generate", "--model", &path, "x"]);
    assert_eq!((outcome.code, &outcome.stdout[..]), (Some(3), ""));
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let [first, second, third] = lines[..] else { panic!("{lines:?}") };
    assert!(first.contains(nearest) && first.matches(", ").count() == 2, "{first}");
    assert!(second.contains("--engine huggingface") && third.contains("`peri list` shows all"), "{lines:?}");
}

#[test]
fn folders_without_config_or_tokenizer_are_errors() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let cases = [
        ("config.json", "config.json", "cannot open the model"),
        ("tokenizer", "the folder has none of tokenizer.json", "cannot load the model"),
    ];
    for (lost, part, refusal) in cases {
        let folder = Folder::copy_of(&format!("without-{lost}"), &original);
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name == lost || lost == "tokenizer" && name.starts_with(lost) {
                std::fs::remove_file(path).unwrap();
            }
        }
        let outcome = peri(&["generate", "--model", &folder.path().display().to_string(), "x"]);
        assert!(outcome.stderr.contains(part), "{outcome:?}");
        check(&outcome, 3, &[refusal]);
    }
}

#[test]
fn invalid_saved_models_are_errors() {
    let folder = Folder::new("no-saved-models");
    let nowhere = folder.path().join("nowhere.mef").display().to_string();
    let text = folder.file("notes.mef", "These are notes.");
    for path in [&nowhere, &text] {
        let outcome = peri(&["generate", "--serialized-model-path", path, "x"]);
        check(
            &outcome,
            2,
            &["serialized_model_path is", path, "a file that save_to_serialized_model_path wrote"],
        );
        assert_eq!(peri(&["inspect", path]).code, Some(3));
    }
}

#[test]
fn empty_and_missing_names_are_errors() {
    for empty in [
        &["generate", "--model", "", "x"][..],
        &["plan", ""],
        &["generate", "--weights", ",", "x"],
        &["generate", "--devices", "", "x"],
    ] {
        check(&peri(empty), 2, &["give one that is not empty, or leave it out"]);
    }
    for nowhere in ["./nowhere", "nowhere.gguf"] {
        check(&peri(&["plan", nowhere]), 3, &["cannot open the model", "check the path"]);
    }
    check(
        &peri(&["generate", "x", "--config", "nowhere.toml"]),
        2,
        &[&format!("cannot read the configuration nowhere.toml: {NO_SUCH_FILE}"), "--config or PERI_CONFIG"],
    );
}

#[test]
fn values_of_switches_need_an_equals_sign() {
    let outcome = peri(&["generate", "a", "--enable-prefix-caching", "false"]);
    check(&outcome, 2, &["write --enable-prefix-caching=false"]);
    check(&peri(&["plan", "--force-download", "TRUE"]), 2, &["write --force-download=TRUE"]);
    let written =
        ["generate", "--quiet", "--no-echo", "--max-new-tokens", "1", "--enable-prefix-caching=false"];
    assert_eq!(peri(&[&written[..], &["false"]].concat()).text().lines().count(), 1);
    assert_eq!(peri(&[&written[..], &["--enable-echo", "--", "false"]].concat()).text().lines().count(), 1);
}

#[test]
fn prompts_that_do_not_fit_are_errors() {
    let long = "once upon a time ".repeat(1000);
    let parts = [
        "the prompt has ",
        "the model's context is 512 tokens",
        "shorten the prompt, or choose a model with a longer context",
    ];
    check(&peri(&["generate", &long]), 2, &parts);
    check(&peri(&["generate", "a", "b", &long]), 2, &["prompt 3 of 3: the prompt has "]);
    check(&peri_reading(&["generate"], b"caf\xe9"), 2, &["not UTF-8 at byte 3"]);
}

#[test]
fn too_little_memory_exits_with_4() {
    let arguments =
        ["bench", "--prompt", "2", "--generate", "1", "--repetitions", "1", "--batch", "1000000000"];
    check(
        &peri(&arguments),
        4,
        &[
            "b1000000000: the weights need 4.44 MiB and the cache for 1000000000 sequences of 512 tokens",
            "lower --batch",
        ],
    );
}

#[test]
fn invalid_ids_are_errors() {
    let decode = |input: &str| peri_reading(&["tokenize", "--decode"], input.as_bytes());
    let outcome = decode("[1, 2]\nfour");
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.starts_with("peri: standard input, line 2: expected ident"), "{outcome:?}");
    check(&decode("[99999]"), 2, &["line 1", "id 99999 is beyond the vocabulary of 4096 tokens"]);
    check(&decode("[-1]"), 2, &["line 1", "give arrays of ids"]);
    check(&peri_reading(&["tokenize"], b"\xff\n"), 2, &["line 1", "invalid utf-8"]);
}

#[test]
fn a_full_disk_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let output = crate::support::command(&["list"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.starts_with("peri: cannot write to standard output: No space left"), "{line}");
}

#[test]
fn help_succeeds() {
    let help = peri(&["--help"]).text();
    for part in ["generate", "inspect", "bench", "tokenize", "list", "pull", "Exit codes:", "130", "143"] {
        assert!(help.contains(part), "{help}");
    }
    assert!(peri(&["generate", "--help"]).text().contains("Examples:"));
    let bare = peri(&[]);
    assert!(bare.code == Some(2) && bare.stderr.contains("Commands:"), "{bare:?}");
}
