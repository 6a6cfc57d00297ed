//! What a request asks, whatever its protocol: a prompt, and what its answer has to be.

use std::sync::Arc;
use std::time::Instant;

use pipelines::{
    AddSpecial, ChatDefaults, ChatReading, ChatTurn, Error, ParseSpecial, Prompt, Request, TextGenerator,
    Thinking, ToolUse,
};

use super::delta::ChoiceParser;
use super::output_format::OutputFormat;
use super::places::Places;
use super::{off_the_runtime, size_of};
use crate::api_error::ApiError;
use crate::config::ServerConfig;
use crate::models::{ActiveModel, ModelText, Preset};
use crate::state::Context;

/// A prompt, and what is asked of its answer.
pub(crate) struct PromptSpec {
    pub(crate) prompt: Prompt,
    /// Messages at the start of a conversation that are not among those of the request.
    pub(crate) added: usize,
    pub(crate) tools: ToolUse,
    pub(crate) thinking: Option<Thinking>,
    /// Whether the answer leaves its reasoning out.
    pub(crate) hides_reasoning: bool,
    /// The form of the text.
    pub(crate) output_format: Option<OutputFormat>,
    /// Whether a prompt that is too long is cut, so that it is made tokens however long it is.
    pub(crate) is_cut: bool,
    /// Fields of the request without effect.
    pub(crate) ignored: Vec<String>,
    pub(crate) places: Places,
}

/// A prompt as tokens, with the rules of its answer compiled.
pub(crate) struct PreparedPrompt {
    pub(crate) own: ChatReading,
    hides_reasoning: bool,
}

/// A conversation as the model reads it.
pub(crate) struct RenderedChat {
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
}

/// How the answers to a prompt are read.
#[derive(Default)]
pub(crate) struct ParserConfig {
    own: pipelines::AnswerReader,
    hides_reasoning: bool,
}

/// The server's settings that conversations depend on.
fn defaults_of(config: &ServerConfig) -> ChatDefaults {
    ChatDefaults { tool_format: config.tool_format, reasoning: config.reasoning }
}

impl<P: Into<Prompt>> From<P> for PromptSpec {
    fn from(prompt: P) -> PromptSpec {
        PromptSpec {
            prompt: prompt.into(),
            added: 0,
            tools: ToolUse::default(),
            thinking: None,
            hides_reasoning: false,
            output_format: None,
            is_cut: false,
            ignored: Vec::new(),
            places: Places::default(),
        }
    }
}

impl ParserConfig {
    #[cfg(test)]
    pub(super) fn new(own: pipelines::AnswerReader) -> ParserConfig {
        ParserConfig { own, hides_reasoning: false }
    }

    pub(super) fn parser(&self) -> ChoiceParser {
        ChoiceParser::new(self.own.parser(), self.hides_reasoning)
    }
}

impl PreparedPrompt {
    /// A request with this prompt and these rules, and how its answers are read.
    ///
    /// # Errors
    /// If the generator refuses it.
    pub(crate) fn into_request(
        self,
        parameters: Request,
        model: &ActiveModel,
    ) -> Result<(Request, ParserConfig), ApiError> {
        let generator = model.loaded.generator()?;
        let (request, own) = self.own.into_request(parameters);
        let request = model.bound(request)?;
        if request.scores().is_some() && !generator.model().plan().config().enable_echo {
            let message = "log-probabilities of prompts need a server that was started with --enable-echo";
            return Err(ApiError::invalid("prompt_logprobs", message));
        }
        let parser_config = ParserConfig { own, hides_reasoning: self.hides_reasoning };
        Ok((generator.prepare(request)?, parser_config))
    }
}

impl PromptSpec {
    /// Renders the prompt and compiles the rules of the answer. That does not hold up other tasks.
    ///
    /// # Errors
    /// If the model has no chat template for a conversation, its template refuses it, or what is asked of the answer cannot
    /// be enforced.
    pub(crate) async fn prepare(
        mut self,
        model: &Arc<ActiveModel>,
        config: &ServerConfig,
        context: &Context,
    ) -> Result<PreparedPrompt, ApiError> {
        let generator = model.loaded.generator()?.clone();
        context.trace(|span, content| span.note_prompt(&self.prompt, content));
        let field = self.output_format.as_ref().map_or("tools", |output_format| output_format.field);
        // Grammars may take long to compile, however short they are.
        let compiles = self.output_format.is_some() || self.tools.are_callable();
        let bytes = if compiles { usize::MAX } else { size_of(&self.prompt) };
        let (defaults, of_task) = (defaults_of(config), Arc::clone(model));
        let places = self.note_ignored(context);
        let read = off_the_runtime(bytes, move || self.prepare_now(&of_task, &generator, defaults)).await;
        let prepared = read.map_err(|error| places.in_error(error.rename("constraint", field)))?;
        context.note(|facts| {
            facts.ignored.extend(prepared.own.ignored.iter().map(|name| places.in_text(name)));
        });
        if let Some(time) = prepared.own.compile_time {
            context.note_grammar(model, time);
        }
        Ok(prepared)
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
    ) -> Result<RenderedChat, ApiError> {
        let (bytes, model, defaults) = (size_of(&self.prompt), model.clone(), defaults_of(config));
        model.chat_template()?;
        let places = self.note_ignored(context);
        let PromptSpec { prompt, added, tools, thinking, output_format, .. } =
            self.instructed(model.preset());
        let Prompt::Chat(chat) = prompt else { return Err(Error::NoChatTemplate.into()) };
        let turn =
            ChatTurn { chat, added, tools, thinking, form: output_format.map(|format| format.constraint) };
        let (rendered, ignored) = off_the_runtime(bytes, move || {
            let template = model.chat_template().map_err(|_| Error::NoChatTemplate)?;
            let rendered = turn.render(template, model.tokenizer(), None, defaults)?;
            // The template writes all special tokens itself.
            let tokens = model.tokenizer().encode(&rendered.text, AddSpecial::No, ParseSpecial::Yes)?;
            Ok((RenderedChat { text: rendered.text, tokens }, rendered.ignored))
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

    fn prepare_now(
        self,
        model: &ActiveModel,
        generator: &TextGenerator,
        defaults: ChatDefaults,
    ) -> Result<PreparedPrompt, Error> {
        let began = Instant::now();
        if let Some(output_format) = &self.output_format {
            // Alone, so that errors name the place in it.
            generator.model().grammars().compile(&output_format.constraint)?;
        }
        let compile_time = self.output_format.is_some().then(|| began.elapsed());
        let PromptSpec { prompt, added, tools, thinking, hides_reasoning, output_format, is_cut, .. } =
            self.instructed(model.preset());
        let (tokenizer, constraint) =
            (generator.model().tokenizer(), output_format.map(|format| format.constraint));
        let tokens = match prompt {
            Prompt::Chat(chat) => {
                let turn = ChatTurn { chat, added, tools, thinking, form: constraint };
                let template = model.chat_template().ok_or(Error::NoChatTemplate)?;
                let format = turn.format(model.answer_format(), defaults);
                let rendered = turn.render(template, tokenizer, Some(format), defaults)?;
                check_bytes(rendered.text.len(), model, is_cut)?;
                let own = rendered.read(tokenizer, generator.model().grammars())?;
                let times = [compile_time, own.compile_time].into_iter().flatten();
                let own = ChatReading { compile_time: times.reduce(|a, b| a + b), ..own };
                return Ok(PreparedPrompt { own, hides_reasoning });
            }
            Prompt::Tokens(tokens) => tokens,
            Prompt::Text { text, add, parse } => {
                check_bytes(text.len(), model, is_cut)?;
                tokenizer.encode(&text, add, parse)?
            }
        };
        let own = ChatReading { tokens, constraint, compile_time, ..ChatReading::default() };
        Ok(PreparedPrompt { own, hides_reasoning: false })
    }

    /// With the system prompt of a preset, if the conversation has none.
    fn instructed(mut self, preset: Option<&Arc<Preset>>) -> PromptSpec {
        if let (Prompt::Chat(chat), Some(preset)) = (&mut self.prompt, preset) {
            self.added += usize::from(preset.instruct(&mut chat.messages));
        }
        self
    }
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
