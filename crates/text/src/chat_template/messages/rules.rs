//! Rules that bring messages into an order of roles that a template takes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{calls, is_blank, is_system, joined, role, text_of};

/// A change of a conversation, in the order in which they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    /// Text next to reasoning and calls becomes part of the reasoning.
    JoinReasoning,
    /// Text next to calls becomes a message before them.
    SplitText,
    /// Each call becomes a message, followed by its result.
    SplitCalls,
    /// Each call becomes a message with the name as `metadata` and the arguments as content, and each result one of the
    /// role `observation`, as in GLM-4.
    NameCalls,
    /// Calls become text of the assistant.
    WriteCalls,
    /// Results become text of the user.
    WriteResults,
    /// Messages of the system at the start become one.
    MergeSystem,
    /// Later messages of the system become part of the user's turn.
    FoldLaterSystem,
    /// Those at the start do, too.
    FoldSystem,
    /// Users and assistants take turns.
    Alternate,
}

/// The rules for a template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rules(BTreeSet<Rule>);

impl Rules {
    #[must_use]
    pub(super) fn with(&self, others: &[Rule]) -> Rules {
        Rules(self.0.iter().chain(others).copied().collect())
    }

    /// These, and those that may save a text that they lose, the mildest first.
    pub(super) fn and_stronger(&self) -> Vec<Rules> {
        use Rule::*;
        let steps: [&[Rule]; 5] = [
            &[FoldLaterSystem],
            &[Alternate],
            &[SplitText, SplitCalls],
            &[FoldSystem],
            &[WriteCalls, WriteResults],
        ];
        let mut rules = vec![self.clone()];
        for step in steps {
            rules.push(rules[rules.len() - 1].with(step));
        }
        rules.dedup();
        rules
    }

    /// The messages in the order that the rules give them.
    pub(super) fn arranged(&self, messages: Vec<Value>) -> Vec<Value> {
        self.0.iter().fold(messages, |messages, rule| match rule {
            Rule::JoinReasoning => messages.into_iter().map(join_reasoning).collect(),
            Rule::SplitText => messages.into_iter().flat_map(split_text).collect(),
            Rule::SplitCalls => split_calls(messages),
            Rule::NameCalls => messages.into_iter().flat_map(name_calls).collect(),
            Rule::WriteCalls => messages.into_iter().map(write_calls).collect(),
            Rule::WriteResults => write_results(messages),
            Rule::MergeSystem => merge_system(messages),
            Rule::FoldLaterSystem => fold_later_system(messages),
            Rule::FoldSystem => fold_system(messages),
            Rule::Alternate => alternate(messages),
        })
    }
}

fn join_reasoning(mut message: Value) -> Value {
    let text = text_of(&message["content"]);
    if !calls(&message).is_empty()
        && !text.is_empty()
        && let Some(reasoning) = message["reasoning_content"].as_str()
    {
        message["reasoning_content"] = json!(joined(reasoning, &text));
        message["content"] = Value::Null;
    }
    message
}

fn split_text(mut message: Value) -> Vec<Value> {
    if calls(&message).is_empty() || is_blank(&message["content"]) {
        return vec![message];
    }
    let text = json!({ "role": message["role"], "content": message["content"].take() });
    vec![text, message]
}

fn split_calls(messages: Vec<Value>) -> Vec<Value> {
    let mut split = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(mut message) = messages.next() {
        let calls = calls(&message).to_vec();
        if calls.len() < 2 {
            split.push(message);
            continue;
        }
        let mut results: Vec<Value> = Vec::new();
        while let Some(result) = messages.next_if(|next| role(next) == "tool") {
            results.push(result);
        }
        for call in calls {
            let (own, others) = results.into_iter().partition(|result| result["tool_call_id"] == call["id"]);
            results = others;
            message["tool_calls"] = json!([call]);
            split.push(message);
            message = json!({ "role": "assistant", "content": null });
            let own: Vec<Value> = own;
            split.extend(own);
        }
        split.extend(results);
    }
    split
}

fn name_calls(mut message: Value) -> Vec<Value> {
    if role(&message) == "tool" {
        message["role"] = json!("observation");
        return vec![message];
    }
    let named = |call: &Value| {
        let function = &call["function"];
        json!({ "role": message["role"], "metadata": function["name"], "content": arguments_of(function) })
    };
    let calls: Vec<Value> = calls(&message).iter().map(named).collect();
    if let Some(fields) = message.as_object_mut().filter(|_| !calls.is_empty()) {
        fields.remove("tool_calls");
    }
    let has_text = calls.is_empty() || !is_blank(&message["content"]);
    has_text.then_some(message).into_iter().chain(calls).collect()
}

fn write_calls(mut message: Value) -> Value {
    let texts: Vec<String> = calls(&message).iter().map(written).collect();
    if let Some(fields) = message.as_object_mut().filter(|_| !texts.is_empty()) {
        fields.remove("tool_calls");
        let text = text_of(&message["content"]);
        let between = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        message["content"] = Value::String([&text, between, &texts.join("\n")].concat());
    }
    message
}

/// A call in the form that most models know.
fn written(call: &Value) -> String {
    let function = &call["function"];
    let arguments = arguments_of(function);
    format!("<tool_call>\n{{\"name\": {}, \"arguments\": {arguments}}}\n</tool_call>", function["name"])
}

/// The arguments of a call as text.
fn arguments_of(function: &Value) -> String {
    function["arguments"].as_str().map_or_else(|| function["arguments"].to_string(), str::to_owned)
}

fn write_results(messages: Vec<Value>) -> Vec<Value> {
    let mut written: Vec<Value> = Vec::with_capacity(messages.len());
    let mut follows_result = false;
    for message in messages {
        if role(&message) != "tool" {
            follows_result = false;
            written.push(message);
            continue;
        }
        let text = format!("<tool_response>\n{}\n</tool_response>", text_of(&message["content"]));
        match written.last_mut().filter(|_| follows_result) {
            Some(last) => last["content"] = json!(format!("{}\n{text}", text_of(&last["content"]))),
            None => written.push(json!({ "role": "user", "content": text })),
        }
        follows_result = true;
    }
    written
}

/// Appends the content of a message to another.
fn append(message: &mut Value, other: &Value) {
    message["content"] = json!(joined(&text_of(&message["content"]), &text_of(&other["content"])));
    // Reasoning goes along.
    if let Some(reasoning) = other["reasoning_content"].as_str() {
        let before = message["reasoning_content"].as_str().unwrap_or_default();
        message["reasoning_content"] = json!(joined(before, reasoning));
    }
}

fn merge_system(mut messages: Vec<Value>) -> Vec<Value> {
    let count = messages.iter().take_while(|message| is_system(message)).count();
    for other in messages.drain(count.min(1)..count).collect::<Vec<_>>() {
        append(&mut messages[0], &other);
    }
    messages
}

fn fold_later_system(messages: Vec<Value>) -> Vec<Value> {
    let first = messages.iter().take_while(|message| is_system(message)).count();
    let mut folded: Vec<Value> = Vec::with_capacity(messages.len());
    // Whether the last message is a text of the system that the next message of the user takes in.
    let mut is_open = false;
    for (index, message) in messages.into_iter().enumerate() {
        let is_later = index >= first && is_system(&message);
        let last = folded.last_mut().filter(|last| role(last) == "user");
        match last {
            Some(last) if is_later => append(last, &in_marks(&message)),
            Some(last) if is_open && role(&message) == "user" => {
                append(last, &message);
                is_open = false;
            }
            _ => {
                is_open = is_later;
                folded.push(if is_later { in_marks(&message) } else { message });
            }
        }
    }
    folded
}

/// A text of the system as a message of the user, whose own text it is not.
fn in_marks(message: &Value) -> Value {
    json!({ "role": "user", "content": format!("<system>\n{}\n</system>", text_of(&message["content"])) })
}

fn fold_system(mut messages: Vec<Value>) -> Vec<Value> {
    let count = messages.iter().take_while(|message| is_system(message)).count();
    let texts = messages.drain(..count).map(|message| text_of(&message["content"]));
    let mut text = texts.fold(String::new(), |before, text| joined(&before, &text));
    if text.is_empty() {
        return messages;
    }
    if messages.first().is_some_and(|first| role(first) == "user") {
        text = joined(&text, &text_of(&messages.remove(0)["content"]));
    }
    messages.insert(0, json!({ "role": "user", "content": text }));
    messages
}

/// Makes neighbours one message, and puts an empty message between those that calls and results keep apart.
fn alternate(messages: Vec<Value>) -> Vec<Value> {
    let mut turns: Vec<Value> = Vec::with_capacity(messages.len());
    let is_text =
        |message: &Value| matches!(role(message), "user" | "assistant") && calls(message).is_empty();
    let mut last = String::new();
    for message in messages {
        if !is_text(&message) {
            turns.push(message);
            continue;
        }
        let role = role(&message).to_owned();
        if let Some(before) = turns.last_mut().filter(|before| is_text(before) && before["role"] == role) {
            append(before, &message);
            continue;
        }
        let other = if role == "user" { "assistant" } else { "user" };
        if last == role || (last.is_empty() && role == "assistant") {
            turns.push(json!({ "role": other, "content": "" }));
        }
        turns.push(message);
        last = role;
    }
    if !turns.iter().any(|turn| role(turn) == "user") {
        let start = turns.iter().take_while(|turn| is_system(turn)).count();
        turns.insert(start, json!({ "role": "user", "content": "" }));
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::Rule::*;
    use super::*;

    fn message(role: &str, content: &str) -> Value {
        json!({ "role": role, "content": content })
    }

    fn caller(content: Value, ids: &[&str]) -> Value {
        let call = |id: &&str| json!({"id": id, "type": "function", "function": {"name": id, "arguments": {"n": 1}}});
        json!({ "role": "assistant", "content": content, "tool_calls": ids.iter().map(call).collect::<Vec<_>>() })
    }

    fn result(id: &str) -> Value {
        json!({ "role": "tool", "tool_call_id": id, "content": format!("of {id}") })
    }

    /// Each message in short.
    fn check(rule: Rule, messages: &[Value], expected: &[&str]) {
        let arranged = Rules::default().with(&[rule]).arranged(messages.to_vec());
        let short = |message: &Value| {
            let ids = calls(message).iter().map(|call| format!("+{}", call["id"].as_str().unwrap()));
            format!("{}{}: {}", role(message), ids.collect::<String>(), text_of(&message["content"]))
        };
        assert_eq!(arranged.iter().map(short).collect::<Vec<_>>(), expected, "{rule:?}");
    }

    #[test]
    fn calls_are_split_and_each_is_followed_by_its_result() {
        let messages = [caller(json!("x"), &["a", "b"]), result("b"), result("a"), result("c")];
        check(
            SplitCalls,
            &messages,
            &["assistant+a: x", "tool: of a", "assistant+b: ", "tool: of b", "tool: of c"],
        );
        check(SplitCalls, &[caller(json!("x"), &["a"]), result("a")], &["assistant+a: x", "tool: of a"]);
        check(SplitText, &[caller(json!("x"), &["a"])], &["assistant: x", "assistant+a: "]);
        check(SplitText, &[caller(json!(null), &["a"])], &["assistant+a: "]);
    }

    #[test]
    fn calls_and_results_become_text() {
        let written = "assistant: x\n<tool_call>\n{\"name\": \"a\", \"arguments\": {\"n\":1}}\n</tool_call>";
        check(WriteCalls, &[caller(json!("x"), &["a"])], &[written]);
        let results =
            "user: <tool_response>\nof a\n</tool_response>\n<tool_response>\nof b\n</tool_response>";
        check(WriteResults, &[result("a"), result("b")], &[results]);
    }

    #[test]
    fn calls_are_named_in_metadata() {
        let messages = [caller(json!("x"), &["a", "b"]), result("a"), message("user", "u")];
        let named = Rules::default().with(&[NameCalls]).arranged(messages.to_vec());
        let call = |name: &str| json!({"role": "assistant", "metadata": name, "content": "{\"n\":1}"});
        let result = json!({"role": "observation", "tool_call_id": "a", "content": "of a"});
        let text = message("assistant", "x");
        assert_eq!(named, [text, call("a"), call("b"), result, message("user", "u")]);
    }

    #[test]
    fn system_messages_are_merged_or_folded() {
        let [s1, s2, user] = [message("system", "1"), message("developer", "2"), message("user", "u")];
        let assistant = message("assistant", "a");
        let start = [s1.clone(), s2.clone(), user.clone()];
        check(MergeSystem, &start, &["system: 1\n\n2", "user: u"]);
        check(FoldSystem, &start, &["user: 1\n\n2\n\nu"]);
        check(FoldSystem, &[s1.clone(), assistant.clone()], &["user: 1", "assistant: a"]);
        check(FoldSystem, std::slice::from_ref(&s1), &["user: 1"]);
        let fold = |messages: &[&Value], expected: &[&str]| {
            let messages: Vec<Value> = messages.iter().copied().cloned().collect();
            check(FoldLaterSystem, &messages, expected);
        };
        let marked = "<system>\n2\n</system>";
        fold(&[&s1, &user, &s2], &["system: 1", &format!("user: u\n\n{marked}")]);
        fold(&[&s1, &user, &s2, &user], &["system: 1", &format!("user: u\n\n{marked}"), "user: u"]);
        fold(&[&user, &assistant, &s2, &user], &["user: u", "assistant: a", &format!("user: {marked}\n\nu")]);
        fold(&[&user, &assistant, &s2], &["user: u", "assistant: a", &format!("user: {marked}")]);
        fold(
            &[&result("a"), &s2, &s2, &assistant],
            &["tool: of a", &format!("user: {marked}\n\n{marked}"), "assistant: a"],
        );
    }

    #[test]
    fn turns_alternate() {
        let [user, assistant] = [message("user", "u"), message("assistant", "a")];
        let check = |messages: &[&Value], expected: &[&str]| {
            let messages: Vec<Value> = messages.iter().copied().cloned().collect();
            check(Alternate, &messages, expected);
        };
        let (call, result, system) = (&caller(json!(null), &["a"]), &result("a"), &message("system", "s"));
        check(&[&user, &user, &assistant, &assistant], &["user: u\n\nu", "assistant: a\n\na"]);
        check(&[&assistant, &user], &["user: ", "assistant: a", "user: u"]);
        check(
            &[&user, call, result, &user],
            &["user: u", "assistant+a: ", "tool: of a", "assistant: ", "user: u"],
        );
        check(
            &[&user, &assistant, call, result, &assistant],
            &["user: u", "assistant: a", "assistant+a: ", "tool: of a", "user: ", "assistant: a"],
        );
        check(&[system], &["system: s", "user: "]);
        check(&[system, call, result], &["system: s", "user: ", "assistant+a: ", "tool: of a"]);
    }
}
