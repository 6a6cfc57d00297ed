//! The events of a response.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::object::{IncompleteDetails, OutputItem, OutputText, ResponseError, ResponseObject, Status};
use super::store::StoredResponse;
use crate::error::ApiError;
use crate::generation::{self, Delta, Finish, Generation, Writer};
use crate::openai::logprobs::TokenEntry;
use crate::server::Shared;
use crate::sse;

/// An event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResponseEvent<'a> {
    r#type: &'static str,
    /// From 0, without gaps.
    sequence_number: usize,
    #[serde(flatten)]
    content: EventContent<'a>,
}

/// The fields of an event, by its type.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum EventContent<'a> {
    /// `response.created`, `in_progress`, `completed`, `incomplete` and `failed`.
    Response { response: &'a ResponseObject },
    /// `response.output_item.added` and `done`.
    Item { output_index: usize, item: &'a OutputItem },
    /// `response.content_part.added` and `done`.
    Part { item_id: &'a str, output_index: usize, content_index: usize, part: &'a OutputText },
    /// `response.output_text.delta`.
    Delta {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        delta: &'a str,
        logprobs: &'a [TokenEntry],
    },
    /// `response.output_text.done`.
    Text {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        text: &'a str,
        logprobs: &'a [TokenEntry],
    },
}

/// A response in the making, and where it is kept.
pub(super) struct Draft {
    pub(super) shared: Arc<Shared>,
    pub(super) response: ResponseObject,
    /// The id of the message.
    pub(super) item_id: String,
    pub(super) input: Vec<Value>,
    pub(super) conversation: Vec<Value>,
}

impl Draft {
    /// Ends the response with the assistant's message, and keeps it if the request wants that.
    pub(super) fn finish(&mut self, text: OutputText, finish: Finish, usage: generation::Usage) {
        let status = if finish == Finish::Length { Status::Incomplete } else { Status::Completed };
        if status == Status::Incomplete {
            self.response.incomplete_details = Some(IncompleteDetails { reason: "max_output_tokens" });
        }
        self.response.status = status;
        self.response.output = vec![OutputItem::message(self.item_id.clone(), status, vec![text])];
        self.response.usage = Some(usage.into());
        if self.response.store {
            let (input, conversation) =
                (std::mem::take(&mut self.input), std::mem::take(&mut self.conversation));
            self.shared.responses.insert(StoredResponse::new(self.response.clone(), input, conversation));
        }
    }
}

/// How the events of a response are written.
pub(super) struct Events {
    draft: Draft,
    sequence_number: usize,
    /// The text so far.
    text: String,
    logprobs: Vec<TokenEntry>,
    finish: Finish,
}

impl Events {
    pub(super) fn new(draft: Draft) -> Events {
        Events { draft, sequence_number: 0, text: String::new(), logprobs: Vec::new(), finish: Finish::Stop }
    }
}

impl Writer for Events {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let mut send = Sender { out, number: &mut self.sequence_number };
        let response = &self.draft.response;
        send.event("response.created", EventContent::Response { response });
        send.event("response.in_progress", EventContent::Response { response });
    }

    fn write(&mut self, out: &mut Vec<u8>, _index: usize, delta: Delta, _usage: generation::Usage) {
        let mut send = Sender { out, number: &mut self.sequence_number };
        let item_id = &self.draft.item_id[..];
        let (output_index, content_index) = (0, 0);
        match delta {
            Delta::Started => {
                let item = OutputItem::message(item_id.to_string(), Status::InProgress, Vec::new());
                send.event("response.output_item.added", EventContent::Item { output_index, item: &item });
                let part = &OutputText::new(String::new(), Vec::new());
                let content = EventContent::Part { item_id, output_index, content_index, part };
                send.event("response.content_part.added", content);
            }
            Delta::Prompt(_) => {}
            Delta::Text { text: delta, logprobs, .. } => {
                self.text.push_str(&delta);
                let logprobs: Vec<TokenEntry> = logprobs.iter().map(TokenEntry::from).collect();
                self.logprobs.extend_from_slice(&logprobs);
                if !delta.is_empty() || !logprobs.is_empty() {
                    let (delta, logprobs) = (&delta[..], &logprobs[..]);
                    let content =
                        EventContent::Delta { item_id, output_index, content_index, delta, logprobs };
                    send.event("response.output_text.delta", content);
                }
            }
            Delta::Finished { text: delta, finish } => {
                self.finish = finish;
                self.text.push_str(&delta);
                if !delta.is_empty() {
                    let (delta, logprobs) = (&delta[..], &[][..]);
                    let content =
                        EventContent::Delta { item_id, output_index, content_index, delta, logprobs };
                    send.event("response.output_text.delta", content);
                }
            }
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        self.draft.response.status = Status::Failed;
        let code = if error.status.is_server_error() { "server_error" } else { error.code };
        self.draft.response.error = Some(ResponseError { code, message: error.message.clone() });
        let mut send = Sender { out, number: &mut self.sequence_number };
        send.event("response.failed", EventContent::Response { response: &self.draft.response });
    }

    fn end(&mut self, out: &mut Vec<u8>, generation: &Generation) {
        let text = OutputText::new(std::mem::take(&mut self.text), std::mem::take(&mut self.logprobs));
        self.draft.finish(text, self.finish, generation.usage);
        let mut send = Sender { out, number: &mut self.sequence_number };
        let (response, item_id) = (&self.draft.response, &self.draft.item_id[..]);
        let (output_index, content_index) = (0, 0);
        for item in &response.output {
            for part in &item.content {
                let (text, logprobs) = (&part.text[..], &part.logprobs[..]);
                let content = EventContent::Text { item_id, output_index, content_index, text, logprobs };
                send.event("response.output_text.done", content);
                let content = EventContent::Part { item_id, output_index, content_index, part };
                send.event("response.content_part.done", content);
            }
            send.event("response.output_item.done", EventContent::Item { output_index, item });
        }
        let is_incomplete = response.status == Status::Incomplete;
        let name = if is_incomplete { "response.incomplete" } else { "response.completed" };
        send.event(name, EventContent::Response { response });
    }
}

/// Where events go, and the number of the next.
struct Sender<'a> {
    out: &'a mut Vec<u8>,
    number: &'a mut usize,
}

impl Sender<'_> {
    fn event(&mut self, name: &'static str, content: EventContent<'_>) {
        let event = ResponseEvent { r#type: name, sequence_number: *self.number, content };
        sse::event(self.out, name, &event);
        *self.number += 1;
    }
}
