//! `peri render`: prompts to the byte, and what is wrong with conversations and templates.

use serde_json::{Value, json};

use crate::support::{Folder, Outcome, command, peri, peri_reading, storyteller};

const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

fn render(arguments: &[&str], conversation: &str) -> Outcome {
    peri_reading(&[&["render"], arguments].concat(), conversation.as_bytes())
}

fn check_fails(outcome: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!((outcome.code, &outcome.stdout[..]), (Some(code), ""), "{outcome:?}");
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part:?}: {outcome:?}");
    }
}

#[test]
fn prompts_equal_those_of_jinja2() {
    let Some(folder) = testdata::shared("chat-templates") else { return };
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    // Templates without the date, and cases of all kinds.
    let templates = [
        "Qwen-Qwen3-0.6B",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "deepseek-ai-DeepSeek-V3.1",
        "mistralai-Mistral-Nemo-Instruct-2407",
        "microsoft-Phi-3.5-mini-instruct",
        "GLM-4.7-Flash",
    ];
    let (mut rendered, mut refused) = (0, 0);
    for name in templates {
        let template = folder.join(format!("templates/{name}.jinja")).display().to_string();
        for case in ["multi", "unicode", "tools", "two_users", "ends_assistant"] {
            let outcome = &expected["templates"][name]["cases"][case];
            let mut conversation = expected["base"].clone();
            conversation
                .as_object_mut()
                .unwrap()
                .extend(expected["contexts"][case].as_object().unwrap().clone());
            let actual = render(&["--template", &template], &conversation.to_string());
            match outcome["rendered"].as_str() {
                Some(text) => {
                    assert_eq!(actual.text(), text, "{name}, {case}");
                    rendered += 1;
                }
                None => {
                    // Conversations that a template refuses are brought into a form that it takes, if there is one.
                    assert!(actual.code == Some(0) || actual.code == Some(2), "{name}, {case}: {actual:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(rendered >= 24 && rendered + refused == 30, "{rendered} rendered, {refused} refused");
}

#[test]
fn conversations_are_lists_or_objects_from_files_or_standard_input() {
    let folder = Folder::new("render-shapes");
    let template = folder.file("chatml.jinja", CHATML);
    let messages = r#"[{"role": "user", "content": "Hi"}]"#;
    let expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(render(&["--template", &template], messages).text(), expected);
    assert_eq!(render(&["--template", &template, "-"], messages).text(), expected);
    let file = folder.file("chat.json", format!("{{\"messages\": {messages}}}"));
    assert_eq!(peri(&["render", &file, "--template", &template]).text(), expected);
    let without = "<|im_start|>user\nHi<|im_end|>\n";
    assert_eq!(render(&["--template", &template, "--no-generation-prompt"], messages).text(), without);
    let object = format!("{{\"messages\": {messages}, \"add_generation_prompt\": false}}");
    assert_eq!(render(&["--template", &template], &object).text(), without);
    let config = folder.file("tokenizer_config.json", json!({"chat_template": CHATML}).to_string());
    assert_eq!(render(&["--template", &config], messages).text(), expected);
    assert_eq!(render(&["--template", &folder.path().display().to_string()], messages).text(), expected);
}

#[test]
fn the_model_may_come_before_the_conversation() {
    let folder = Folder::new("render-model");
    let file = folder.file(
        "chat.json",
        r#"[{"role": "user", "content": "Once"}, {"role": "assistant", "content": " a fox."}, {"role": "user", "content": "It ran"}]"#,
    );
    let prompt = "<|bos|>Once a fox.\nIt ran";
    assert_eq!(peri(&["render", &file]).text(), prompt, "the built-in model continues texts");
    assert_eq!(peri(&["render", &storyteller(), &file, "--template", "plain"]).text(), prompt);
    assert_eq!(peri(&["render", "-m", &storyteller(), &file, "--template", "plain"]).text(), prompt);
}

#[test]
fn special_tokens_come_from_the_model() {
    let folder = Folder::new("render-tokens");
    let template = folder.file("template.jinja", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
    let conversation = r#"[{"role": "user", "content": "Once upon a time"}]"#;
    let model = storyteller();
    let arguments = ["--template", &template, "--model", &model, "--tokens"];
    let object = render(&[&arguments[..], &["--json"]].concat(), conversation).json_lines().remove(0);
    let prompt = object["prompt"].as_str().unwrap();
    let plain = peri_reading(&["tokenize"], b"Once upon a time").json_lines().remove(0);
    let (tokens, plain) = (object["tokens"].as_array().unwrap(), plain.as_array().unwrap());
    assert_eq!(tokens[..plain.len()], plain[..], "special tokens are read as such: {prompt}");
    assert_eq!(tokens.len(), plain.len() + 1);
    assert_eq!(render(&arguments, conversation).text(), format!("{prompt}\n{}\n", json!(tokens)));
    check_fails(&render(&["--template", &template, "--tokens"], conversation), 2, &["--tokens", "--model"]);
    let given = ["--template", &template, "--variable", "bos_token=<a>", "--variable", "eos_token=<b>"];
    assert_eq!(render(&given, conversation).text(), "<a>Once upon a time<b>");
}

#[test]
fn invalid_conversations_and_templates_are_errors() {
    let folder = Folder::new("render-wrong");
    let template = folder.file(
        "strict.jinja",
        "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('Only users, no ' ~ m.role) }}\
         {% endif %}{% endfor %}",
    );
    let with = |conversation: &str| render(&["--template", &template], conversation);
    check_fails(&with("[{\"role\": \"user\",\n  nonsense}]"), 2, &["standard input:2:3: not JSON: "]);
    check_fails(&with("[{\"role\": \"user\"}, {}]"), 2, &["message 2 has no role"]);
    check_fails(&with(r#"[{"role": "robot"}]"#), 2, &["Only users, no robot"]);
    let messages = r#"[{"role": "user", "content": "Hi"}]"#;
    let without = render(&[&storyteller()], messages);
    check_fails(&without, 2, &["model.gguf has no chat template", "--template", "--model"]);
    let two = peri(&["render", "a.json", "b.json"]);
    check_fails(&two, 2, &["`b.json` is a second conversation"]);
    let nowhere = folder.path().join("nowhere.jinja").display().to_string();
    check_fails(
        &render(&["--template", &nowhere], messages),
        2,
        &["--template", &nowhere, testdata::NO_SUCH_FILE],
    );
    let broken = folder.file("broken.jinja", "{% for %}");
    check_fails(
        &render(&["--template", &broken], messages),
        2,
        &["--template", "broken.jinja", "syntax error"],
    );
    check_fails(
        &peri(&["render", &nowhere, "--template", &template]),
        2,
        &[&nowhere, testdata::NO_SUCH_FILE],
    );
    check_fails(&render(&["--template", &template, "--variable", "x"], messages), 2, &["give NAME=VALUE"]);
}

#[test]
fn built_in_templates_have_names() {
    let messages = r#"[{"role": "user", "content": "Hi"}]"#;
    let expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(render(&["--template", "chatml"], messages).text(), expected);
}

#[test]
fn now_sets_the_clock_of_the_template() {
    let folder = Folder::new("render-now");
    let template = folder.file("date.jinja", "{{ strftime_now('%d %b %Y %H:%M') }}");
    let at = |now: &str| render(&["--template", &template, "--now", now], "[]");
    assert_eq!(at("2025-07-26T12:30:00").text(), "26 Jul 2025 12:30");
    assert_eq!(at("2025-07-26").text(), "26 Jul 2025 00:00");
    check_fails(&at("soon"), 2, &["--now", "`soon` is not a date"]);
}

#[test]
fn strftime_now_uses_the_time_zone() {
    let folder = Folder::new("render-date");
    let template = folder.file("date.jinja", "{{ strftime_now('%j %H') }}");
    let conversation = folder.file("chat.json", "[]");
    let hours = |zone: &str| {
        let arguments = ["render", &conversation, "--template", &template];
        let output = command(&arguments).env("TZ", zone).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (day, hour) = text.split_once(' ').unwrap();
        day.parse::<i64>().unwrap() * 24 + hour.parse::<i64>().unwrap()
    };
    // The year may end between the two, and the hour while they run.
    let apart = |east: i64, west: i64| (east - west).rem_euclid(24);
    let difference = apart(hours("<+09>-9"), hours("<-05>5"));
    assert!((13..=14).contains(&difference), "{difference}");
}

#[test]
fn bad_conversations_and_damaged_templates_have_different_codes() {
    let folder = Folder::new("render-fault");
    let template = folder.file("text.jinja", "{% for m in messages %}{{ 'a' + m.mood }}{% endfor %}");
    let outcome = render(&["--template", &template], r#"[{"role": "user", "content": "Hi"}]"#);
    check_fails(&outcome, 2, &["cannot render this conversation"]);
    assert!(!outcome.stderr.contains("damaged"), "{outcome:?}");
    let template = folder.file("damaged.jinja", "{{ messages | nope }}");
    check_fails(&render(&["--template", &template], "[]"), 3, &["damaged.jinja", "nope", "is damaged"]);

    let template = folder.file("empty.jinja", "");
    let outcome = peri_reading(&["chat", "--template", &template], b"Hi\n");
    check_fails(&outcome, 2, &["the prompt is empty"]);
    assert!(!outcome.stderr.contains("begins a text"), "{outcome:?}");
}
