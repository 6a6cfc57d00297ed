//! Conversations as JSON, and the chat templates that turn them into prompts.

use std::path::{Path, PathBuf};

use clap_complete::{ArgValueCompleter, CompletionCandidate, PathCompleter, engine::ValueCompleter};
use pipelines::{Chat, ChatTemplate, Plan, TextError};
use serde_json::{Map, Value};

use crate::exit::{Usage, one_line};
use crate::model::ModelSource;

/// The chat template and its variables.
#[derive(clap::Args, Clone)]
pub(crate) struct TemplateArguments {
    /// Chat template: a name such as `chatml`, a file, or the template itself
    ///
    /// Built-in names include `chatml` and `plain`, which continues texts. A file is a Jinja template, or a
    /// tokenizer_config.json or folder with one [default: the model's own]
    #[arg(long, value_name = "NAME|FILE", add = ArgValueCompleter::new(templates))]
    template: Option<PathBuf>,
    /// Set a template variable; repeatable
    ///
    /// The value is JSON or text, such as enable_thinking=false.
    #[arg(long = "variable", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, Value)>,
}

impl TemplateArguments {
    /// The template of `--template`.
    pub(crate) fn given(&self) -> anyhow::Result<Option<ChatTemplate>> {
        Ok(self.template.as_deref().map(find_template).transpose()?)
    }

    /// The template of `--template`, else the model's.
    pub(crate) fn template(
        &self,
        source: &ModelSource,
        plan: &Plan,
        hint: &str,
    ) -> anyhow::Result<ChatTemplate> {
        self.given_or_own(plan)?.ok_or_else(|| {
            let name = one_line(&source.name());
            Usage(format!("{name} has no chat template: give one with --template, {hint}")).into()
        })
    }

    /// The template of `--template`, else the model's, else `plain`.
    pub(crate) fn template_or_plain(&self, plan: &Plan) -> anyhow::Result<ChatTemplate> {
        let plain = || ChatTemplate::named("plain").expect("it is built in");
        Ok(self.given_or_own(plan)?.unwrap_or_else(plain))
    }

    fn given_or_own(&self, plan: &Plan) -> anyhow::Result<Option<ChatTemplate>> {
        match self.given()? {
            Some(given) => Ok(Some(given)),
            None => Ok(plan
                .chat_template()?
                .map(ChatTemplate::checked)
                .transpose()
                .map_err(pipelines::Error::from)?),
        }
    }

    /// The template variables of the flags. They override those of a conversation.
    pub(crate) fn variables(&self) -> Map<String, Value> {
        self.variables.iter().cloned().collect()
    }
}

/// The template with a name, of a file, or as it stands.
///
/// # Errors
/// If there is no such file, or it is not a template.
pub(crate) fn find_template(path: &Path) -> Result<ChatTemplate, Usage> {
    ChatTemplate::find(path).map_err(|error| match error {
        TextError::Read { source, .. } => Usage(format!(
            "--template {}: {source}; give a file, or one of {}",
            path.display(),
            ChatTemplate::built_in_names().collect::<Vec<_>>().join(", ")
        )),
        TextError::ChatTemplate { problem, .. } => Usage(format!("--template {}: {problem}", path.display())),
        other => Usage(other.to_string()),
    })
}

/// Completes names of templates and files.
pub(crate) fn templates(current: &std::ffi::OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let names = ChatTemplate::built_in_names().filter(|name| name.starts_with(&*typed));
    names.map(CompletionCandidate::new).chain(PathCompleter::any().complete(current)).collect()
}

/// Parses a conversation: a list of messages, or an object with `messages`, and optionally `tools`, `documents`,
/// `add_generation_prompt` and template variables. `origin` names the text in errors.
pub(crate) fn read(json: &[u8], origin: &str) -> Result<Chat, Usage> {
    let wrong = |problem: &str| Usage(format!("{origin}: {problem}"));
    let value: Value = serde_json::from_slice(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let problem = text.split(" at line ").next().unwrap_or_default();
        Usage(format!("{origin}:{line}:{column}: not JSON: {problem}"))
    })?;
    let mut object = match value {
        Value::Array(messages) => Map::from_iter([("messages".to_string(), Value::Array(messages))]),
        Value::Object(object) => object,
        _ => return Err(wrong("give a list of messages, or an object with `messages`")),
    };
    let mut list = |name: &str| match object.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(values)) => Ok(Some(values)),
        Some(_) => Err(wrong(&format!("`{name}` is not a list"))),
    };
    let messages = list("messages")?.ok_or_else(|| wrong("there are no `messages`"))?;
    let (tools, documents) = (list("tools")?, list("documents")?);
    for (index, message) in messages.iter().enumerate() {
        if !message["role"].is_string() {
            return Err(wrong(&format!(
                "message {} has no role: give objects such as {{\"role\": \"user\", \"content\": \"...\"}}",
                index + 1
            )));
        }
    }
    let add_generation_prompt = match object.remove("add_generation_prompt") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(add)) => add,
        Some(_) => return Err(wrong("`add_generation_prompt` must be true or false")),
    };
    Ok(Chat { tools, documents, add_generation_prompt, extra: object, ..Chat::new(messages) })
}

fn variable(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE, such as enable_thinking=false")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("invalid variable name `{name}`: use letters, digits and underscores"));
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok((name.to_string(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> String {
        read(json.as_bytes(), "chat.json").err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn lists_and_objects_are_parsed() {
        let list = read(br#"[{"role": "user", "content": "Hi"}]"#, "").unwrap();
        assert!(list.messages.len() == 1 && list.add_generation_prompt && list.tools.is_none());
        let object =
            r#"{"messages": [], "tools": [{}], "documents": null, "add_generation_prompt": false, "x": 1}"#;
        let object = read(object.as_bytes(), "").unwrap();
        assert!(!object.add_generation_prompt && object.documents.is_none());
        assert_eq!((object.tools.unwrap().len(), &object.extra["x"]), (1, &Value::from(1)));
    }

    #[test]
    fn errors_have_line_and_column() {
        assert_eq!(problem("[\n  {\"role\": }]"), "chat.json:2:12: not JSON: expected value");
        assert_eq!(problem("3"), "chat.json: give a list of messages, or an object with `messages`");
        assert_eq!(problem("{}"), "chat.json: there are no `messages`");
        assert_eq!(problem(r#"{"messages": {}}"#), "chat.json: `messages` is not a list");
        assert!(problem(r#"[{"role": "user"}, "Hi"]"#).contains("message 2 has no role"));
        assert!(problem(r#"{"messages": [], "add_generation_prompt": 1}"#).contains("must be true or false"));
        assert!(problem(&"[".repeat(100_000)).contains("recursion limit"));
    }

    #[test]
    fn variables_parse_as_json_else_text() {
        assert_eq!(variable("enable_thinking=false"), Ok(("enable_thinking".into(), Value::Bool(false))));
        assert_eq!(variable("effort=high"), Ok(("effort".into(), Value::from("high"))));
        assert!(variable("effort").is_err() && variable("=1").is_err() && variable("a b=1").is_err());
    }
}
