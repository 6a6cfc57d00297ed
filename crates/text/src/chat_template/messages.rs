//! Messages in the forms that a template takes: texts or parts, arguments as objects or as texts.
//!
//! Requests follow the OpenAI API, of which each template understands a part. That part is found by
//! rendering probes, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::{ChatContext, ChatTemplate, Limits, Moment, filters};
use crate::Error;

/// What a template takes.
#[derive(Debug, Default)]
pub(super) struct Traits {
    /// Forms of content, by role.
    contents: BTreeMap<&'static str, Forms>,
    /// Forms of the content next to tool calls: a text stands for an empty one, parts for null.
    empty: Forms,
    /// Forms of arguments: a text, and parts for an object.
    arguments: Forms,
    knows_developer: bool,
    /// Whether ids of calls must have nine letters and digits.
    has_short_ids: bool,
}

/// Which of two forms a template writes as it should.
#[derive(Debug, Default, Clone, Copy)]
struct Forms {
    text: bool,
    parts: bool,
}

const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];
const NAME: &str = "probe_function";
const KEY: &str = "probe_key";
const TEXT: &str = "probe text";
const SHORT_ID: &str = "abcdefghi";
const LONG_ID: &str = "call_abcdefghijklmnopqrstuvwx";

impl ChatTemplate {
    /// The messages in the forms that this template takes; those that fit already stay as they are.
    ///
    /// A content of text parts becomes one text where the template takes texts, and the reverse. Arguments of calls become
    /// objects where it takes these, or texts. Results of tools may be any JSON. Reasoning may be given as `reasoning`, and is
    /// `reasoning_content` for templates. The role `developer` becomes `system`
    /// if the template does not know it, and ids of calls become numbers of nine digits if it takes no others.
    ///
    /// # Errors
    /// [`Error::ChatMessage`] names the message and the part of it that is not a text, or not as it must be.
    pub fn adapt(&self, messages: &[Value]) -> Result<Vec<Value>, Error> {
        let traits = self.traits.get_or_init(|| self.for_probes().probe());
        let mut ids = Vec::new();
        let adapted = messages.iter().enumerate().map(|(index, message)| {
            let mut message = message.clone();
            traits.adapt(&mut message, &mut ids).map_err(|(field, problem)| Error::ChatMessage {
                index,
                field,
                problem,
            })?;
            Ok(message)
        });
        adapted.collect()
    }

    /// An error of [`ChatTemplate::render`] with the message that is at fault, if one is: the messages before it render.
    pub fn blame(&self, error: Error, context: &ChatContext<'_>) -> Error {
        let fails_alike = |messages: &[Value]| {
            let other = self.render(&ChatContext { messages, ..*context }).err();
            other.is_some_and(|other| other.to_string() == error.to_string())
        };
        let is_conversations = matches!(error, Error::ChatRefused { .. } | Error::ChatUnfit { .. });
        let neutral = [json!({"role": "user", "content": "Hello"})];
        if !is_conversations || context.messages.is_empty() || fails_alike(&neutral) {
            return error;
        }
        // The fewest messages that fail, if all more do.
        let (mut good, mut bad) = (0, context.messages.len());
        while good + 1 < bad {
            let middle = good.midpoint(bad);
            if fails_alike(&context.messages[..middle]) { bad = middle } else { good = middle }
        }
        let index = Some(bad - 1);
        match error {
            Error::ChatRefused { message, .. } => Error::ChatRefused { index, message },
            Error::ChatUnfit { name, problem, .. } => Error::ChatUnfit { name, index, problem },
            error => error,
        }
    }

    /// The same template with little to spend: a probe takes a few thousand steps, and there are many.
    pub(crate) fn for_probes(&self) -> ChatTemplate {
        let limits = Limits {
            fuel: self.limits.fuel.min(500_000),
            work: self.limits.work.min(16 << 20),
            ..self.limits
        };
        let (environment, sources) = (filters::environment(limits), self.sources.clone());
        ChatTemplate { environment, sources, limits, traits: Arc::default() }
    }

    /// Renders probes.
    fn probe(&self) -> Traits {
        let parts = json!([{"type": "text", "text": TEXT}]);
        let forms_of = |role: &str| Forms {
            text: self.writes(&conversation(role, &json!(TEXT)), &[TEXT], &[]),
            parts: self.writes(&conversation(role, &parts), &[TEXT], &["'type'", "\"type\"", "\\\"type\\\""]),
        };
        let object = json!({KEY: TEXT});
        let written = json!(object.to_string());
        let call = |content: Value, arguments: &Value, id| vec![user(), caller(content, arguments, id)];
        let ids = |id| {
            let result = json!({"role": "tool", "tool_call_id": id, "name": NAME, "content": TEXT});
            [call(Value::Null, &object, id), vec![result]].concat()
        };
        let either = |id| self.renders(&ids(id)) || self.renders(&with_text(ids(id), &written));
        let any = |content: &Value, present: &[&str]| {
            let forms = [&object, &written];
            forms.iter().any(|form| self.writes(&call(content.clone(), form, SHORT_ID), present, &["None"]))
        };
        let empty_if =
            |present: &[&str]| Forms { text: any(&json!(""), present), parts: any(&Value::Null, present) };
        let mut empty = empty_if(&[NAME]);
        if !empty.text && !empty.parts {
            empty = empty_if(&[]);
        }
        let content = if empty.parts || !empty.text { Value::Null } else { json!("") };
        let plain = format!("\"{KEY}\"");
        let quoted = [format!("'{KEY}'"), format!("\\\"{KEY}")];
        let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
        Traits {
            contents: ROLES.iter().map(|role| (*role, forms_of(role))).collect(),
            empty,
            arguments: Forms {
                text: self.writes(&call(content.clone(), &written, SHORT_ID), &[&plain, TEXT], &quoted),
                parts: self.writes(&call(content, &object, SHORT_ID), &[KEY, TEXT], &quoted),
            },
            knows_developer: self.mentions("'developer'", "") || self.mentions("\"developer\"", ""),
            has_short_ids: !either(LONG_ID) && either(SHORT_ID),
        }
    }

    fn renders(&self, messages: &[Value]) -> bool {
        self.render_probe(messages).is_some()
    }

    /// Whether the prompt has all of `present` and none of `absent`.
    fn writes(&self, messages: &[Value], present: &[&str], absent: &[&str]) -> bool {
        self.render_probe(messages).is_some_and(|prompt| {
            present.iter().all(|text| prompt.contains(text))
                && !absent.iter().any(|text| prompt.contains(text))
        })
    }

    /// The prompt, without tools or else with one: some templates cannot do without.
    fn render_probe(&self, messages: &[Value]) -> Option<String> {
        let tools =
            [json!({"type": "function", "function": {"name": NAME, "description": "", "parameters": {}}})];
        let context = ChatContext {
            bos: Some("<s>"),
            eos: Some("</s>"),
            now: Moment::utc(UNIX_EPOCH),
            ..ChatContext::new(messages)
        };
        let with_tools = ChatContext { tools: Some(&tools), ..context };
        self.render(&context).or_else(|_| self.render(&with_tools)).ok()
    }
}

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

/// A field, and its problem.
type Problem = (String, String);

impl Traits {
    /// Brings a message into the forms that the template takes. `ids` are those of calls so far.
    fn adapt(&self, message: &mut Value, ids: &mut Vec<Value>) -> Result<(), Problem> {
        let Some(fields) = message.as_object_mut() else {
            return Err((String::new(), "is not an object".to_owned()));
        };
        if fields.get("role").is_some_and(|role| role == "developer") && !self.knows_developer {
            fields.insert("role".to_owned(), json!("system"));
        }
        if !fields.contains_key("reasoning_content")
            && let Some(reasoning) = fields.get("reasoning").filter(|reasoning| reasoning.is_string())
        {
            fields.insert("reasoning_content".to_owned(), reasoning.clone());
        }
        let role = fields.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
        let has_calls =
            fields.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
        if let Some(content) = fields.get_mut("content") {
            self.adapt_content(content, &role)?;
        }
        if has_calls {
            let content = fields.entry("content").or_insert(Value::Null);
            match content {
                Value::Null if self.empty.text && !self.empty.parts => *content = json!(""),
                Value::String(text) if text.is_empty() && self.empty.parts && !self.empty.text => {
                    *content = Value::Null;
                }
                _ => {}
            }
        }
        let calls = fields.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, call) in calls.into_iter().flatten().enumerate() {
            let place = format!(".tool_calls[{index}]");
            if !call.is_object() {
                return Err((place, "is not an object".to_owned()));
            }
            if let Some(arguments) = call.pointer_mut("/function/arguments") {
                self.adapt_arguments(arguments, &format!("{place}.function.arguments"))?;
            }
            call.get_mut("id").into_iter().for_each(|id| self.adapt_id(id, ids));
        }
        fields.get_mut("tool_call_id").into_iter().for_each(|id| self.adapt_id(id, ids));
        Ok(())
    }

    fn adapt_content(&self, content: &mut Value, role: &str) -> Result<(), Problem> {
        let is_parts = |parts: &[Value]| parts.iter().all(|part| part["type"].is_string());
        let forms = self.contents.get(role).copied().unwrap_or_default();
        *content = match content {
            Value::Array(parts) if role != "tool" || is_parts(parts) => {
                let texts = parts.iter().enumerate().map(|(index, part)| text_of(part, index));
                let text = texts.collect::<Result<Vec<_>, _>>()?.concat();
                if forms.parts {
                    return Ok(());
                }
                Value::String(text)
            }
            Value::String(text) if forms.parts && !forms.text => json!([{"type": "text", "text": text}]),
            Value::String(_) => return Ok(()),
            Value::Null if role != "tool" => return Ok(()),
            // The result of a tool may be any JSON.
            _ if role == "tool" => Value::String(content.to_string()),
            _ => return Err((".content".to_owned(), "is neither a text nor a list of parts".to_owned())),
        };
        Ok(())
    }

    fn adapt_arguments(&self, arguments: &mut Value, place: &str) -> Result<(), Problem> {
        *arguments = match arguments {
            Value::String(text) if self.arguments.parts && !self.arguments.text => {
                let text = if text.trim().is_empty() { "{}" } else { text };
                let object = serde_json::from_str::<serde_json::Map<String, Value>>(text);
                Value::Object(
                    object.map_err(|error| (place.to_owned(), format!("is not a JSON object: {error}")))?,
                )
            }
            Value::Object(_) if self.arguments.text && !self.arguments.parts => {
                Value::String(arguments.to_string())
            }
            _ => return Ok(()),
        };
        Ok(())
    }

    /// Replaces an id by its number.
    fn adapt_id(&self, id: &mut Value, ids: &mut Vec<Value>) {
        let fits =
            |id: &str| id.len() == SHORT_ID.len() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !self.has_short_ids || id.as_str().is_none_or(fits) {
            return;
        }
        let number = ids.iter().position(|other| other == id).unwrap_or_else(|| {
            ids.push(id.clone());
            ids.len() - 1
        });
        *id = Value::String(format!("{number:09}"));
    }
}

/// The text of a part.
fn text_of(part: &Value, index: usize) -> Result<&str, Problem> {
    let kind = part["type"].as_str().unwrap_or("none");
    // A refusal has its text under its own name.
    let problem = match part.get(kind).and_then(Value::as_str) {
        Some(text) if matches!(kind, "text" | "refusal") => return Ok(text),
        None if matches!(kind, "text" | "refusal") => "has no text".to_owned(),
        _ => format!("has the type {kind}; only text is supported"),
    };
    Err((format!(".content[{index}]"), problem))
}

fn user() -> Value {
    json!({"role": "user", "content": "Hello"})
}

fn caller(content: Value, arguments: &Value, id: &str) -> Value {
    let call = json!({"id": id, "type": "function", "function": {"name": NAME, "arguments": arguments}});
    json!({"role": "assistant", "content": content, "tool_calls": [call]})
}

/// The same messages with arguments as text.
fn with_text(mut messages: Vec<Value>, arguments: &Value) -> Vec<Value> {
    messages[1]["tool_calls"][0]["function"]["arguments"] = arguments.clone();
    messages
}

/// A conversation in which a message of this role has this content.
fn conversation(role: &str, content: &Value) -> Vec<Value> {
    let message = json!({"role": role, "content": content});
    match role {
        "system" => vec![message, user()],
        "assistant" => vec![user(), message, user()],
        "tool" => {
            let result = json!({"role": "tool", "tool_call_id": SHORT_ID, "name": NAME, "content": content});
            vec![user(), caller(json!(""), &json!({KEY: "x"}), SHORT_ID), result]
        }
        _ => vec![message],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &str) -> Option<ChatTemplate> {
        let folder = testdata::shared("chat-templates/templates")?;
        Some(ChatTemplate::open(folder.join(format!("{name}.jinja"))).unwrap())
    }

    fn adapted(template: &ChatTemplate, message: Value) -> Value {
        template.adapt(&[message]).unwrap().remove(0)
    }

    #[test]
    fn contents_take_the_form_of_the_template() {
        let texts = ChatTemplate::new("{% for m in messages %}{{ m.role + m.content }}{% endfor %}").unwrap();
        let parts = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
        let parts = ChatTemplate::new(parts).unwrap();
        let repr = ChatTemplate::new("{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
        let (text, list) =
            (json!("ab"), json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]));
        for (template, from, to) in
            [(&texts, &list, &text), (&texts, &text, &text), (&repr, &list, &text), (&parts, &list, &list)]
        {
            let message = adapted(template, json!({"role": "user", "content": from}));
            assert_eq!(message["content"], *to, "{from}");
        }
        let message = adapted(&parts, json!({"role": "user", "content": "ab"}));
        assert_eq!(message["content"], json!([{"type": "text", "text": "ab"}]));
        let result = adapted(&texts, json!({"role": "tool", "content": {"a": [1, null]}}));
        assert_eq!(result["content"], "{\"a\":[1,null]}");
    }

    #[test]
    fn problems_name_the_message_and_the_part() {
        let template = ChatTemplate::new("{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
        let check = |message: Value, expected: &str| {
            let error = template.adapt(&[user(), message]).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(matches!(error, Error::ChatMessage { index: 1, .. }));
        };
        let image = json!({"type": "image_url", "image_url": {"url": "x"}});
        check(
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, image]}),
            "messages[1].content[1]: has the type image_url; only text is supported",
        );
        check(json!({"role": "user", "content": [{"type": "text"}]}), "messages[1].content[0]: has no text");
        check(
            json!({"role": "user", "content": 5}),
            "messages[1].content: is neither a text nor a list of parts",
        );
        check(json!("Hello"), "messages[1]: is not an object");
        check(
            json!({"role": "assistant", "tool_calls": [{}, 1]}),
            "messages[1].tool_calls[1]: is not an object",
        );
        let strange =
            [json!({"tool_calls": 1, "content": null}), json!({"tool_calls": [{"function": 1, "id": 1}]})];
        assert!(template.adapt(&strange).is_ok() && template.adapt(&[json!({})]).is_ok());
    }

    #[test]
    fn arguments_take_the_form_of_the_template() {
        let call = |arguments: Value| caller(Value::Null, &arguments, SHORT_ID);
        let (object, text) = (json!({"city": "a", "n": 1}), json!("{\"city\":\"a\",\"n\":1}"));
        for (name, from, to) in [
            ("GLM-4.7-Flash", &text, &object),
            ("Qwen3-Coder", &text, &object),
            ("LFM2.5-8B-A1B", &text, &object),
            ("deepseek-ai-DeepSeek-V3.1", &text, &object),
            ("meta-llama-Llama-3.1-8B-Instruct", &text, &object),
            ("mistralai-Mistral-Nemo-Instruct-2407", &text, &object),
            ("Qwen-QwQ-32B", &text, &object),
            ("Qwen-Qwen3-0.6B", &text, &text),
            ("meetkai-functionary-medium-v3.2", &object, &text),
            ("microsoft-Phi-3.5-mini-instruct", &text, &text),
        ] {
            let Some(template) = open(name) else { return };
            let message = adapted(&template, call(from.clone()));
            assert_eq!(message["tool_calls"][0]["function"]["arguments"], *to, "{name}");
        }
        let template = open("GLM-4.7-Flash").unwrap();
        let error = template.adapt(&[user(), call(json!("{\"a\""))]).unwrap_err().to_string();
        assert!(
            error.starts_with("messages[1].tool_calls[0].function.arguments: is not a JSON object"),
            "{error}"
        );
    }

    #[test]
    fn tool_rounds_render_with_every_template_that_knows_tools() {
        let Some(folder) = testdata::shared("chat-templates/templates") else { return };
        let messages = [
            user(),
            caller(Value::Null, &json!("{\"city\": \"Zürich\"}"), LONG_ID),
            json!({"role": "tool", "tool_call_id": LONG_ID, "name": NAME, "content": [{"type": "text", "text": "cold"}]}),
        ];
        let tools = [json!({"type": "function", "function": {"name": NAME, "description": "d", "parameters":
            {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}})];
        let mut num_rendered = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let template = ChatTemplate::open(&path).unwrap();
            if crate::answer::ToolFormat::of(&template).is_none() {
                continue;
            }
            let adapted = template.adapt(&messages).unwrap();
            let context = ChatContext {
                tools: Some(&tools),
                bos: Some("<s>"),
                eos: Some("</s>"),
                ..ChatContext::new(&adapted)
            };
            let Ok(prompt) = template.render(&context) else { continue };
            let prompt = prompt.rsplit_once("Hello").unwrap().1;
            let is_whole = prompt.contains(NAME) && prompt.contains("Zürich") && prompt.contains("cold");
            num_rendered +=
                usize::from(is_whole && !prompt.contains("\\\"city") && !prompt.contains("'type'"));
        }
        // Without these: one uses what no sandbox allows, one a filter on a generator, two write calls only of their own kind.
        assert!(num_rendered >= 26, "{num_rendered}");
    }

    #[test]
    fn ids_of_calls_become_short_for_templates_that_take_no_others() {
        let Some(template) = open("mistralai-Mistral-Nemo-Instruct-2407") else { return };
        let result = json!({"role": "tool", "tool_call_id": LONG_ID, "content": "1"});
        let adapted = template.adapt(&[user(), caller(json!(""), &json!({}), LONG_ID), result]).unwrap();
        assert_eq!(adapted[1]["tool_calls"][0]["id"], "000000000");
        assert_eq!(adapted[2]["tool_call_id"], "000000000");
        let template = open("Qwen-Qwen3-0.6B").unwrap();
        assert_eq!(
            template.adapt(&[caller(json!(""), &json!({}), LONG_ID)]).unwrap()[0]["tool_calls"][0]["id"],
            LONG_ID
        );
    }

    #[test]
    fn developer_is_system_unless_the_template_knows_it() {
        let message = json!({"role": "developer", "content": "Be brief."});
        for (name, role) in [("Qwen-Qwen3-0.6B", "system"), ("openai-gpt-oss-120b", "developer")] {
            let Some(template) = open(name) else { return };
            assert_eq!(adapted(&template, message.clone())["role"], role, "{name}");
        }
    }

    #[test]
    fn lines_that_change_with_every_request_are_dropped() {
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

    #[test]
    fn probes_of_hostile_templates_are_cheap() {
        let source = "{% if messages | length > 1 or messages[0].content is not string %}\
            {% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}x";
        let template = ChatTemplate::new(source).unwrap();
        let start = std::time::Instant::now();
        template.adapt(&[user()]).unwrap();
        assert!(crate::answer::ToolFormat::of(&template).is_none());
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }

    #[test]
    fn refusals_name_the_message_at_fault() {
        let source = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
            {{ raise_exception('roles must alternate') }}{% endif %}{{ 1 + m.content.n }}{% endfor %}";
        let template = ChatTemplate::new(source).unwrap();
        let blamed = |messages: &[Value]| {
            let context = ChatContext::new(messages);
            template.blame(template.render(&context).unwrap_err(), &context).to_string()
        };
        let message = |role: &str, n: Value| json!({"role": role, "content": {"n": n}});
        let (user, assistant) = (message("user", json!(1)), message("assistant", json!(1)));
        let refused = blamed(&[user.clone(), assistant.clone(), assistant.clone(), user.clone()]);
        assert!(refused.ends_with("conversation: messages[2]: roles must alternate"), "{refused}");
        assert!(blamed(&[assistant, user.clone()]).ends_with("messages[0]: roles must alternate"));
        let unfit = blamed(&[user, message("assistant", json!("x"))]);
        assert!(unfit.contains("messages[1]: "), "{unfit}");
        let template = ChatTemplate::new("{{ raise_exception('never') }}").unwrap();
        let messages = [json!({"role": "user", "content": "a"})];
        let context = ChatContext::new(&messages);
        let error = template.blame(template.render(&context).unwrap_err(), &context).to_string();
        assert!(error.ends_with("conversation: never"), "{error}");
    }
}
