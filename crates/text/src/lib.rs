//! Text to tokens and back: tokenizers, detokenizer, chat templates, stop strings, constraints, the parts of answers.
//!
//! Layer 2: reads the files of models, and knows neither graphs nor engines.

#![forbid(unsafe_code)]

pub mod answer;
pub mod chat_template;
pub mod constraint;
pub mod detokenizer;
mod error;
pub mod infill;
pub mod stop_strings;
pub mod tokenizer;

pub use answer::{
    Answer, AnswerEvent, AnswerFormat, AnswerParser, AnswerPart, ReasoningFormat, ReasoningPhase, Tool,
    ToolCall, ToolChoice, ToolFormat,
};
pub use chat_template::{ChatContext, ChatTemplate, Moment};
pub use constraint::{Constraint, Grammar, GrammarCompiler};
pub use detokenizer::Detokenizer;
pub use error::{ConstraintError, Error};
pub use infill::{InfillFile, InfillFormat, InfillPrompt, InfillTexts};
pub use tokenizer::{AddSpecial, ParseSpecial, Piece, SkipSpecial, Tokenizer};
