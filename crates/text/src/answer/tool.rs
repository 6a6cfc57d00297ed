//! Declared tools, as requests give them.

use serde_json::{Value, json};

use super::types::{Types, bare_arguments};
use crate::Error;

/// A function that a model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The name.
    pub name: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: Value,
    /// Whether arguments must fit the schema in any case.
    pub strict: bool,
}

/// Which tools a model may or must call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// None.
    None,
    /// Any, or none.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// The one of this name.
    Named(String),
}

/// The most bytes of a tool's name.
const MAX_NAME: usize = 128;

impl Tool {
    /// Tools in the shape of the OpenAI API: `{"type": "function", "function": {"name", "parameters", "strict"}}`.
    ///
    /// # Errors
    /// [`Error::Tools`] names the field that is missing, of a wrong type, or there twice.
    pub fn list(tools: &[Value]) -> Result<Vec<Tool>, Error> {
        let mut list: Vec<Tool> = Vec::new();
        for (index, value) in tools.iter().enumerate() {
            let tool = Tool::one(value, &format!("tools[{index}]"))?;
            if list.iter().any(|other| other.name == tool.name) {
                return Err(problem(
                    format!("tools[{index}].function.name"),
                    format!("{:?} is taken", tool.name),
                ));
            }
            list.push(tool);
        }
        Ok(list)
    }

    /// The same tool with a simpler schema: the names of the arguments, and their types. For tools that are not strict.
    #[must_use]
    pub fn relaxed(&self) -> Tool {
        Tool { name: self.name.clone(), parameters: bare_arguments(&self.parameters), strict: false }
    }

    /// The same tool with any arguments. Every format can write these.
    #[must_use]
    pub fn open(&self) -> Tool {
        Tool { name: self.name.clone(), parameters: json!({ "type": "object" }), strict: false }
    }

    fn one(value: &Value, place: &str) -> Result<Tool, Error> {
        if value.get("type").is_some_and(|kind| kind != "function") {
            return Err(problem(format!("{place}.type"), format!("{} is not \"function\"", value["type"])));
        }
        let function = &value["function"];
        let name = function["name"].as_str().unwrap_or_default();
        if !is_name(name) {
            let why = format!("{} is not a name of letters, digits, `_`, `-`, `.`", function["name"]);
            return Err(problem(format!("{place}.function.name"), why));
        }
        let parameters = match &function["parameters"] {
            Value::Null => {
                json!({"type": "object", "properties": {}, "additionalProperties": false})
            }
            Value::Object(schema) => {
                let mut whole = Value::Object(schema.clone());
                // Arguments are an object, whatever else a schema allows.
                if !whole["type"].is_string() && Types::from_schema(&whole, &whole) != Types::OBJECT {
                    whole["type"] = json!("object");
                }
                whole
            }
            _ => return Err(problem(format!("{place}.function.parameters"), "is not an object".to_owned())),
        };
        let strict = match &function["strict"] {
            Value::Null => false,
            Value::Bool(strict) => *strict,
            other => {
                return Err(problem(format!("{place}.function.strict"), format!("{other} is not a bool")));
            }
        };
        Ok(Tool { name: name.to_owned(), parameters, strict })
    }
}

impl ToolChoice {
    /// A choice in the shape of the OpenAI API: `none`, `auto`, `required`, or an object that names a function. `any`, which
    /// other APIs write for `required`, and objects whose `type` is one of these words mean the same.
    ///
    /// # Errors
    /// [`Error::Tools`] if it has another shape, or names a tool that is not declared.
    pub fn read(value: &Value, tools: &[Tool]) -> Result<ToolChoice, Error> {
        let place = || "tool_choice".to_owned();
        let mode = value.as_str().or(value["type"].as_str()).unwrap_or_default();
        let name = value["function"]["name"].as_str().or(value["name"].as_str());
        let choice = match (mode, name) {
            _ if value.is_null() && tools.is_empty() => ToolChoice::None,
            _ if value.is_null() => ToolChoice::Auto,
            ("none", _) => ToolChoice::None,
            ("auto", _) => ToolChoice::Auto,
            ("required" | "any", _) => ToolChoice::Required,
            (_, Some(name)) => ToolChoice::Named(name.to_owned()),
            (_, None) => {
                return Err(problem(place(), format!("{value} is not none, auto, required or a function")));
            }
        };
        match &choice {
            ToolChoice::Named(name) if !tools.iter().any(|tool| tool.name == *name) => {
                Err(problem(place(), format!("no tool is named {name:?}")))
            }
            ToolChoice::Required if tools.is_empty() => {
                Err(problem(place(), "no tools are given".to_owned()))
            }
            _ => Ok(choice),
        }
    }
}

/// Whether a function may have this name.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_name_char)
}

/// Whether a character may stand in the name of a function.
pub(super) fn is_name_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.')
}

fn problem(field: String, problem: String) -> Error {
    Error::Tools { field, problem }
}
