//! A turn of a conversation: what the model reads, which form its answer has, and how that is read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pipelines::chat_template::ChatPrompt;
use pipelines::{
    AddSpecial, AnswerFormat, AnswerParser, Chat, ChatTemplate, Constraint, Error, ParseSpecial, Prompt,
    ReasoningBudget, ReasoningPhase, Request, TextError, TextGenerator, Tokenizer, Tool, ToolFormat,
};

use super::delta::AnswerReading;
use super::places::Places;
use super::thinking::Thinking;
use super::tool_use::{AnswerShape, ToolUse};
use super::{off_the_runtime, size_of};
use crate::context::Context;
use crate::error::ApiError;
use crate::form::Form;
use crate::models::{ActiveModel, ModelText, Preset};
use crate::server::ServerConfig;

/// A prompt, and what is asked of its answer.
pub(crate) struct Turn {
    pub(crate) prompt: Prompt,
    /// Messages at the start of a conversation that are not among those of the request.
    pub(crate) added: usize,
    pub(crate) tools: ToolUse,
    pub(crate) thinking: Option<Thinking>,
    /// Whether the answer leaves its reasoning out.
    pub(crate) hides_reasoning: bool,
    /// The form of the text.
    pub(crate) form: Option<Form>,
    /// Whether a prompt that is too long is cut, so that it is made tokens however long it is.
    pub(crate) is_cut: bool,
    /// Fields of the request without effect.
    pub(crate) ignored: Vec<String>,
    pub(crate) places: Places,
}

/// A turn as the model reads it.
pub(crate) struct Reading {
    /// The prompt.
    pub(crate) tokens: Vec<u32>,
    constraint: Option<Constraint>,
    /// How long the constraint took to compile.
    compile_time: Option<Duration>,
    shown_special_tokens: Vec<u32>,
    reasoning: Option<ReasoningBudget>,
    pub(crate) reader: AnswerReader,
}

/// A conversation as the model reads it.
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
}

/// How the answers to a prompt are read.
#[derive(Default)]
pub(crate) struct AnswerReader {
    format: AnswerFormat,
    tools: Vec<Tool>,
    /// Whether an answer ends with its first call.
    is_single: bool,
    hides_reasoning: bool,
    /// The text that the model goes on from, of a conversation.
    prompt: String,
    /// The content of the message that it goes on with.
    continued: Option<String>,
}

/// Settings of the server that turns depend on.
#[derive(Clone, Copy)]
struct Defaults {
    tool_format: Option<&'static ToolFormat>,
    reasoning: bool,
}

impl Defaults {
    fn of(config: &ServerConfig) -> Defaults {
        Defaults { tool_format: config.tool_format, reasoning: config.reasoning }
    }
}

impl<P: Into<Prompt>> From<P> for Turn {
    fn from(prompt: P) -> Turn {
        Turn {
            prompt: prompt.into(),
            added: 0,
            tools: ToolUse::default(),
            thinking: None,
            hides_reasoning: false,
            form: None,
            is_cut: false,
            ignored: Vec::new(),
            places: Places::default(),
        }
    }
}

impl AnswerReader {
    #[cfg(test)]
    pub(super) fn new(format: AnswerFormat, tools: Vec<Tool>, is_single: bool) -> AnswerReader {
        AnswerReader { format, tools, is_single, ..AnswerReader::default() }
    }

    pub(super) fn reading(&self) -> AnswerReading {
        let parser = AnswerParser::new(self.format, &self.tools, &self.prompt, self.continued.as_deref());
        let parser = if self.is_single { parser.one_call() } else { parser };
        AnswerReading::new(parser, self.hides_reasoning)
    }
}

impl Reading {
    /// A request with this prompt and these rules, and how its answers are read.
    ///
    /// # Errors
    /// If the generator refuses it.
    pub(crate) fn into_request(
        self,
        parameters: Request,
        model: &ActiveModel,
    ) -> Result<(Request, AnswerReader), ApiError> {
        let generator = model.loaded.generator()?;
        let Reading { tokens, constraint, shown_special_tokens, reasoning, reader, .. } = self;
        let request = Request { prompt: tokens, constraint, shown_special_tokens, reasoning, ..parameters };
        let request = model.bound(request)?;
        if request.scores().is_some() && !generator.model().plan().config().enable_echo {
            let message = "log-probabilities of prompts need a server that was started with --enable-echo";
            return Err(ApiError::invalid("prompt_logprobs", message));
        }
        Ok((generator.prepare(request)?, reader))
    }
}

impl Turn {
    /// Renders the prompt and compiles the rules of the answer. That does not hold up other tasks.
    ///
    /// # Errors
    /// If the model has no chat template for a conversation, its template refuses it, or what is asked of the answer cannot
    /// be enforced.
    pub(crate) async fn read(
        mut self,
        model: &Arc<ActiveModel>,
        config: &ServerConfig,
        context: &Context,
    ) -> Result<Reading, ApiError> {
        let generator = model.loaded.generator()?.clone();
        #[cfg(feature = "otlp")]
        context.trace(|span, content| span.note_prompt(&self.prompt, content));
        let field = self.form.as_ref().map_or("tools", |form| form.field);
        // Grammars may take long to compile, however short they are.
        let compiles = self.form.is_some() || self.tools.are_callable();
        let bytes = if compiles { usize::MAX } else { size_of(&self.prompt) };
        let (defaults, of_task) = (Defaults::of(config), Arc::clone(model));
        let places = self.note_ignored(context);
        let read = off_the_runtime(bytes, move || self.read_now(&of_task, &generator, defaults)).await;
        let (reading, ignored) = read.map_err(|error| places.in_error(error.rename("constraint", field)))?;
        context.note(|facts| facts.ignored.extend(ignored.iter().map(|name| places.in_text(name))));
        if let Some(time) = reading.compile_time {
            context.note_grammar(model, time);
        }
        Ok(reading)
    }

    /// A conversation as the model reads it, which need not be in memory.
    ///
    /// # Errors
    /// If the model has no chat template, or its template refuses the conversation.
    pub(crate) async fn render(
        mut self,
        model: &ModelText,
        config: &ServerConfig,
        context: &Context,
    ) -> Result<Rendered, ApiError> {
        let (bytes, model, defaults) = (size_of(&self.prompt), model.clone(), Defaults::of(config));
        model.chat_template()?;
        let places = self.note_ignored(context);
        let Turn { prompt, added, tools, thinking, hides_reasoning, form, .. } =
            self.instructed(model.preset());
        let Prompt::Chat(chat) = prompt else { return Err(pipelines::Error::NoChatTemplate.into()) };
        let mut turn = ChatTurn { chat, added, tools, thinking, hides_reasoning, form, is_cut: true };
        let (rendered, ignored) = off_the_runtime(bytes, move || {
            let template = model.chat_template().map_err(|_| Error::NoChatTemplate)?;
            let text = turn.render(template, model.tokenizer(), None, defaults)?;
            // The template writes all special tokens itself.
            let tokens = model.tokenizer().encode(&text, AddSpecial::No, ParseSpecial::Yes)?;
            Ok((Rendered { text, tokens }, turn.tools.ignored))
        })
        .await
        .map_err(|error| places.in_error(error))?;
        context.note(|facts| facts.ignored.extend(ignored.iter().map(|name| places.in_text(name))));
        Ok(rendered)
    }

    /// Notes the fields without effect, and takes the places.
    fn note_ignored(&mut self, context: &Context) -> Places {
        context.note(|facts| facts.ignored.extend(std::mem::take(&mut self.ignored)));
        std::mem::take(&mut self.places)
    }

    /// The reading, and fields of the request that have no effect.
    fn read_now(
        self,
        model: &ActiveModel,
        generator: &TextGenerator,
        defaults: Defaults,
    ) -> Result<(Reading, Vec<String>), Error> {
        let began = Instant::now();
        if let Some(form) = &self.form {
            // Alone, so that errors name the place in it.
            generator.model().grammars().compile(&form.constraint)?;
        }
        let compile_time = self.form.is_some().then(|| began.elapsed());
        let Turn { prompt, added, tools, thinking, hides_reasoning, form, is_cut, .. } =
            self.instructed(model.preset());
        let tokens = match prompt {
            Prompt::Chat(chat) => {
                let turn = ChatTurn { chat, added, tools, thinking, hides_reasoning, form, is_cut };
                let (reading, ignored) = turn.read(model, generator, defaults)?;
                let times = [compile_time, reading.compile_time].into_iter().flatten();
                return Ok((Reading { compile_time: times.reduce(|a, b| a + b), ..reading }, ignored));
            }
            Prompt::Tokens(tokens) => tokens,
            Prompt::Text { text, add, parse } => {
                check_bytes(text.len(), model, is_cut)?;
                generator.model().tokenizer().encode(&text, add, parse)?
            }
        };
        let reading = Reading {
            tokens,
            constraint: form.map(|form| form.constraint),
            compile_time,
            shown_special_tokens: Vec::new(),
            reasoning: None,
            reader: AnswerReader::default(),
        };
        Ok((reading, Vec::new()))
    }

    /// With the system prompt of a preset, if the conversation has none.
    fn instructed(mut self, preset: Option<&Arc<Preset>>) -> Turn {
        if let (Prompt::Chat(chat), Some(preset)) = (&mut self.prompt, preset) {
            self.added += usize::from(preset.instruct(&mut chat.messages));
        }
        self
    }
}

/// A turn whose prompt is a conversation.
struct ChatTurn {
    chat: Chat,
    /// Messages at its start that are not among those of the request.
    added: usize,
    tools: ToolUse,
    thinking: Option<Thinking>,
    hides_reasoning: bool,
    form: Option<Form>,
    is_cut: bool,
}

/// Bytes that the longest tokens of all vocabularies have, or nearly so.
const SHORT_TOKEN: usize = 8;

/// Refuses a prompt that has too many bytes for the model's length, before they are made tokens.
///
/// # Errors
/// If it has.
pub(crate) fn check_bytes(bytes: usize, model: &ActiveModel, is_cut: bool) -> Result<(), Error> {
    let limit = model.max_length();
    // Most prompts are shorter, and need no look at the vocabulary.
    if is_cut || bytes / SHORT_TOKEN <= limit {
        return Ok(());
    }
    match model.loaded.tokenizer().max_token_bytes().and_then(|most| limit.checked_mul(most)) {
        Some(most) if bytes > most => Err(Error::PromptTooLarge { bytes, most, limit }),
        _ => Ok(()),
    }
}

impl ChatTurn {
    fn read(
        mut self,
        model: &ActiveModel,
        generator: &TextGenerator,
        defaults: Defaults,
    ) -> Result<(Reading, Vec<String>), Error> {
        let (tokenizer, template) = (generator.model().tokenizer(), model.chat_template());
        let found = model.answer_format();
        let unknown = if self.tools.must_be_called() { ToolFormat::named("json") } else { None };
        let tools = defaults.tool_format.or(found.tools).or(unknown);
        let format = AnswerFormat { tools, ..found };
        let prompt =
            self.render(template.ok_or(Error::NoChatTemplate)?, tokenizer, Some(format), defaults)?;
        check_bytes(prompt.len(), model, self.is_cut)?;
        let continued = self.chat.continued().map(str::to_string);
        let phase = |own: &pipelines::ReasoningFormat| own.phase(&prompt, continued.as_deref());
        let phase = format.reasoning.map_or(ReasoningPhase::After, phase);
        let budget = self.thinking.and_then(|thinking| thinking.budget).zip(format.reasoning);
        let budget = budget.map(|(tokens, own)| ReasoningBudget::new(tokens, own, phase, tokenizer));
        let began = Instant::now();
        let constraint = match self.form {
            Some(form) if phase == ReasoningPhase::After && !self.tools.are_callable() => {
                Some(format.form(&form.constraint, phase, tokenizer)?)
            }
            form => {
                let text = form.map(|form| form.constraint.to_lark(tokenizer)).transpose();
                let text = text.map_err(TextError::from)?;
                let shape = AnswerShape { format, phase, text: text.as_deref() };
                self.tools.constraint(&shape, tokenizer, generator.model().grammars())?
            }
        };
        let compile_time = constraint.is_some().then(|| began.elapsed());
        let ignored = std::mem::take(&mut self.tools.ignored);
        let (is_single, hides_reasoning) = (self.tools.is_single, self.hides_reasoning);
        let tools = self.tools.into_callable();
        let reading = Reading {
            // The template writes all special tokens itself.
            tokens: tokenizer.encode(&prompt, AddSpecial::No, ParseSpecial::Yes)?,
            constraint,
            compile_time,
            shown_special_tokens: format.special_tokens(tokenizer),
            reasoning: budget.transpose()?,
            reader: AnswerReader { format, tools, is_single, hides_reasoning, prompt, continued },
        };
        Ok((reading, ignored))
    }

    /// The text of the prompt, and of an answer in `format` if there is one. Takes note of fields that change neither, and
    /// of tools whose calls nothing reads.
    fn render(
        &mut self,
        template: &ChatTemplate,
        tokenizer: &Tokenizer,
        format: Option<AnswerFormat>,
        defaults: Defaults,
    ) -> Result<String, Error> {
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
        let ChatPrompt { text: prompt, ignored } = render(&self.chat)?;
        let is_same = |chat: Chat| render(&chat).is_ok_and(|other| other.text == prompt);
        let own =
            |(index, field): (usize, String)| Some(format!("messages[{}]{field}", index.checked_sub(added)?));
        self.tools.ignored.extend(ignored.into_iter().filter_map(own));
        if let Some(thinking) = &self.thinking {
            let mut without_effort = plain.clone();
            thinking.set_switches(&mut without_effort);
            if (thinking.budget.is_none() || format.is_none_or(|own| own.reasoning.is_none()))
                && is_same(Chat { extra: plain, ..self.chat.clone() })
            {
                self.tools.ignored.extend(thinking.fields().map(str::to_string));
            } else if let Some(field) = thinking.effort_field
                && is_same(Chat { extra: without_effort, ..self.chat.clone() })
            {
                self.tools.ignored.push(field.to_string());
            }
        }
        let has_no_effect = |chat: &Chat| match format {
            Some(format) => format.tools.is_none(),
            None => is_same(Chat { tools: None, ..chat.clone() }),
        };
        if self.chat.tools.is_some() && has_no_effect(&self.chat) {
            self.tools.ignored.push("tools".to_string());
        }
        Ok(prompt)
    }
}
