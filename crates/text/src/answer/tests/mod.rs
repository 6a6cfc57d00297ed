//! Answers of many models, cut at every place, and what hostile ones may hold.

mod detection;
mod families;
mod grammars;

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
