//! The outline of a conversation: the same messages with marks for texts, to see which of them a template writes.

use serde_json::{Value, json};

use super::{is_blank, is_system};

/// A conversation whose texts are marks.
pub(super) struct Outline {
    pub(super) messages: Vec<Value>,
    marks: Vec<Mark>,
}

/// A text that the prompt should have.
struct Mark {
    text: String,
    message: usize,
    field: String,
    /// Whether it should come after the marks before it.
    is_in_order: bool,
}

impl Outline {
    pub(super) fn new(messages: &[Value]) -> Outline {
        let mut outline = Outline { messages: messages.to_vec(), marks: Vec::new() };
        let first = messages.iter().take_while(|message| is_system(message)).count();
        for (index, message) in messages.iter().enumerate() {
            if !is_blank(&message["content"]) {
                let is_in_order = index >= first && message["role"] != "tool";
                outline.messages[index]["content"] = outline.mark(index, ".content".to_owned(), is_in_order);
            }
            let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
            for call in 0..calls {
                let mark = outline.mark(index, format!(".tool_calls[{call}]"), false);
                if let Some(function) =
                    outline.messages[index]["tool_calls"][call]["function"].as_object_mut()
                {
                    function.insert("arguments".to_owned(), json!({ "key": mark }));
                }
            }
        }
        outline
    }

    fn mark(&mut self, message: usize, field: String, is_in_order: bool) -> Value {
        let text = format!("mark{:06}x", self.marks.len());
        self.marks.push(Mark { text: text.clone(), message, field, is_in_order });
        Value::String(text)
    }

    /// The texts that a prompt of this outline does not have in their places: a message and its field.
    pub(super) fn lost(&self, prompt: &str) -> Vec<(usize, String)> {
        let mut from = 0;
        let mut is_lost = |mark: &&Mark| {
            if !mark.is_in_order {
                return !prompt.contains(&mark.text);
            }
            let found = prompt[from..].find(&mark.text);
            from += found.map_or(0, |at| at + mark.text.len());
            found.is_none()
        };
        let lost = self.marks.iter().filter(|mark| is_lost(mark));
        lost.map(|mark| (mark.message, mark.field.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_missing_or_moved_are_lost() {
        let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let messages = [
            json!({"role": "system", "content": "s"}),
            json!({"role": "user", "content": "u"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
            json!({"role": "system", "content": [{"type": "text", "text": "t"}]}),
        ];
        let outline = Outline::new(&messages);
        let lost = |prompt: &str| {
            outline.lost(prompt).iter().map(|(index, field)| format!("{index}{field}")).collect::<Vec<_>>()
        };
        let whole = serde_json::to_string(&outline.messages).unwrap();
        assert_eq!(lost(&whole), [""; 0]);
        assert_eq!(lost("mark000003x mark000001x mark000000x"), ["2.tool_calls[0]", "3.content"]);
        assert_eq!(lost(""), ["0.content", "1.content", "2.tool_calls[0]", "3.content"]);
    }
}
