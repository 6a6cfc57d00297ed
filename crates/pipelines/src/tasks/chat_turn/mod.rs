//! A turn of a conversation: what the model reads, which form its answer has, and how that is read.

mod thinking;
mod tool_use;

use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use text::{
    AddSpecial, AnswerFormat, AnswerParser, ChatTemplate, Constraint, Error as TextError, GrammarCompiler,
    ParseSpecial, ReasoningFormat, ReasoningPhase, Tokenizer, Tool, ToolFormat,
};

pub use thinking::Thinking;
pub use tool_use::ToolUse;

use crate::Error;
use crate::chat_template::ChatPrompt;
use crate::run::generator::{ReasoningBudget, Request};
use crate::tasks::text_generator::{Chat, TextGenerator};
use tool_use::AnswerShape;

/// A conversation, and what is asked of its answer.
#[derive(Debug, Clone)]
pub struct ChatTurn {
    /// The conversation. Its tools are those of `tools`.
    pub chat: Chat,
    /// Messages at its start that are not among the caller's. Errors count the caller's from 0.
    pub added: usize,
    /// The tools that the answer may call.
    pub tools: ToolUse,
    /// Whether and how long the model reasons; `None`: as its template does.
    pub thinking: Option<Thinking>,
    /// The form of the answer's text.
    pub form: Option<Constraint>,
}

/// Settings for what turns leave open.
#[derive(Debug, Clone, Copy)]
pub struct ChatDefaults {
    /// How models write calls; `None`: as their templates show.
    pub tool_format: Option<&'static ToolFormat>,
    /// Whether models reason.
    pub reasoning: bool,
}

/// A turn whose prompt is written, but not yet made tokens.
#[derive(Debug)]
pub struct RenderedTurn {
    /// The prompt.
    pub text: String,
    /// Fields of the request without effect.
    pub ignored: Vec<String>,
    turn: ChatTurn,
    format: AnswerFormat,
}

/// A turn as the model reads it.
#[derive(Debug, Clone, Default)]
pub struct ChatReading {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// The rules of the answer, compiled.
    pub constraint: Option<Constraint>,
    /// How long they took to compile.
    pub compile_time: Option<Duration>,
    /// The special tokens that the reader needs.
    pub shown_special_tokens: Vec<u32>,
    /// How long the model may reason.
    pub reasoning: Option<ReasoningBudget>,
    /// Fields of the request without effect.
    pub ignored: Vec<String>,
    /// How the answers are read.
    pub reader: AnswerReader,
}

/// How the answers to a prompt are read.
#[derive(Debug, Clone, Default)]
pub struct AnswerReader {
    /// How the model marks the parts.
    pub format: AnswerFormat,
    /// The tools that an answer may call.
    pub tools: Vec<Tool>,
    /// Whether an answer ends with its first call.
    pub is_single: bool,
    /// The text that the model goes on from, of a conversation.
    pub prompt: String,
    /// The content of the message that it goes on with.
    pub continued: Option<String>,
}

impl Default for ChatDefaults {
    fn default() -> ChatDefaults {
        ChatDefaults { tool_format: None, reasoning: true }
    }
}

impl From<Chat> for ChatTurn {
    fn from(chat: Chat) -> ChatTurn {
        ChatTurn { chat, added: 0, tools: ToolUse::default(), thinking: None, form: None }
    }
}

impl AnswerReader {
    /// Reads one answer.
    pub fn parser(&self) -> AnswerParser {
        let parser = AnswerParser::new(self.format, &self.tools, &self.prompt, self.continued.as_deref());
        if self.is_single { parser.one_call() } else { parser }
    }
}

impl ChatReading {
    /// A request with this prompt and these rules, and how its answers are read.
    pub fn into_request(self, parameters: Request) -> (Request, AnswerReader) {
        let ChatReading { tokens, constraint, shown_special_tokens, reasoning, reader, .. } = self;
        (Request { prompt: tokens, constraint, shown_special_tokens, reasoning, ..parameters }, reader)
    }
}

impl TextGenerator {
    /// A turn as this model reads it.
    ///
    /// # Errors
    /// If there is no chat template, it refuses the conversation, or the rules of the answer cannot be enforced.
    pub fn read_turn(&self, turn: ChatTurn, defaults: ChatDefaults) -> Result<ChatReading, Error> {
        let template = self.chat_template().ok_or(Error::NoChatTemplate)?;
        let (model, format) = (self.model(), turn.format(self.answer_format(), defaults));
        let rendered = turn.render(template, model.tokenizer(), Some(format), defaults)?;
        rendered.read(model.tokenizer(), model.grammars())
    }
}

impl ChatTurn {
    /// How the parts of the answer are marked, of a model with a format of its own.
    pub fn format(&self, own: AnswerFormat, defaults: ChatDefaults) -> AnswerFormat {
        let unknown = if self.tools.must_be_called() { ToolFormat::named("json") } else { None };
        AnswerFormat { tools: defaults.tool_format.or(own.tools).or(unknown), ..own }
    }

    /// Writes the prompt, of an answer in `format` if there is one. Takes note of fields that change neither, and of tools
    /// whose calls nothing reads.
    ///
    /// # Errors
    /// If the template refuses the conversation.
    pub fn render(
        mut self,
        template: &ChatTemplate,
        tokenizer: &Tokenizer,
        format: Option<AnswerFormat>,
        defaults: ChatDefaults,
    ) -> Result<RenderedTurn, Error> {
        let added = self.added;
        let render = |chat: &Chat| {
            chat.prompt(template, Some(tokenizer)).map_err(|error| match error {
                Error::Text(error) => Error::Text(error.without_first_messages(added)),
                error => error,
            })
        };
        let plain = self.chat.extra.clone();
        self.chat.tools = self.tools.for_template();
        match &self.thinking {
            Some(thinking) => thinking.set(&mut self.chat.extra),
            None if !defaults.reasoning => Thinking::new("", false).set(&mut self.chat.extra),
            None => {}
        }
        let ChatPrompt { text, ignored } = render(&self.chat)?;
        let is_same = |chat: Chat| render(&chat).is_ok_and(|other| other.text == text);
        let own =
            |(index, field): (usize, String)| Some(format!("messages[{}]{field}", index.checked_sub(added)?));
        let mut ignored: Vec<String> = ignored.into_iter().filter_map(own).collect();
        if let Some(thinking) = &self.thinking {
            ignored.extend(self.without_effect(thinking, plain, format, &is_same));
        }
        let has_no_effect = |chat: &Chat| match format {
            Some(format) => format.tools.is_none(),
            None => is_same(Chat { tools: None, ..chat.clone() }),
        };
        if self.chat.tools.is_some() && has_no_effect(&self.chat) {
            ignored.push("tools".to_string());
        }
        let mut all = std::mem::take(&mut self.tools.ignored);
        all.extend(ignored);
        Ok(RenderedTurn { text, ignored: all, turn: self, format: format.unwrap_or_default() })
    }

    /// The fields of the reasoning settings that change neither the prompt nor the answer. `plain` are the template's
    /// variables without these settings.
    fn without_effect(
        &self,
        thinking: &Thinking,
        plain: Map<String, Value>,
        format: Option<AnswerFormat>,
        is_same: &dyn Fn(Chat) -> bool,
    ) -> Vec<String> {
        let mut without_effort = plain.clone();
        thinking.set_switches(&mut without_effort);
        let has_budget = thinking.budget.is_some() && format.is_some_and(|own| own.reasoning.is_some());
        if !has_budget && is_same(Chat { extra: plain, ..self.chat.clone() }) {
            return thinking.fields().map(str::to_string).collect();
        }
        let is_idle = |_: &&str| is_same(Chat { extra: without_effort, ..self.chat.clone() });
        thinking.effort_field.filter(is_idle).map(str::to_string).into_iter().collect()
    }
}

impl RenderedTurn {
    /// Makes the prompt tokens and compiles the rules of the answer.
    ///
    /// # Errors
    /// If the prompt has no tokens in this vocabulary, or the rules cannot be enforced.
    pub fn read(self, tokenizer: &Tokenizer, compiler: &GrammarCompiler) -> Result<ChatReading, Error> {
        let RenderedTurn { text: prompt, mut ignored, mut turn, format } = self;
        let continued = turn.chat.continued().map(str::to_string);
        let phase = |own: &ReasoningFormat| own.phase(&prompt, continued.as_deref());
        let phase = format.reasoning.map_or(ReasoningPhase::After, phase);
        let budget = turn.thinking.and_then(|thinking| thinking.budget).zip(format.reasoning);
        let budget = budget.map(|(tokens, own)| ReasoningBudget::new(tokens, own, phase, tokenizer));
        let began = Instant::now();
        let constraint = match turn.form {
            Some(form) if phase == ReasoningPhase::After && !turn.tools.are_callable() => {
                Some(format.form(&form, phase, tokenizer)?)
            }
            form => {
                let text = form.map(|form| form.to_lark(tokenizer)).transpose();
                let text = text.map_err(TextError::from)?;
                let shape = AnswerShape { format, phase, text: text.as_deref() };
                turn.tools.constraint(&shape, tokenizer, compiler)?
            }
        };
        let compile_time = constraint.is_some().then(|| began.elapsed());
        ignored.append(&mut turn.tools.ignored);
        let (is_single, tools) = (turn.tools.is_single(), turn.tools.into_callable());
        Ok(ChatReading {
            // The template writes all special tokens itself.
            tokens: tokenizer.encode(&prompt, AddSpecial::No, ParseSpecial::Yes)?,
            constraint,
            compile_time,
            shown_special_tokens: format.special_tokens(tokenizer),
            reasoning: budget.transpose()?,
            ignored,
            reader: AnswerReader { format, tools, is_single, prompt, continued },
        })
    }
}
