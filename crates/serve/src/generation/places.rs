//! Where a request has the messages and tools of a prompt, for errors and for the names of fields without effect.

use crate::api_error::ApiError;

/// The paths of a prompt's messages and tools in a request that is not written as those of OpenAI's chat route are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    /// Of each message, such as `input[3]`.
    pub(crate) messages: Vec<String>,
    /// Of each tool, such as `tools[2]`.
    pub(crate) tools: Vec<String>,
    /// The field of a tool that has the schema of its arguments.
    pub(crate) schema: &'static str,
}

impl Places {
    /// An error with the paths of the request.
    pub(crate) fn in_error(&self, error: ApiError) -> ApiError {
        let param = error.param.map(|param| self.in_text(&param));
        ApiError { message: self.in_text(&error.message), param, ..error }
    }

    /// A text with the paths of the request.
    pub(crate) fn in_text(&self, text: &str) -> String {
        let text = replaced(text, "messages", &self.messages);
        if self.schema.is_empty() {
            return text;
        }
        let text = replaced(&text, "tools", &self.tools);
        text.replace("].function.parameters", &format!("].{}", self.schema)).replace("].function.", "].")
    }
}

/// A text with the place of an element in place of its first `list[index]`.
fn replaced(text: &str, list: &str, places: &[String]) -> String {
    let found = || {
        let start = text.find(&format!("{list}["))?;
        let index = start + list.len() + 1;
        let end = index + text[index..].find(']')?;
        let place = places.get(text[index..end].parse::<usize>().ok()?)?;
        Some(format!("{}{place}{}", &text[..start], &text[end + 1..]))
    };
    found().unwrap_or_else(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_request() {
        let places = Places {
            messages: vec!["instructions".to_string(), "input[4]".to_string()],
            tools: vec!["tools[1].tools[0]".to_string()],
            schema: "input_schema",
        };
        let check = |text: &str, expected: &str| assert_eq!(places.in_text(text), expected);
        check("messages[0]: is refused", "instructions: is refused");
        check("messages[1].content[2]", "input[4].content[2]");
        check("messages[7].content", "messages[7].content");
        check("tools[0].function.parameters: is not", "tools[1].tools[0].input_schema: is not");
        check("tools[0].function.name", "tools[1].tools[0].name");
        check("messages[", "messages[");
        assert_eq!(Places::default().in_text("tools[0].function.name"), "tools[0].function.name");
    }
}
