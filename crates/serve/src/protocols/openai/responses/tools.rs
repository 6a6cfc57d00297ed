//! The tools of a request. All that the client runs are functions for the model; their calls come back as items of their
//! own types. Tools that only OpenAI's servers run are left out.

use std::collections::BTreeMap;

use pipelines::ToolUse;
use serde_json::{Value, json};

use super::object::{CallHead, OutputItem, local_shell_action, shell_action};
use crate::api_error::ApiError;
use crate::generation::{self, Places};
use crate::stamp::{call_id, unique_id};

/// The functions that the model calls in place of tools that have no name of their own: the type of the tool, which is the
/// function's name, what it does, and the schema of its arguments.
const NAMELESS: [(ToolKind, &str, &str, &str); 3] = [
    (
        ToolKind::LocalShell,
        "local_shell",
        "Runs a command on the user's machine, and gives its output. The command is a list of words, as `[\"ls\", \"-l\"]`.",
        r#"{"type": "object", "required": ["command"], "additionalProperties": false, "properties": {
            "command": {"type": "array", "items": {"type": "string"}}, "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer"}}}"#,
    ),
    (
        ToolKind::Shell,
        "shell",
        "Runs commands in a shell on the user's machine, and gives the output of each.",
        r#"{"type": "object", "required": ["commands"], "additionalProperties": false, "properties": {
            "commands": {"type": "array", "items": {"type": "string"}}, "timeout_ms": {"type": "integer"},
            "max_output_length": {"type": "integer"}}}"#,
    ),
    (
        ToolKind::ApplyPatch,
        "apply_patch",
        "Creates, updates or deletes a file. `diff` has the lines of a new file, each after a `+`, or the hunks of an update: \
         lines after `@@` that begin with a space, `-` or `+`.",
        r#"{"type": "object", "required": ["type", "path"], "additionalProperties": false, "properties": {
            "type": {"enum": ["create_file", "update_file", "delete_file"]}, "path": {"type": "string"},
            "diff": {"type": "string"}}}"#,
    ),
];
/// The most bytes of a function's name.
const MAX_NAME: usize = 64;

/// How the calls of a tool come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolKind {
    Function,
    Custom,
    LocalShell,
    Shell,
    ApplyPatch,
    ToolSearch,
}

/// A tool as the client names it.
#[derive(Debug, Clone)]
struct ClientTool {
    kind: ToolKind,
    name: String,
    namespace: Option<String>,
}

/// The tools of a request.
#[derive(Debug, Default)]
pub(super) struct ClientTools {
    /// By the names of their functions.
    tools: BTreeMap<String, ClientTool>,
    /// The functions, as chat templates take them.
    functions: Vec<Value>,
    /// Where the request has each of them.
    places: Vec<String>,
    /// Those that are left out, and fields without effect.
    pub(super) ignored: Vec<String>,
}

/// The name of a tool's function. A long name loses its beginning.
pub(super) fn function_name(namespace: Option<&str>, name: &str) -> String {
    let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) else {
        return name.to_string();
    };
    let separator = if namespace.ends_with('_') { "" } else { "__" };
    let whole = format!("{namespace}{separator}{name}");
    let start = whole.len().saturating_sub(MAX_NAME);
    whole.get(start..).map_or(whole.clone(), str::to_string)
}

impl ClientTools {
    /// Adds tools. `path` is that of their list.
    ///
    /// # Errors
    /// If a tool has no type.
    pub(super) fn extend(&mut self, tools: &[Value], path: &str) -> Result<(), ApiError> {
        for (index, tool) in tools.iter().enumerate() {
            self.add(tool, None, &format!("{path}[{index}]"))?;
        }
        Ok(())
    }

    fn add(&mut self, tool: &Value, namespace: Option<&str>, place: &str) -> Result<(), ApiError> {
        let Some(kind) = tool["type"].as_str() else {
            let message = format!("{place}.type is {}: give a type such as \"function\"", tool["type"]);
            return Err(ApiError::invalid(format!("{place}.type"), message));
        };
        let (name, description) = (&tool["name"], &tool["description"]);
        match kind {
            "function" => {
                let function = generation::declared(name, description, &tool["parameters"], &tool["strict"]);
                self.insert(ToolKind::Function, function, namespace, place);
            }
            "custom" => {
                let function =
                    generation::declared(name, &self.input_of(tool, place), &input_schema(), &Value::Null);
                self.insert(ToolKind::Custom, function, namespace, place);
            }
            "namespace" => {
                let inner = tool["tools"].as_array().into_iter().flatten();
                for (index, inner) in inner.enumerate() {
                    self.add(inner, name.as_str(), &format!("{place}.tools[{index}]"))?;
                }
            }
            "tool_search" if tool["execution"] == "client" => {
                let name = json!("tool_search");
                let function = generation::declared(&name, description, &tool["parameters"], &Value::Null);
                self.insert(ToolKind::ToolSearch, function, None, place);
            }
            kind => match NAMELESS.iter().find(|(_, name, ..)| *name == kind) {
                Some((kind, name, description, schema)) => {
                    let schema: Value = serde_json::from_str(schema).expect("the schemas are JSON");
                    let function =
                        generation::declared(&json!(name), &json!(description), &schema, &Value::Null);
                    self.insert(*kind, function, None, place);
                }
                None => self.ignored.push(format!("{place}.{kind}")),
            },
        }
        Ok(())
    }

    /// The description of a tool that takes free text. A grammar is told, and not enforced.
    fn input_of(&mut self, tool: &Value, place: &str) -> Value {
        let description = tool["description"].as_str().unwrap_or_default();
        let description = format!("{description}\n\nThe whole text is the argument `input`.");
        let Some(grammar) = tool["format"]["definition"].as_str() else { return json!(description.trim()) };
        self.ignored.push(format!("{place}.format"));
        let syntax = tool["format"]["syntax"].as_str().unwrap_or("lark");
        json!(format!("{} It follows this grammar ({syntax}):\n{grammar}", description.trim()))
    }

    fn insert(&mut self, kind: ToolKind, mut function: Value, namespace: Option<&str>, place: &str) {
        let name = function["function"]["name"].as_str().unwrap_or_default().to_string();
        if namespace.is_some() {
            function["function"]["name"] = function_name(namespace, &name).into();
        }
        let named = function["function"]["name"].as_str().unwrap_or_default().to_string();
        self.tools.insert(named, ClientTool { kind, name, namespace: namespace.map(str::to_string) });
        self.functions.push(function);
        self.places.push(place.to_string());
    }

    /// The tools that the answer may call, given the request's choice.
    ///
    /// # Errors
    /// If a function has no name or schema, or the choice is not among them.
    pub(super) fn tool_use(
        &mut self,
        choice: Option<&Value>,
        is_parallel: Option<bool>,
        places: &mut Places,
    ) -> Result<ToolUse, ApiError> {
        (places.schema, places.tools) = ("parameters", std::mem::take(&mut self.places));
        let own = choice.filter(|choice| !choice.is_null()).map(|choice| self.choice(choice));
        if let Some(Err(Impossible)) = own {
            self.ignored.push("tool_choice".to_string());
        }
        let own = own.and_then(Result::ok);
        let functions = std::mem::take(&mut self.functions);
        let declared = (!functions.is_empty()).then_some(functions);
        ToolUse::new(declared, own.as_ref(), is_parallel).map_err(|error| places.in_error(error.into()))
    }

    /// A choice in the shape of OpenAI's chat route.
    fn choice(&self, choice: &Value) -> Result<Value, Impossible> {
        match choice["type"].as_str() {
            None if choice == "required" && self.tools.is_empty() && !self.ignored.is_empty() => {
                Err(Impossible)
            }
            None => Ok(choice.clone()),
            Some("allowed_tools") => {
                let object = choice.get("allowed_tools").unwrap_or(choice);
                let tools = object["tools"].as_array().into_iter().flatten();
                let allowed: Vec<Value> = tools.filter_map(|tool| self.chosen(tool).ok()).collect();
                // None of them is here: without this, all others could be called.
                if allowed.is_empty() {
                    return Ok(json!("none"));
                }
                Ok(json!({ "type": "allowed_tools", "mode": object["mode"], "tools": allowed }))
            }
            Some(_) => self.chosen(choice),
        }
    }

    /// The function of a tool that a choice names.
    fn chosen(&self, choice: &Value) -> Result<Value, Impossible> {
        let kind = choice["type"].as_str().unwrap_or_default();
        let is_named = matches!(kind, "function" | "custom");
        let name = if is_named { choice["name"].as_str().unwrap_or_default() } else { kind };
        let namespace = choice["namespace"].as_str();
        let is_chosen = |tool: &ClientTool| {
            tool.name == name && (namespace.is_none() || tool.namespace.as_deref() == namespace)
        };
        let found = self.tools.iter().find(|(_, tool)| is_chosen(tool)).map(|(function, _)| &function[..]);
        // A function that is not there is an error, which names it.
        let function = found.or(is_named.then_some(name)).ok_or(Impossible)?;
        Ok(json!({ "type": "function", "function": { "name": function } }))
    }

    /// A call of a function, which begins.
    pub(super) fn call(&self, function: String) -> OutputItem {
        let tool = self.tools.get(&function).cloned();
        let tool = tool.unwrap_or(ClientTool { kind: ToolKind::Function, name: function, namespace: None });
        let ClientTool { kind, name, namespace } = tool;
        let head = |prefix: &str| CallHead::new(unique_id(prefix), call_id("call_"));
        match kind {
            ToolKind::Function => {
                OutputItem::FunctionCall { head: head("fc_"), name, namespace, arguments: String::new() }
            }
            ToolKind::Custom => {
                OutputItem::CustomToolCall { head: head("ctc_"), name, namespace, input: String::new() }
            }
            ToolKind::LocalShell => {
                OutputItem::LocalShellCall { head: head("lsh_"), action: local_shell_action() }
            }
            ToolKind::Shell => {
                OutputItem::ShellCall { head: head("sh_"), action: shell_action(), environment: None }
            }
            ToolKind::ApplyPatch => OutputItem::ApplyPatchCall { head: head("apc_"), operation: json!({}) },
            ToolKind::ToolSearch => {
                OutputItem::ToolSearchCall { head: head("tsc_"), execution: "client", arguments: json!({}) }
            }
        }
    }
}

/// A choice of a tool that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Impossible;

/// The schema of a tool that takes free text.
fn input_schema() -> Value {
    json!({
        "type": "object", "required": ["input"], "additionalProperties": false,
        "properties": { "input": { "type": "string" } },
    })
}

#[cfg(test)]
mod tests {
    use super::super::object::Status;
    use super::*;

    fn read(tools: Value) -> ClientTools {
        let mut read = ClientTools::default();
        read.extend(tools.as_array().unwrap(), "tools").unwrap();
        read
    }

    #[test]
    fn tools_that_the_client_runs_are_functions_and_others_are_named() {
        // The tool, the name of its function, and the type of its calls; none if it is left out.
        let tools = [
            (
                json!({"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}),
                Some(("f", "function_call")),
            ),
            (json!({"type": "custom", "name": "c"}), Some(("c", "custom_tool_call"))),
            (
                json!({"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "regex", "definition": "a"}}),
                Some(("g", "custom_tool_call")),
            ),
            (json!({"type": "local_shell"}), Some(("local_shell", "local_shell_call"))),
            (json!({"type": "shell", "environment": {"type": "local"}}), Some(("shell", "shell_call"))),
            (json!({"type": "apply_patch"}), Some(("apply_patch", "apply_patch_call"))),
            (
                json!({"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}),
                Some(("tool_search", "tool_search_call")),
            ),
            (
                json!({"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "f"}]}),
                Some(("n__f", "function_call")),
            ),
            (
                json!({"type": "namespace", "name": "mcp__s__", "tools": [{"type": "custom", "name": "f"}]}),
                Some(("mcp__s__f", "custom_tool_call")),
            ),
            (json!({"type": "tool_search"}), None),
            (json!({"type": "file_search", "vector_store_ids": []}), None),
            (json!({"type": "web_search"}), None),
            (json!({"type": "web_search_preview_2025_03_11"}), None),
            (json!({"type": "computer"}), None),
            (json!({"type": "computer_use_preview"}), None),
            (json!({"type": "mcp", "server_label": "s"}), None),
            (json!({"type": "code_interpreter", "container": "c"}), None),
            (json!({"type": "image_generation"}), None),
            (json!({"type": "programmatic_tool_calling"}), None),
        ];
        for (tool, expected) in tools {
            let mut read = read(json!([tool]));
            let Some((function, kind)) = expected else {
                let kind = tool["type"].as_str().unwrap();
                assert_eq!((read.functions.len(), &read.ignored[..]), (0, &[format!("tools[0].{kind}")][..]));
                continue;
            };
            assert_eq!(read.functions[0]["function"]["name"], function, "{tool}");
            assert_eq!(json!(read.call(function.to_string()))["type"], kind, "{tool}");
            let has_grammar = tool.get("format").is_some();
            assert_eq!(read.ignored.iter().any(|name| name == "tools[0].format"), has_grammar);
            assert!(read.tool_use(None, None, &mut Places::default()).is_ok(), "{tool}");
        }
    }

    #[test]
    fn calls_name_the_tool_and_its_namespace_as_the_client_does() {
        let read = read(json!([
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}]},
            {"type": "function", "name": "f"},
        ]));
        let call = |function: &str| {
            let call = json!(read.call(function.to_string()));
            (call["namespace"].clone(), call["name"].clone())
        };
        assert_eq!(call("n__f"), (json!("n"), json!("f")));
        assert_eq!(call("n__c"), (json!("n"), json!("c")));
        assert_eq!(call("f"), (Value::Null, json!("f")));
        let long = function_name(Some(&"n".repeat(80)), "f");
        assert!(long.len() == MAX_NAME && long.ends_with("n__f"));
    }

    #[test]
    fn arguments_become_the_fields_of_the_item_and_can_be_replayed() {
        let check = |kind: &str, arguments: Value, field: &str, expected: Value| {
            let mut item = read(json!([{"type": kind}])).call(kind.to_string());
            item.end(Status::Completed, arguments.to_string(), Vec::new());
            assert_eq!(json!(item)[field], expected);
            let (mut again, text, logprobs) = item.restart();
            again.end(Status::Completed, text, logprobs);
            assert_eq!(json!(again), json!(item));
        };
        let action = json!({"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": 9});
        check("local_shell", json!({"command": ["ls"], "timeout_ms": 9}), "action", action);
        let action = json!({"commands": ["ls"], "timeout_ms": null, "max_output_length": null});
        check("shell", json!({"commands": ["ls"]}), "action", action);
        let operation = json!({"type": "delete_file", "path": "a"});
        check("apply_patch", operation.clone(), "operation", operation);
    }

    #[test]
    fn choices_of_tools_that_are_left_out_have_no_effect() {
        let tools = json!([
            {"type": "web_search"}, {"type": "custom", "name": "c"}, {"type": "apply_patch"},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]},
        ]);
        let function = |name: &str| Ok(json!({"type": "function", "function": {"name": name}}));
        let check = |choice: Value, expected: Result<Value, Impossible>| {
            assert_eq!(read(tools.clone()).choice(&choice), expected, "{choice}");
        };
        check(json!("auto"), Ok(json!("auto")));
        check(json!({"type": "function", "name": "f"}), function("n__f"));
        check(json!({"type": "function", "name": "f", "namespace": "n"}), function("n__f"));
        check(json!({"type": "function", "name": "other"}), function("other"));
        check(json!({"type": "custom", "name": "c"}), function("c"));
        check(json!({"type": "apply_patch"}), function("apply_patch"));
        check(json!({"type": "web_search"}), Err(Impossible));
        check(json!({"type": "mcp", "server_label": "s"}), Err(Impossible));
        let allowed = |tools: Value| json!({"type": "allowed_tools", "mode": "required", "tools": tools});
        let both = json!([{"type": "custom", "name": "c"}, {"type": "web_search"}]);
        check(allowed(both), Ok(allowed(json!([function("c").unwrap()]))));
        check(allowed(json!([{"type": "web_search"}])), Ok(json!("none")));
        assert_eq!(read(json!([{"type": "web_search"}])).choice(&json!("required")), Err(Impossible));
    }
}
