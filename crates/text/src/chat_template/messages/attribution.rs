//! The line of coding agents that changes with every request.

use serde_json::Value;

/// The line that some coding agents put in front of the first message. It changes with every request, so that no cached
/// prefix would match.
const ATTRIBUTION: &str = "x-anthropic-billing-header:";

/// Drops the line of coding agents that changes with every request (`x-anthropic-billing-header: …`) from the beginning
/// of the first message; a part that holds nothing else goes.
pub fn drop_attribution(messages: &mut [Value]) {
    let Some(content) = messages.first_mut().and_then(|message| message.get_mut("content")) else { return };
    match content {
        Value::String(text) => *text = without_attribution(text).to_owned(),
        Value::Array(parts) => {
            let Some(text) = parts.first().and_then(|part| part["text"].as_str()) else { return };
            let rest = without_attribution(text).to_owned();
            if rest.is_empty() && !text.is_empty() && parts.len() > 1 {
                parts.remove(0);
            } else {
                parts[0]["text"] = Value::String(rest);
            }
        }
        _ => {}
    }
}

fn without_attribution(text: &str) -> &str {
    if !text.starts_with(ATTRIBUTION) {
        return text;
    }
    text.split_once('\n').map_or("", |(_, rest)| rest.trim_start_matches('\n'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_that_change_with_every_request_are_dropped() {
        let user = || json!({"role": "user", "content": "Hello"});
        let check = |content: Value, expected: Value| {
            let mut messages = [json!({"role": "system", "content": content}), user()];
            drop_attribution(&mut messages);
            assert_eq!(messages, [json!({"role": "system", "content": expected}), user()]);
        };
        let line = "x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;";
        check(json!(format!("{line}\n\nBe brief.\n")), json!("Be brief.\n"));
        check(json!(format!("Be brief.\n{line}")), json!(format!("Be brief.\n{line}")));
        let part = |text: &str| json!({"type": "text", "text": text});
        check(json!([part(line), part("Be brief.")]), json!([part("Be brief.")]));
        check(json!([part(line)]), json!([part("")]));
        drop_attribution(&mut []);
    }
}
