//! Answers of many models, cut at every place, and what hostile ones may hold.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::formats::FORMATS;
use super::*;
use crate::ChatTemplate;
use crate::constraint::{Constraint, Grammar, GrammarCompiler, Matcher};
use crate::tokenizer::GgufVocabulary;

fn tools() -> Vec<Tool> {
    let properties = json!({
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "deep": {"type": "object"},
        "note": {"anyOf": [{"$ref": "#/$defs/Text"}, {"type": "null"}]},
        "any": {},
    });
    let texts = json!({"Text": {"type": "string"}});
    let parameters = json!({"type": "object", "properties": properties, "$defs": texts});
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    Tool::list(&[tool("get_weather"), tool("add")]).unwrap()
}

fn format(tools: &str, reasoning: &str) -> AnswerFormat {
    AnswerFormat { tools: ToolFormat::named(tools), reasoning: ReasoningFormat::named(reasoning) }
}

fn events(format: AnswerFormat, prompt: &str, pieces: &[&str]) -> Vec<AnswerEvent> {
    let mut parser = AnswerParser::new(format, &tools(), prompt, None);
    let mut events: Vec<AnswerEvent> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish());
    events
}

/// Neighbours of one kind as one.
fn joined(events: Vec<AnswerEvent>) -> Vec<AnswerEvent> {
    let mut joined: Vec<AnswerEvent> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(AnswerEvent::Text(last)), AnswerEvent::Text(text)) => last.push_str(&text),
            (Some(AnswerEvent::Reasoning(last)), AnswerEvent::Reasoning(text)) => last.push_str(&text),
            (
                Some(AnswerEvent::ToolCallArguments { delta: last, .. }),
                AnswerEvent::ToolCallArguments { delta, .. },
            ) => last.push_str(&delta),
            (_, event) => joined.push(event),
        }
    }
    joined
}

/// Text, `REASONING:` reasoning, `name(arguments)` of calls, and `!` before the text of a failed one.
fn print(events: &[AnswerEvent]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for event in events {
        match event {
            AnswerEvent::Text(text) => lines.push(text.clone()),
            AnswerEvent::Reasoning(text) => lines.push(format!("REASONING:{text}")),
            AnswerEvent::ToolCallStarted { index, id, name } => {
                let id = id.as_ref().map_or_else(String::new, |id| format!("#{id}"));
                lines.push(format!("{index}:{name}{id}("));
            }
            AnswerEvent::ToolCallArguments { delta, .. } => lines.last_mut().unwrap().push_str(delta),
            AnswerEvent::ToolCallFinished { .. } => lines.last_mut().unwrap().push(')'),
            AnswerEvent::ToolCallFailed { text, .. } => {
                lines.last_mut().unwrap().push_str(&format!("!{text}"))
            }
        }
    }
    lines
}

/// Parses `text` whole, cut into two at every place, and character by character.
fn check_after(prompt: &str, format: AnswerFormat, text: &str, expected: &[&str]) {
    let whole = joined(events(format, prompt, &[text]));
    assert_eq!(print(&whole), expected, "{text}");
    let cuts = (1..text.len()).filter(|&cut| text.is_char_boundary(cut));
    for cut in cuts {
        let (first, second) = text.split_at(cut);
        assert_eq!(joined(events(format, prompt, &[first, second])), whole, "{first:?} and {second:?}");
    }
    let chars: Vec<&str> = text.split("").collect();
    assert_eq!(joined(events(format, prompt, &chars)), whole, "{text} by characters");
}

fn check(tools: &str, text: &str, expected: &[&str]) {
    check_after("", format(tools, ""), text, expected);
}

#[test]
fn text_without_marks_is_unchanged() {
    for name in ToolFormat::names() {
        check(name, " \n Hello <b>you</b> [1] {x}\n\n", &[" \n Hello <b>you</b> [1] {x}\n\n"]);
        check(name, "", &[]);
    }
    check_after("", AnswerFormat::default(), "<tool_call>\n", &["<tool_call>\n"]);
}

/// Calls of `get_weather` and `add` with arguments that are hard to write, read or tell apart, in the order of the schema.
fn calls() -> Vec<Vec<(&'static str, Value)>> {
    let one = |arguments: Value| vec![("get_weather", arguments)];
    vec![
        one(json!({"city": "Zürich 😀", "days": 3})),
        one(json!({})),
        one(json!({"city": "5"})),
        one(json!({"city": "null"})),
        one(json!({"city": "True", "note": null})),
        one(json!({"city": "", "note": "123"})),
        one(json!({"note": "nulls"})),
        one(json!({"city": "a \"b\" \\ it's\n</x> {[(,:"})),
        one(json!({"deep": {"a": [1, {"b": "c, d"}, []], "e": null, "f": {}}, "any": "x"})),
        vec![("add", json!({"days": 1})), ("add", json!({"days": -2}))],
        vec![("get_weather", json!({"city": "a"})), ("add", json!({})), ("get_weather", json!({"days": 2}))],
    ]
}

/// Calls as a model writes them, with the texts that vary filled in.
fn written(format: &ToolFormat, calls: &[(&'static str, Value)]) -> String {
    let calls: Vec<_> = calls.iter().map(|(name, own)| (*name, own.as_object().unwrap())).collect();
    let written = format.write(&calls).replace("{index}", "7").replace("{id:9}", "abcdefghi");
    written.replace("{id:10}", "abcdefghij")
}

/// The calls that events report, and the text around them.
fn read(events: Vec<AnswerEvent>) -> (Vec<(String, Value)>, String) {
    let answer: Answer = events.into_iter().collect();
    let call = |call: &ToolCall| (call.name.clone(), serde_json::from_str(&call.arguments).unwrap());
    (answer.tool_calls().map(call).collect(), answer.text())
}

#[test]
fn every_format_reads_what_it_writes() {
    for format in FORMATS {
        for calls in calls() {
            let written = written(format, &calls);
            let own = self::format(format.name, "");
            let whole = joined(events(own, "", &[&written]));
            let expected = calls.iter().map(|(name, own)| ((*name).to_owned(), own.clone())).collect();
            assert_eq!(read(whole.clone()), (expected, String::new()), "{}: {written}", format.name);
            let chars: Vec<&str> = written.split("").collect();
            assert_eq!(joined(events(own, "", &chars)), whole, "{}: {written}", format.name);
            for (cut, _) in written.char_indices().skip(1) {
                let (first, second) = written.split_at(cut);
                assert_eq!(joined(events(own, "", &[first, second])), whole, "{first:?} and {second:?}");
            }
            if !format.bare {
                let around = joined(events(own, "", &[&format!("Look.\n{written}\n\nDone.")]));
                let calls = read(whole).0;
                assert_eq!(read(around), (calls, "Look.Done.".to_owned()), "{}", format.name);
            }
        }
    }
}

#[test]
fn arguments_grow_while_they_are_written() {
    for format in FORMATS {
        let text = "abcdefgh ".repeat(50);
        for key in ["city", "note"] {
            let written = written(format, &[("get_weather", json!({ key: text }))]);
            let chars: Vec<&str> = written.split("").collect();
            let events = events(self::format(format.name, ""), "", &chars);
            let deltas = events.iter().filter(|event| matches!(event, AnswerEvent::ToolCallArguments { .. }));
            assert!(deltas.count() > 300, "{} holds {key} back", format.name);
        }
    }
}

#[test]
fn a_cut_call_is_the_text_that_the_model_wrote() {
    for format in FORMATS {
        let call = written(format, &[("get_weather", json!({"city": "a b", "days": 3}))]);
        let start = if format.bare { "" } else { "Some  text \n " };
        let whole = format!("{start}{call}");
        for (cut, _) in whole.char_indices().skip(1) {
            let pieces: Vec<&str> = whole[..cut].split("").collect();
            let events = events(self::format(format.name, ""), "", &pieces);
            if events.iter().any(|event| matches!(event, AnswerEvent::ToolCallFinished { .. })) {
                continue;
            }
            // A stream sends the texts of failed calls too.
            let streamed = events.iter().filter_map(|event| match event {
                AnswerEvent::Text(text) | AnswerEvent::ToolCallFailed { text, .. } => Some(&text[..]),
                _ => None,
            });
            assert_eq!(streamed.collect::<String>(), whole[..cut], "{}", format.name);
            assert_eq!(read(events), (Vec::new(), whole[..cut].to_owned()), "{}", format.name);
        }
    }
}

#[test]
fn several_calls_in_one_section_are_read_in_every_format_that_marks_them() {
    let two = ["0:add({\"days\": 1})", "1:add({\"days\": 2})"];
    let tagged = |begin: &str, end: &str| {
        let call = |days| format!("<function=add>\n<parameter=days>\n{days}\n</parameter>\n</function>\n");
        format!("{begin}\n{}{}{end}", call(1), call(2))
    };
    check("qwen3-coder", &tagged("<tool_call>", "</tool_call>"), &two);
    check("seed-oss", &tagged("<seed:tool_call>", "</seed:tool_call>"), &two);
    check("gemma-4", "<|tool_call>call:add{days:1}call:add{days:2}<tool_call|>", &two);
    check(
        "function-gemma",
        "<start_function_call>call:add{days:1} call:add{days:2}<end_function_call>",
        &two,
    );
    let open = "<tool_call>\n<function=add>\n</function>\n<function=ad";
    check("qwen3-coder", open, &["0:add({})", "\n<function=ad"]);
}

#[test]
fn parallel_calls_count_from_zero() {
    let two = ["0:get_weather({\"city\": \"a\"})", "1:add({\"days\": 2})"];
    let objects =
        r#"{"name": "get_weather", "arguments": {"city": "a"}}, {"name": "add", "arguments": {"days": 2}}"#;
    check("mistral-list", &format!("[TOOL_CALLS] [{objects}]"), &two);
    check("phi", &format!("<|tool_call|>[{objects}]<|/tool_call|>"), &two);
    check("granite", &format!("<|tool_call|>[{objects}]"), &two);
    check("hermes", &format!("<tool_call>[{objects}]</tool_call>"), &two);
    check("json", &format!("[{objects}]"), &two);
    let sections = objects.replace("}, {", "}\n</tool_call>\n<tool_call>\n{");
    check("hermes", &format!("<tool_call>\n{sections}\n</tool_call>"), &two);
    // Without the end marks.
    check("hermes", &format!("<tool_call>\n{}", objects.replace("}, {", "}\n<tool_call>\n{")), &two);
    check("llama3", &objects.replace("arguments", "parameters").replace("}, {", "}; {"), &two);
    check("mistral", r#"[TOOL_CALLS]get_weather[ARGS]{"city": "a"}[TOOL_CALLS]add[ARGS]{"days": 2}"#, &two);
    check("lfm", "<|tool_call_start|>[get_weather(city='a'), add(days=2)]<|tool_call_end|>", &two);
    check("pythonic", "[get_weather(city=\"a\"), add(days=2)]", &two);
    check(
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"a\"}\n```\
        <｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"days\": 2}\n```\
        <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &two,
    );
    check(
        "kimi",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>\
        {\"city\": \"a\"}<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{\"days\": 2}\
        <|tool_call_end|><|tool_calls_section_end|>",
        &two,
    );
}

#[test]
fn arguments_survive_byte_for_byte() {
    for arguments in [
        r#"{"n": 1e400, "m": 0.10000000000000000555, "k": 123456789012345678901234567890}"#,
        r#"{"a":1,"a":2}"#,
        r#"{ "t" : "\u00e9\ud83d\ude00 é 😀 \" \\ \/ </tool_call> [ARGS] }{ <|call|>" }"#,
        "{}",
        "{\n \"a\": [[], {}, \"]}\"]\n}",
    ] {
        let expected = [&format!("0:add({arguments})")[..]];
        check(
            "hermes",
            &format!("<tool_call>\n{{\"name\": \"add\", \"arguments\": {arguments}}}\n</tool_call>"),
            &expected,
        );
        check(
            "hermes",
            &format!("<tool_call>{{\"arguments\":{arguments},\"name\":\"add\"}}</tool_call>"),
            &expected,
        );
        check("mistral", &format!("[TOOL_CALLS]add[ARGS]{arguments}"), &expected);
        check(
            "deepseek-v3.1",
            &format!(
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
            ),
            &expected,
        );
        // A JSON object in a string is unescaped once.
        let quoted = Value::from(arguments);
        check(
            "hermes",
            &format!("<tool_call>{{\"name\": \"add\", \"arguments\": {quoted}}}</tool_call>"),
            &expected,
        );
    }
    for none in
        [r#"{"name": "add"}"#, r#"{"name": "add", "arguments": null}"#, r#"{"name":"add","arguments":{}}"#]
    {
        check("hermes", &format!("<tool_call>{none}</tool_call>"), &["0:add({})"]);
    }
}

#[test]
fn tagged_values_have_the_types_of_the_schema() {
    let call = |values: &[(&str, &str)]| {
        let values = values.iter().map(|(key, value)| format!("<parameter={key}>\n{value}\n</parameter>\n"));
        format!("<tool_call>\n<function=add>\n{}</function>\n</tool_call>", values.collect::<String>())
    };
    let check = |values: &[(&str, &str)], expected: &str| {
        check("qwen3-coder", &call(values), &[&format!("0:add({expected})")]);
    };
    check(&[("city", "5")], r#"{"city": "5"}"#);
    check(
        &[("city", "\n a \"quoted\" <b>\\ </param\n\n")],
        r#"{"city": "\n a \"quoted\" <b>\\ </param\n\n"}"#,
    );
    check(&[("city", "")], r#"{"city": ""}"#);
    check(&[("days", "5"), ("city", "é")], r#"{"days": 5, "city": "é"}"#);
    check(&[("days", "five")], r#"{"days": "five"}"#);
    check(&[("deep", "{\"a\": [1, 1e400]}")], r#"{"deep": {"a": [1, 1e400]}}"#);
    check(&[("any", "5")], r#"{"any": 5}"#);
    check(&[("any", "five")], r#"{"any": "five"}"#);
    check(&[("any", "\"five\"")], r#"{"any": "\"five\""}"#);
    check(&[("note", "5")], r#"{"note": "5"}"#);
    check(&[("note", "null")], r#"{"note": null}"#);
    check(&[("note", "null\n")], r#"{"note": "null\n"}"#);
    check(&[("note", "")], r#"{"note": ""}"#);
    check(&[("note", "None"), ("any", "None")], r#"{"note": "None", "any": "None"}"#);
    check(&[("deep", "None")], r#"{"deep": "None"}"#);
    check(&[("other", "7")], r#"{"other": 7}"#);
    check(&[], "{}");
    super::tests::check(
        "glm",
        "<tool_call>add\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        &["0:add({\"days\": 2})"],
    );
    super::tests::check("glm", "<tool_call>add</tool_call>", &["0:add({})"]);
}

#[test]
fn literals_become_json() {
    let check = |text: &str, expected: &str| {
        check("lfm", &format!("<|tool_call_start|>[add({text})]<|tool_call_end|>"), &[expected]);
    };
    check("", "0:add({})");
    check(
        "a=True, b=[None, {'k': (1, -2.5e3,)}, ], c='it\\'s \\u00e9 \\x41\\n\"', d=\"]<|tool_call_end|>\"",
        r#"0:add({"a": true, "b": [null, {"k": [1, -2.5e3]}], "c": "it's \u00e9 A\n\"", "d": "]<|tool_call_end|>"})"#,
    );
    for broken in ["1", "a=b", "a=[1", "a={'k': 1]", "a=='x'"] {
        let text = format!("<|tool_call_start|>[add({broken})]<|tool_call_end|>");
        let events = events(format("lfm", ""), "", &[&text]);
        let answer: Answer = events.into_iter().collect();
        assert_eq!((answer.text(), answer.tool_calls().count()), (text, 0), "{broken}");
    }
    super::tests::check(
        "function-gemma",
        "<start_function_call>call:add{city:<escape>a\"{}<escape>,deep:{k:[1,<escape>x<escape>]},any:true}<end_function_call>",
        &[r#"0:add({"city": "a\"{}", "deep": {"k": [1, "x"]}, "any": true})"#],
    );
    super::tests::check(
        "gemma-4",
        "<|tool_call>call:add{city:<|\"|>a<b<|\"|>,days:14}<tool_call|><|tool_call>call:add{}<tool_call|>",
        &[r#"0:add({"city": "a<b", "days": 14})"#, "1:add({})"],
    );
}

#[test]
fn calls_that_never_close_are_text() {
    // Nothing was reported.
    check("hermes", "A <tool_call>\n{\"na", &["A <tool_call>\n{\"na"]);
    check("hermes", "A <tool_call> is a mark. <tool", &["A <tool_call> is a mark. <tool"]);
    check("mistral", "[TOOL_CALLS]", &["[TOOL_CALLS]"]);
    check(
        "llama3",
        "{\"name\": \"other\", \"parameters\": {}}",
        &["{\"name\": \"other\", \"parameters\": {}}"],
    );
    check("llama3", "{\"title\": \"a\"} and [1]", &["{\"title\": \"a\"} and [1]"]);
    check("llama3", "<|python_tag|>print(1)", &["<|python_tag|>print(1)"]);
    // Arguments were.
    for broken in ["{\"a\": \"b", "{\"a\": <", "{\"a\": tru}", "{\"a\": 1, }"] {
        let text = format!("Hm.\n<tool_call>\n{{\"name\": \"add\", \"arguments\": {broken}}}\n</tool_call>");
        let events = events(format("hermes", ""), "", &[&text]);
        assert!(events.iter().any(|event| matches!(event, AnswerEvent::ToolCallFailed { .. })), "{broken}");
        let answer: Answer = events.into_iter().collect();
        assert_eq!(answer.tool_calls().count(), 0, "{broken}");
        assert_eq!(answer.text().replace(['\n'], ""), text.replace('\n', ""), "{broken}");
    }
    let whole = "<tool_call>{\"name\": \"add\", \"arguments\": {}}";
    check("hermes", &format!("{whole}</tool_call>{}", &whole[..30]), &["0:add({})", &whole[..30]]);
}

#[test]
fn reasoning_is_split_off() {
    let check = |prompt: &str, text: &str, expected: &[&str]| {
        check_after(prompt, format("hermes", "think"), text, expected);
    };
    check("", "<think>\nhm <b>\n\n</think>\n\nHi\n", &["REASONING:hm <b>", "Hi\n"]);
    check("<|im_start|>assistant\n<think>\n", "hm\n</think>\n\nHi", &["REASONING:hm", "Hi"]);
    check("<think>\n\n</think>\n\n", "Hi </think>", &["Hi </think>"]);
    check("", "Use <think> and </think>.", &["Use <think> and </think>."]);
    check("", "<think></think>Hi", &["Hi"]);
    check("", "<think>\nhm <tool_call>", &["REASONING:hm <tool_call>"]);
    check(
        "",
        "<think>a</think>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>\n<think>b</think>c",
        &["REASONING:a", "0:add({})", "REASONING:b", "c"],
    );
    let think = ReasoningFormat::named("think").unwrap();
    assert!(think.is_open("x<think>\n\ngo on", Some("<think>\n\ngo on")));
    assert!(!think.is_open("<think>a</think>b", Some("<think>a</think>b")));
    assert!(!think.is_open("Say <think> now", None));
}

#[test]
fn marks_of_reasoning_that_are_repeated_are_no_text() {
    for format in reasoning::FORMATS {
        let own = AnswerFormat { tools: None, reasoning: Some(format) };
        let (begin, end) = (format.begin, format.end);
        let prompt = format!("{begin}\n");
        let check = |text: &str, expected: &[&str]| check_after(&prompt, own, text, expected);
        for begin in [begin, format.own_begin()] {
            check(&format!("{begin}hm{end}Hi"), &["REASONING:hm", "Hi"]);
            check(&format!(" \n{begin}\n{begin}hm \n{end}\n\nHi"), &["REASONING:hm", "Hi"]);
            check(&format!("{begin}{end}Hi"), &["Hi"]);
            check(&format!("{begin}hm"), &["REASONING:hm"]);
            // What stands in the middle is what the model reasons about.
            check(&format!("hm {begin} hm{end}Hi"), &[&format!("REASONING:hm {begin} hm"), "Hi"]);
        }
        check(&format!("hm{end}\n{end}Hi"), &["REASONING:hm", "Hi"]);
        let half = &end[..end.len() - 1];
        check(&format!("hm{half}"), &[&format!("REASONING:hm{half}")]);
    }
}

#[test]
fn text_that_is_addressed_loses_its_address() {
    let own = format("functionary", "");
    let check = |text: &str, expected: &[&str]| check_after("assistant\n\n>>>", own, text, expected);
    check("all\nHi >> you", &["Hi >> you"]);
    check("all\nHi\n>>>add\n{\"days\": 1}", &["Hi", "0:add({\"days\": 1})"]);
    check("add\n{\"days\": 1}>>>add\n{}>>>all\nHi", &["0:add({\"days\": 1})", "1:add({})", "Hi"]);
    check("all\n>>> print(1)\n1", &[">>> print(1)\n1"]);
    check("other\n{\"days\": 1}", &["other\n{\"days\": 1}"]);
    check("add\n{\"days", &["0:add({\"days!add\n{\"days"]);
    check("al", &["al"]);
    // The prompt ends with the mark; some models repeat it.
    check(">>>add\n{\"days\": 1}", &["0:add({\"days\": 1})"]);
    check(">>>all\nHi", &["Hi"]);
    check(">> add", &[">> add"]);
    check(">>", &[">>"]);
    let mut parser = AnswerParser::new(own, &[], ">>>", None);
    let events = [parser.push("all\nHi >>>add\n{}"), parser.finish()].concat();
    assert_eq!(print(&joined(events)), ["Hi >>>add\n{}"]);
}

#[test]
fn channels_are_split() {
    let check = |text: &str, expected: &[&str]| {
        check_after("<|end|><|start|>assistant", format("harmony", "harmony"), text, expected);
    };
    check(
        "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Hi <|x|>",
        &["REASONING:Think.", "Hi <|x|>"],
    );
    check(
        "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>\
        <|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"a\"}",
        &["REASONING:Think.", "I look.", "0:get_weather({\"city\":\"a\"})"],
    );
    check(
        " to=functions.add<|channel|>commentary json<|message|>{\"days\": 1}<|call|>",
        &["0:add({\"days\": 1})"],
    );
    // The end of the prompt may begin a mark; if the model writes none, it is no part of the answer.
    check("ok", &["ok"]);
    check("<|chan", &["<|chan"]);
    check("", &[]);
    check_after(
        "<|begin|>assistant",
        format("solar", "solar"),
        "<|think|>a<|end|><|begin|>assistant<|content|>b<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>i\
        <|tool_call:name|>add<|tool_call:args|>{}<|tool_call:end|>",
        &["REASONING:a", "b", "0:add#i({})"],
    );
    check_after(
        "<|START_THINKING|><|END_THINKING|>",
        format("cohere", "cohere"),
        "<|START_RESPONSE|>b<|END_RESPONSE|>",
        &["b"],
    );
}

#[test]
fn one_call_ends_the_answer() {
    let call = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
    let mut parser = AnswerParser::new(format("hermes", ""), &tools(), "", None).one_call();
    let events = parser.push(&format!("{call}\n{call} and more"));
    assert_eq!(print(&joined(events)), ["0:add({})"]);
    assert!(parser.is_over());
    assert_eq!((parser.push("x"), parser.finish()), (vec![], vec![]));
}

#[test]
fn marks_are_text_without_tools() {
    let text = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
    let mut parser = AnswerParser::new(format("hermes", "think"), &[], "", None);
    assert_eq!(parser.push(text), [AnswerEvent::Text(text.to_owned())]);
}

/// Hostile answers take time in proportion to their length, and no stack.
#[test]
fn hostile_answers_take_linear_time() {
    let long = |part: &str, count: usize| part.repeat(count);
    let call = |arguments: &str| format!("<tool_call>{{\"name\": \"add\", \"arguments\": {arguments}");
    let start = Instant::now();
    let parse = |name: &str, text: &str| -> Answer {
        let mut parser = AnswerParser::new(format(name, "think"), &tools(), "", None);
        let mut answer = Answer::default();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.char_indices().nth(7).map_or(rest.len(), |(at, _)| at);
            parser.push(&rest[..end]).into_iter().for_each(|event| answer.push(event));
            rest = &rest[end..];
        }
        parser.finish().into_iter().for_each(|event| answer.push(event));
        answer
    };
    let deep = format!("{{\"a\": {}1{}}}", long("{\"b\":", 1_000_000), long("}", 1_000_000));
    let answer = parse("hermes", &(call(&deep) + "}</tool_call>"));
    assert_eq!(answer.tool_calls().next().unwrap().arguments, deep);
    let endless = call(&format!("{{\"a\": \"{}", long("a<", 5_000_000)));
    let answer = parse("hermes", &endless);
    assert_eq!((answer.text().len(), answer.tool_calls().count()), (endless.len(), 0));
    for (name, text) in [
        ("hermes", long("<tool_call>", 100_000)),
        ("hermes", long("<tool_call>{\"x\": \"", 100_000)),
        ("hermes", format!("<tool_call>{}", long(" ", 1_000_000))),
        ("hermes", long("<tool_call>{\"name\": \"add\", \"arguments\": {}}", 30_000)),
        ("mistral", long("[TOOL_CALLS]", 100_000)),
        ("mistral", format!("[TOOL_CALLS]{}", long("a", 1_000_000))),
        ("qwen3-coder", format!("<tool_call><function=add>{}", long("<parameter=city>", 100_000))),
        ("lfm", format!("<|tool_call_start|>[add(a={}", long("[", 1_000_000))),
        ("lfm", format!("<|tool_call_start|>[add(a={}", long("'\\u00", 1_000_000))),
        ("pythonic", long("[", 1_000_000)),
        ("gemma-4", format!("<|tool_call>call:add{{a:{}", long("<|\"|>", 200_000))),
    ] {
        parse(name, &text);
    }
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
fn formats_are_found_in_templates() {
    let Some(folder) = testdata::shared("chat-templates/templates") else { return };
    let found = |name: &str| {
        let template = ChatTemplate::open(folder.join(format!("{name}.jinja"))).unwrap();
        let format = AnswerFormat::for_model(Some(&template), None);
        (format.tools.map_or("", |own| own.name), format.reasoning.map_or("", |own| own.name))
    };
    for (template, expected) in [
        ("Bielik-11B-v3.0-Instruct", ("hermes", "think")),
        ("ByteDance-Seed-OSS", ("seed-oss", "seed-oss")),
        ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", ("cohere", "cohere")),
        ("GLM-4.7-Flash", ("glm", "think")),
        ("GigaChat3-10B-A1.8B", ("gigachat-3.0", "")),
        ("GigaChat3.1-10B-A1.8B", ("gigachat", "")),
        ("Kimi-K2-Instruct", ("kimi", "")),
        ("LFM2.5-8B-A1B", ("lfm", "think")),
        ("MiMo-VL", ("hermes", "")),
        ("Mistral-Small-3.2-24B-Instruct-2506", ("mistral-id", "")),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ("qwen3-coder", "think")),
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ("hermes", "")),
        ("Qwen-QwQ-32B", ("hermes", "think")),
        ("Qwen-Qwen3-0.6B", ("hermes", "think")),
        ("Qwen3-Coder", ("qwen3-coder", "")),
        ("Reka-Edge", ("hermes", "think")),
        ("StepFun3.5-Flash", ("qwen3-coder", "think")),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", ("deepseek", "think")),
        ("deepseek-ai-DeepSeek-V3.1", ("deepseek-v3.1", "think")),
        ("deepseek_tool_call", ("deepseek", "")),
        ("llama-cpp-deepseek-r1", ("deepseek", "think")),
        ("meta-llama-Llama-3.1-8B-Instruct", ("llama3", "")),
        ("meta-llama-Llama-3.2-3B-Instruct", ("llama3", "")),
        ("fireworks-ai-llama-3-firefunction-v2", ("functools", "")),
        ("meetkai-functionary-medium-v3.2", ("functionary", "")),
        ("microsoft-Phi-3.5-mini-instruct", ("", "")),
        ("mistral_nemo_tool_call", ("mistral-list", "")),
        ("mistralai-Mistral-Nemo-Instruct-2407", ("mistral-list", "")),
        ("mistralrs-chatml", ("", "")),
        ("openai-gpt-oss-120b", ("harmony", "harmony")),
        ("smollm3", ("hermes", "think")),
        ("unsloth-mistral-Devstral-Small-2507", ("mistral", "")),
        ("upstage-Solar-Open-100B", ("solar", "solar")),
    ] {
        assert_eq!(found(template), expected, "{template}");
    }
}

/// Templates of models that are not among the shared ones, as far as they write calls.
#[test]
fn formats_are_found_in_what_templates_write() {
    let found = |calls: &str, prompt: &str| {
        let source = format!(
            "{{%- if tools %}}{{{{ tools | tojson }}}}{{% endif %}}\
             {{%- for m in messages %}}[{{{{ m.role }}}}]{{{{ m.content or '' }}}}{{% if m.tool_calls %}}{calls}{{% endif %}}\
             {{%- endfor %}}{{% if add_generation_prompt %}}[assistant]{prompt}{{% endif %}}"
        );
        ToolFormat::for_template(&ChatTemplate::new(&source).unwrap()).map_or("", |format| format.name)
    };
    let each = |call: &str, separator: &str| {
        format!(
            "{{% for c in m.tool_calls %}}{{% set f = c.function %}}{call}\
             {{% if not loop.last %}}{separator}{{% endif %}}{{% endfor %}}"
        )
    };
    let object = each(r#"{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}"#, ", ");
    assert_eq!(found(&format!("<TOOLCALL>[{object}]</TOOLCALL>"), "<think>\n\n"), "nemotron");
    assert_eq!(found(&format!("\n<tool_calls>[{object}]</tool_calls>"), ""), "apriel");
    let keyed = each(r#"{"{{ f.name }}": {{ f.arguments | tojson }}}"#, ", ");
    assert_eq!(found(&format!("<|tools_prefix|>[{keyed}]<|tools_suffix|>"), ""), "apertus");
    let action = each(
        "    {\n        \"tool_name\": \"{{ f.name }}\",\n        \"parameters\": {{ f.arguments | tojson(indent=4) }}\n    }",
        ",\n",
    );
    assert_eq!(found(&format!("\nAction:\n```json\n[\n{action}\n]```\n"), ""), "command-r");
    let invoke = each(
        "\n<{{ d }}invoke name=\"{{ f.name }}\">\n{% for k, v in f.arguments | items %}\
         <{{ d }}parameter name=\"{{ k }}\" string=\"{{ 'true' if v is string else 'false' }}\">\
         {{ v if v is string else v | tojson }}</{{ d }}parameter>{% endfor %}\n</{{ d }}invoke>",
        "",
    );
    for (block, name) in [("function_calls", "deepseek-v3.2"), ("tool_calls", "deepseek-v4")] {
        let calls =
            format!("{{% set d = '｜DSML｜' %}}\n\n<{{{{ d }}}}{block}>{invoke}\n</{{{{ d }}}}{block}>");
        assert_eq!(found(&calls, "<think>"), name);
    }
    let spaced = invoke.replace("invoke", " invoke").replace("parameter", " parameter");
    let calls = format!("{{% set d = '｜DSML｜' %}}\n\n<{{{{ d }}}} calls>{spaced}\n</{{{{ d }}}} calls>");
    assert_eq!(found(&calls, "<think>"), "deepseek-v4.1");
    let named = each("{{ '>>>' + f.name + '\\n' + f.arguments | tojson }}", "");
    assert_eq!(found(&named, ">>>"), "functionary");
    let tagged = |begin: &str, key: &str, middle: &str, value_end: &str, end: &str| {
        let pair = format!("{key}{{{{ k }}}}{middle}{{{{ v }}}}{value_end}");
        each(&format!("{begin}{{% for k, v in f.arguments | items %}}{pair}{{% endfor %}}{end}"), "\n")
    };
    let named = "<longcat_tool_call>{{ f.name }}\n";
    let middle = "</longcat_arg_key>\n<longcat_arg_value>";
    let longcat =
        tagged(named, "<longcat_arg_key>", middle, "</longcat_arg_value>\n", "</longcat_tool_call>");
    assert_eq!(found(&longcat, "<longcat_think>\n"), "longcat-2");
    let single = each(r#"{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}"#, "");
    assert_eq!(found(&format!("<longcat_tool_call>\n{single}\n</longcat_tool_call>\n"), ""), "longcat");
    let named = "<function name=\"{{ f.name }}\">";
    assert_eq!(found(&tagged(named, "<param name=\"", "\">", "</param>", "</function>"), ""), "minicpm-5");
    let python =
        each("{{ f.name }}({% for k, v in f.arguments | items %}{{ k }}={{ v | tojson }}{% endfor %})\n", "");
    let python = format!("<|tool_call_start|>\n```python\n{python}```\n<|tool_call_end|>\n");
    assert_eq!(found(&python, ""), "minicpm-3");
    assert_eq!(found("", ""), "");
}

/// As Hy3's, whose marks all end alike.
const SUFFIXED: &str = "{% set end = ':opensource' -%}
{%- if tools %}{{ tools | tojson }}{% endif -%}
{%- for m in messages -%}
[{{ m.role }}]{%- if m.role == 'assistant' -%}
{{ '<think{}></think{}>'.format(end, end) }}{{ m.content or '' }}{{ '<tool_calls{}>\n'.format(end) }}
{%- for c in m.tool_calls -%}
{{ '<tool_call{}>'.format(end) }}{{ c.function.name }}{{ '<tool_sep{}>\n'.format(end) }}
{%- for k, v in c.function.arguments.items() -%}
{{ '<arg_key{}>'.format(end) }}{{ k }}{{ '</arg_key{}>\n<arg_value{}>'.format(end, end) }}{{ v }}
{{- '</arg_value{}>\n'.format(end) }}
{%- endfor -%}
{{ '</tool_call{}>\n'.format(end) }}
{%- endfor -%}
{{ '</tool_calls{}>'.format(end) }}
{%- else -%}{{ m.content }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{{ '<think{}>'.format(end) }}{%- endif -%}";

/// A template like Muse Glimmer's, in which each call is a message to its function.
const MESSAGES: &str = "{% if tools %}{{ tools | tojson }}{% endif -%}
{%- for m in messages -%}
{%- if m.reasoning_content %}<|start|>assistant to=self<|message|>{{ m.reasoning_content }}<|eom|>{% endif -%}
{%- if m.tool_calls -%}
{%- for c in m.tool_calls -%}
{{ '<|start|>assistant to=' + c.function.name + '<|message|>' }}<atem:function_calls>
{{ '<atem:invoke name=\"' + c.function.name + '\">' }}
{% for k, v in c.function.arguments.items() -%}
{{ '<atem:parameter name=\"' + k + '\">' }}{{ v }}</atem:parameter>
{% endfor -%}
</atem:invoke>
</atem:function_calls>{{ '<|eot|>' if loop.last else '<|eom|>' }}
{%- endfor -%}
{%- else -%}
<|start|>{{ m.role }}{{ ' to=user' if m.role == 'assistant' }}<|message|>{{ m.content }}<|eot|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}";

#[test]
fn formats_are_found_in_templates_of_suffixes_and_of_messages() {
    for (source, name) in [(SUFFIXED, "hy3"), (MESSAGES, "muse-glimmer")] {
        let template = ChatTemplate::new(source).unwrap();
        let found = AnswerFormat::for_model(Some(&template), None);
        assert_eq!(found, format(name, name));
        let answer = two_calls(&template).unwrap();
        let (calls, _) = read(events(found, "<|start|>assistant", &[&answer]));
        assert_eq!(calls[1], ("add".to_owned(), json!({"days": 2})), "{name}");
    }
}

/// As Kimi K3's, whose marks are made of parts.
const PARTS: &str = "{% macro open(tag, more='') %}<|open|>{{ tag }}{{ more }}<|sep|>{% endmacro -%}
{%- macro close(tag) %}<|close|>{{ tag }}<|sep|>{% endmacro -%}
{%- if tools %}{{ tools | tojson }}{% endif -%}
{%- for m in messages -%}
{{- open('message', ' role=\"' + m.role + '\"') -}}
{%- if m.role == 'assistant' -%}
{{- open('think') + close('think') + open('response') + (m.content or '') + close('response') -}}
{%- if m.tool_calls -%}
{{- open('tools') -}}
{%- for c in m.tool_calls -%}
{{- open('call', ' tool=\"' + c.function.name + '\" index=\"' + loop.index | string + '\"') -}}
{%- for k, v in c.function.arguments.items() -%}
{{- open('argument', ' key=\"' + k + '\" type=\"' + ('string' if v is string else 'number') + '\"') -}}
{{- v -}}{{- close('argument') -}}
{%- endfor -%}
{{- close('call') -}}
{%- endfor -%}
{{- close('tools') -}}
{%- endif -%}
{%- else -%}{{- m.content -}}{%- endif -%}
{{- close('message') -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- open('message', ' role=\"assistant\"') + open('think') -}}{%- endif -%}";

#[test]
fn formats_are_found_in_templates_that_put_marks_together() {
    let template = ChatTemplate::new(PARTS).unwrap();
    let found = AnswerFormat::for_model(Some(&template), None);
    assert_eq!(found, format("kimi-k3", "kimi-k3"));
    let answer = two_calls(&template).unwrap();
    let (calls, _) = read(events(AnswerFormat { reasoning: None, ..found }, "", &[&answer]));
    assert_eq!(calls[1], ("add".to_owned(), json!({"days": 2})));
}

/// As GLM-4's.
const HEADERS: &str = "{%- if tools %}<|system|>\n{{ tools | tojson }}{% endif -%}
{%- for m in messages %}<|{{ m.role }}|>{{ m.metadata or '' }}\n{{ m.content }}{% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif %}{# observation #}";

#[test]
fn calls_may_stand_in_the_header_of_a_message() {
    let template = ChatTemplate::new(HEADERS).unwrap();
    let found = AnswerFormat::for_model(Some(&template), None);
    assert_eq!(found, format("glm-4", ""));
    let calls = "add\n{\"days\": 1}<|assistant|>get_weather\n{}";
    let check = |text: &str, expected: &[&str]| check_after("<|assistant|>", found, text, expected);
    check(calls, &["0:add({\"days\": 1})", "1:get_weather({})"]);
    check("\nadd\n{\"days\": 1}", &["\nadd\n{\"days\": 1}"]);
    check("add up\n{}", &["add up\n{}"]);
    check("adding\n{}", &["adding\n{}"]);
    check("add\nall of it", &["add\nall of it"]);
    check("other\n{}", &["other\n{}"]);
    let messages = [
        json!({"role": "user", "content": "Hello"}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"days\": 1}"}}]}),
        json!({"role": "tool", "tool_call_id": "1", "content": "2"}),
    ];
    let prompt =
        template.render_chat(&crate::ChatContext { tools: None, ..crate::ChatContext::new(&messages) });
    let expected = "<|user|>\nHello<|assistant|>add\n{\"days\": 1}<|observation|>\n2<|assistant|>";
    assert_eq!(prompt.unwrap().text, expected);
}

#[test]
fn grammars_let_calls_stand_where_models_write_them() {
    let check = |name: &str, phase, is_parallel, choice: &ToolChoice, text: &str, expected: bool| {
        let own = format(name, name);
        let tokenizer = with_marks(&own);
        let tools = tools();
        let rules = AnswerRules { tools: &tools[1..], choice, only: None, is_parallel, phase, text: None };
        let grammar = own.grammar(&rules, &tokenizer).unwrap().unwrap();
        let grammar = GrammarCompiler::new(Arc::clone(&tokenizer)).compile(&Constraint::Lark(grammar.into()));
        let (taken, may_end) = accepted(grammar.unwrap().matcher(), &tokenizer, text);
        assert_eq!(taken == text && may_end, expected, "{name} {choice:?}: {taken:?} of {text:?}");
    };
    let call = "<|tools_prefix|>[{\"add\": {\"days\": 1}}]<|tools_suffix|>";
    let inside = format!("<|inner_prefix|>Hm. {call}");
    let (before, must) = (ReasoningPhase::Before, &ToolChoice::Required);
    for choice in [must, &ToolChoice::Auto] {
        let check = |text: &str, expected| check("apertus", before, true, choice, text, expected);
        check(&inside, true);
        check(&format!("{inside} So.<|inner_suffix|>One."), true);
        check(&format!("{inside} Again. {call}"), true);
        check(&format!("<|inner_prefix|>Hm.<|inner_suffix|>{call}"), true);
        check(call, true);
        check("<|inner_prefix|>Hm.<|inner_suffix|>One.", choice != must);
        check("<|inner_prefix|>Hm.", false);
        check(&inside.replace("days", "other"), false);
    }
    check("apertus", before, false, must, &inside, true);
    check("apertus", ReasoningPhase::Inside, true, must, &format!("Hm.{call}"), true);
    let tools = "<|open|>tools<|sep|><|open|>call tool=\"add\" index=\"1\"<|sep|><|open|>argument key=\"days\" \
                 type=\"number\"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>";
    let empty = "<|open|>response<|sep|><|close|>response<|sep|>";
    let after = ReasoningPhase::After;
    check("kimi-k3", after, true, must, &format!("{empty}{tools}"), true);
    check("kimi-k3", after, true, must, tools, true);
    check("kimi-k3", after, true, must, &tools.replace(">2<", ">two<"), false);
    check("kimi-k3", after, true, must, &tools.replace("number", "string"), false);
    check("kimi-k3", after, true, must, empty, false);
    let said = empty.replace("<|close|>", "Look.<|close|>");
    check("kimi-k3", after, true, &ToolChoice::Auto, &format!("{said}{tools}<|close|>message<|sep|>"), true);
    for (text, in_auto, in_must) in [
        ("add\n{\"days\": 1}", true, true),
        ("add\n{\"days\": 1}<|assistant|>add\n{\"days\": 2}", true, true),
        ("add\n{\"other\": 1}", false, false),
        ("\nAll is well.", true, false),
    ] {
        check("glm-4", after, true, &ToolChoice::Auto, text, in_auto);
        check("glm-4", after, true, must, text, in_must);
    }
}

#[test]
fn arguments_are_those_that_are_declared() {
    let own = format("hermes", "");
    let tokenizer = with_marks(&own);
    let check = |parameters: Value, expected: bool| {
        let function = json!({"name": "f", "parameters": parameters});
        let tools = Tool::list(&[json!({"type": "function", "function": function})]).unwrap();
        let grammar = compiled(own, &tokenizer, &tools, &ToolChoice::Required).unwrap();
        let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_call>";
        let (taken, _) = accepted(grammar.matcher(), &tokenizer, call);
        assert_eq!(taken == call, expected, "{parameters}: {taken}");
    };
    let a = json!({"a": {"type": "integer"}});
    check(json!({"type": "object", "properties": a}), false);
    check(json!({"type": "object", "properties": a, "required": ["a"]}), false);
    check(json!({"type": "object", "properties": a, "additionalProperties": true}), true);
    check(json!({"type": "object", "properties": a, "additionalProperties": {"type": "integer"}}), true);
    check(
        json!({"type": "object", "properties": a, "patternProperties": {"^b$": {"type": "integer"}}}),
        true,
    );
    check(json!({"type": "object", "properties": a, "required": ["a", "b"]}), true);
    check(json!({"type": "object", "properties": {}}), true);
    check(json!({"type": "object"}), true);
}

#[test]
fn formats_are_found_in_the_vocabulary_if_the_template_only_reads_tools() {
    let tokenizer = with_marks(&format("lfm", ""));
    let found = |source: &str| {
        let template = ChatTemplate::new(source).unwrap();
        AnswerFormat::for_model(Some(&template), Some(&tokenizer)).tools.map_or("", |own| own.name)
    };
    let messages = "{% for m in messages %}{{ m.role }}: {{ m.content or '' }}\n{% endfor %}";
    assert_eq!(found(&format!("{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{messages}")), "lfm");
    assert_eq!(found(messages), "");
    for format in FORMATS {
        let Some(found) = ToolFormat::in_vocabulary(&with_marks(&self::format(format.name, ""))) else {
            continue;
        };
        // MiniCPM 3 begins calls with the token that begins LFM2's, and with more text behind it.
        assert!(format.begin[0].starts_with(found.begin[0]), "{}", format.name);
    }
    assert_eq!(ToolFormat::in_vocabulary(&with_tokens([])), None);
}

/// Every shared template that writes two calls writes what its format reads, and what the grammar takes.
#[test]
fn two_calls_of_templates_are_read() {
    let Some(folder) = testdata::shared("chat-templates/templates") else { return };
    let mut num_read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let template = ChatTemplate::open(&path).unwrap();
        let format = AnswerFormat::for_model(Some(&template), None);
        let (Some(_), Some(answer)) = (format.tools, two_calls(&template)) else { continue };
        let (calls, _) = read(events(AnswerFormat { reasoning: None, ..format }, "", &[&answer]));
        let [(one, first), (other, second)] = &calls[..] else { panic!("{path:?}: {calls:?} of {answer}") };
        assert_eq!((&one[..], &other[..]), ("get_weather", "add"), "{path:?}");
        assert_eq!((first, second), (&json!({"city": "a b"}), &json!({"days": 2})), "{path:?}");
        num_read += 1;
    }
    assert!(num_read >= 20, "{num_read}");
}

/// What a template writes of two calls, in one of the forms that templates take.
fn two_calls(template: &ChatTemplate) -> Option<String> {
    let declared = ["get_weather", "add"].map(|name| {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
        let function = json!({"name": name, "description": "d", "parameters": parameters});
        json!({"type": "function", "function": function})
    });
    let user = json!({"role": "user", "content": "Hello"});
    let calls = |as_text: bool| {
        let call = |name: &str, id: &str, arguments: Value| {
            let arguments = if as_text { json!(arguments.to_string()) } else { arguments };
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        };
        [
            call("get_weather", "call12345", json!({"city": "a b"})),
            call("add", "call54321", json!({"days": 2})),
        ]
    };
    let forms = [(false, json!("")), (true, json!("")), (false, Value::Null), (true, Value::Null)];
    forms.into_iter().find_map(|(as_text, content)| {
        let message = json!({"role": "assistant", "content": content, "tool_calls": calls(as_text)});
        let messages = [user.clone(), message];
        let context = crate::ChatContext {
            tools: Some(&declared),
            add_generation_prompt: false,
            bos: Some("<s>"),
            eos: Some("</s>"),
            ..crate::ChatContext::new(&messages)
        };
        let written = template.render(&context).ok()?;
        let answer = written.rsplit_once("Hello")?.1;
        let is_whole = answer.contains("a b") && !answer.contains("\\\"city") && !answer.contains("'city'");
        (is_whole && answer.contains("add")).then(|| answer.to_owned())
    })
}

#[test]
fn parsers_cross_threads() {
    fn check<T: Send>() {}
    check::<AnswerParser>();
}

/// Every byte, and the marks of a format as special tokens.
fn with_marks(format: &AnswerFormat) -> Arc<Tokenizer> {
    let mark = ::regex::Regex::new(r"<[^<>\n]+>|\[[A-Z_]{3,}\]").unwrap();
    let marks: BTreeSet<&str> =
        format.texts().flat_map(|text| mark.find_iter(text).map(|found| found.as_str())).collect();
    with_tokens(marks)
}

/// Every byte, and special tokens.
fn with_tokens<'a>(special: impl IntoIterator<Item = &'a str>) -> Arc<Tokenizer> {
    let bytes = (0..=255).map(|byte| Cow::Owned(format!("<0x{byte:02X}>")));
    let tokens: Vec<Cow<'_, str>> = bytes.chain(special.into_iter().map(Cow::Borrowed)).collect();
    let token_types = (0..tokens.len()).map(|id| if id < 256 { 6 } else { 3 }).collect();
    let vocabulary =
        GgufVocabulary { model: "llama", tokens, token_types: Some(token_types), ..Default::default() };
    Arc::new(Tokenizer::from_gguf_vocabulary(&vocabulary).unwrap())
}

/// The tokens of a tokenizer as they are written, by their first byte.
fn vocabulary(tokenizer: &Tokenizer) -> Vec<Vec<(u32, Vec<u8>)>> {
    let mut vocabulary = vec![Vec::new(); 256];
    for id in 0..tokenizer.vocab_size() as u32 {
        let written = match tokenizer.is_special(id) {
            true => tokenizer.token(id).unwrap().into_owned().into_bytes(),
            false => tokenizer.bytes_inside(id).unwrap(),
        };
        if let Some(first) = written.first() {
            vocabulary[usize::from(*first)].push((id, written));
        }
    }
    vocabulary
}

/// How far a text goes in a grammar, and whether the answer may end there.
fn accepted<'a>(mut matcher: Matcher, tokenizer: &Tokenizer, text: &'a str) -> (&'a str, bool) {
    let vocabulary = vocabulary(tokenizer);
    let mut rest = text.as_bytes();
    while let (Some(first), false) = (rest.first(), matcher.is_complete()) {
        let mask = matcher.mask().unwrap();
        let fits = |(id, written): &&(u32, Vec<u8>)| mask.allows(*id) && rest.starts_with(written);
        let own = vocabulary[usize::from(*first)].iter().filter(fits).max_by_key(|(_, own)| own.len());
        let Some((id, written)) = own else { break };
        matcher.advance(*id).unwrap();
        rest = &rest[written.len()..];
    }
    (&text[..text.len() - rest.len()], matcher.may_end())
}

fn compiled(
    format: AnswerFormat,
    tokenizer: &Arc<Tokenizer>,
    tools: &[Tool],
    choice: &ToolChoice,
) -> Result<Grammar, crate::Error> {
    let (phase, is_parallel) = (ReasoningPhase::After, true);
    let rules = AnswerRules { tools, choice, only: None, is_parallel, phase, text: None };
    let grammar = format.grammar(&rules, tokenizer)?.unwrap();
    GrammarCompiler::new(Arc::clone(tokenizer)).compile(&Constraint::Lark(grammar.into()))
}

#[test]
fn grammars_take_what_every_format_writes() {
    for format in FORMATS {
        let own = self::format(format.name, "");
        // Marks as tokens, as text, and with tokens inside them.
        for tokenizer in [with_marks(&own), with_tokens([]), with_tokens(["｜DSML｜", "tool"])] {
            for (choice, start) in [(ToolChoice::Required, ""), (ToolChoice::Auto, "Look. ")] {
                let grammar = compiled(own, &tokenizer, &tools(), &choice).unwrap();
                let start = match format.recipient() {
                    _ if format.bare || start.is_empty() => String::new(),
                    "" => start.to_owned(),
                    recipient => format!("{recipient}\n{start}"),
                };
                // The mark behind Harmony's calls ends the answer, as no part of it.
                let is_single = format.close == "<|call|>";
                for calls in calls().into_iter().filter(|calls| calls.len() == 1 || !is_single) {
                    let text = format!("{start}{}", written(format, &calls));
                    let (taken, may_end) = accepted(grammar.matcher(), &tokenizer, &text);
                    let rest = text[taken.len()..].trim_start_matches("<|call|>");
                    assert!(may_end && rest.is_empty(), "{} {choice:?}: {rest:?} of {text:?}", format.name);
                }
            }
        }
    }
}

#[test]
fn a_tool_that_is_named_is_called_once() {
    let two = [1, -2].map(|days| ("add", json!({ "days": days })));
    let choice = ToolChoice::Named("add".to_owned());
    for format in FORMATS {
        let own = self::format(format.name, "");
        let tokenizer = with_marks(&own);
        let grammar = compiled(own, &tokenizer, &tools(), &choice).unwrap();
        let one = written(format, &two[..1]);
        let (taken, may_end) = accepted(grammar.matcher(), &tokenizer, &one);
        assert!(may_end, "{}: {taken:?} of {one:?}", format.name);
        let again = written(format, &two);
        let (taken, _) = accepted(grammar.matcher(), &tokenizer, &again);
        assert!(taken.len() <= one.len(), "{}: {taken:?}", format.name);
    }
}

/// Schemas that clients send, and schemas that no format can write.
fn schemas() -> Vec<Value> {
    let one = |schema: Value| json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    let mut schemas = vec![
        one(json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null})),
        one(json!({})),
        one(json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2})),
        one(json!({"type": "array"})),
        one(json!({"type": ["string", "integer", "null"]})),
        one(json!({"type": ["array", "null"], "items": {"type": "string"}})),
        one(json!({"type": "object", "additionalProperties": {"type": "string"}})),
        one(json!({"type": "object"})),
        one(json!({"enum": ["a", 1, null, true]})),
        one(json!({"enum": [1, "1"]})),
        one(json!({"enum": []})),
        one(json!({"const": "x"})),
        one(json!({"type": "string", "pattern": "^a+$", "minLength": 2})),
        one(json!({"type": "string", "format": "uri"})),
        one(json!({"type": "string", "minLength": 2, "maxLength": 3})),
        one(json!({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]})),
        one(json!({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer", "minimum": 5}]})),
        one(json!({"anyOf": [{"enum": ["x", "y"]}, {"type": "array", "items": {"enum": ["x"]}}]})),
        one(json!({"type": "integer", "minimum": 1, "nullable": true})),
        one(json!({"not": {}})),
        one(json!({"$ref": "#/nowhere"})),
        one(json!({"type": "strange"})),
        one(json!(false)),
        json!({}),
        json!({"type": "object"}),
        json!({"type": "string"}),
        json!({"required": ["x"]}),
        json!({"properties": null, "required": 3}),
        json!({"anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {}}}]}),
        json!({"type": "object", "properties": {"": {}, "a b": {}, "é/:=<>'\"": {"type": "string"}, "\n": {}}}),
        json!({"type": "object", "properties": {}, "additionalProperties": false}),
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
    ];
    let tree = json!({"type": "object", "properties": {
        "text": {"$ref": "#/$defs/Text"}, "next": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}}});
    let text = json!({"type": "string"});
    for root in [one(json!({"$ref": "#/$defs/Tree"})), json!({"$ref": "#/$defs/Tree"})] {
        let mut root = root;
        root["$defs"] = json!({"Tree": tree, "Text": text, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop"}]}});
        schemas.push(root);
    }
    let mut endless = one(json!({"$ref": "#/$defs/Loop"}));
    endless["$defs"] = json!({"Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}, {"type": "array", "items": {"$ref": "#/$defs/Loop"}}]}});
    schemas.push(endless);
    let deep = (0..100)
        .fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner, "minItems": 1}));
    schemas.push(one(deep));
    schemas
}

/// Tools that are not strict are never refused, and no choice of tokens leads to a place that none leads out of.
#[test]
fn every_format_can_write_every_schema_or_a_simpler_one() {
    // One of each way to write arguments.
    let names = [
        "hermes",
        "apertus",
        "qwen3-coder",
        "glm",
        "minimax",
        "deepseek-v3.2",
        "kimi-k3",
        "glm-4",
        "lfm",
        "gemma-4",
        "functionary",
    ];
    for format in names.map(|name| ToolFormat::named(name).unwrap()) {
        let own = self::format(format.name, "");
        let tokenizer = with_marks(&own);
        for (number, schema) in schemas().into_iter().enumerate() {
            let function = json!({"name": "f", "parameters": schema});
            let tool = Tool::list(&[json!({"type": "function", "function": function})]).unwrap().remove(0);
            let forms = [tool.clone(), tool.relaxed(), tool.open()];
            let compile =
                |tool: &Tool| compiled(own, &tokenizer, std::slice::from_ref(tool), &ToolChoice::Required);
            let grammars = forms.iter().filter_map(|tool| compile(tool).ok()).collect::<Vec<_>>();
            assert!(!grammars.is_empty() && compile(&forms[2]).is_ok(), "{}: {schema}", format.name);
            for grammar in grammars {
                walk(grammar.matcher(), &tokenizer, number as u64);
            }
        }
    }
}

/// Takes tokens that are allowed, as good as at random.
fn walk(mut matcher: Matcher, tokenizer: &Tokenizer, seed: u64) {
    let mut random = seed;
    let mut text = String::new();
    for _ in 0..50 {
        if matcher.is_complete() {
            return;
        }
        let mask = matcher.mask().unwrap();
        let allowed: Vec<u32> = (0..tokenizer.vocab_size() as u32).filter(|id| mask.allows(*id)).collect();
        assert!(!allowed.is_empty() || matcher.may_end(), "nothing follows {text:?}");
        if allowed.is_empty() {
            return;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let id = allowed[(random >> 33) as usize % allowed.len()];
        text.push_str(&tokenizer.token(id).unwrap_or_default());
        matcher.advance(id).unwrap();
    }
}

/// The grammars of all formats compile, for marks that are special tokens and marks that are not; and they take what the
/// model's template writes.
#[test]
fn grammars_of_all_formats_compile_and_take_calls() {
    let real = testdata::shared("storyteller/hf").map(|path| Arc::new(Tokenizer::open(path).unwrap()));
    // Types that every format can enforce.
    let properties = json!({"city": {"type": "string"}, "days": {"type": "integer"}});
    let function = json!({"name": "add", "parameters": {"type": "object", "properties": properties}});
    let tools = Tool::list(&[json!({"type": "function", "function": function})]).unwrap();
    let arguments = json!({"city": "a b", "days": 2});
    for format in FORMATS {
        for reasoning in [None, ReasoningFormat::named(format.name), ReasoningFormat::named("think")] {
            let own = AnswerFormat { tools: Some(format), reasoning };
            for tokenizer in [Some(with_marks(&own)), real.clone()].into_iter().flatten() {
                let compiler = GrammarCompiler::new(Arc::clone(&tokenizer));
                let compile = |choice: &ToolChoice, phase, text| {
                    let rules =
                        AnswerRules { tools: &tools, choice, only: None, is_parallel: true, phase, text };
                    let grammar = own.grammar(&rules, &tokenizer).unwrap().unwrap();
                    let compiled = compiler.compile(&Constraint::Lark(grammar.clone().into()));
                    compiled.unwrap_or_else(|error| panic!("{} {choice:?}: {error}\n{grammar}", format.name))
                };
                for phase in [ReasoningPhase::Before, ReasoningPhase::Inside, ReasoningPhase::After] {
                    compile(&ToolChoice::Auto, phase, None);
                    compile(&ToolChoice::Auto, phase, Some("start: %json {\"type\": \"object\"}"));
                    compile(&ToolChoice::Named("add".to_owned()), phase, None);
                }
                let lead = reasoning.map_or("", |own| own.lead);
                let written = written(format, &[("add", arguments.clone())]);
                let written = written.strip_prefix(lead).unwrap_or(&written);
                let grammar = compile(&ToolChoice::Required, ReasoningPhase::Before, None);
                let (taken, may_end) = accepted(grammar.matcher(), &tokenizer, written);
                // The mark behind Harmony's calls ends the answer, as no part of it.
                let rest = written[taken.len()..].trim_start_matches("<|call|>");
                assert!(may_end && rest.is_empty(), "{}: {rest:?} of {written:?}", format.name);
            }
        }
    }
}

#[test]
fn calls_of_kimi_k3_have_types_and_stand_behind_the_text() {
    let own = format("kimi-k3", "kimi-k3");
    let argument = |key: &str, kind: &str, value: &str| {
        format!("<|open|>argument key=\"{key}\" type=\"{kind}\"<|sep|>{value}<|close|>argument<|sep|>")
    };
    let call = |name: &str, index: usize, arguments: &str| {
        format!("<|open|>call tool=\"{name}\" index=\"{index}\"<|sep|>{arguments}<|close|>call<|sep|>")
    };
    let first = call(
        "get_weather",
        1,
        &[argument("city", "string", "Paris <b>"), argument("days", "number", "3")].concat(),
    );
    let second = call("add", 2, &argument("deep", "object", "{\"a\": [1]}"));
    let tools = format!("<|open|>tools<|sep|>{first}{second}<|close|>tools<|sep|>");
    let calls = ["0:get_weather({\"city\": \"Paris <b>\", \"days\": 3})", "1:add({\"deep\": {\"a\": [1]}})"];
    let response = |text: &str| format!("<|open|>response<|sep|>{text}<|close|>response<|sep|>");
    let end = "<|close|>message<|sep|>";
    let thinking = "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>";
    check_after(
        thinking,
        own,
        &format!("Hm.<|close|>think<|sep|>{}{tools}{end}", response("Look:")),
        &["REASONING:Hm.", "Look:", calls[0], calls[1]],
    );
    let plain = "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>";
    check_after(plain, own, &format!("<|close|>response<|sep|>{tools}{end}"), &calls);
    check_after(plain, own, &format!("Hi.<|close|>response<|sep|>{end}"), &["Hi."]);
    // A value that is declared as a text is read as one, whatever type the model names.
    let text = format!("<|open|>tools<|sep|>{}", call("add", 1, &argument("city", "number", "5")));
    check_after(plain, own, &text, &["0:add({\"city\": \"5\"})"]);
}

#[test]
fn calls_of_muse_glimmer_are_messages_to_functions() {
    let own = format("muse-glimmer", "muse-glimmer");
    let check = |text: &str, expected: &[&str]| check_after("<|eot|><|start|>assistant", own, text, expected);
    let block = |name: &str, arguments: &str| {
        format!(
            "<atem:function_calls>\n<atem:invoke name=\"{name}\">\n{arguments}</atem:invoke>\n</atem:function_calls>"
        )
    };
    let days = "<atem:parameter name=\"days\">2</atem:parameter>\n";
    let city = "<atem:parameter name=\"city\"> Rome & <b> </atem:parameter>\n";
    let weather = block("get_weather", city);
    let (first, second) = ("0:get_weather({\"city\": \" Rome & <b> \"})", "1:add({\"days\": 2})");
    check(
        &format!(
            " to=self<|message|>Hm.<|eom|><|start|>assistant to=get_weather<|message|>{weather}<|eom|>\
             <|start|>assistant to=add<|message|>{}<|eot|>",
            block("add", days)
        ),
        &["REASONING:Hm.", first, second],
    );
    check(&format!(" to=add<|message|>{}", block("add", "")), &["0:add({})"]);
    check(
        " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Hi.<|eot|>",
        &["REASONING:Hm.", "Hi."],
    );
    check(" to=user<|message|>Look.<|eom|>", &["Look."]);
    check(&format!(" to=user<|message|>Look. {weather}"), &["Look.", first]);
    let cut = " to=add<|message|><atem:function_calls>\n<atem:invoke name=\"add\">\n<atem:par";
    check(cut, &[&format!("0:add({{!<|start|>assistant{cut}")]);
    check(" to=other<|message|>x", &[" to=other<|message|>x"]);
}

#[test]
fn texts_of_minicpm_5_may_be_quoted() {
    let call =
        |value: &str| format!("<function name=\"add\"><param name=\"city\">{value}</param></function>");
    let check = |value: &str, expected: &str| {
        check("minicpm-5", &call(value), &[&format!("0:add({{\"city\": {expected}}})")]);
    };
    check("Rome", "\"Rome\"");
    check("<![CDATA[a\n</param> & ]] ]>]]>", r#""a\n</param> & ]] ]>""#);
    check("a<![CDATA[<b>]]>c", "\"a<b>c\"");
    check("<![CDATA[]]>", "\"\"");
    check("<![CDAT", "\"<![CDAT\"");
    let two = "Look: <function name=\"add\"><param name=\"note\"><![CDATA[null]]></param><param name=\"days\">3</param>\
        </function><function name=\"add\"></function>";
    super::tests::check("minicpm-5", two, &["Look:", "0:add({\"note\": null, \"days\": 3})", "1:add({})"]);
    super::tests::check(
        "minicpm-5",
        "<function name=\"add\"><param name=\"city\"><![CDATA[x</param></function>",
        &[
            "0:add({\"city\": \"x</param></function>!<function name=\"add\"><param name=\"city\"><![CDATA[x</param></function>",
        ],
    );
}

#[test]
fn calls_of_minicpm_3_are_lines_of_python() {
    let own = format("minicpm-3", "minicpm-3");
    let check = |text: &str, expected: &[&str]| check_after("<|im_start|>assistant\n", own, text, expected);
    check(
        "<|thought_start|>\nI call.\n<|thought_end|>\n<|tool_call_start|>\n```python\nget_weather(city=\"a\",days=2)\n\
         add(days=-1)\n```\n<|tool_call_end|>\nDone.",
        &[
            "REASONING:I call.",
            "0:get_weather({\"city\": \"a\", \"days\": 2})",
            "1:add({\"days\": -1})",
            "Done.",
        ],
    );
    check(
        "<|tool_call_start|>\n```python\nimport os\n```",
        &["<|tool_call_start|>\n```python\nimport os\n```"],
    );
}

#[test]
fn calls_of_deepseek_v4_1_have_spaced_marks() {
    let parameter = |key: &str, text: bool, value: &str| {
        format!("<｜DSML｜ parameter name=\"{key}\" string=\"{text}\">{value}</｜DSML｜ parameter>\n")
    };
    let call = |name: &str, parameters: String| {
        format!("<｜DSML｜ invoke name=\"{name}\">\n{parameters}</｜DSML｜ invoke>\n")
    };
    let first = call("get_weather", parameter("city", true, "Rome") + &parameter("days", false, "2"));
    let text = format!("Look.\n\n<｜DSML｜ calls>\n{first}{}</｜DSML｜ calls>", call("add", String::new()));
    check(
        "deepseek-v4.1",
        &text,
        &["Look.", "0:get_weather({\"city\": \"Rome\", \"days\": 2})", "1:add({})"],
    );
}

#[test]
fn marks_of_functionary_begin_calls_of_declared_functions_alone() {
    let own = format("functionary", "");
    let check = |text: &str, expected: &[&str]| check_after("Hi>>>", own, text, expected);
    check("all\nHello", &["Hello"]);
    check("all\nTry\n>>> add(1, 2)\n3\n>>> x", &["Try\n>>> add(1, 2)\n3\n>>> x"]);
    check("all\na >>>b\n{\"x\": 1}", &["a >>>b\n{\"x\": 1}"]);
    check("all\n>>> all([])\nTrue >>>allow\n1", &[">>> all([])\nTrue >>>allow\n1"]);
    check("all\nLook.>>>add\n{\"days\": 1}", &["Look.", "0:add({\"days\": 1})"]);
    check("all\n>>>>>>add\n{\"days\": 1}", &[">>>", "0:add({\"days\": 1})"]);
    check("add \n{\"days\": 1}>>>all\nDone.", &["0:add({\"days\": 1})", "Done."]);
    check("addition\n{}", &["addition\n{}"]);
}

#[test]
fn apertus_may_call_in_the_middle_of_its_reasoning() {
    let own = format("apertus", "apertus");
    let call = "<|tools_prefix|>[{\"add\": {\"days\": 1}}]<|tools_suffix|>";
    let prompt = "<|assistant_start|>";
    check_after(
        prompt,
        own,
        &format!("<|inner_prefix|>Let me see. {call} So it is one.<|inner_suffix|>One."),
        &["REASONING:Let me see.", "0:add({\"days\": 1})", "REASONING:So it is one.", "One."],
    );
    check_after(
        prompt,
        own,
        &format!("<|inner_prefix|>Hm.{call}"),
        &["REASONING:Hm.", "0:add({\"days\": 1})"],
    );
    check_after(
        prompt,
        own,
        "<|inner_prefix|>Hm. <|tools_prefix|>none<|inner_suffix|>One.",
        &["REASONING:Hm. <|tools_prefix|>none", "One."],
    );
    check_after(prompt, own, &format!("One.{call}"), &["One.", "0:add({\"days\": 1})"]);
}
