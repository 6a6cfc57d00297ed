//! `peri generate`: text, JSON, standard input, seeds, threads, folders.

use std::io::Read;

use crate::support::{Folder, command, peri, peri_reading, storyteller};

const PROMPT: &str = "Once upon a time";

/// A short continuation with further arguments.
fn generate(arguments: &[&str]) -> String {
    peri(&[&["generate", "--max-new-tokens", "24"], arguments].concat()).text()
}

#[test]
fn only_text_is_on_standard_output() {
    let outcome = peri(&["generate", PROMPT, "--max-new-tokens", "24", "--seed", "1"]);
    let figures = outcome.stderr.trim();
    assert!(figures.starts_with("[load ") && figures.ends_with("| seed 1]"), "{figures}");
    for figure in ["prompt 5 tokens", "first token ", "decode 24 tokens"] {
        assert!(figures.contains(figure), "{figures}");
    }
    let text = outcome.text();
    assert!(text.starts_with(PROMPT) && text.len() > PROMPT.len() + 40, "{text}");
    assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{text:?}");
    assert!(!text.contains("[load"), "{text}");
}

#[test]
fn quiet_prints_nothing_on_standard_error() {
    let outcome = peri(&["generate", "-q", "--max-new-tokens", "2", PROMPT]);
    assert_eq!((outcome.code, &outcome.stderr[..]), (Some(0), ""));
}

#[test]
fn greedy_reports_no_seed() {
    let outcome = peri(&["generate", "--temperature", "0", "--max-new-tokens", "2", PROMPT]);
    assert!(!outcome.stderr.contains("seed"), "{}", outcome.stderr);
}

#[test]
fn a_seed_gives_the_same_text_on_any_number_of_threads() {
    let with =
        |seed, threads| generate(&["--seed", seed, "--threads", threads, "--temperature", "1.2", PROMPT]);
    let first = with("7", "1");
    assert_eq!(first, with("7", "3"));
    assert_eq!(first, with("7", "0"));
    assert_ne!(first, with("8", "1"));
}

#[test]
fn a_random_seed_is_printed_and_reproduces_the_text() {
    let drawn = peri(&["generate", "--max-new-tokens", "24", PROMPT]);
    let seed = drawn.stderr.trim().rsplit("seed ").next().unwrap().trim_end_matches(']').to_string();
    assert_eq!(generate(&["--seed", &seed, PROMPT]), drawn.text());
}

#[test]
fn prompts_come_back_in_order_and_as_if_alone() {
    let prompts = ["The cat", PROMPT, "There was once a king who had three daughters", "The cat"];
    let alone: String = prompts.iter().map(|prompt| generate(&["--seed", "3", prompt])).collect();
    assert_eq!(generate(&[&["--seed", "3"], &prompts[..]].concat()), alone);
}

#[test]
fn a_prompt_may_come_on_standard_input() {
    let piped = |text: &str| {
        peri_reading(&["generate", "--max-new-tokens", "24", "--seed", "1"], text.as_bytes()).text()
    };
    let expected = generate(&["--seed", "1", PROMPT]);
    assert_eq!(piped(PROMPT), expected);
    assert_eq!(piped(&format!("{PROMPT}\n")), expected);
    assert_eq!(piped(&format!("{PROMPT}\r\n")), expected);
    // A prompt among the arguments is the one that counts.
    let both = peri_reading(&["generate", "--max-new-tokens", "24", "--seed", "1", PROMPT], b"The cat");
    assert_eq!(both.text(), expected);
}

#[test]
fn an_empty_prompt_is_an_error() {
    for (outcome, part) in [
        (peri(&["generate", ""]), "the prompt is empty"),
        (peri(&["generate", "-p", ""]), "the prompt is empty"),
        (peri(&["generate", "The fox", ""]), "prompt 2 of 2 is empty"),
        (peri_reading(&["generate"], b""), "standard input is empty"),
        (peri_reading(&["generate"], b"\n"), "the prompt is empty"),
        (peri(&["run", "-m", &storyteller(), " "]), "the prompt is empty"),
    ] {
        assert_eq!((outcome.code, &outcome.stdout[..]), (Some(2), ""), "{outcome:?}");
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
    let output = command(&["generate"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "</dev/null: {output:?}");
}

#[test]
fn the_first_argument_is_the_model_if_it_names_one() {
    let expected = generate(&["--seed", "1", PROMPT]);
    let model = storyteller();
    for arguments in [
        &[&model[..], PROMPT][..],
        &["-m", &model, PROMPT],
        &["--model", &model, "-p", PROMPT],
        &[&model, "-p", PROMPT],
        &["-p", PROMPT],
    ] {
        assert_eq!(generate(&[&["-s", "1"], arguments].concat()), expected, "{arguments:?}");
    }
    let piped = peri_reading(&["generate", &model, "-n", "24", "-s", "1", "-t", "1"], PROMPT.as_bytes());
    assert_eq!(piped.text(), expected);
    // A prompt behind -p is a prompt, whatever it looks like.
    assert!(generate(&["-p", "ada/tiny"]).starts_with("ada/tiny"));
}

#[test]
fn a_model_is_never_taken_for_a_prompt() {
    let model = storyteller();
    let cache = Folder::new("never-a-prompt");
    let cases: [(&[&str], i32, &str); 5] = [
        (&[PROMPT, &model], 2, "names a model where a text is expected"),
        (&["-m", &model, &model], 2, "names a model where a text is expected"),
        (&["nowhere.gguf"], 3, "nowhere.gguf"),
        (&["nowhere.gguf", PROMPT], 3, testdata::NO_SUCH_FILE),
        (&["and/or", PROMPT], 3, "`and/or` is read as a hub repo (if it is a text, write -p)"),
    ];
    for (arguments, code, part) in cases {
        let output = command(&[&["generate"], arguments].concat())
            .env("HF_HUB_CACHE", cache.path())
            .env("HF_HUB_OFFLINE", "1")
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        // Without a prompt, that is the first complaint.
        let part = if arguments.len() == 1 { "no prompt" } else { part };
        let code = if arguments.len() == 1 { 2 } else { code };
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part) && output.stdout.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn letters_are_the_long_flags() {
    let long =
        ["--prompt", PROMPT, "--max-new-tokens", "5", "--threads", "1", "--max-length", "64", "--seed", "3"];
    let short = ["-p", PROMPT, "-n", "5", "-t", "1", "-c", "64", "-s", "3"];
    let run = |arguments: &[&str]| peri(&[&["generate", "--temperature", "1.5"], arguments].concat()).text();
    assert_eq!(run(&long), run(&short));
    let two = peri(&["generate", "-p", PROMPT, "-n", "2", "--json"]).json_lines();
    assert_eq!((two.len(), two[0]["tokens"].as_array().unwrap().len()), (1, 2));
}

#[test]
fn json_has_everything() {
    let arguments = ["generate", "--json", "--seed", "1", "--max-new-tokens", "12", PROMPT, "The cat"];
    let lines = peri(&arguments).json_lines();
    let alone = ["generate", "--seed", "1", "--no-echo", "--max-new-tokens", "12", PROMPT];
    let alone = peri(&alone).text();
    assert_eq!(lines.len(), 2);
    let first = &lines[0];
    assert_eq!(first["index"], 0);
    assert_eq!(first["prompt"], PROMPT);
    assert_eq!(first["prompt_tokens"], 5);
    assert_eq!(first["text"].as_str().unwrap().trim_end_matches('\n'), alone.trim_end_matches('\n'));
    assert_eq!(first["tokens"].as_array().unwrap().len(), 12);
    assert_eq!(first["finish_reason"], "length");
    assert_eq!(first["seed"], 1);
    assert_eq!((&lines[1]["index"], &lines[1]["prompt"]), (&1.into(), &"The cat".into()));
}

#[test]
fn stops_biases_penalties_and_logprobs_are_applied() {
    let base = ["generate", "--json", "--temperature", "0", "--max-new-tokens", "12", PROMPT];
    let of = |more: &[&str]| peri(&[&base[..], more].concat()).json_lines();
    let plain = of(&[]).remove(0);
    assert_eq!((&plain["stop_reason"], plain.get("logprobs")), (&serde_json::Value::Null, None));
    let text = plain["text"].as_str().unwrap();
    let (before, stop) = (&text[..text.len() / 2], &text[text.len() / 2..][..3]);
    let stopped = of(&["--stop", "never said", "--stop", stop]).remove(0);
    assert_eq!((&stopped["stop_reason"], &stopped["finish_reason"]), (&stop.into(), &"stop".into()));
    assert_eq!(stopped["text"], before[..before.find(stop).unwrap_or(before.len())]);
    let third = plain["tokens"][2].to_string();
    let ended = of(&["--stop-token-id", &third]).remove(0);
    assert_eq!((&ended["stop_reason"], ended["tokens"].as_array().unwrap().len()), (&plain["tokens"][2], 2));
    let later = of(&["--stop-token-id", &third, "--min-new-tokens", "5"]).remove(0);
    assert!(later["tokens"].as_array().unwrap().len() >= 5, "{later}");
    let biased = of(&["--logit-bias", &format!("{third}=-100")]).remove(0);
    assert_ne!(biased["tokens"][2], plain["tokens"][2]);
    assert_ne!(of(&["--presence-penalty", "5"]), of(&["--frequency-penalty", "-5"]));

    let scored = of(&["--logprobs", "2", "--prompt-logprobs", "1"]).remove(0);
    assert_eq!(scored["tokens"], plain["tokens"]);
    let (made, prompt) = (&scored["logprobs"], scored["prompt_logprobs"].as_array().unwrap());
    assert_eq!((made.as_array().unwrap().len(), prompt.len()), (12, 5));
    assert_eq!(made[0]["token"], made[0]["top"][0]["token"], "greedy");
    assert_eq!(made[0]["logprob"], made[0]["top"][0]["logprob"]);
    assert!(prompt[0]["logprob"].is_null() && prompt[1]["logprob"].as_f64().unwrap() <= 0.0);
    let refused = peri(&["generate", "--logprobs", "2", PROMPT]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--json"), "{refused:?}");
}

#[test]
fn samples_are_reproducible_by_their_seeds() {
    let of = |seed: &str, more: &[&str]| {
        let base = ["generate", "--json", "--max-new-tokens", "12", "--seed", seed, "--temperature", "1.5"];
        peri(&[&base[..], more].concat()).json_lines()
    };
    let three = of("7", &["--samples", "3", PROMPT, "The cat"]);
    let places: Vec<_> = three.iter().map(|line| (line["index"].as_u64(), line["sample"].as_u64())).collect();
    let expected = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];
    assert_eq!(places, expected.map(|(index, sample)| (Some(index), Some(sample))));
    assert_ne!(three[0]["tokens"], three[1]["tokens"]);
    assert_eq!(of(&three[1]["seed"].to_string(), &[PROMPT])[0]["tokens"], three[1]["tokens"]);
    assert_eq!(of("7", &[PROMPT])[0]["tokens"], three[0]["tokens"]);
}

#[test]
fn ignore_eos_continues_past_the_end_of_the_text() {
    let tokens = |more: &[&str]| {
        let arguments = ["generate", "--json", "--seed", "5", "--max-new-tokens", "100000", PROMPT];
        let line = peri(&[&arguments[..], more].concat()).json_lines().remove(0);
        (line["finish_reason"].as_str().unwrap().to_string(), line["tokens"].as_array().unwrap().len())
    };
    // The context bounds what was asked for.
    let (reason, all) = tokens(&["--ignore-eos"]);
    assert_eq!(reason, "length");
    let (reason, some) = tokens(&[]);
    assert!(reason == "stop" && some < all || reason == "length" && some == all, "{reason} {some} {all}");
}

#[test]
fn flags_without_effect_on_the_built_in_model_are_warned_of() {
    let outcome = peri(&["generate", "--force-download", "--max-new-tokens", "1", PROMPT]);
    assert!(outcome.stderr.contains("force_download has no effect: the model is built in"), "{outcome:?}");
}

#[test]
fn answers_cut_by_the_context_are_warned_of_unless_the_user_set_it() {
    let stderr = |arguments: &[&str]| {
        let common = ["generate", "--ignore-eos", "--seed", "1"];
        peri(&[&common[..], arguments].concat()).stderr
    };
    let context = stderr(&["--max-new-tokens", "2000", PROMPT]);
    let cut =
        "peri: warning: the answer was cut: prompt and answer reached 512 tokens (the model's context)\n";
    assert!(context.contains(cut), "{context}");
    let long = "once upon a time ".repeat(125);
    let some = stderr(&["--max-new-tokens", "16", PROMPT, &long]);
    assert!(some.contains("warning: 1 of 2 answers were cut: "), "{some}");
    for asked in [
        &["--max-new-tokens", "8", PROMPT][..],
        &["--max-length", "32", PROMPT],
        &["--max-new-tokens", "2000", "--quiet", PROMPT],
    ] {
        assert!(!stderr(asked).contains("warning"), "{asked:?}");
    }
}

#[test]
fn a_closed_pipe_is_success() {
    let arguments = ["generate", "--ignore-eos", "--max-new-tokens", "400", PROMPT];
    let mut child = command(&arguments).spawn().unwrap();
    let mut start = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    assert_eq!(&start, b"Once");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn weights_may_be_outside_the_model_folder() {
    let Some(folder) = testdata::shared("stories260k") else { return };
    let path = |file: &str| folder.join(file).display().to_string();
    let hf = path("hf");
    let greedy = |more: &[&str]| generate(&[&["--temperature", "0", "--model", &hf, PROMPT], more].concat());
    let text = greedy(&[]);
    assert!(text.starts_with(PROMPT) && text.len() > PROMPT.len() + 20, "{text}");
    for weights in ["pytorch/pytorch_model.bin", "pytorch/ckpt_nested.pt"] {
        assert_eq!(greedy(&["--weights", &path(weights)]), text, "{weights}");
    }
}

#[test]
fn flags_override_generation_config() {
    let Some(original) = testdata::shared("stories260k/hf") else { return };
    let folder = Folder::copy_of("recommends", &original);
    folder.file("generation_config.json", r#"{"do_sample": false, "eos_token_id": [1, 2]}"#);
    let model = folder.path().display().to_string();
    let with = |more: &[&str]| generate(&[&["--model", &model, PROMPT], more].concat());
    assert_eq!(with(&["--seed", "1"]), with(&["--seed", "2"]));
    let flag = ["--temperature", "1.5", "--top-k", "0", "--seed"];
    assert_ne!(with(&[&flag[..], &["1"]].concat()), with(&[&flag[..], &["2"]].concat()));

    folder.file("generation_config.json", r#"{"top_p": 7}"#);
    let outcome = peri(&["generate", "--model", &model, PROMPT]);
    assert_eq!(outcome.code, Some(3));
    assert!(
        outcome.stderr.contains("generation_config.json: sampling parameters: top_p is 7"),
        "{outcome:?}"
    );
}

#[test]
fn traces_of_profiled_models_are_whole() {
    let folder = Folder::new("traces");
    let storyteller = storyteller();
    let encoder = testdata::shared("minilm-l6-v2").map(|path| path.display().to_string());
    let mut commands = vec![
        ["generate", &storyteller, "-p", PROMPT, "-n", "1"].to_vec(),
        ["run", &storyteller, PROMPT, "-n", "1"].to_vec(),
    ];
    commands.extend(encoder.as_ref().map(|encoder| ["encode", encoder, PROMPT].to_vec()));
    for arguments in commands {
        // A process that does not wait for its worker loses the trace in some of its runs.
        for run in 0..5 {
            let trace = folder.path().join(format!("{}-{run}.json", arguments[0]));
            let mut command = command(&arguments);
            command.env("PERIHELION_ENABLE_PROFILING", "on").env("PERIHELION_TRACE_FILE", &trace);
            assert!(command.status().unwrap().success(), "{arguments:?}");
            let events: Vec<serde_json::Value> =
                serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
            assert!(events.len() > 2, "{arguments:?}: {events:?}");
        }
    }
}

#[test]
fn answers_have_the_form_that_a_flag_gives() {
    let folder = Folder::new("forms");
    let file = |name: &str, text: &str| folder.file(name, text);
    let answer = |flags: &[&str]| {
        let common =
            ["generate", PROMPT, "--no-echo", "-q", "--seed", "1", "-n", "100", "--temperature", "2"];
        peri(&[&common[..], flags].concat()).text().trim_end_matches('\n').to_string()
    };
    let schema = r#"{"type": "object", "required": ["age"], "additionalProperties": false,
        "properties": {"age": {"type": "integer", "minimum": 10, "maximum": 99}}}"#;
    let schema = answer(&["--json-schema", &file("schema.json", schema)]);
    let age = serde_json::from_str::<serde_json::Value>(&schema).unwrap()["age"].as_u64().unwrap();
    assert!((10..100).contains(&age), "{schema}");
    let digits = answer(&["--regex", "-[0-9]{5}"]);
    assert!(digits.len() == 6 && digits[1..].bytes().all(|byte| byte.is_ascii_digit()), "{digits}");
    let gbnf = answer(&["--grammar", &file("grammar.gbnf", "root ::= \"a\" [bc]{3}")]);
    assert!(gbnf.len() == 4 && gbnf.starts_with('a'), "{gbnf}");
    let lark = answer(&["--grammar", &file("grammar.lark", "start: \"x\" | \"y\"")]);
    assert!(["x", "y"].contains(&&lark[..]), "{lark}");
    assert!([" a fox", " a raven"].contains(&&answer(&["--choice", " a fox", "--choice", " a raven"])[..]));
}

#[test]
fn forms_that_cannot_be_are_refused() {
    let folder = Folder::new("no-forms");
    let refused = |flags: &[&str], code: i32, part: &str| {
        let outcome = peri(&[&["generate", PROMPT, "-q"], flags].concat());
        assert!(
            outcome.code == Some(code) && outcome.stderr.contains(part),
            "{:?} {}",
            outcome.code,
            outcome.stderr
        );
    };
    let path = folder.file("schema.json", "{");
    refused(&["--json-schema", &path], 2, "schema.json: not JSON: EOF");
    refused(&["--json-schema", "no such file"], 1, "cannot read no such file");
    refused(&["--regex", "(a"], 2, "regex: line 1, column 1: unclosed group");
    refused(&["--regex", "a", "--choice", "b"], 2, "cannot be used with '--choice <TEXT>'");
}
