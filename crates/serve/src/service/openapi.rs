//! The OpenAPI document, with what is said of many routes alike: errors, dry runs, and bounds that routes check.

use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;
use utoipa::{PartialSchema, ToSchema};

use super::error_shape;
use crate::fields::dry_run::DryRun;

/// Where the schemas of the document are.
const SCHEMAS: &str = "/components/schemas";

/// Bounds of bodies that their types do not have: the place below [`SCHEMAS`], and what is added to the schema there.
const BOUNDS: &[(&str, &str)] = &[
    ("/ConversationFields/properties/messages/items", MESSAGE),
    ("/ConversationFields/properties/tools/items", TOOL),
    ("/ConversationFields/properties/tool_choice", CHOICE),
    ("/ConversationFields/properties/reasoning_effort", EFFORT),
    ("/ReasoningField/properties/effort", EFFORT),
    (
        "/MessagesField/properties/messages/items",
        r#"{"required": ["role"], "properties": {"role": {"type": "string"}}}"#,
    ),
    ("/KeepAliveField/oneOf/1", r#"{"pattern": "^-?[0-9]{1,5}(ns|us|ms|s|m|h)?$"}"#),
    ("/KeepAliveField/oneOf/0", r#"{"maximum": 1000000000}"#),
    ("/Sampling/properties/top_p", r#"{"minimum": 0.0001}"#),
    ("/Sampling/properties/repetition_penalty", r#"{"minimum": 0.01, "maximum": 100}"#),
    ("/Sampling/properties/stop_token_ids", r#"{"maxItems": 4096}"#),
    ("/Sampling/properties/logit_bias", BIASES),
    ("/OneOrMany/oneOf/1", r#"{"maxItems": 256}"#),
    ("/ScoredTexts/oneOf/1", r#"{"minItems": 1, "maxItems": 2048}"#),
    ("/RerankFields/properties/documents", r#"{"minItems": 1, "maxItems": 2048}"#),
    ("/UnsupportedFields/properties/modalities", r#"{"enum": [["text"], null]}"#),
    ("/UnsupportedFields/properties/audio", NULL),
    ("/UnsupportedFields/properties/prediction", NULL),
    ("/UnsupportedFields/properties/web_search_options", NULL),
    ("/UnsupportedFields/properties/store", r#"{"enum": [false, null]}"#),
    ("/FunctionFields/properties/functions/items", FUNCTION),
    ("/FunctionFields/properties/function_call", FUNCTION_CHOICE),
    ("/UnsupportedFields/properties/chat_template", NULL),
    ("/CreateUnsupportedFields/properties/files", NULL),
    ("/CreateUnsupportedFields/properties/adapters", NULL),
    ("/CreateUnsupportedFields/properties/quantize", NULL),
    ("/CreateUnsupportedFields/properties/messages", NULL),
    ("/CreateUnsupportedFields/properties/modelfile", NULL),
    ("/FormFields/properties/guided_choice", r#"{"minItems": 1}"#),
    ("/MessagesPromptFields/properties/messages/items", ANTHROPIC_MESSAGE),
    ("/MessagesPromptFields/properties/system", r#"{"type": ["string", "array", "null"]}"#),
    ("/ResponsePromptFields/properties/input", r#"{"type": ["string", "array", "null"], "minItems": 1}"#),
    ("/ResponsePromptFields/properties/tool_choice", CHOICE),
    ("/RefusedFields/properties/truncation", r#"{"enum": ["auto", "disabled", null]}"#),
    ("/RefusedFields/properties/background", r#"{"enum": [false, null]}"#),
    ("/RefusedFields/properties/conversation", NULL),
    ("/RefusedFields/properties/prompt", NULL),
    ("/Prompts/oneOf/1", r#"{"minItems": 1, "maxItems": 1024}"#),
    ("/Prompts/oneOf/2", HAS_TOKEN),
    ("/Input/oneOf/1", TEXTS),
    ("/Input/oneOf/2", HAS_TOKEN),
    ("/Input/oneOf/0", r#"{"minLength": 1}"#),
    ("/Tensors/properties/inputs", r#"{"minItems": 1, "maxItems": 1}"#),
    ("/InputTensor/properties/name", r#"{"enum": ["text_input"]}"#),
    ("/InputTensor/properties/datatype", r#"{"enum": ["BYTES"]}"#),
    ("/InputTensor/properties/data", r#"{"minItems": 1, "maxItems": 1024}"#),
    (
        "/PullModelField/properties/model",
        r#"{"pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*$"}"#,
    ),
];
const NULL: &str = r#"{"type": "null"}"#;
const TEXTS: &str = r#"{"minItems": 1, "maxItems": 2048}"#;
/// A list without a token is one of texts.
const HAS_TOKEN: &str = r#"{"contains": {"type": "integer"}}"#;
const BIASES: &str = r#"{"propertyNames": {"pattern": "^[0-9]+$"},
    "additionalProperties": {"type": "number", "minimum": -1000000, "maximum": 1000000}}"#;
const EFFORT: &str = r#"{"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max", null]}"#;
const CHOICE: &str = r#"{"type": ["string", "object", "null"],
    "anyOf": [{"enum": ["none", "auto", "required", "any", null]}, {"type": "object", "required": ["type"],
        "properties": {"type": {"enum": ["function", "allowed_tools"]}}}]}"#;
const MESSAGE: &str = r#"{"required": ["role", "content"], "properties": {
    "role": {"type": "string", "examples": ["developer", "system", "user", "assistant", "tool"]},
    "content": {"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "object",
        "required": ["type", "text"], "properties": {"type": {"enum": ["text"]}, "text": {"type": "string"}}}}]}}}"#;
const ANTHROPIC_MESSAGE: &str = r#"{"required": ["role", "content"], "properties": {
    "role": {"enum": ["user", "assistant", "system"]},
    "content": {"oneOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1,
        "items": {"type": "object", "required": ["type"]}}]}}}"#;
const FUNCTION: &str = r#"{"required": ["name"], "properties": {
    "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}, "parameters": {"type": "object"}}}"#;
const FUNCTION_CHOICE: &str = r#"{"type": ["string", "object", "null"],
    "anyOf": [{"enum": ["none", "auto", null]}, {"type": "object", "required": ["name"]}]}"#;
const TOOL: &str = r#"{"required": ["type", "function"], "properties": {"type": {"enum": ["function"]},
    "function": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}, "parameters": {"type": "object"}}}}}"#;

/// The document of all routes.
pub(super) fn complete(document: &OpenApi) -> Value {
    let mut document = serde_json::to_value(document).expect("documents are JSON");
    if let Some(schemas) = document.pointer_mut(SCHEMAS).and_then(Value::as_object_mut) {
        add_schemas(schemas);
    }
    for (place, more) in BOUNDS {
        let schema = document.pointer_mut(&format!("{SCHEMAS}{place}"));
        debug_assert!(schema.is_some(), "the document has no {place}");
        if let Some(schema) = schema {
            merge(schema, serde_json::from_str(more).expect("bounds are JSON"));
        }
    }
    let Value::Object(paths) = document["paths"].take() else { return document };
    let paths = paths.into_iter().map(|(path, mut item)| {
        // The names of parameters that take slashes begin with a star for the router, and nowhere else.
        let path = path.replace("{*", "{");
        let operations = item.as_object_mut().into_iter().flat_map(Map::values_mut);
        operations.filter(|operation| operation["responses"].is_object()).for_each(|operation| {
            let counts = takes_dry_run(operation, &document);
            describe(operation, &path, counts);
        });
        (path, item)
    });
    let paths: Map<String, Value> = paths.collect();
    document["paths"] = paths.into();
    document
}

/// Adds the schemas that no body or answer names.
fn add_schemas(schemas: &mut Map<String, Value>) {
    let mut all = vec![(DryRun::name().into_owned(), DryRun::schema())];
    DryRun::schemas(&mut all);
    let all = all.into_iter().map(|(name, schema)| (name, serde_json::to_value(schema).expect("JSON")));
    schemas.extend(all);
    schemas.extend(error_shape::schemas().map(|(name, schema)| (name.to_string(), schema)));
}

/// Adds the schemas of errors to the answers of an operation, and those of dry runs if it `counts`.
fn describe(operation: &mut Value, path: &str, counts: bool) {
    let error = json!({"$ref": format!("#{SCHEMAS}/{}", error_shape::schema_name(path))});
    let content = operation.pointer_mut("/responses/200/content").and_then(Value::as_object_mut);
    for (kind, content) in content.into_iter().flatten() {
        let schema = &mut content["schema"];
        match &kind[..] {
            "application/json" if counts => {
                let dry_run = json!({"$ref": format!("#{SCHEMAS}/{}", DryRun::name())});
                *schema = json!({"anyOf": [schema.take(), dry_run]});
            }
            // An answer of `/v1/responses` that fails is an event like others.
            "text/event-stream" | "application/x-ndjson" if path != "/v1/responses" => {
                *schema = json!({"anyOf": [schema.take(), error]});
            }
            _ => {}
        }
    }
    let failure = json!({"description": "An error", "content": {"application/json": {"schema": error}}});
    operation["responses"]["default"] = failure;
}

/// Whether the body of an operation has the field of dry runs.
fn takes_dry_run(operation: &Value, document: &Value) -> bool {
    let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    let body = body.as_str().and_then(|name| document.pointer(name.trim_start_matches('#')));
    let groups = body.and_then(|body| body["allOf"].as_array()).into_iter().flatten();
    groups.map(|group| &group["$ref"]).any(|name| *name == format!("#{SCHEMAS}/DryRunField"))
}

/// Adds the fields of an object, in place of its own.
fn merge(schema: &mut Value, more: Value) {
    if let (Some(schema), Value::Object(more)) = (schema.as_object_mut(), more) {
        schema.extend(more);
    }
}
