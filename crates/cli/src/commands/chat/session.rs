//! A conversation: its messages, the next answer, and statistics.

use std::path::Path;
use std::time::Instant;

use futures_lite::{StreamExt, future};
use pipelines::{
    AsyncTextStream, Chat, ChatTemplate, Error, EventKind, FinishReason, Prompt, ReasoningPhase, Request,
    TextGenerator, TextRequest,
};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Totals};
use super::display::Display;
use super::thinking::ThoughtSplitter;
use crate::conversation;
use crate::exit::{Interrupted, Usage};
use crate::interrupt::Interrupt;

/// A conversation.
pub(super) struct Session {
    generator: TextGenerator,
    template: ChatTemplate,
    /// The settings that all answers share.
    request: Request,
    /// Most tokens of a conversation.
    max_length: usize,
    /// The messages, with the template variables of the file they were loaded from.
    chat: Chat,
    /// Template variables that override those of a file.
    variables: Map<String, Value>,
    interrupt: Interrupt,
    /// Discarded answers to the last message.
    retries: u64,
    totals: Totals,
    last: Option<Answer>,
}

impl Drop for Session {
    /// Ends the worker: the trace of a profiled model is written when the last user of the session is gone.
    fn drop(&mut self) {
        self.generator.clone().shutdown();
    }
}

impl Session {
    /// A conversation without messages. `generator` and `template` belong together.
    pub(super) fn new(
        generator: TextGenerator,
        template: ChatTemplate,
        request: Request,
        max_length: usize,
        variables: Map<String, Value>,
        interrupt: Interrupt,
    ) -> Session {
        let (chat, totals, last) = (Chat::new(Vec::new()), Totals::default(), None);
        Session {
            generator,
            template,
            request,
            max_length,
            chat,
            variables,
            interrupt,
            retries: 0,
            totals,
            last,
        }
    }

    /// Answers a message. If that fails, the message is removed.
    pub(super) fn say(&mut self, text: &str, display: &mut Display) -> anyhow::Result<Answer> {
        self.retries = 0;
        self.chat.messages.push(json!({"role": "user", "content": text}));
        self.answer(display).inspect_err(|_| {
            self.chat.messages.pop();
        })
    }

    /// Replaces the last answer. If that fails, the old one stays.
    pub(super) fn retry(&mut self, display: &mut Display) -> anyhow::Result<Answer> {
        let is_answer = self.chat.messages.last().is_some_and(|last| last["role"] == "assistant");
        let Some(old) = self.chat.messages.pop_if(|_| is_answer) else {
            return Err(Usage("there is no answer to replace".into()).into());
        };
        self.retries += 1;
        self.answer(display).inspect_err(|_| self.chat.messages.push(old))
    }

    /// Removes the last message of the user and everything after it.
    pub(super) fn undo(&mut self) -> Result<(), Usage> {
        let is_user = |message: &Value| message["role"] == "user";
        let Some(last) = self.chat.messages.iter().rposition(is_user) else {
            return Err(Usage("there is no message to remove".into()));
        };
        self.chat.messages.truncate(last);
        self.last = None;
        Ok(())
    }

    /// Removes all messages but the system message.
    pub(super) fn reset(&mut self) {
        let keep = usize::from(self.system().is_some());
        self.chat.messages.truncate(keep);
        self.last = None;
    }

    /// Whether answers depend on their seed.
    pub(super) fn is_sampled(&self) -> bool {
        self.request.sampling.params().temperature > 0.0
    }

    /// The system message.
    pub(super) fn system(&self) -> Option<&str> {
        let first = self.chat.messages.first().filter(|first| first["role"] == "system")?;
        Some(first["content"].as_str().unwrap_or_default())
    }

    /// Sets the system message, or removes it if `text` is empty.
    pub(super) fn set_system(&mut self, text: &str) {
        if self.system().is_some() {
            self.chat.messages.remove(0);
        }
        if !text.is_empty() {
            self.chat.messages.insert(0, json!({"role": "system", "content": text}));
        }
    }

    /// Writes the conversation to a file: a list of messages, or an object if there is more than that.
    pub(super) fn save(&self, path: &Path) -> Result<usize, Usage> {
        let Chat { messages, tools, documents, extra, .. } = &self.chat;
        let value = match (tools, documents) {
            (None, None) if extra.is_empty() => json!(messages),
            _ => {
                let mut object = Map::from_iter([("messages".to_owned(), json!(messages))]);
                let lists = [("tools", tools), ("documents", documents)];
                let lists = lists
                    .into_iter()
                    .filter_map(|(name, list)| Some((name.to_owned(), json!(list.as_ref()?))));
                object.extend(lists);
                object.extend(extra.clone());
                Value::Object(object)
            }
        };
        let text = format!("{value:#}\n");
        std::fs::write(path, text).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
        Ok(messages.len())
    }

    /// Continues the conversation of a file, with its template variables.
    pub(super) fn load(&mut self, path: &Path) -> Result<usize, Usage> {
        let json = std::fs::read(path).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
        let chat = conversation::read(&json, &path.display().to_string())?;
        self.chat = Chat { add_generation_prompt: true, ..chat };
        self.last = None;
        Ok(self.chat.messages.len())
    }

    /// Tokens, times and the length of the context.
    pub(super) fn stats(&self) -> String {
        let used = self.last.as_ref().map_or_else(String::new, |last| {
            let tokens = last.usage.prompt_tokens + last.usage.generated_tokens;
            format!(", {tokens} tokens of {}", self.max_length)
        });
        let last = self
            .last
            .as_ref()
            .map_or_else(String::new, |last| format!("\nlast answer    {}", last.line(self.is_sampled())));
        format!("conversation   {} messages{used}\n{}{last}", self.chat.messages.len(), self.totals.lines())
    }

    /// A warning if the context is full, so that the next message cannot be answered.
    pub(super) fn full_context(&self, answer: &Answer) -> Option<String> {
        let tokens = answer.usage.prompt_tokens + answer.usage.generated_tokens;
        (answer.reason == Some(FinishReason::Length) && tokens >= self.max_length).then(|| {
            format!(
                "the answer was cut: the conversation reached {tokens} tokens, the context length; /undo removes the last \
                 message, /reset starts over"
            )
        })
    }

    /// Generates the next answer.
    fn answer(&mut self, display: &mut Display) -> anyhow::Result<Answer> {
        let mut parameters = self.request.clone();
        // A new seed for a new answer.
        parameters.seed = parameters.seed.wrapping_add(self.retries);
        let seed = parameters.seed;
        let mut chat = self.chat.clone();
        chat.extra.extend(self.variables.clone());
        let tokenizer = self.generator.model().tokenizer();
        // If it cannot be rendered, the generator says why.
        let prompt = chat.render(&self.template, Some(tokenizer)).unwrap_or_default();
        if let Some(constraint) = &parameters.constraint {
            // Thoughts are not constrained.
            let format = self.generator.answer_format();
            let phase = format.reasoning.map_or(ReasoningPhase::After, |own| own.phase(&prompt, None));
            parameters.constraint = Some(format.form(constraint, phase, tokenizer).map_err(Error::from)?);
        }
        display.begin(ThoughtSplitter::is_opened_by(&prompt));
        self.interrupt.watch();
        let prompt = Prompt::Chat(chat);
        let answer = future::block_on(async {
            let stream = self.generator.stream_async(TextRequest { prompt, parameters }).await?;
            read(stream, seed, &self.interrupt, display).await
        });
        self.interrupt.rest();
        let answer = answer.and_then(said).inspect_err(|error| display.fail(error)).map_err(too_long)?;
        display.end(&answer)?;
        self.chat.messages.push(json!({"role": "assistant", "content": answer.text}));
        self.totals.count(&answer);
        self.last = Some(answer.clone());
        Ok(answer)
    }
}

/// An answer, unless Ctrl-C came before it began.
fn said(answer: Answer) -> anyhow::Result<Answer> {
    if answer.reason.is_none() && answer.text.is_empty() { Err(Interrupted.into()) } else { Ok(answer) }
}

/// The error for a conversation that does not fit, with advice.
fn too_long(error: anyhow::Error) -> anyhow::Error {
    let (tokens, limit) = match error.downcast_ref() {
        Some(Error::PromptTooLong { tokens, limit } | Error::PromptBeyondMaxLength { tokens, limit }) => {
            (tokens, limit)
        }
        _ => return error,
    };
    Usage(format!(
        "with this message the conversation has {tokens} tokens, and there is room for {limit} with the answer; the \
         message was not added: shorten it, /undo the last one, or /reset to start over"
    ))
    .into()
}

/// Reads an answer up to its end, or until Ctrl-C.
async fn read(
    mut stream: AsyncTextStream,
    seed: u64,
    interrupt: &Interrupt,
    display: &mut Display,
) -> anyhow::Result<Answer> {
    let (begin, mut text, mut reason) = (Instant::now(), String::new(), None);
    let pressed = || async {
        interrupt.pressed().await;
        None
    };
    while let Some(event) = future::or(pressed(), stream.next()).await {
        let part = match event? {
            EventKind::Token { text, .. } => text,
            EventKind::Finished { reason: why, text } => {
                reason = Some(why);
                text
            }
            _ => continue,
        };
        if reason.is_none() || !part.is_empty() {
            display.text(&part, &stream.usage())?;
        }
        text.push_str(&part);
    }
    let (usage, timings) = (stream.usage(), stream.timings());
    let total = timings.total.unwrap_or_else(|| begin.elapsed());
    Ok(Answer { text, reason, usage, timings, total, seed })
}
