//! Conversations in the forms that a template takes.
//!
//! Requests follow the OpenAI API, of which each template understands a part. That part is found by rendering probes,
//! once ([`probes`]): the forms of contents and arguments ([`forms`]), and the order of roles ([`rules`]). Before a
//! conversation with tools, or one in which roles do not alternate, is rendered, its outline is ([`outline`]): if that
//! loses a text, stronger rules are tried.

mod attribution;
mod forms;
mod outline;
mod probes;
mod reading;
mod results;
mod rules;
mod sparse_tools;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};

use super::{ChatContext, ChatTemplate, Limits, Moment, filters};
use crate::Error;
pub use attribution::drop_attribution;
use outline::Outline;
pub(super) use probes::Traits;
use reading::Conversation;
pub use reading::omission;
use rules::Rules;

/// The prompt of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatPrompt {
    /// Its text.
    pub text: String,
    /// The parts of messages that the model does not read: the message, from 0, and the part of it, as in `.content[1]`.
    /// These are pictures that became a line of text, and texts that the template has no place for.
    pub ignored: Vec<(usize, String)>,
}

impl ChatTemplate {
    /// The prompt of a conversation in the shape of the OpenAI API, in whatever form this template takes.
    ///
    /// Texts are not lost: a message of a role that the template does not write, or not at this place, becomes part of its
    /// neighbour. Calls without ids get them, results get the names of their functions, and arguments that are not JSON
    /// are shown to the model as they are. Pictures become a line of text, except in the newest message of the user.
    ///
    /// # Errors
    /// [`Error::ChatMessage`] names a part of a message that is not as it must be; otherwise as [`ChatTemplate::render`],
    /// with the message at fault, if one is.
    pub fn render_chat(&self, context: &ChatContext<'_>) -> Result<ChatPrompt, Error> {
        self.render_adapted(context).map_err(|error| self.blame(error, context))
    }

    fn render_adapted(&self, context: &ChatContext<'_>) -> Result<ChatPrompt, Error> {
        let traits = self.traits();
        let Conversation { messages, origins, mut ignored } = Conversation::read(context.messages)?;
        let tools = traits.tools_for(context.tools);
        let extra = card_variables(self, tools.as_deref(), context.now).map(|mut variables| {
            variables.extend(context.extra.cloned().unwrap_or_default());
            variables
        });
        let context =
            ChatContext { tools: tools.as_deref(), extra: extra.as_ref().or(context.extra), ..*context };
        let (rules, lost) = self.rules_for(&messages, &context);
        ignored.extend(lost.into_iter().map(|(index, field)| (origins[index], field)));
        let messages = traits.adapted(messages, &rules);
        let text = self.render(&ChatContext { messages: &messages, ..context })?;
        Ok(ChatPrompt { text, ignored })
    }

    /// The rules that a conversation needs, and the texts (a message and its field) that none can save.
    fn rules_for(&self, messages: &[Value], context: &ChatContext<'_>) -> (Rules, Vec<(usize, String)>) {
        let traits = self.traits();
        if is_plain(messages) {
            return (traits.rules.clone(), Vec::new());
        }
        let outline = Outline::new(messages);
        let mut best: Option<(Rules, Vec<(usize, String)>)> = None;
        for rules in traits.rules.and_stronger() {
            let messages = traits.adapted(outline.messages.clone(), &rules);
            let Ok(prompt) = self.render(&ChatContext { messages: &messages, ..*context }) else { continue };
            let lost = outline.lost(&prompt);
            if lost.is_empty() {
                return (rules, lost);
            }
            if best.as_ref().is_none_or(|(_, least)| lost.len() < least.len()) {
                best = Some((rules, lost));
            }
        }
        best.unwrap_or_else(|| (traits.rules.clone(), Vec::new()))
    }

    /// What this template takes.
    fn traits(&self) -> &Traits {
        self.traits.get_or_init(|| Traits::for_template(&self.for_probes()))
    }

    /// An error with the message that is at fault, if one is: the messages before it render.
    fn blame(&self, error: Error, context: &ChatContext<'_>) -> Error {
        let fails_alike = |messages: &[Value]| {
            let other = self.render_adapted(&ChatContext { messages, ..*context }).err();
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
            fuel: self.limits.fuel.min(200_000),
            work: self.limits.work.min(16 << 20),
            ..self.limits
        };
        let (environment, sources) = (filters::environment(limits), self.sources.clone());
        ChatTemplate { environment, sources, limits, traits: Arc::default() }
    }

    /// The prompt of a probe, without tools or else with one: some templates cannot do without.
    fn render_probe(&self, messages: &[Value]) -> Option<String> {
        let tools = [
            json!({"type": "function", "function": {"name": "probe_function", "description": "", "parameters": {}}}),
        ];
        // Some templates write reasoning only if it is turned on.
        let mut extra = card_variables(self, None, Moment::utc(UNIX_EPOCH)).unwrap_or_default();
        extra.extend(["enable_thinking", "thinking"].map(|name| (name.to_owned(), json!(true))));
        let context = ChatContext {
            bos: Some("<s>"),
            eos: Some("</s>"),
            now: Moment::utc(UNIX_EPOCH),
            extra: Some(&extra),
            ..ChatContext::new(messages)
        };
        let with_tools = ChatContext { tools: Some(&tools), ..context };
        self.render(&context).or_else(|_| self.render(&with_tools)).ok()
    }
}

/// The variables that FireFunction's model card sets.
fn card_variables(
    template: &ChatTemplate,
    tools: Option<&[Value]>,
    now: Moment,
) -> Option<Map<String, Value>> {
    if !template.mentions("+ functions ", "+ datetime ") {
        return None;
    }
    let functions = serde_json::to_string_pretty(tools.unwrap_or_default()).unwrap_or_default();
    let datetime = now.strftime("%Y-%m-%d %H:%M:%S GMT").unwrap_or_default();
    Some(Map::from_iter([
        ("functions".to_owned(), json!(functions)),
        ("datetime".to_owned(), json!(datetime)),
    ]))
}

/// Whether users and assistants take turns, after at most one message of the system, without tools.
fn is_plain(messages: &[Value]) -> bool {
    let turns = &messages[usize::from(messages.first().is_some_and(is_system))..];
    let is_turn = |(index, message): (usize, &Value)| {
        let expected = if index % 2 == 0 { "user" } else { "assistant" };
        role(message) == expected && calls(message).is_empty()
    };
    !turns.is_empty() && turns.iter().enumerate().all(is_turn)
}

fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

fn is_system(message: &Value) -> bool {
    matches!(role(message), "system" | "developer")
}

fn calls(message: &Value) -> &[Value] {
    message["tool_calls"].as_array().map_or(&[], Vec::as_slice)
}

/// The text of a content: a text, or parts of text.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

fn is_blank(content: &Value) -> bool {
    text_of(content).trim().is_empty()
}

/// Two texts with a blank line between them, unless one is empty.
fn joined(one: &str, other: &str) -> String {
    let between = if one.is_empty() || other.is_empty() { "" } else { "\n\n" };
    [one, between, other].concat()
}
