//! `peri chat`, piped: turns, commands, seeds, a context that is full, Ctrl-C.

use serde_json::{Value, json};
use testdata::NO_SUCH_FILE;

use crate::support::{Folder, Outcome, peri, peri_reading, storyteller};

const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}\
    {% if add_generation_prompt %}assistant: {% endif %}";

/// A folder with a template, and `peri chat` on it.
struct Chat {
    folder: Folder,
    template: String,
}

impl Chat {
    fn new(name: &str) -> Chat {
        let folder = Folder::new(&format!("chat-{name}"));
        let template = folder.file("template.jinja", TEMPLATE);
        Chat { folder, template }
    }

    fn run(&self, arguments: &[&str], input: &str) -> Outcome {
        let mut all = vec!["chat", "--template", &self.template];
        for (flag, value) in [("--max-new-tokens", "12"), ("--seed", "1")] {
            if !arguments.contains(&flag) {
                all.extend([flag, value]);
            }
        }
        peri_reading(&[&all[..], arguments].concat(), input.as_bytes())
    }

    fn json(&self, arguments: &[&str], input: &str) -> Vec<Value> {
        self.run(&[&["--json"], arguments].concat(), input).json_lines()
    }
}

fn text(answer: &Value) -> &str {
    answer["text"].as_str().unwrap()
}

#[test]
fn answers_have_the_form_that_flags_give() {
    let chat = Chat::new("forms");
    let answers = chat.json(&["--choice", "yes", "--choice", "no"], "Is it?\nAnd now?\n");
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|answer| ["yes", "no"].contains(&text(answer))), "{answers:?}");
    let digits = chat.json(&["--regex", "[0-9]{4}"], "When?\n");
    assert!(text(&digits[0]).len() == 4 && text(&digits[0]).parse::<u32>().is_ok(), "{digits:?}");
    let schema = r#"{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false}"#;
    let schema = chat.folder.file("schema.json", schema);
    let json = chat.json(&["--json-schema", &schema, "--max-new-tokens", "80"], "What?\n");
    let value: Value = serde_json::from_str(text(&json[0])).unwrap();
    assert!(value == json!({"a": 1}) || value == json!({"a": 2}), "{value}");
    let refused = chat.run(&["--regex", "(a"], "What?\n");
    assert!(refused.code == Some(2) && refused.stderr.contains("unclosed group"), "{}", refused.stderr);
    let both = chat.run(&["--regex", "a", "--choice", "b"], "What?\n");
    assert!(both.code == Some(2) && both.stderr.contains("cannot be used with"), "{}", both.stderr);
}

#[test]
fn two_turns_share_a_conversation() {
    let chat = Chat::new("turns");
    let input = "Once upon a time there was a king who lived in a castle\nAnd then?\n";
    let answers = chat.json(&[], input);
    assert_eq!(answers.len(), 2);
    let [first, second] = &answers[..] else { unreachable!() };
    assert_eq!((&first["index"], &second["index"]), (&0.into(), &1.into()));
    assert_eq!(first["usage"]["cached_tokens"], 0);
    // All of the first turn is there already, also what does not fill a page.
    let count = |answer: &Value, name: &str| answer["usage"][name].as_u64().unwrap();
    let held = count(first, "prompt_tokens");
    assert!(count(second, "cached_tokens") >= held, "{answers:?}");
    assert!(count(second, "prompt_tokens") > held + 4, "{answers:?}");
    assert!(count(first, "generated_tokens") <= 12 && first["seed"] == 1, "{first}");
    assert!(first["timings"]["first_token_ms"].as_f64().unwrap() > 0.0, "{first}");
    assert!(first["timings"]["total_ms"].as_f64().unwrap() > 0.0, "{first}");

    // As text, the answers alone are on standard output.
    let outcome = chat.run(&[], input);
    assert!(outcome.stderr.contains(" cached | first token "), "{outcome:?}");
    assert!(!outcome.stderr.contains('\u{1b}'), "{outcome:?}");
    let expected: Vec<String> =
        answers.iter().map(|answer| text(answer).trim_end_matches('\n').to_string() + "\n").collect();
    assert_eq!(outcome.text(), expected.concat());
    assert_eq!(chat.run(&["--quiet", "--max-new-tokens", "100"], "Hi\n").stderr, "");
}

#[test]
fn answers_depend_on_the_seed_but_not_on_caching() {
    let chat = Chat::new("seed");
    let input = "Tell me of a fox.\nAnd of a hen?\n";
    let texts = |arguments: &[&str]| -> Vec<String> {
        chat.json(arguments, input).iter().map(|answer| text(answer).to_string()).collect()
    };
    let first = texts(&[]);
    assert_eq!(first, texts(&["--threads", "1"]));
    assert_eq!(first, texts(&["--enable-prefix-caching=false"]));
    assert_eq!(first, texts(&["--cache-strategy", "continuous"]));
    assert_ne!(first, texts(&["--system", "Be a wolf."]));
    assert_ne!(first, texts(&["--seed", "2"]));
}

#[test]
fn reset_undo_and_retry_change_the_conversation() {
    let chat = Chat::new("reset");
    let answers = chat.json(&[], "A fox\nA hen\n/reset\nA fox\nA hen\n/undo\nA hen\n/retry\n");
    let texts: Vec<&str> = answers.iter().map(text).collect();
    assert_eq!(texts.len(), 6);
    assert_eq!(texts[..2], texts[2..4], "/reset");
    assert_eq!(texts[3], texts[4], "/undo");
    assert_ne!(texts[4], texts[5], "/retry");
    assert_eq!(answers[4]["usage"]["prompt_tokens"], answers[5]["usage"]["prompt_tokens"]);
    assert_eq!(answers[5]["seed"], 2);
}

#[test]
fn system_messages_are_set_and_stay() {
    let chat = Chat::new("system");
    let saved = |input: &str, name: &str, arguments: &[&str]| -> Value {
        let path = chat.folder.path().join(name).display().to_string();
        chat.run(arguments, &format!("{input}/save {path}\n")).text();
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let roles = |messages: &Value| -> Vec<String> {
        messages.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap().to_string()).collect()
    };
    let messages = saved("Hi\n/reset\n", "a.json", &["--system", "Be brief."]);
    assert_eq!(messages, serde_json::json!([{"role": "system", "content": "Be brief."}]));
    let messages = saved("Hi\n/system Be long.\n", "b.json", &["--system", "Be brief."]);
    assert_eq!(roles(&messages), ["system", "user", "assistant"]);
    assert_eq!(messages[0]["content"], "Be long.");
    assert_eq!(roles(&saved("/system x\nHi\n/system \"\"\n", "c.json", &[])), ["user", "assistant"]);
    let shown = chat.run(&["--system", "Be \u{1b}[31mred."], "/system\n").stderr;
    assert!(shown.contains("Be \\u{1b}[31mred."), "{shown:?}");
}

#[test]
fn saved_conversations_continue() {
    let chat = Chat::new("save");
    let path = chat.folder.path().join("saved.json").display().to_string();
    let whole = chat.json(&["--system", "Be kind."], "A fox\nA hen\n");
    chat.json(&["--system", "Be kind."], &format!("A fox\n/save {path}\n"));
    let rest = chat.json(&[], &format!("/load {path}\nA hen\n"));
    assert_eq!(text(&rest[0]), text(&whole[1]));
    assert_eq!(text(&chat.json(&["--load", &path], "A hen\n")[0]), text(&whole[1]));
    // So do its variables, and its messages alone are a list.
    assert!(std::fs::read_to_string(&path).unwrap().starts_with('['));
    let file = chat.folder.file("variables.json", r#"{"messages": [], "tools": [{}], "answerer": "hen"}"#);
    chat.json(&["--load", &file, "--variable", "more=1"], &format!("A fox\n/save {path}\n"));
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!((&saved["answerer"], &saved["tools"], saved.get("more")), (&"hen".into(), &json!([{}]), None));
    // The same file makes the prompt again.
    chat.json(&["--system", "Be kind."], &format!("A fox\n/save {path}\n"));
    let prompt = peri_reading(&["render", &path, "--template", &chat.template], b"").text();
    assert!(prompt.starts_with("system: Be kind.\nuser: A fox\nassistant: "), "{prompt}");
}

#[test]
fn flags_win_over_files() {
    let mut chat = Chat::new("flags");
    chat.template = chat.folder.file("long.jinja", "{{ 'a ' * count }}{{ messages | length }}");
    let file = chat.folder.file("conversation.json", r#"{"messages": [], "count": 1}"#);
    let tokens = |arguments: &[&str]| {
        let answers = chat.json(&[&["--load", &file], arguments].concat(), "Hi\n");
        answers[0]["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert!(tokens(&["--variable", "count=50"]) >= tokens(&[]) + 49);
}

#[test]
fn chat_starts_from_a_saved_model() {
    let chat = Chat::new("warm");
    let path = chat.folder.path().join("storyteller.mef").display().to_string();
    peri(&["warm-cache", "--target", &path]).text();
    let answers = chat.json(&["--serialized-model-path", &path], "Hi\n");
    assert_eq!(answers.len(), 1);
}

#[test]
fn messages_may_have_several_lines() {
    let chat = Chat::new("lines");
    let path = chat.folder.path().join("lines.json").display().to_string();
    chat.run(&[], &format!("one\\\ntwo\n\"\"\"\n/exit\n\n three\n\"\"\"\n/save {path}\n/exit\nnever\n"))
        .text();
    let messages: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(messages.as_array().unwrap().len(), 4);
    assert_eq!(messages[0]["content"], "one\ntwo");
    assert_eq!(messages[2]["content"], "/exit\n\n three");
}

#[test]
fn statistics_count_what_was_cached() {
    let chat = Chat::new("stats");
    let outcome = chat.run(&["--quiet"], "Once upon a time there was a king\nAnd then?\n/stats\n");
    for part in
        ["conversation   4 messages, ", " tokens of 512", "answers        2, ", " of them from the cache"]
    {
        assert!(outcome.stderr.contains(part), "{outcome:?}");
    }
    assert!(!outcome.stderr.contains(", 0 of them from the cache"), "{outcome:?}");
}

#[test]
fn a_full_context_refuses_the_message() {
    let chat = Chat::new("full");
    let long = "once upon a time ".repeat(30);
    let outcome = chat.run(&["--json", "--max-length", "128"], &format!("A fox\n{long}\nnever\n"));
    assert_eq!((outcome.code, outcome.stdout.lines().count()), (Some(2), 1), "{outcome:?}");
    for part in
        ["the conversation has ", " tokens, and there is room for 128", "the message was not added", "/reset"]
    {
        assert!(outcome.stderr.contains(part), "{outcome:?}");
    }
    // An answer that fills it says so.
    let outcome = chat.run(&["--max-length", "24", "--max-new-tokens", "-1"], "A fox\n");
    assert!(
        outcome.stderr.contains("the conversation reached 24 tokens, the context length; /undo"),
        "{outcome:?}"
    );
    let limited = chat.run(&["--max-new-tokens", "2"], "A fox\n").stderr;
    assert!(!limited.contains("warning"), "the user set this limit: {limited}");
}

#[test]
fn errors_end_a_piped_conversation() {
    let chat = Chat::new("wrong");
    let check = |outcome: &Outcome, code: i32, parts: &[&str]| {
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        for part in parts {
            assert!(outcome.stderr.contains(part), "{part:?}: {outcome:?}");
        }
    };
    let none = peri_reading(&["chat", &storyteller()], b"Hi\n");
    check(&none, 2, &["model.gguf has no chat template", "--template plain", "`peri generate`"]);
    let unknown = peri_reading(&["chat", "--template", "chatlm"], b"Hi\n");
    check(&unknown, 2, &[&format!("--template chatlm: {NO_SUCH_FILE}"), "one of alpaca, chatml, "]);
    check(&chat.run(&[], "/rest\n"), 2, &["unknown command /rest; /help lists all"]);
    check(&chat.run(&[], "/retry\n"), 2, &["there is no answer to replace"]);
    check(&chat.run(&[], "/undo\n"), 2, &["there is no message to remove"]);
    let nowhere = format!("/nowhere/at/all.json: {NO_SUCH_FILE}");
    check(&chat.run(&[], "/load /nowhere/at/all.json\n"), 2, &[&nowhere]);
    check(&chat.run(&[], "/save /nowhere/at/all.json\n"), 2, &[&nowhere]);
    check(&chat.run(&[], "\"\"\"\nHi\n"), 2, &["line 1", "never ends"]);
    let strict = chat.folder.file("strict.jinja", "{{ raise_exception('No chats today') }}");
    let refused = peri_reading(&["chat", "--template", &strict], b"Hi\n");
    check(&refused, 2, &["refuses this conversation: No chats today"]);
    assert_eq!(refused.stdout, "");
    check(&chat.run(&[], "\n \n"), 2, &["standard input has no message"]);
    assert!(chat.run(&[], "/help\n").stderr.contains("/reset"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_answer_is_kept() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};

    let chat = Chat::new("interrupt");
    let arguments = [
        "chat",
        "--template",
        &chat.template,
        "--seed",
        "1",
        "--threads",
        "1",
        "--temperature",
        "3",
        "--top-k",
        "0",
    ];
    let mut child = crate::support::command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
    let input = "Tell a long story\n/reset\n".repeat(1000);
    child.stdin.as_mut().unwrap().write_all(input.as_bytes()).unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut start = [0; 4];
    stdout.read_exact(&mut start).unwrap();
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    let mut rest = Vec::new();
    stdout.read_until(0, &mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(rest.ends_with(b"\n"), "{rest:?}");
    let figures = String::from_utf8(output.stderr).unwrap();
    let last = figures.trim_end();
    assert!(last.ends_with("| stopped]") || last.ends_with("the conversation is unchanged."), "{figures}");
}

#[test]
fn the_built_in_model_continues_a_story_without_flags() {
    let outcome = peri_reading(&["chat", "--seed", "1", "--json"], b"Once upon a time\nThe fox\n");
    let answers = outcome.clone().json_lines();
    assert_eq!((answers.len(), &outcome.stderr[..]), (2, ""), "{outcome:?}");
    let plain =
        peri_reading(&["chat", "--template", "plain", "--seed", "1", "--json"], b"Once upon a time\n");
    assert_eq!(text(&plain.json_lines()[0]), text(&answers[0]));
    let generated =
        peri(&["generate", "--seed", "1", "-n", "80", "--no-echo", "--quiet", "Once upon a time"]).text();
    assert_eq!(text(&answers[0]).trim_end(), generated.trim_end(), "the prompt is the message alone");
    let count = |answer: &Value, name: &str| answer["usage"][name].as_u64().unwrap();
    assert!(count(&answers[1], "prompt_tokens") > count(&answers[0], "generated_tokens"), "{answers:?}");
}

#[test]
fn run_answers_one_prompt_or_chats() {
    let model = storyteller();
    let one = peri(&["run", &model, "--seed", "1", "-n", "12", "--quiet", "Once", "upon a time"]);
    let generated =
        peri(&["generate", "--seed", "1", "-n", "12", "--no-echo", "--quiet", "Once upon a time"]).text();
    assert_eq!(one.text().trim_end(), generated.trim_end(), "without a template the prompt is continued");
    for arguments in [&["-m", &model, "Once upon a time"][..], &[&model, "-p", "Once upon a time"]] {
        let run = peri(&[&["run", "--seed", "1", "-n", "12", "--quiet"], arguments].concat());
        assert_eq!(run.text().trim_end(), generated.trim_end(), "{arguments:?}");
    }
    let chat = peri_reading(&["run", "--seed", "1", "-n", "12", "--quiet"], b"Once upon a time\n");
    assert_eq!(chat.text().trim_end(), generated.trim_end());
    let folder = Folder::new("run");
    let template = folder.file("t.jinja", TEMPLATE);
    let asked =
        peri(&["run", &model, "-p", "Hi", "--template", &template, "--json", "-n", "2", "--seed", "1"]);
    let piped =
        peri_reading(&["chat", &model, "--template", &template, "--json", "-n", "2", "--seed", "1"], b"Hi\n");
    assert_eq!(text(&asked.json_lines()[0]), text(&piped.json_lines()[0]), "a template is applied");
    let missing = peri(&["run", "no such model", "Hi"]);
    assert_eq!(missing.code, Some(3), "the first word of run is a model: {missing:?}");
}

#[test]
fn pipes_get_thoughts_unchanged() {
    let chat = Chat::new("thoughts");
    let template = chat.folder.file("think.jinja", "{{ bos_token }}{{ messages[0].content }}<think>");
    let run = |arguments: &[&str]| {
        let all = ["chat", "--template", &template, "-n", "4", "--seed", "1"];
        peri_reading(&[&all[..], arguments].concat(), b"/think\nOnce\n")
    };
    let outcome = run(&[]);
    assert!(outcome.stderr.contains("Thoughts are folded."), "{outcome:?}");
    let answers = run(&["--json", "--quiet"]).json_lines();
    assert_eq!(outcome.text().trim_end(), text(&answers[0]).trim_end());
}
