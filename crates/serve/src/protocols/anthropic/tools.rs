//! The tools of a request: functions, tools that the client runs and the model calls as functions, and those that only the
//! servers of this API run, which are left out.

use pipelines::ToolUse;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::generation::{self, Places};

/// Which tools an answer may or must call.
#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct ToolChoiceField {
    r#type: ChoiceKind,
    /// The tool, if one must be called.
    name: Option<String>,
    /// Whether an answer ends with its first call.
    disable_parallel_tool_use: Option<bool>,
}

/// Whether an answer must have a call.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ChoiceKind {
    /// It may have one.
    Auto,
    /// Of any tool.
    Any,
    /// Of the tool with the name.
    Tool,
    /// It may not.
    None,
}

/// The tools that clients run and requests name by a type alone: how the type begins, what the tool does, and the schema
/// of its input.
const CLIENT_TOOLS: [(&str, &str, &str); 8] = [
    (
        "bash_20",
        "Runs a command in a bash session that stays open, and gives its output. `restart` opens a new session.",
        r#"{"type": "object", "properties": {"command": {"type": "string"}, "restart": {"type": "boolean"}}}"#,
    ),
    ("text_editor_2024", EDITOR, EDITOR_WITH_UNDO),
    ("text_editor_20250124", EDITOR, EDITOR_WITH_UNDO),
    (
        "text_editor_20250429",
        EDITOR,
        r#"{"type": "object", "required": ["command", "path"], "properties": {
            "command": {"enum": ["view", "create", "str_replace", "insert"]}, "path": {"type": "string"},
            "file_text": {"type": "string"}, "old_str": {"type": "string"}, "new_str": {"type": "string"},
            "insert_line": {"type": "integer"}, "view_range": {"type": "array", "items": {"type": "integer"}}}}"#,
    ),
    (
        "text_editor_20",
        EDITOR,
        r#"{"type": "object", "required": ["command", "path"], "properties": {
            "command": {"enum": ["view", "create", "str_replace", "insert"]}, "path": {"type": "string"},
            "file_text": {"type": "string"}, "old_str": {"type": "string"}, "new_str": {"type": "string"},
            "insert_line": {"type": "integer"}, "insert_text": {"type": "string"},
            "view_range": {"type": "array", "items": {"type": "integer"}}}}"#,
    ),
    (
        "memory_20",
        "Views and edits files of notes below /memories, which last longer than the conversation.",
        r#"{"type": "object", "required": ["command"], "properties": {
            "command": {"enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
            "path": {"type": "string"}, "file_text": {"type": "string"}, "old_str": {"type": "string"},
            "new_str": {"type": "string"}, "insert_line": {"type": "integer"}, "insert_text": {"type": "string"},
            "old_path": {"type": "string"}, "new_path": {"type": "string"},
            "view_range": {"type": "array", "items": {"type": "integer"}}}}"#,
    ),
    (
        "computer_2024",
        "Moves the mouse, clicks and types on a screen, and takes pictures of it.",
        r#"{"type": "object", "required": ["action"], "properties": {
            "action": {"enum": ["key", "type", "mouse_move", "left_click", "left_click_drag", "right_click",
                "middle_click", "double_click", "screenshot", "cursor_position"]},
            "coordinate": {"type": "array", "items": {"type": "integer"}}, "text": {"type": "string"}}}"#,
    ),
    (
        "computer_20",
        "Moves the mouse, clicks, scrolls and types on a screen, and takes pictures of it.",
        r#"{"type": "object", "required": ["action"], "properties": {
            "action": {"enum": ["key", "hold_key", "type", "mouse_move", "left_click", "left_click_drag", "right_click",
                "middle_click", "double_click", "triple_click", "left_mouse_down", "left_mouse_up", "scroll", "wait",
                "screenshot", "cursor_position", "zoom"]},
            "coordinate": {"type": "array", "items": {"type": "integer"}},
            "start_coordinate": {"type": "array", "items": {"type": "integer"}},
            "region": {"type": "array", "items": {"type": "integer"}}, "text": {"type": "string"},
            "duration": {"type": "number"}, "scroll_amount": {"type": "integer"},
            "scroll_direction": {"enum": ["up", "down", "left", "right"]}}}"#,
    ),
];
const EDITOR: &str = "Views and edits files: `view` shows a file or a folder, `create` writes a file, `str_replace` replaces \
                      a text that occurs once, `insert` adds lines after a line.";
const EDITOR_WITH_UNDO: &str = r#"{"type": "object", "required": ["command", "path"], "properties": {
    "command": {"enum": ["view", "create", "str_replace", "insert", "undo_edit"]}, "path": {"type": "string"},
    "file_text": {"type": "string"}, "old_str": {"type": "string"}, "new_str": {"type": "string"},
    "insert_line": {"type": "integer"}, "view_range": {"type": "array", "items": {"type": "integer"}}}}"#;

/// Reads tools and the choice among them. Those that are left out are named in `ignored`.
///
/// # Errors
/// If a function has no name or schema, or the choice is not among the tools.
pub(super) fn read(
    tools: Option<&[Value]>,
    choice: Option<&ToolChoiceField>,
    places: &mut Places,
    ignored: &mut Vec<String>,
) -> Result<ToolUse, ApiError> {
    let (mut functions, mut left_out) = (Vec::new(), Vec::new());
    for (index, tool) in tools.into_iter().flatten().enumerate() {
        match function(tool) {
            Some(function) => {
                functions.push(function);
                places.tools.push(format!("tools[{index}]"));
            }
            None => {
                ignored.push(format!("tools[{index}].{}", tool["type"].as_str().unwrap_or_default()));
                left_out.push(tool["name"].as_str().unwrap_or_default());
            }
        }
    }
    places.schema = "input_schema";
    let is_possible = |choice: &&ToolChoiceField| match choice.name() {
        Some(name) => {
            functions.iter().any(|own| own["function"]["name"] == name) || !left_out.contains(&name)
        }
        None => !choice.must_call() || !functions.is_empty() || left_out.is_empty(),
    };
    let possible = choice.filter(is_possible);
    if choice.is_some() && possible.is_none() {
        ignored.push("tool_choice".to_string());
    }
    let is_parallel = possible.and_then(ToolChoiceField::is_parallel);
    let declared = tools.map(|_| functions);
    let tools = ToolUse::new(declared, possible.map(ToolChoiceField::to_openai).as_ref(), is_parallel);
    tools.map_err(|error| places.in_error(error.into()))
}

/// The function that the model calls, unless no client runs the tool.
fn function(tool: &Value) -> Option<Value> {
    let (name, strict) = (&tool["name"], &tool["strict"]);
    match tool["type"].as_str().filter(|kind| *kind != "custom" && tool["input_schema"].is_null()) {
        None => Some(generation::declared(name, &tool["description"], &tool["input_schema"], strict)),
        Some(kind) => {
            let (_, description, schema) = CLIENT_TOOLS.iter().find(|(start, ..)| kind.starts_with(start))?;
            let schema: Value = serde_json::from_str(schema).expect("the schemas are JSON");
            let size = [&tool["display_width_px"], &tool["display_height_px"]];
            let description = match size.map(Value::as_u64) {
                [Some(width), Some(height)] => {
                    format!("{description} The screen has {width} × {height} pixels.")
                }
                _ => (*description).to_string(),
            };
            Some(generation::declared(name, &json!(description), &schema, strict))
        }
    }
}

impl ToolChoiceField {
    /// The tool that must be called, if it is named.
    fn name(&self) -> Option<&str> {
        self.name.as_deref().filter(|_| matches!(self.r#type, ChoiceKind::Tool))
    }

    /// Whether the answer must have a call.
    fn must_call(&self) -> bool {
        matches!(self.r#type, ChoiceKind::Any | ChoiceKind::Tool)
    }

    /// Whether the answer may have several calls.
    fn is_parallel(&self) -> Option<bool> {
        self.disable_parallel_tool_use.map(|disable| !disable)
    }

    /// The choice in the shape of the OpenAI API.
    fn to_openai(&self) -> Value {
        match self.r#type {
            ChoiceKind::Auto => json!("auto"),
            ChoiceKind::Any => json!("required"),
            ChoiceKind::Tool => json!({ "type": "function", "function": { "name": self.name } }),
            ChoiceKind::None => json!("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_that_clients_run_are_functions_and_others_are_none() {
        let kinds = [
            ("custom", true),
            ("bash_20241022", true),
            ("bash_20250124", true),
            ("text_editor_20241022", true),
            ("text_editor_20250124", true),
            ("text_editor_20250429", true),
            ("text_editor_20250728", true),
            ("memory_20250818", true),
            ("computer_20241022", true),
            ("computer_20250124", true),
            ("computer_20251124", true),
            ("computer_toolset_20260801", false),
            ("browser_toolset_20260801", false),
            ("code_execution_20250522", false),
            ("code_execution_20260521", false),
            ("web_search_20250305", false),
            ("web_search_20260318", false),
            ("web_fetch_20250910", false),
            ("advisor_20260301", false),
            ("tool_search_tool_bm25_20251119", false),
            ("tool_search_tool_regex_20251119", false),
            ("mcp_toolset", false),
        ];
        for (kind, is_function) in kinds {
            let tool = json!({"type": kind, "name": "x", "display_width_px": 800, "display_height_px": 600});
            let function = function(&tool);
            assert_eq!(function.is_some(), is_function, "{kind}");
            if let Some(function) = function.filter(|_| kind != "custom") {
                let function = &function["function"];
                assert_eq!(
                    (&function["name"], &function["parameters"]["type"]),
                    (&json!("x"), &json!("object"))
                );
                assert!(function["description"].as_str().unwrap().ends_with("800 × 600 pixels."));
            }
        }
        let named = json!({"type": null, "name": "x", "input_schema": {"type": "object"}});
        assert!(function(&named).is_some());
    }

    #[test]
    fn the_oldest_editors_can_undo_and_the_newest_insert_under_another_name() {
        let schema = |kind: &str| {
            let tool = function(&json!({"type": kind, "name": "x"})).unwrap();
            tool["function"]["parameters"]["properties"].to_string()
        };
        let check = |kind: &str, can_undo: bool, has_insert_text: bool| {
            let schema = schema(kind);
            assert_eq!(
                (schema.contains("undo_edit"), schema.contains("insert_text")),
                (can_undo, has_insert_text)
            );
        };
        check("text_editor_20241022", true, false);
        check("text_editor_20250124", true, false);
        check("text_editor_20250429", false, false);
        check("text_editor_20250728", false, true);
    }
}
