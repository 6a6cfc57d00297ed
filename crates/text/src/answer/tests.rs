//! Answers of many models, cut at every place, and what hostile ones may hold.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::formats::FORMATS;
use super::*;
use crate::ChatTemplate;
use crate::constraint::{Constraint, GrammarCompiler, Matcher};
use crate::tokenizer::GgufVocabulary;

fn tools() -> Vec<Tool> {
    let properties = json!({
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "deep": {"type": "object"},
        "any": {},
    });
    let parameters = json!({"type": "object", "properties": properties});
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

#[test]
fn every_format_reads_what_it_writes() {
    let arguments = json!({"city": "Zürich 😀", "days": 3});
    let json = r#"{"city": "Zürich 😀", "days": 3}"#;
    for format in formats::FORMATS {
        let written = format.write("get_weather", arguments.as_object().unwrap());
        let id = if format.before.contains("{id") || format.between.contains("{id") { "#{id:9}" } else { "" };
        let id = match format.name {
            "solar" => "#{id:10}",
            "cohere" => "#{index}",
            _ => id,
        };
        check(format.name, &written, &[&format!("0:get_weather{id}({json})")]);
        let around = format!("Look.\n{written}\n\nDone.");
        let text = ["Look.", &format!("0:get_weather{id}({json})"), "Done."];
        if !format.bare {
            check(format.name, &around, &text);
        }
    }
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
        let format = AnswerFormat::of(Some(&template), None);
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
    let bytes = (0..=255).map(|byte| Cow::Owned(format!("<0x{byte:02X}>")));
    let tokens: Vec<Cow<'_, str>> = bytes.chain(marks.into_iter().map(Cow::Borrowed)).collect();
    let token_types = (0..tokens.len()).map(|id| if id < 256 { 6 } else { 3 }).collect();
    let vocabulary =
        GgufVocabulary { model: "llama", tokens, token_types: Some(token_types), ..Default::default() };
    Arc::new(Tokenizer::from_gguf_vocabulary(&vocabulary).unwrap())
}

/// How far a text goes in a grammar, and whether the answer may end there.
fn accepted<'a>(mut matcher: Matcher, tokenizer: &Tokenizer, text: &'a str) -> (&'a str, bool) {
    let written = |id: u32| match tokenizer.is_special(id) {
        true => tokenizer.token(id).unwrap().into_owned().into_bytes(),
        false => tokenizer.bytes_inside(id).unwrap(),
    };
    let mut rest = text.as_bytes();
    while !rest.is_empty() && !matcher.is_complete() {
        let mask = matcher.mask().unwrap();
        let fits = |id: &u32| mask.allows(*id) && !written(*id).is_empty() && rest.starts_with(&written(*id));
        let ids = 0..tokenizer.vocab_size() as u32;
        let Some(id) = ids.filter(fits).max_by_key(|id| written(*id).len()) else { break };
        matcher.advance(id).unwrap();
        rest = &rest[written(id).len()..];
    }
    (&text[..text.len() - rest.len()], matcher.may_end())
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
    let arguments = json!({"city": "a b", "days": 2}).as_object().unwrap().clone();
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
                let written =
                    format.write("add", &arguments).replace("{index}", "7").replace("{id:9}", "abcdefghi");
                let written = written.replace("{id:10}", "abcdefghij");
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
