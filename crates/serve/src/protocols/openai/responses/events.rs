//! The events of a response.

use std::sync::Arc;

use pipelines::AnswerEvent;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::object::{IncompleteDetails, OutputItem, OutputPart, ResponseError, ResponseObject, Status};
use super::partial_input::PartialInput;
use super::store::{ResponseStore, StoredResponse};
use super::tools::ClientTools;
use crate::api_error::ApiError;
use crate::fields::timings::{PromptProgress, TelemetryFields, Timings};
use crate::generation::{Delta, Finish, Generation, Writer};
use crate::protocols::openai::logprobs::TokenEntry;
use crate::sse;

/// An event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResponseEvent<'a> {
    r#type: &'static str,
    /// From 0, without gaps.
    sequence_number: usize,
    #[serde(flatten)]
    content: EventContent<'a>,
    /// As far as the answer is, if the request has `timings_per_token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
    /// Set in `response.in_progress` events if the request has `return_progress`.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_progress: Option<PromptProgress>,
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
    Part { item_id: &'a str, output_index: usize, content_index: usize, part: &'a OutputPart },
    /// `response.output_text.delta`.
    TextDelta {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        delta: &'a str,
        logprobs: &'a [TokenEntry],
    },
    /// `response.reasoning_text.delta`.
    ReasoningDelta { item_id: &'a str, output_index: usize, content_index: usize, delta: &'a str },
    /// `response.function_call_arguments.delta` and `response.custom_tool_call_input.delta`.
    CallDelta { item_id: &'a str, output_index: usize, delta: &'a str },
    /// `response.output_text.done`.
    Text {
        item_id: &'a str,
        output_index: usize,
        content_index: usize,
        text: &'a str,
        logprobs: &'a [TokenEntry],
    },
    /// `response.reasoning_text.done`.
    Reasoning { item_id: &'a str, output_index: usize, content_index: usize, text: &'a str },
    /// `response.function_call_arguments.done`.
    Arguments { item_id: &'a str, output_index: usize, name: &'a str, arguments: &'a str },
    /// `response.custom_tool_call_input.done`.
    Input { item_id: &'a str, output_index: usize, input: &'a str },
}

/// A response in the making, and where it is kept.
pub(super) struct Draft {
    pub(super) store: Arc<ResponseStore>,
    pub(super) response: ResponseObject,
    pub(super) tools: ClientTools,
    /// Whether reasoning has the form that clients send back.
    pub(super) sends_reasoning_back: bool,
    pub(super) input: Vec<Value>,
    pub(super) conversation: Vec<Value>,
    pub(super) telemetry: TelemetryFields,
}

impl Draft {
    /// Ends the response, and keeps it if the request wants that.
    fn finish(&mut self, finish: Finish, generation: &Generation) {
        self.response.timings = self.telemetry.total(generation);
        self.response.status = status_of(finish);
        if finish == Finish::Length {
            self.response.incomplete_details = Some(IncompleteDetails { reason: "max_output_tokens" });
        }
        self.response.usage = Some(generation.usage.into());
        if self.response.store {
            let (input, conversation) =
                (std::mem::take(&mut self.input), std::mem::take(&mut self.conversation));
            self.store.insert(StoredResponse::new(self.response.clone(), input, conversation));
        }
    }
}

fn status_of(finish: Finish) -> Status {
    if finish == Finish::Length { Status::Incomplete } else { Status::Completed }
}

/// How the events of a response are written. Its items are made of the same events whether they are sent or not.
pub(super) struct Events {
    draft: Draft,
    sent: Sent,
    /// The item that goes on.
    open: Option<OpenItem>,
    /// Of tokens whose text is not certain.
    logprobs: Vec<TokenEntry>,
    finish: Finish,
}

/// An item that goes on.
struct OpenItem {
    /// As it began.
    item: OutputItem,
    /// Its text so far, or its arguments.
    text: String,
    logprobs: Vec<TokenEntry>,
    /// Its input, if it is a call with free text.
    input: PartialInput,
}

impl Events {
    pub(super) fn new(draft: Draft) -> Events {
        Events { draft, sent: Sent::default(), open: None, logprobs: Vec::new(), finish: Finish::Stop }
    }

    /// The response once it has ended, without calls that did not end.
    ///
    /// # Errors
    /// If the model fails.
    pub(super) async fn collect(mut self, mut generation: Generation) -> Result<ResponseObject, ApiError> {
        let mut unsent = Vec::new();
        while let Some(event) = generation.next().await {
            let (index, delta) = event?;
            self.write(&mut unsent, index, delta, &generation);
            unsent.clear();
        }
        self.draft.response.output.retain(|item| !item.is_half_a_call());
        self.draft.finish(self.finish, &generation);
        Ok(self.draft.response)
    }

    /// Writes what an event adds.
    fn add(&mut self, out: &mut Vec<u8>, event: AnswerEvent) {
        match event {
            AnswerEvent::Text(text) => self.text(out, &text),
            AnswerEvent::Reasoning(text) => {
                if !self.open.as_ref().is_some_and(|open| matches!(open.item, OutputItem::Reasoning { .. })) {
                    self.begin(out, OutputItem::reasoning(self.draft.sends_reasoning_back));
                }
                self.logprobs.clear();
                self.delta(out, &text);
            }
            AnswerEvent::ToolCallStarted { name, .. } => {
                let call = self.draft.tools.call(name);
                self.begin(out, call);
            }
            AnswerEvent::ToolCallArguments { delta, .. } => {
                self.logprobs.clear();
                self.delta(out, &delta);
            }
            AnswerEvent::ToolCallFinished { .. } => self.close(out, Status::Completed),
            AnswerEvent::ToolCallFailed { text, .. } => {
                self.close(out, Status::Incomplete);
                self.text(out, &text);
            }
        }
    }

    fn text(&mut self, out: &mut Vec<u8>, text: &str) {
        if !self.open.as_ref().is_some_and(|open| matches!(open.item, OutputItem::Message { .. })) {
            self.begin(out, OutputItem::message());
        }
        self.delta(out, text);
    }

    /// Begins an item. The one before it is complete.
    fn begin(&mut self, out: &mut Vec<u8>, item: OutputItem) {
        self.close(out, Status::Completed);
        let output_index = self.draft.response.output.len();
        let mut send = Sender { out, sent: &mut self.sent };
        send.event("response.output_item.added", EventContent::Item { output_index, item: &item });
        if let Some(part) = &item.part(String::new(), Vec::new()) {
            let content = EventContent::Part { item_id: item.id(), output_index, content_index: 0, part };
            send.event("response.content_part.added", content);
        }
        self.open = Some(OpenItem {
            item,
            text: String::new(),
            logprobs: Vec::new(),
            input: PartialInput::default(),
        });
    }

    /// Adds to the item that goes on.
    fn delta(&mut self, out: &mut Vec<u8>, delta: &str) {
        let Some(OpenItem { item, text, logprobs, input }) = &mut self.open else { return };
        text.push_str(delta);
        let new = &std::mem::take(&mut self.logprobs)[..];
        logprobs.extend_from_slice(new);
        let (output_index, content_index, item_id) = (self.draft.response.output.len(), 0, item.id());
        let (name, content) = match item {
            OutputItem::Message { .. } => (
                "response.output_text.delta",
                EventContent::TextDelta { item_id, output_index, content_index, delta, logprobs: new },
            ),
            OutputItem::Reasoning { .. } => (
                "response.reasoning_text.delta",
                EventContent::ReasoningDelta { item_id, output_index, content_index, delta },
            ),
            OutputItem::FunctionCall { .. } => (
                "response.function_call_arguments.delta",
                EventContent::CallDelta { item_id, output_index, delta },
            ),
            OutputItem::CustomToolCall { .. } => {
                let delta = input.read(text);
                if delta.is_empty() {
                    return;
                }
                let content = EventContent::CallDelta { item_id, output_index, delta };
                let mut send = Sender { out, sent: &mut self.sent };
                return send.event("response.custom_tool_call_input.delta", content);
            }
            // The other calls come whole.
            _ => return,
        };
        Sender { out, sent: &mut self.sent }.event(name, content);
    }

    /// Ends the item that goes on, if one does.
    fn close(&mut self, out: &mut Vec<u8>, status: Status) {
        let Some(OpenItem { mut item, text, logprobs, input }) = self.open.take() else { return };
        let (output_index, content_index) = (self.draft.response.output.len(), 0);
        let mut send = Sender { out, sent: &mut self.sent };
        let part = item.part(text.clone(), logprobs.clone());
        item.end(status, text.clone(), logprobs);
        let (item_id, text) = (item.id(), &text[..]);
        match (&item, &part) {
            (OutputItem::FunctionCall { name, arguments, .. }, _) => {
                let content = EventContent::Arguments { item_id, output_index, name, arguments };
                send.event("response.function_call_arguments.done", content);
            }
            (OutputItem::CustomToolCall { input: whole, .. }, _) => {
                let delta = input.rest(whole);
                if !delta.is_empty() {
                    let content = EventContent::CallDelta { item_id, output_index, delta };
                    send.event("response.custom_tool_call_input.delta", content);
                }
                let content = EventContent::Input { item_id, output_index, input: whole };
                send.event("response.custom_tool_call_input.done", content);
            }
            (_, Some(OutputPart::OutputText { logprobs, .. })) => {
                let content = EventContent::Text { item_id, output_index, content_index, text, logprobs };
                send.event("response.output_text.done", content);
            }
            (_, Some(OutputPart::ReasoningText { .. })) => {
                let content = EventContent::Reasoning { item_id, output_index, content_index, text };
                send.event("response.reasoning_text.done", content);
            }
            (_, None) => {}
        }
        if let Some(part) = &part {
            let content = EventContent::Part { item_id, output_index, content_index, part };
            send.event("response.content_part.done", content);
        }
        send.event("response.output_item.done", EventContent::Item { output_index, item: &item });
        self.draft.response.output.push(item);
    }
}

impl Writer for Events {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let mut send = Sender { out, sent: &mut self.sent };
        send.event("response.created", EventContent::Response { response: &self.draft.response });
        self.wait(out, 0);
    }

    fn wait(&mut self, out: &mut Vec<u8>, _index: usize) {
        let mut send = Sender { out, sent: &mut self.sent };
        send.event("response.in_progress", EventContent::Response { response: &self.draft.response });
    }

    fn write(&mut self, out: &mut Vec<u8>, index: usize, delta: Delta, generation: &Generation) {
        let telemetry = self.draft.telemetry;
        if let Some(progress) = telemetry.progress(generation, index, &delta) {
            self.sent.progress = Some(progress);
            self.wait(out, index);
        }
        if !matches!(delta, Delta::Started | Delta::Prompt(_)) {
            self.sent.timings = telemetry.timings(generation, index);
        }
        match delta {
            Delta::Started | Delta::Prompt(_) => {}
            Delta::Token { logprobs, events, .. } => {
                self.logprobs.extend(logprobs.as_ref().map(TokenEntry::from));
                events.into_iter().for_each(|event| self.add(out, event));
            }
            Delta::Finished { events, finish } => {
                events.into_iter().for_each(|event| self.add(out, event));
                let is_message =
                    self.open.as_ref().is_some_and(|open| matches!(open.item, OutputItem::Message { .. }));
                let is_empty = self.open.is_none() && self.draft.response.output.is_empty();
                if is_empty || is_message && !self.logprobs.is_empty() {
                    self.text(out, "");
                }
                self.finish = finish;
                self.close(out, status_of(finish));
            }
        }
    }

    fn fail(&mut self, out: &mut Vec<u8>, error: &ApiError) {
        self.draft.response.status = Status::Failed;
        let code = if error.status.is_server_error() { "server_error" } else { error.code };
        self.draft.response.error = Some(ResponseError { code, message: error.message.clone() });
        let mut send = Sender { out, sent: &mut self.sent };
        send.event("response.failed", EventContent::Response { response: &self.draft.response });
    }

    fn end(&mut self, out: &mut Vec<u8>, generation: &Generation) {
        self.draft.finish(self.finish, generation);
        self.sent.timings = self.draft.response.timings;
        self.send_end(out);
    }
}

impl Events {
    /// Writes the end of the response.
    fn send_end(&mut self, out: &mut Vec<u8>) {
        let response = &self.draft.response;
        let is_incomplete = response.status == Status::Incomplete;
        let name = if is_incomplete { "response.incomplete" } else { "response.completed" };
        let mut send = Sender { out, sent: &mut self.sent };
        send.event(name, EventContent::Response { response });
    }

    /// The events of a response that has ended, as a client gets them that comes late: each text is one piece.
    pub(super) fn replay(store: Arc<ResponseStore>, stored: &ResponseObject) -> Vec<u8> {
        let response = ResponseObject {
            status: Status::InProgress,
            incomplete_details: None,
            output: Vec::new(),
            usage: None,
            timings: None,
            ..stored.clone()
        };
        let (tools, input, conversation) = (ClientTools::default(), Vec::new(), Vec::new());
        let telemetry = TelemetryFields::default();
        let draft =
            Draft { store, response, tools, sends_reasoning_back: false, input, conversation, telemetry };
        let (mut events, mut out) = (Events::new(draft), Vec::new());
        Writer::begin(&mut events, &mut out);
        for item in &stored.output {
            let (begun, text, logprobs) = item.restart();
            events.begin(&mut out, begun);
            events.logprobs = logprobs;
            events.delta(&mut out, &text);
            events.close(&mut out, item.status());
        }
        events.draft.response = stored.clone();
        events.send_end(&mut out);
        out
    }
}

/// What an event says of those before it.
#[derive(Debug, Default)]
struct Sent {
    /// How many there were.
    count: usize,
    timings: Option<Timings>,
    /// For the next event.
    progress: Option<PromptProgress>,
}

/// Where events go.
struct Sender<'a> {
    out: &'a mut Vec<u8>,
    sent: &'a mut Sent,
}

impl Sender<'_> {
    fn event(&mut self, name: &'static str, content: EventContent<'_>) {
        let Sent { count, timings, progress } = self.sent;
        let event = ResponseEvent {
            r#type: name,
            sequence_number: *count,
            content,
            timings: *timings,
            prompt_progress: progress.take(),
        };
        sse::event(self.out, name, &event);
        *count += 1;
    }
}
