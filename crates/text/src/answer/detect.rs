//! Finds the formats of a model: its own chat template writes a call, and the format that reads it back counts.

use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};

use super::formats::{FORMATS, Syntax, ToolFormat};
use super::{Answer, AnswerFormat, AnswerParser, ReasoningFormat, Tool};
use crate::{ChatContext, ChatTemplate, Moment, Tokenizer};

const NAME: &str = "probe_function";
const KEY: &str = "probe_key";
const VALUE: &str = "probe value";

impl AnswerFormat {
    /// The formats of a model. What its template does not tell, the tokenizer may. This renders the template several
    /// times: once per model is enough.
    pub fn for_model(template: Option<&ChatTemplate>, tokenizer: Option<&Tokenizer>) -> AnswerFormat {
        let in_vocabulary = |template: &ChatTemplate| {
            let tokenizer = tokenizer.filter(|_| reads_tools(template))?;
            ToolFormat::in_vocabulary(tokenizer)
        };
        // Templates may put marks together of parts.
        let opened = |own: &ChatTemplate| ReasoningFormat::opened_by(&prompt(own)?);
        let reasoning = template.and_then(|own| ReasoningFormat::in_template(own).or_else(|| opened(own)));
        AnswerFormat {
            reasoning: reasoning.or_else(|| ReasoningFormat::in_vocabulary(tokenizer?)),
            tools: template.and_then(|own| ToolFormat::for_template(own).or_else(|| in_vocabulary(own))),
        }
    }
}

impl ToolFormat {
    /// The format in which a template writes the calls of old answers, or else the first whose marks it mentions;
    /// `None` if it knows no tools.
    pub fn for_template(template: &ChatTemplate) -> Option<&'static ToolFormat> {
        let written = written(&template.for_probes());
        written.iter().find_map(|(prompt, written)| reading(prompt, written)).or_else(|| {
            let is_mentioned = |format: &&ToolFormat| {
                let last = match &format.syntax {
                    Syntax::Named(heads) if !format.bare => heads.arguments,
                    _ => format.close.trim(),
                };
                !format.begin.is_empty() && !last.is_empty() && template.mentions(format.begin[0], last)
            };
            FORMATS.iter().find(is_mentioned)
        })
    }

    /// The first format of which the mark that begins calls and the one that ends them are tokens.
    pub(super) fn in_vocabulary(tokenizer: &Tokenizer) -> Option<&'static ToolFormat> {
        let is_token = |mark: &str| !mark.is_empty() && tokenizer.id(mark).is_some();
        let has_marks = |format: &&ToolFormat| {
            let close = format.close.trim().trim_start_matches(']');
            let end = match &format.syntax {
                Syntax::Named(heads) if close.is_empty() && !format.bare => heads.arguments,
                Syntax::Tagged(tags) if close.is_empty() => tags.end,
                _ => close,
            };
            format.begin.first().is_some_and(|begin| is_token(begin)) && is_token(end)
        };
        FORMATS.iter().find(has_marks)
    }
}

/// The prompt of a short conversation.
fn prompt(template: &ChatTemplate) -> Option<String> {
    let user = [json!({"role": "user", "content": "Hello"})];
    template.for_probes().render(&context(&user, None, true)).ok()
}

/// Whether tools change the prompt.
fn reads_tools(template: &ChatTemplate) -> bool {
    let (template, user) = (template.for_probes(), [json!({"role": "user", "content": "Hello"})]);
    let prompt = |tools: Option<&[Value]>| template.render(&context(&user, tools, true)).ok();
    prompt(Some(&[tool()])).is_some_and(|with_tools| prompt(None) != Some(with_tools))
}

/// The format that reads a call from what a template wrote.
fn reading(prompt: &str, written: &str) -> Option<&'static ToolFormat> {
    let is_writer = |format: &&&ToolFormat| {
        let own = format.write(&[(NAME, &arguments())]);
        if format.bare { written.trim_start().starts_with(&own) } else { written.contains(&own) }
    };
    let readers: Vec<&'static ToolFormat> =
        FORMATS.iter().filter(|format| reads(format, prompt, written)).collect();
    readers.iter().find(is_writer).or(readers.first()).copied()
}

fn reads(format: &'static ToolFormat, prompt: &str, written: &str) -> bool {
    let is_headed = format.bare && matches!(format.syntax, Syntax::Named(_));
    if is_headed && !prompt.ends_with(format.begin[0]) {
        return false;
    }
    let tools = Tool::list(&[tool()]).expect("the probe is a tool");
    // Marks of gpt-oss and others begin where the prompt ends.
    let lead = ReasoningFormat::named(format.name).map_or("", |own| own.lead);
    let lead = if format.recipient().is_empty() { lead } else { prompt };
    let own = AnswerFormat { reasoning: ReasoningFormat::named(format.name), tools: Some(format) };
    let mut parser = AnswerParser::new(own, &tools, lead, None);
    let mut events = parser.push(written);
    events.extend(parser.finish());
    let answer = events.into_iter().collect::<Answer>();
    let calls: Vec<_> = answer.tool_calls().collect();
    let is_probe =
        |text: &str| serde_json::from_str::<Map<String, Value>>(text).is_ok_and(|own| own == arguments());
    matches!(&calls[..], [call] if call.name == NAME && is_probe(&call.arguments))
}

/// A prompt and what a template writes of a call behind it, in the forms that templates may take calls in.
fn written(template: &ChatTemplate) -> Vec<(String, String)> {
    let tools = [tool()];
    let user = json!({"role": "user", "content": "Hello"});
    let render = |messages: &[Value], add_generation_prompt| {
        template.render(&context(messages, Some(&tools), add_generation_prompt)).ok()
    };
    let prompt = render(std::slice::from_ref(&user), true).unwrap_or_default();
    let object = Value::Object(arguments());
    let text = Value::from(object.to_string());
    let forms = [(&object, Value::Null), (&object, json!("")), (&text, Value::Null), (&text, json!(""))];
    let callers = forms.into_iter().map(|(arguments, content)| {
        let function = json!({"name": NAME, "arguments": arguments});
        let call = json!({"id": "call12345", "type": "function", "function": function});
        json!({"role": "assistant", "content": content, "tool_calls": [call]})
    });
    // As in GLM-4.
    let named = json!({"role": "assistant", "metadata": NAME, "content": text});
    let written = callers.chain([named]).filter_map(|message| {
        let whole = render(&[user.clone(), message], false)?;
        let same = prompt.chars().zip(whole.chars()).take_while(|(one, other)| one == other);
        let same = same.map(|(char, _)| char.len_utf8()).sum();
        // The prompt may end with another mark that begins alike.
        let mark = whole[..same].rfind('<').filter(|&mark| !whole[mark..same].contains('>'));
        let (before, written) = whole.split_at(mark.unwrap_or(same));
        Some((before.to_owned(), written.to_owned()))
    });
    written.filter(|(_, written)| written.contains(NAME)).collect()
}

fn context<'a>(
    messages: &'a [Value],
    tools: Option<&'a [Value]>,
    add_generation_prompt: bool,
) -> ChatContext<'a> {
    ChatContext {
        tools,
        add_generation_prompt,
        bos: Some("<s>"),
        eos: Some("</s>"),
        now: Moment::utc(UNIX_EPOCH),
        ..ChatContext::new(messages)
    }
}

fn arguments() -> Map<String, Value> {
    Map::from_iter([(KEY.to_owned(), Value::from(VALUE))])
}

fn tool() -> Value {
    let parameters = json!({"type": "object", "properties": {KEY: {"type": "string"}}, "required": [KEY]});
    json!({"type": "function", "function": {"name": NAME, "description": "A probe.", "parameters": parameters}})
}
