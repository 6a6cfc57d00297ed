//! Conversations as Python's class `LLM` hands them in.

use perihelion::pipelines::{
    AnswerReader, Chat, ChatDefaults, ChatReading, ChatTurn, Error, Request, TextGenerator, Thinking, ToolUse,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::pipelines_error;
use super::request::Params;
use super::waiting::wait_for_thread;
use crate::logs;

/// A conversation as the model reads it, and how its answers are read.
#[pyclass(frozen, module = "perihelion._perihelion")]
pub(crate) struct Turn(ChatReading);

#[pymethods]
impl Turn {
    /// The text of the prompt.
    #[getter]
    fn prompt(&self) -> &str {
        &self.0.reader.prompt
    }

    #[getter]
    fn tokens(&self) -> Vec<u32> {
        self.0.tokens.clone()
    }
}

impl Turn {
    /// Reads a turn. `fields` are JSON; the form of the answer is that of `SamplingParams`.
    pub(super) fn read(
        py: Python<'_>,
        generator: TextGenerator,
        fields: &str,
        params: &Bound<'_, PyAny>,
    ) -> PyResult<Turn> {
        let fields: TurnFields =
            serde_json::from_str(fields).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let form = Params(params).constraint()?;
        let turn = ChatTurn { form, ..fields.into_turn().map_err(pipelines_error)? };
        let is_long = turn.form.is_some() || turn.tools.are_callable();
        let read = move || generator.read_turn(turn, ChatDefaults::default());
        // Compiling rules takes time, so it runs without the GIL.
        let reading = if is_long { wait_for_thread(py, read)? } else { read() }.map_err(pipelines_error)?;
        if !reading.ignored.is_empty() {
            let names = reading.ignored.join(", ");
            logs::warn(py, &format!("these arguments have no effect with this model: {names}"))?;
        }
        Ok(Turn(reading))
    }

    /// The request with the prompt and the rules of the turn, and how its answers are read.
    pub(super) fn request(&self, parameters: Request) -> (Request, AnswerReader) {
        self.0.clone().into_request(parameters)
    }
}

/// A conversation, and what is asked of its answer.
#[derive(Deserialize)]
struct TurnFields {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    documents: Option<Vec<Value>>,
    add_generation_prompt: bool,
    continue_final_message: bool,
    variables: Map<String, Value>,
    tool_choice: Value,
    parallel_tool_calls: bool,
    enable_thinking: Option<bool>,
    reasoning_effort: Option<String>,
    thinking_budget: Option<usize>,
}

impl TurnFields {
    fn into_turn(self) -> Result<ChatTurn, Error> {
        let choice = (!self.tool_choice.is_null()).then_some(&self.tool_choice);
        let tools = ToolUse::new(self.tools.clone(), choice, (!self.parallel_tool_calls).then_some(false))?;
        let thinking = self.thinking()?;
        let chat = Chat {
            documents: self.documents,
            add_generation_prompt: self.add_generation_prompt,
            continue_final_message: self.continue_final_message,
            extra: self.variables,
            ..Chat::new(self.messages)
        };
        Ok(ChatTurn { tools, thinking, ..ChatTurn::from(chat) })
    }

    /// Whether and how long the model reasons, if that is said.
    fn thinking(&self) -> Result<Option<Thinking>, Error> {
        let effort = self.reasoning_effort.as_deref();
        let effort = effort.map(|effort| Thinking::with_effort("reasoning_effort", effort)).transpose()?;
        let switch = self.enable_thinking.map(|is_on| Thinking::new("enable_thinking", is_on));
        let bounded = self.thinking_budget.map(|_| Thinking::new("thinking_budget", true));
        Ok(effort.or(switch).or(bounded).map(|thinking| thinking.within(self.thinking_budget)))
    }
}
