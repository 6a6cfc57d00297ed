//! The tools that an answer may call, as requests declare them, and the rules of such answers.

use serde_json::Value;
use text::answer::{AnswerRules, ReasoningPhase};
use text::{AnswerFormat, Constraint, Error as TextError, GrammarCompiler, Tokenizer, Tool, ToolChoice};

use crate::Error;

/// The most tools of a request. Schemas that cannot be enforced are looked for tool by tool.
const MAX_TOOLS: usize = 1024;

/// Tools, and how they are to be used.
#[derive(Debug, Clone, Default)]
pub struct ToolUse {
    /// As chat templates take them: in the shape of the OpenAI API.
    declared: Vec<Value>,
    tools: Vec<Tool>,
    choice: ToolChoice,
    /// The names of those that may be called; `None`: all.
    only: Option<Vec<String>>,
    /// Whether an answer ends with its first call.
    is_single: bool,
    /// Fields without effect.
    pub(super) ignored: Vec<String>,
}

/// The form of answers without calls.
pub(super) struct AnswerShape<'a> {
    pub(super) format: AnswerFormat,
    pub(super) phase: ReasoningPhase,
    /// The form of the text, in Lark.
    pub(super) text: Option<&'a str>,
}

impl ToolUse {
    /// Tools and a choice among them in the shape of the OpenAI API, and whether an answer may have several calls.
    ///
    /// # Errors
    /// If a tool is not a function with a name and a schema, or the choice is not among them.
    pub fn new(
        declared: Option<Vec<Value>>,
        choice: Option<&Value>,
        is_parallel: Option<bool>,
    ) -> Result<ToolUse, Error> {
        let declared = declared.unwrap_or_default();
        if declared.len() > MAX_TOOLS {
            let problem = format!("has {} entries: give at most {MAX_TOOLS}", declared.len());
            return Err(TextError::Tools { field: "tools".to_string(), problem }.into());
        }
        let tools = Tool::list(&declared)?;
        let choice = choice.unwrap_or(&Value::Null);
        let only = allowed(choice, &tools)?;
        let mode = if only.is_some() { mode_of(choice) } else { choice };
        let chosen = ToolChoice::read(mode, &tools)?;
        let mut ignored = Vec::new();
        if tools.is_empty() {
            ignored.extend((!choice.is_null()).then(|| "tool_choice".to_string()));
            ignored.extend(is_parallel.map(|_| "parallel_tool_calls".to_string()));
        }
        let is_single = is_parallel == Some(false);
        Ok(ToolUse { declared, tools, choice: chosen, only, is_single, ignored })
    }

    /// Whether an answer may have calls.
    pub fn are_callable(&self) -> bool {
        !self.tools.is_empty() && self.choice != ToolChoice::None
    }

    /// Whether an answer has at least one call.
    pub(super) fn must_be_called(&self) -> bool {
        matches!(self.choice, ToolChoice::Required | ToolChoice::Named(_))
    }

    /// Whether an answer ends with its first call.
    pub(super) fn is_single(&self) -> bool {
        self.is_single
    }

    /// The tools that the model reads about: none if it may call none.
    pub(super) fn for_template(&self) -> Option<Vec<Value>> {
        self.are_callable().then(|| self.declared.clone())
    }

    /// The tools that an answer is searched for.
    pub(super) fn into_callable(self) -> Vec<Tool> {
        if self.are_callable() { self.tools } else { Vec::new() }
    }

    /// The rules of an answer, compiled. Of tools that are not strict, a schema that cannot be enforced is relaxed, and named
    /// as ignored.
    ///
    /// # Errors
    /// If the schema of a strict tool, or the form of the text, cannot be enforced.
    pub(super) fn constraint(
        &mut self,
        shape: &AnswerShape<'_>,
        tokenizer: &Tokenizer,
        compiler: &GrammarCompiler,
    ) -> Result<Option<Constraint>, Error> {
        let compiled = self.compile(shape, tokenizer, compiler);
        if compiled.is_ok() || !self.are_callable() {
            return Ok(compiled?);
        }
        let mut relaxed = Vec::new();
        for index in 0..self.tools.len() {
            let field = field_of(index);
            if let Err(error) = self.check(index, shape, tokenizer, compiler) {
                if self.tools[index].strict {
                    return Err(in_field(field, error).into());
                }
                self.tools[index] = self.tools[index].relaxed();
                if self.check(index, shape, tokenizer, compiler).is_err() {
                    self.tools[index] = self.tools[index].open();
                }
                relaxed.push(index);
            }
        }
        let mut compiled =
            if relaxed.is_empty() { compiled } else { self.compile(shape, tokenizer, compiler) };
        if compiled.is_err() {
            // Each alone can be enforced, but all together are too much.
            relaxed = (0..self.tools.len()).filter(|index| !self.tools[*index].strict).collect();
            relaxed.iter().for_each(|index| self.tools[*index] = self.tools[*index].open());
            compiled = self.compile(shape, tokenizer, compiler);
        }
        self.ignored.extend(relaxed.into_iter().map(field_of));
        Ok(compiled.map_err(|error| in_field("tools".to_string(), error))?)
    }

    fn compile(
        &self,
        shape: &AnswerShape<'_>,
        tokenizer: &Tokenizer,
        compiler: &GrammarCompiler,
    ) -> Result<Option<Constraint>, TextError> {
        let rules = AnswerRules {
            tools: &self.tools,
            choice: &self.choice,
            only: self.only.as_deref(),
            is_parallel: !self.is_single,
            phase: shape.phase,
            text: shape.text,
        };
        let Some(grammar) = shape.format.grammar(&rules, tokenizer)? else { return Ok(None) };
        let constraint = Constraint::Lark(grammar.into());
        compiler.compile(&constraint)?;
        Ok(Some(constraint))
    }

    /// Whether the schema of a tool can be enforced.
    fn check(
        &self,
        index: usize,
        shape: &AnswerShape<'_>,
        tokenizer: &Tokenizer,
        compiler: &GrammarCompiler,
    ) -> Result<(), TextError> {
        let tool = &self.tools[index];
        compiler.compile(&Constraint::JsonSchema(tool.parameters.clone().into()))?;
        let only = ToolUse {
            tools: self.tools.clone(),
            choice: ToolChoice::Named(tool.name.clone()),
            ..ToolUse::default()
        };
        only.compile(&AnswerShape { text: None, ..*shape }, tokenizer, compiler).map(drop)
    }
}

/// The names of `allowed_tools`, which stand in an object of their own or next to its type.
fn allowed(choice: &Value, tools: &[Tool]) -> Result<Option<Vec<String>>, Error> {
    if choice["type"] != "allowed_tools" {
        return Ok(None);
    }
    let refuse = |problem: String| TextError::Tools { field: "tool_choice".to_string(), problem };
    let object = choice.get("allowed_tools").unwrap_or(choice);
    let names = object["tools"].as_array().into_iter().flatten();
    let name = |tool: &Value| {
        let name = tool["function"]["name"].as_str().or(tool["name"].as_str()).unwrap_or_default();
        let is_declared = tools.iter().any(|tool| tool.name == name);
        is_declared.then(|| name.to_string()).ok_or_else(|| refuse(format!("no tool is named {name:?}")))
    };
    if names.clone().count() > MAX_TOOLS {
        return Err(refuse(format!("allowed_tools has more than {MAX_TOOLS} entries")).into());
    }
    let names = names.map(name).collect::<Result<Vec<_>, _>>()?;
    if names.is_empty() {
        return Err(refuse("allowed_tools has no tools".to_string()).into());
    }
    Ok(Some(names))
}

/// Whether one of the allowed tools must be called.
fn mode_of(choice: &Value) -> &Value {
    &choice.get("allowed_tools").unwrap_or(choice)["mode"]
}

/// The field of a tool's schema.
fn field_of(index: usize) -> String {
    format!("tools[{index}].function.parameters")
}

/// Names the request's field in the error of a constraint.
fn in_field(field: String, error: TextError) -> TextError {
    match error {
        TextError::Constraint(error) => TextError::Tools { field, problem: error.to_string() },
        error => error,
    }
}
