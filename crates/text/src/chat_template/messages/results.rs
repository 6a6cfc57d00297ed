//! The results of calls: which call each belongs to, and their order.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{calls, role};

/// A call that a result may belong to.
struct Call {
    /// As the client names it.
    given: Option<String>,
    id: String,
    name: Value,
    is_answered: bool,
}

/// Gives every call an id of its own, and every result the id and the name of its call. Results without an id belong to the
/// calls in their order.
pub(super) fn identify(messages: &mut [Value]) {
    let mut taken = BTreeSet::new();
    for call in messages.iter().flat_map(calls) {
        taken.extend(call["id"].as_str().map(str::to_owned));
    }
    let mut used = BTreeSet::new();
    let mut known: Vec<Call> = Vec::new();
    for message in messages {
        if role(message) == "tool" {
            identify_result(message, &mut known);
        }
        for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
            let given = call["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
            let id = given.clone().filter(|id| !used.contains(id));
            let id = id.unwrap_or_else(|| unused_id(&taken, &used));
            used.insert(id.clone());
            call["id"] = json!(id);
            known.push(Call { given, id, name: call["function"]["name"].clone(), is_answered: false });
        }
    }
}

fn unused_id(taken: &BTreeSet<String>, used: &BTreeSet<String>) -> String {
    let mut ids = (0..).map(|number| format!("call_{number}"));
    ids.find(|id| !taken.contains(id) && !used.contains(id)).unwrap_or_default()
}

fn identify_result(result: &mut Value, known: &mut [Call]) {
    let given = result["tool_call_id"].as_str().filter(|id| !id.is_empty());
    let name = result["name"].as_str().filter(|name| !name.is_empty());
    let found = match (given, name) {
        // Some clients count their ids from the start in every turn.
        (Some(id), _) => known.iter().rposition(|call| call.given.as_deref() == Some(id)),
        (None, Some(name)) => known.iter().position(|call| !call.is_answered && call.name == *name),
        (None, None) => known.iter().position(|call| !call.is_answered),
    };
    let is_named = name.is_some();
    if let Some(call) = found.map(|index| &mut known[index]) {
        call.is_answered = true;
        result["tool_call_id"] = json!(call.id);
        if !is_named && call.name.is_string() {
            result["name"] = call.name.clone();
        }
    }
}

/// The messages with their places, the results of one message's calls in the order of the calls: some templates write no
/// ids.
pub(super) fn ordered(messages: Vec<Value>) -> Vec<(usize, Value)> {
    let mut messages: Vec<(usize, Value)> = messages.into_iter().enumerate().collect();
    let mut start = 0;
    while start < messages.len() {
        let ids: Vec<Value> = calls(&messages[start].1).iter().map(|call| call["id"].clone()).collect();
        start += 1;
        let results = messages[start..].iter().take_while(|(_, message)| role(message) == "tool").count();
        if !ids.is_empty() {
            let place = |message: &Value| ids.iter().position(|id| *id == message["tool_call_id"]);
            messages[start..start + results].sort_by_key(|(_, message)| place(message).unwrap_or(ids.len()));
        }
        start += results;
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The id and name of each call and result.
    fn check(messages: &[Value], expected: &[&str]) {
        let mut messages = messages.to_vec();
        identify(&mut messages);
        let mut found = Vec::new();
        for (_, message) in ordered(messages) {
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            found.extend(
                calls(&message).iter().map(|call| text(&call["id"]) + ":" + &text(&call["function"]["name"])),
            );
            if role(&message) == "tool" {
                found.push(text(&message["tool_call_id"]) + ":" + &text(&message["name"]));
            }
        }
        assert_eq!(found, expected);
    }

    fn call(id: Option<&str>, name: &str) -> Value {
        let mut call = json!({"type": "function", "function": {"name": name, "arguments": {}}});
        if let Some(id) = id {
            call["id"] = json!(id);
        }
        call
    }

    fn caller(calls: &[Value]) -> Value {
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    }

    #[test]
    fn results_get_the_name_of_their_call_and_its_place() {
        let caller = caller(&[call(Some("a"), "f"), call(Some("b"), "g")]);
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": ""});
        check(&[caller, result("b"), result("a")], &["a:f", "b:g", "a:f", "b:g"]);
    }

    #[test]
    fn results_without_ids_belong_to_the_calls_in_order() {
        let caller = caller(&[call(None, "f"), call(None, "g"), call(None, "f")]);
        let result = || json!({"role": "tool", "content": ""});
        let named = |name: &str| json!({"role": "tool", "name": name, "content": ""});
        let calls = ["call_0:f", "call_1:g", "call_2:f"];
        check(&[caller.clone(), result(), result(), result()], &[calls, calls].concat());
        check(&[caller, named("g"), named("f"), named("f")], &[calls, calls].concat());
    }

    #[test]
    fn ids_that_a_client_uses_again_are_told_apart() {
        let turn = || {
            [
                caller(&[call(Some("call_0"), "f")]),
                json!({"role": "tool", "tool_call_id": "call_0", "content": ""}),
            ]
        };
        check(&[turn(), turn()].concat(), &["call_0:f", "call_0:f", "call_1:f", "call_1:f"]);
    }

    #[test]
    fn results_without_a_call_stay_as_they_are() {
        check(&[json!({"role": "tool", "tool_call_id": "a", "content": ""})], &["a:-"]);
    }
}
