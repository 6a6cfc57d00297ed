//! `peri config`, and settings of every command: who wins, and what is refused.

use crate::support::{Folder, Outcome, command, peri};

/// Runs `peri` with environment variables.
fn peri_with(variables: &[(&str, &str)], arguments: &[&str]) -> Outcome {
    let output = command(arguments).envs(variables.iter().copied()).output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn flags_before_environment_before_file_before_defaults() {
    let folder = Folder::new("settings");
    let file = folder.file("peri.toml", "max_length = 100\nmax_new_tokens = 10\nmodel_path = 'm'\n");
    let environment = [("PERI_MAX_LENGTH", "200"), ("PERI_MAX_NEW_TOKENS", "20"), ("PERI_CONFIG", &file)];
    let shown = peri_with(&environment, &["config", "show", "--json", "--max-length", "300"]).text();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let check = |field: &str, value: serde_json::Value, origin: &str| {
        assert_eq!(shown[field], serde_json::json!({ "value": value, "origin": origin }), "{field}");
    };
    check("max_length", 300.into(), "command line");
    check("max_new_tokens", 20.into(), "PERI_MAX_NEW_TOKENS");
    check("huggingface_repo_id", "m".into(), &format!("{file}:3"));
    check("max_ce_batch_size", 32.into(), "default");
    check("engine", serde_json::Value::Null, "default");

    let lines = peri_with(&environment, &["config", "show", "--origin", "file"]).text();
    assert_eq!(lines, format!("{:<48} # {file}:3\n", "huggingface_repo_id = \"m\""));
    // What is printed is a file of settings.
    let all = peri_with(&environment, &["config", "show"]).text();
    let again = folder.file("again.toml", &all);
    let values =
        |text: &str| text.lines().map(|line| line[..48.min(line.len())].to_string()).collect::<Vec<_>>();
    assert_eq!(values(&peri(&["config", "show", "--config", &again]).text()), values(&all));
}

#[test]
fn check_plan_and_generate_agree_on_settings() {
    let folder = Folder::new("settings-alike");
    let file = folder.file("peri.toml", "enable_prefix_caching = true\n");
    for command in [&["generate", "The", "--max-new-tokens", "1"][..], &["config", "check"], &["plan"]] {
        assert_eq!(peri(&[command, &["--config", &file]].concat()).code, Some(0), "{command:?}");
    }
    let shown: serde_json::Value = serde_json::from_str(&peri(&["config", "show", "--json"]).text()).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&peri(&["plan", "--json"]).text()).unwrap();
    assert_eq!((&plan["cache_strategy"], &plan["cache_page_size"]), (&"paged".into(), &64.into()));
    assert_eq!(plan["max_length_inferred"], true);
    for (field, value) in [
        ("max_length", "auto".into()),
        ("max_new_tokens", 200.into()),
        ("cache_strategy", "paged".into()),
        ("kv_cache_page_size", serde_json::Value::from(64)),
    ] {
        let expected = serde_json::json!({ "value": value, "origin": "default of the command" });
        assert_eq!(shown[field], expected, "{field}");
    }
}

#[test]
fn commands_offer_the_fields_they_use_with_their_defaults() {
    let help = |command: &[&str]| {
        let text = peri(&[command, &["--help"]].concat()).text();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for command in [&["generate"][..], &["plan"], &["bench"], &["eval"], &["inspect"], &["config", "show"]] {
        let text = help(command);
        assert!(text.contains("at least 16 [default: 64]"), "{command:?}: {text}");
        assert!(
            text.contains("auto takes what model and memory allow [default: auto]"),
            "{command:?}: {text}"
        );
        assert!(
            !text.contains("memory allow [default: 512]") && !text.contains("[default: continuous]"),
            "{text}"
        );
    }
    let generate = help(&["generate"]);
    for part in
        ["[default: 200]", "[default: paged]", "[default: 40 *]", "[default: one per answer, up to 64]"]
    {
        assert!(generate.contains(part), "{part}: {generate}");
    }
    for (command, flags) in [
        ("bench", &["--top-k", "--max-new-tokens", "--max-cache-batch-size", "--enable-echo"][..]),
        ("eval", &["--top-k", "--max-new-tokens", "--cache-strategy", "--max-num-steps"]),
        ("inspect", &["--save-to-serialized-model-path", "--gpu-memory-utilization"]),
        ("plan", &["--save-to-serialized-model-path", "--top-k"]),
        ("chat", &["--enable-echo"]),
    ] {
        let text = help(&[command]);
        for flag in flags {
            assert!(!text.contains(flag), "{command} {flag}");
        }
    }
    // A variable that is meant for others is no matter.
    let outcome = peri_with(&[("PERI_MAX_CACHE_BATCH_SIZE", "1000000000")], &["eval", "--prompt", "The fox"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn files_in_json_are_settings_too() {
    let folder = Folder::new("settings-json");
    let file = folder.file("peri.json", "{\n  \"max_length\": 100,\n  \"device_specs\": [\"cpu\"]\n}\n");
    let shown = peri(&["config", "show", "--json", "--origin", "file", "--config", &file]).text();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let expected = serde_json::json!({
        "max_length": {"value": 100, "origin": format!("{file}:2")},
        "device_specs": {"value": ["cpu"], "origin": format!("{file}:3")},
    });
    for (field, expected) in expected.as_object().unwrap() {
        assert_eq!(&shown[field], expected);
    }
    for (text, expected) in [
        ("{\"max_lenght\": 8}", "bad.json:1:2: there is no field `max_lenght`: did you mean `max_length`?"),
        ("{\n \"top_k\": \"x\"}", "bad.json:2:11: top_k is \"x\": give a whole number"),
        ("{\"top_k\": {}}", "bad.json:1:11: top_k is {}: give a single value or a list"),
        ("{\"top_k\": 1,\n \"top_k\": 2}", "bad.json:2:2: `top_k`: top_k is set in line 1 already"),
        ("{\"top_k\": }", "bad.json:1:11: expected value"),
        ("[]", "bad.json:1:"),
        ("", "bad.json:1:1: EOF"),
    ] {
        let outcome = peri(&["config", "show", "--config", &folder.file("bad.json", text)]);
        assert_eq!(outcome.code, Some(2), "{text}");
        assert!(outcome.stderr.contains(expected), "{text}: {}", outcome.stderr);
    }
}

#[cfg(unix)]
#[test]
fn variables_that_are_not_utf8_are_errors() {
    use std::os::unix::ffi::OsStrExt;

    let value = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let output = command(&["config", "show"]).env("PERI_MODEL", value).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("PERI_MODEL is not UTF-8"));
}

#[test]
fn errors_in_settings_name_file_line_and_column() {
    let folder = Folder::new("bad-settings");
    let cases = [
        (
            "a.toml",
            "max_lenght = 8",
            "a.toml:1:1: there is no field `max_lenght`: did you mean `max_length`?",
        ),
        ("b.toml", "\ncache_strategy = 'pagd'", "b.toml:2:18: cache_strategy is 'pagd'"),
        ("c.toml", "max_length = ", "c.toml:1:14: "),
    ];
    for (name, text, expected) in cases {
        let file = folder.file(name, text);
        for arguments in [&["config", "show", "--config", &file][..], &["generate", "x", "--config", &file]] {
            let outcome = peri(arguments);
            assert_eq!(outcome.code, Some(2), "{outcome:?}");
            assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
        }
    }
    let outcome = peri_with(&[("PERI_TOP_K", "many")], &["config", "show"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.starts_with("peri: PERI_TOP_K is `many`: give a whole number"), "{outcome:?}");
    let outcome = peri_with(&[("PERI_TOPK", "1")], &["config", "show"]);
    assert_eq!(outcome.code, Some(0));
    assert_eq!(outcome.stderr, "peri: warning: PERI_TOPK sets nothing: did you mean PERI_TOP_K?\n");
}

#[test]
fn settings_are_checked_against_the_model() {
    let text = peri(&["config", "check"]).text();
    for part in [
        "weights               4.44 MiB",
        "max_length            512 (auto-inferred)",
        "max_cache_batch_size  1 (current)",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let outcome = peri(&["config", "check", "--max-length", "513", "--device-specs", "gpu:7"]);
    assert_eq!(outcome.code, Some(2));
    for part in ["max_length is 513: give at most 512", "device_specs is gpu:7", "found 0 accelerators"] {
        assert!(outcome.stderr.contains(part), "{outcome:?}");
    }
}

#[test]
fn all_problems_are_in_the_json() {
    let json = |outcome: &Outcome| serde_json::from_str::<serde_json::Value>(&outcome.stdout).unwrap();
    let fine = peri(&["config", "check", "--json"]);
    let verdict = json(&fine);
    assert_eq!((fine.code, fine.stderr.as_str(), &verdict["ok"]), (Some(0), "", &true.into()));
    assert_eq!(
        (&verdict["memory"]["max_length"], &verdict["problems"]),
        (&512.into(), &serde_json::json!([]))
    );

    let wrong = peri(&["config", "check", "--json", "--max-length", "513", "--device-specs", "gpu:7"]);
    let verdict = json(&wrong);
    assert_eq!(
        (wrong.code, &verdict["ok"], &verdict["memory"]),
        (Some(2), &false.into(), &serde_json::Value::Null)
    );
    let problems = verdict["problems"].as_array().unwrap();
    let length = problems.iter().find(|problem| problem["field"] == "max_length").unwrap();
    let fix = "give at most 512, which the model was made for";
    let expected = serde_json::json!({
        "field": "max_length", "value": "513", "message": format!("max_length is 513: {fix}"), "fix": fix,
    });
    assert_eq!((problems.len(), length), (2, &expected));
    assert!(wrong.stderr.starts_with("peri: configuration: "), "{wrong:?}");

    let memory = ["--cache-strategy", "continuous", "--max-cache-batch-size", "1000000000"];
    let memory = peri(&[&["config", "check", "--json"], &memory[..]].concat());
    assert_eq!((memory.code, &json(&memory)["problems"][0]["field"]), (Some(4), &serde_json::Value::Null));

    let folder = Folder::new("all-settings");
    let file = folder.file("bad.toml", "max_length = 'x'\nmax_lenght = 1\n");
    for command in ["show", "check"] {
        let arguments = ["config", command, "--json", "--config", &file];
        let wrong = peri_with(&[("PERI_TOP_K", "many")], &arguments);
        assert_eq!((wrong.code, wrong.stderr.lines().count()), (Some(2), 1), "{wrong:?}");
        let problems = json(&wrong)["problems"].clone();
        let fields = problems.as_array().unwrap().iter().map(|problem| &problem["field"]);
        let (length, none, k) = ("max_length".into(), serde_json::Value::Null, "top_k".into());
        assert!(fields.eq([&length, &none, &k]), "{problems:#}");
        assert_eq!((&problems[0]["value"], &problems[2]["value"]), (&"'x'".into(), &"many".into()));
        assert!(
            problems[1]["message"].as_str().unwrap().ends_with("did you mean `max_length`?"),
            "{problems:#}"
        );
    }
}

#[test]
fn strategies_and_limits_change_no_text() {
    let text = |arguments: &[&str]| {
        let common =
            ["generate", "--seed", "4", "--max-new-tokens", "20", "Once upon a time", "The king", "The"];
        peri(&[&common[..], arguments].concat()).text()
    };
    let expected = text(&[]);
    for arguments in [
        &["--cache-strategy", "continuous"][..],
        &["--cache-strategy", "naive", "--pad-to-multiple-of", "3"],
        &["--enable-prefix-caching", "--kv-cache-page-size", "16"],
        &["--max-batch-size", "1", "--max-num-steps", "4"],
        &["--max-length", "64"],
    ] {
        assert_eq!(text(arguments), expected, "{arguments:?}");
    }
    assert_ne!(text(&["--max-length", "16"]), expected);
}

#[test]
fn saved_models_refuse_other_settings_and_weights() {
    let folder = Folder::new("serialized");
    let path = folder.path().join("model.mef").display().to_string();
    let text = |arguments: &[&str]| {
        peri(&[&["generate", "--seed", "4", "--max-new-tokens", "20", "The king"], arguments].concat())
    };
    let expected = text(&[]).text();
    assert_eq!(text(&["--save-to-serialized-model-path", &path]).text(), expected);
    assert_eq!(text(&["--serialized-model-path", &path]).text(), expected);
    let refused = text(&["--serialized-model-path", &path, "--kv-cache-page-size", "128"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("kv_cache_page_size 64 instead of 128"), "{}", refused.stderr);
    let Some(other) = testdata::shared("stories260k/gguf/stories260K-Q4_0.gguf") else { return };
    let refused = text(&["--serialized-model-path", &path, "--model", &other.display().to_string()]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("the encoding q4_k instead of q4_0"), "{}", refused.stderr);
}
