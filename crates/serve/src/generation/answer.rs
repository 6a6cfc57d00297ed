//! Answers as they are sent: whole, or piece by piece as a protocol writes them.

use axum::response::Response;
use pipelines::{AnswerEvent, TokenLogprobs};

use super::{Delta, Finish, Generation, PromptToken};
use crate::api_error::ApiError;
use crate::sse::{self, Events};

/// Bytes of events that are sent in one piece, but for the last event: a client that reads slowly has no more of them in
/// memory as text.
const PIECE: usize = 16 << 10;

/// A whole answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Its text, reasoning and calls, without the prompt's text.
    pub(crate) content: pipelines::Answer,
    pub(crate) tokens: Vec<u32>,
    /// Of each token, if the request wants them.
    pub(crate) logprobs: Vec<TokenLogprobs>,
    /// The prompt's tokens, if the request wants them.
    pub(crate) prompt: Vec<PromptToken>,
    pub(crate) finish: Finish,
}

/// How a protocol writes answers while they are made.
pub(crate) trait Writer: Send + 'static {
    /// Appends what is sent before the model starts.
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    /// Appends an event that says only that the answer with this index, which has not ended, goes on. It is sent while a
    /// long prompt is read.
    fn wait(&mut self, out: &mut Vec<u8>, index: usize);

    /// Appends what the answer with an index gains, which counts in the generation's usage and stats.
    fn write(&mut self, out: &mut Vec<u8>, index: usize, delta: Delta, generation: &Generation);

    /// Appends the end of a request that failed.
    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError);

    /// Appends the end, once all answers have ended.
    fn end(&mut self, out: &mut Vec<u8>, generation: &Generation);
}

impl Answer {
    /// Adds a delta.
    pub(super) fn take(&mut self, delta: Delta) {
        match delta {
            Delta::Started => {}
            Delta::Prompt(token) => self.prompt.push(token),
            Delta::Token { token, logprobs, events } => {
                self.tokens.push(token);
                self.logprobs.extend(logprobs);
                self.push(events);
            }
            Delta::Finished { events, finish } => {
                self.push(events);
                self.finish = finish;
            }
        }
    }

    fn push(&mut self, events: Vec<AnswerEvent>) {
        events.into_iter().for_each(|event| self.content.push(event));
    }
}

impl Generation {
    /// Waits for all answers.
    ///
    /// # Errors
    /// If one of them fails, or they may be too large together.
    pub(crate) async fn answers(&mut self) -> Result<Vec<Answer>, ApiError> {
        self.expect_small()?;
        let mut answers: Vec<Answer> = self.choices.iter().map(|_| Answer::default()).collect();
        while let Some(event) = self.next().await {
            let (index, delta) = event?;
            answers[index].take(delta);
        }
        Ok(answers)
    }

    /// A response with the events that a protocol writes.
    pub(crate) fn stream(self, writer: impl Writer) -> Response {
        sse::respond(self.written(writer))
    }

    /// The pieces that a protocol writes.
    pub(crate) fn written<W: Writer>(self, writer: W) -> Written<W> {
        Written { generation: self, writer, began: false }
    }
}

/// Answers and how they are written.
pub(crate) struct Written<W> {
    generation: Generation,
    writer: W,
    began: bool,
}

impl<W: Writer> Events for Written<W> {
    async fn next(&mut self, out: &mut Vec<u8>) -> bool {
        if !std::mem::replace(&mut self.began, true) {
            self.writer.begin(out);
        }
        while out.is_empty() {
            let mut next = self.generation.next().await;
            loop {
                match next {
                    Some(Ok((index, delta))) => self.writer.write(out, index, delta, &self.generation),
                    Some(Err(error)) => {
                        self.writer.fail(out, &error);
                        return false;
                    }
                    None if self.generation.is_over() => {
                        self.writer.end(out, &self.generation);
                        return false;
                    }
                    None => break,
                }
                if out.len() >= PIECE {
                    return true;
                }
                next = self.generation.next_ready();
            }
        }
        true
    }

    fn wait(&mut self, out: &mut Vec<u8>) {
        if let Some(index) = self.generation.choices.iter().position(|choice| choice.parser.is_some()) {
            self.writer.wait(out, index);
        }
    }
}
