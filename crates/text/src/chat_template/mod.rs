//! Chat templates: a conversation becomes the prompt that a model was trained on.
//!
//! Models carry their prompt format as a Jinja template, written for Python's jinja2 as Hugging Face
//! `transformers` sets it up (`utils/chat_template_utils.py`). This module renders it with `minijinja` and
//! fills what differs. A template comes from a stranger's file, so what it may spend is limited: see [`Limits`].

mod arguments;
mod built_in;
mod compile;
mod date;
mod files;
mod filters;
mod functions;
mod json;
mod letters;
mod macros;
mod messages;
mod methods;
mod number_filters;
mod operators;
mod pprint;
mod printf;
mod python;
mod rewrite;
mod syntax;
mod text_filters;
mod work;
mod wrap;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use minijinja::machinery::{eval, make_string_output};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, Value};
use weights::{MetaValue, Metadata};

use crate::Error;
pub use date::Moment;
use functions::Refusal;
pub use messages::{ChatPrompt, drop_attribution, omission};

/// The chat template of a model: one Jinja source, or several by name.
#[derive(Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// By name.
    sources: BTreeMap<String, TemplateSource>,
    limits: Limits,
    /// Found when messages are first adapted.
    traits: Arc<OnceLock<messages::Traits>>,
}

/// The Jinja source of a template.
#[derive(Clone)]
struct TemplateSource {
    /// Where it comes from, as errors name it: a file, or else the template's name.
    label: String,
    text: String,
    /// Why it cannot be rendered, if it cannot.
    problem: Option<String>,
}

/// The limits of a template; exceeding one is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the template's own text.
    pub source: usize,
    /// Instructions of one rendering. A turn of a conversation takes a few thousand at most.
    pub fuel: u64,
    /// Macros, loops and includes inside one another.
    pub depth: usize,
    /// Bytes of text and items of lists that one rendering makes or walks.
    pub work: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { source: 1 << 20, fuel: 20_000_000, depth: 200, work: 256 << 20 }
    }
}

/// The variables of a template.
#[derive(Debug, Clone, Copy)]
pub struct ChatContext<'a> {
    /// `messages`: objects with `role`, `content`, and what else the model's template reads.
    pub messages: &'a [serde_json::Value],
    /// `tools`: function schemas as in the OpenAI API; null for the template when absent.
    pub tools: Option<&'a [serde_json::Value]>,
    /// `documents`: for retrieval; null for the template when absent.
    pub documents: Option<&'a [serde_json::Value]>,
    /// `add_generation_prompt`: whether the prompt ends where the assistant is to speak.
    pub add_generation_prompt: bool,
    /// Special tokens by their variables, `unk_token` for one; those below win over them.
    pub special_tokens: Option<&'a BTreeMap<String, String>>,
    /// `bos_token`: the text of the token that begins a text; undefined for the template when absent.
    pub bos: Option<&'a str>,
    /// `eos_token`: the text of the token that ends a text; undefined for the template when absent.
    pub eos: Option<&'a str>,
    /// The time that `strftime_now` formats.
    pub now: Moment,
    /// More variables, `enable_thinking` for one. They win over those above.
    pub extra: Option<&'a serde_json::Map<String, serde_json::Value>>,
}

impl<'a> ChatContext<'a> {
    /// Messages to be answered now, and nothing else.
    pub fn new(messages: &'a [serde_json::Value]) -> ChatContext<'a> {
        ChatContext {
            messages,
            tools: None,
            documents: None,
            add_generation_prompt: true,
            special_tokens: None,
            bos: None,
            eos: None,
            now: Moment::now(),
            extra: None,
        }
    }
}

/// The name of a template that has none.
const DEFAULT: &str = "default";
/// The name of the template that `transformers` takes when there are tools.
const TOOL_USE: &str = "tool_use";
/// The key of GGUF metadata that holds the template; named ones add a dot and their name.
const GGUF_KEY: &str = "tokenizer.chat_template";

impl ChatTemplate {
    /// A template from its Jinja source.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when the source is not a template, or longer than [`Limits::source`].
    pub fn new(source: &str) -> Result<ChatTemplate, Error> {
        ChatTemplate::with_limits([(DEFAULT, source)], Limits::default())
    }

    /// Templates from their names and sources, held to `limits`.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when there is none, or one is not a template or longer than [`Limits::source`].
    pub fn with_limits<'a>(
        sources: impl IntoIterator<Item = (&'a str, &'a str)>,
        limits: Limits,
    ) -> Result<ChatTemplate, Error> {
        let named = sources.into_iter().map(|(name, source)| (name, name.to_owned(), Ok(source)));
        ChatTemplate::labeled(named, limits).checked()
    }

    /// The template, if all of its sources can be rendered. A model's own template may be broken, which stops nothing but
    /// chat.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] with the first problem.
    pub fn checked(self) -> Result<ChatTemplate, Error> {
        match self.sources.values().find_map(TemplateSource::problem) {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// Templates from their names, what errors call them, and their sources, or else why there are none.
    fn labeled<'a>(
        sources: impl IntoIterator<Item = (&'a str, String, Result<&'a str, String>)>,
        limits: Limits,
    ) -> ChatTemplate {
        let sources = sources
            .into_iter()
            .map(|(name, label, source)| (name.to_owned(), TemplateSource::new(label, source, limits)));
        let mut sources: BTreeMap<String, TemplateSource> = sources.collect();
        if sources.is_empty() {
            let missing = TemplateSource::new(DEFAULT.to_owned(), Err("is missing".to_owned()), limits);
            sources.insert(DEFAULT.to_owned(), missing);
        }
        let environment = filters::environment(limits);
        ChatTemplate { environment, sources, limits, traits: Arc::default() }
    }

    /// The template in a `tokenizer_config.json`, or `None` where it has none.
    ///
    /// `chat_template` is a source there, or a list of objects with `name` and `template`.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] when the file is not JSON, `chat_template` has neither shape, or as
    /// [`ChatTemplate::new`].
    pub fn from_tokenizer_config(json: &str) -> Result<Option<ChatTemplate>, Error> {
        ChatTemplate::from_config(json, None).map(ChatTemplate::checked).transpose()
    }

    /// As [`ChatTemplate::from_tokenizer_config`]; errors name the file, and are those of rendering.
    fn from_config(json: &str, file: Option<&Path>) -> Option<ChatTemplate> {
        let label = |name: &str| match file {
            None => name.to_owned(),
            Some(file) if name == DEFAULT => file.display().to_string(),
            Some(file) => format!("{} ({name})", file.display()),
        };
        let single =
            |source| Some(ChatTemplate::labeled([(DEFAULT, label(DEFAULT), source)], Limits::default()));
        let config: serde_json::Value = match weights::from_json(json.as_bytes()) {
            Ok(config) => config,
            Err(error) => return single(Err(format!("the file that holds it is not JSON: {error}"))),
        };
        let named = match config.get("chat_template") {
            None | Some(serde_json::Value::Null) => return None,
            Some(serde_json::Value::String(source)) => return single(Ok(source)),
            Some(serde_json::Value::Array(named)) => named,
            Some(_) => return single(Err("chat_template is neither a string nor a list".to_owned())),
        };
        let sources =
            named.iter().map(|entry| Some((entry.get("name")?.as_str()?, entry.get("template")?.as_str()?)));
        let Some(sources) = sources.collect::<Option<Vec<_>>>() else {
            return single(Err("an entry of chat_template lacks a name or a template".to_owned()));
        };
        if sources.is_empty() {
            return single(Err("chat_template is an empty list".to_owned()));
        }
        let labeled = |(name, source)| (name, label(name), Ok(source));
        Some(ChatTemplate::labeled(sources.into_iter().map(labeled), Limits::default()))
    }

    /// The template in GGUF metadata, or `None` where it has none.
    ///
    /// `tokenizer.chat_template` is the default; `tokenizer.chat_template.NAME` is one with a name.
    ///
    /// One that is broken gives its error when it is rendered: see [`ChatTemplate::checked`].
    pub fn from_gguf(metadata: &Metadata) -> Option<ChatTemplate> {
        let mut sources = Vec::new();
        for (key, value) in metadata.iter() {
            let name = match key.strip_prefix(GGUF_KEY) {
                Some("") => DEFAULT,
                Some(rest) if rest.starts_with('.') => &rest[1..],
                _ => continue,
            };
            let source = match value {
                MetaValue::String(source) => Ok(source.as_str()),
                _ => Err(format!("the metadata's {key} is not a string")),
            };
            sources.push((name, name.to_owned(), source));
        }
        (!sources.is_empty()).then(|| ChatTemplate::labeled(sources, Limits::default()))
    }

    /// The keys of GGUF metadata and the templates that they hold.
    pub fn gguf_keys(&self) -> impl Iterator<Item = (String, &str)> {
        let key = |name: &str| match name {
            DEFAULT => GGUF_KEY.to_string(),
            name => format!("{GGUF_KEY}.{name}"),
        };
        let readable = self.sources.iter().filter(|(_, source)| !source.text.is_empty());
        readable.map(move |(name, source)| (key(name), &source.text[..]))
    }

    /// The names of the templates; one without a name is `default`.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// Whether one of the sources has both texts.
    pub(crate) fn mentions(&self, one: &str, other: &str) -> bool {
        self.sources.values().any(|source| source.text.contains(one) && source.text.contains(other))
    }

    /// The prompt of a conversation.
    ///
    /// Of several templates, `tool_use` is taken when there are tools, and else `default`.
    ///
    /// # Errors
    /// [`Error::ChatRefused`] when the template itself refuses the conversation, with its message.
    /// [`Error::ChatUnfit`] when it cannot do with the conversation what it is to do.
    /// [`Error::ChatTemplate`] if there is no such template, it uses something unknown, or it exceeds its [`Limits`].
    pub fn render(&self, context: &ChatContext) -> Result<String, Error> {
        let with_tools = context.tools.is_some() && self.names().any(|name| name == TOOL_USE);
        self.render_named(if with_tools { TOOL_USE } else { DEFAULT }, context)
    }

    /// The prompt of a conversation, from the template with this name.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn render_named(&self, name: &str, context: &ChatContext) -> Result<String, Error> {
        let Some(source) = self.sources.get(name) else {
            let problem = format!("is missing; there are {}", self.names().collect::<Vec<_>>().join(", "));
            return Err(Error::ChatTemplate { name: name.to_owned(), problem });
        };
        if let Some(error) = source.problem() {
            return Err(error);
        }
        let TemplateSource { label, text, .. } = source;
        self.evaluate(label, text, variables(context)).map_err(|error| unfit(label, &error))
    }

    /// Compiling takes about as long as rendering, and what is compiled borrows its source, so each call compiles.
    fn evaluate(&self, name: &str, source: &str, variables: Value) -> Result<String, minijinja::Error> {
        let program = compile::compile(name, source)?;
        let mut text = String::new();
        let mut output = make_string_output(&mut text);
        eval(&self.environment, &program.root, variables, &program.blocks, &mut output, AutoEscape::None)?;
        drop(output);
        Ok(text)
    }
}

impl TemplateSource {
    fn new(label: String, source: Result<&str, String>, limits: Limits) -> TemplateSource {
        let (text, problem) = match source {
            Ok(source) if source.len() > limits.source => {
                let problem = format!("has {} bytes; the limit is {}", source.len(), limits.source);
                (String::new(), Some(problem))
            }
            Ok(source) => (syntax::without_extensions(source), None),
            Err(problem) => (String::new(), Some(problem)),
        };
        let own = || match failure(&label, &compile::compile(&label, &text).err()?) {
            Error::ChatTemplate { problem, .. } => Some(problem),
            error => Some(error.to_string()),
        };
        let problem = problem.or_else(own);
        TemplateSource { label, text, problem }
    }

    /// The error of rendering it, if it is broken.
    fn problem(&self) -> Option<Error> {
        let problem = self.problem.clone()?;
        Some(Error::ChatTemplate { name: self.label.clone(), problem })
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("names", &self.sources.keys())
            .field("limits", &self.limits)
            .finish()
    }
}

/// The template's variables.
fn variables(context: &ChatContext) -> Value {
    let now = context.now;
    let mut variables: BTreeMap<&str, Value> = BTreeMap::from([
        ("messages", Value::from(Serde(context.messages))),
        ("tools", Value::from(Serde(context.tools))),
        ("documents", Value::from(Serde(context.documents))),
        ("add_generation_prompt", Value::from(context.add_generation_prompt)),
        ("strftime_now", Value::from_function(move |format: &str| now.strftime(format))),
    ]);
    let tokens = context.special_tokens.into_iter().flatten();
    variables.extend(tokens.map(|(name, token)| (&name[..], Value::from(&token[..]))));
    variables.extend(context.bos.map(|bos| ("bos_token", Value::from(bos))));
    variables.extend(context.eos.map(|eos| ("eos_token", Value::from(eos))));
    for (name, value) in context.extra.into_iter().flatten() {
        variables.insert(name, Value::from(Serde(value)));
    }
    Value::from_pairs(variables)
}

/// An error of a rendering: where the template is not at fault, its values are, and they are the conversation's.
fn unfit(name: &str, error: &minijinja::Error) -> Error {
    use ErrorKind::*;
    let is_own_fault = matches!(
        error.kind(),
        OutOfFuel
            | SyntaxError
            | UnknownFilter
            | UnknownFunction
            | UnknownTest
            | UnknownMethod
            | UnknownBlock
            | TemplateNotFound
    );
    match failure(name, error) {
        Error::ChatTemplate { name, problem } if !is_own_fault => {
            Error::ChatUnfit { name, index: None, problem }
        }
        failure => failure,
    }
}

/// An error of the template engine as one of ours: the template's own refusal, or a fault with its place.
fn failure(name: &str, error: &minijinja::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut innermost = error.to_string();
    while let Some(error) = cause {
        if let Some(Refusal(message)) = error.downcast_ref() {
            return Error::ChatRefused { index: None, message: message.clone() };
        }
        innermost = error.to_string();
        cause = error.source();
    }
    let problem = match error.kind() {
        ErrorKind::OutOfFuel => "takes too many steps or makes too much text for one rendering".to_owned(),
        _ => innermost,
    };
    Error::ChatTemplate { name: name.to_owned(), problem }
}

#[cfg(test)]
mod tests;
