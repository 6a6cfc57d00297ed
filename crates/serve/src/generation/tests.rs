//! Answers of scripted pieces, in the formats of several models, cut at every place.

use pipelines::{
    AnswerFormat, AnswerPart, EventKind, FinishReason, ReasoningFormat, Tool, ToolCall, ToolFormat,
};
use serde_json::json;

use super::{Answer, Delta, Finish, ParserConfig};

fn config(tools: &str, reasoning: &str, is_single: bool) -> ParserConfig {
    let properties = json!({"city": {"type": "string"}, "days": {"type": "integer"}});
    let function = json!({"name": "weather", "parameters": {"type": "object", "properties": properties}});
    let declared = Tool::list(&[json!({"type": "function", "function": function})]).unwrap();
    let format =
        AnswerFormat { tools: ToolFormat::named(tools), reasoning: ReasoningFormat::named(reasoning) };
    ParserConfig::new(pipelines::AnswerReader { format, tools: declared, is_single, ..Default::default() })
}

/// The answer that pieces make, and the tokens up to where it ended.
fn answer(config: &ParserConfig, pieces: &[&str], reason: FinishReason) -> Answer {
    let mut parser = Some(config.parser());
    let mut answer = Answer::default();
    for (token, piece) in pieces.iter().enumerate() {
        let event = EventKind::Token { token: token as u32, text: (*piece).to_string(), logprobs: None };
        answer.take(Delta::from_event(event, &mut parser).unwrap());
        if let Some(parser) = parser.take_if(|parser| parser.is_over()) {
            answer.take(parser.finish("", Finish::Stop));
            return answer;
        }
    }
    let event = EventKind::Finished { reason, text: String::new() };
    answer.take(Delta::from_event(event, &mut parser).unwrap());
    answer
}

/// Text, `~` before reasoning, and calls as programs write them.
fn print(answer: &Answer) -> Vec<String> {
    let part = |part: &AnswerPart| match part {
        AnswerPart::Text(text) => text.clone(),
        AnswerPart::Reasoning(text) => format!("~{text}"),
        AnswerPart::ToolCall(ToolCall { name, arguments, .. }) => format!("{name}({arguments})"),
    };
    answer.content.parts.iter().map(part).collect()
}

/// Compares the parts and the end of an answer, whole and cut at every place.
fn check(config: &ParserConfig, text: &str, reason: FinishReason, expected: &[&str], finish: Finish) {
    let chars: Vec<&str> = text.char_indices().map(|(at, char)| &text[at..at + char.len_utf8()]).collect();
    let check = |pieces: &[&str]| {
        let answer = answer(config, pieces, reason);
        assert_eq!(
            (print(&answer), answer.finish),
            (expected.iter().map(ToString::to_string).collect(), finish)
        );
    };
    check(&[text]);
    check(&chars);
    for (at, _) in text.char_indices().skip(1) {
        check(&[&text[..at], &text[at..]]);
    }
}

#[test]
fn calls_text_and_reasoning_are_parts_in_order() {
    let stop = FinishReason::Stop;
    let arguments = r#"{"city": "Köln \u00e9 \\ \" <b>", "days": 1e400}"#;
    let call = format!("weather({arguments})");
    check(
        &config("hermes", "think", false),
        &format!(
            "<think>\nRain?\n</think>\n\nI look.\n<tool_call>\n{{\"name\": \"weather\", \"arguments\": {arguments}}}\n\
            </tool_call>\n<tool_call>\n{{\"name\": \"weather\", \"arguments\": {{}}}}\n</tool_call>"
        ),
        stop,
        &["~Rain?", "I look.", &call, "weather({})"],
        Finish::ToolCalls,
    );
    check(
        &config("mistral", "mistral", false),
        &format!("[THINK]Rain?[/THINK]I look.[TOOL_CALLS]weather[ARGS]{arguments}"),
        stop,
        &["~Rain?", "I look.", &call],
        Finish::ToolCalls,
    );
    check(
        &config("llama3", "", false),
        &format!("{{\"name\": \"weather\", \"parameters\": {arguments}}}"),
        stop,
        &[&call],
        Finish::ToolCalls,
    );
    check(
        &config("qwen3-coder", "", false),
        "<tool_call>\n<function=weather>\n<parameter=city>\nKöln\n</parameter>\n<parameter=days>\n2\n</parameter>\n\
        </function>\n</tool_call>",
        stop,
        &[r#"weather({"city": "Köln", "days": 2})"#],
        Finish::ToolCalls,
    );
    check(&config("hermes", "think", false), "Just <text> — é", stop, &["Just <text> — é"], Finish::Stop);
}

#[test]
fn a_call_that_the_limit_cuts_is_text() {
    let cut = r#"<tool_call>{"name": "weather", "arguments": {"city": "Kö"#;
    let length = FinishReason::Length;
    check(&config("hermes", "", false), cut, length, &[cut], Finish::Length);
    let whole = r#"<tool_call>{"name": "weather", "arguments": {}}</tool_call>"#;
    let text = format!("{whole}\n{cut}");
    check(&config("hermes", "", false), &text, length, &["weather({})", cut], Finish::Length);
    check(&config("hermes", "", false), cut, FinishReason::StopString(3), &[cut], Finish::StopString(3));
    for format in ToolFormat::names().filter(|name| !["llama3", "pythonic", "json"].contains(name)) {
        let begin = ToolFormat::named(format).unwrap().begin[0];
        let text = format!("text \n{begin}");
        check(&config(format, "", false), &text, length, &[&text], Finish::Length);
    }
    let text = format!("text \n {cut}");
    check(&config("hermes", "", false), &text, length, &[&text], Finish::Length);
    let text = "text <tool_call>\n<function=weather>\n<parameter=city>\n Kö";
    check(&config("qwen3-coder", "", false), text, length, &[text], Finish::Length);
}

#[test]
fn one_call_ends_an_answer_that_may_have_one() {
    let call = r#"<tool_call>{"name": "weather", "arguments": {}}</tool_call>"#;
    let text = format!("{call}\n{call}\nmore");
    check(&config("hermes", "", true), &text, FinishReason::Length, &["weather({})"], Finish::ToolCalls);
    let both = ["weather({})", "weather({})", "more"];
    check(&config("hermes", "", false), &text, FinishReason::Stop, &both, Finish::ToolCalls);
}
