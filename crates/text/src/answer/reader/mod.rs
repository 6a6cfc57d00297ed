//! Readers of one call each: text comes in pieces, a name and arguments in JSON go out.

mod json;
mod literals;
mod named;
mod object;
mod tagged;

use std::sync::Arc;

pub(super) use literals::is_key;
pub(super) use tagged::is_json;

use super::formats::{Syntax, ToolFormat};
use super::tool::Tool;
use crate::stop_strings::{StopSearch, StopStrings};

/// A call as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// The id that the model gave it.
    pub(super) id: Option<String>,
    /// The name, once it is whole.
    pub(super) name: Option<String>,
    /// The arguments in JSON.
    pub(super) arguments: String,
}

/// How far a reader is after a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The piece was consumed, and more belongs to the call.
    More,
    /// The call is whole.
    Done,
    /// The text is not a call.
    Failed,
}

/// Reads one call.
pub(super) trait Reader: std::fmt::Debug + Send {
    /// Consumes bytes of `text`, all of them if more is needed, and adds what they tell to `call`.
    fn read(&mut self, text: &str, call: &mut Call) -> (usize, Progress);
}

/// The reader of a format's calls.
pub(super) fn reader(format: &'static ToolFormat, tools: &Arc<[Tool]>) -> Box<dyn Reader> {
    match &format.syntax {
        Syntax::Object => Box::new(object::ObjectReader::new(format.bare)),
        Syntax::Named(heads) => Box::new(named::NamedReader::new(heads)),
        Syntax::Tagged(tags) => Box::new(tagged::TaggedReader::new(tags, Arc::clone(tools))),
        Syntax::Literals(literals) => Box::new(literals::LiteralReader::new(literals)),
    }
}

/// The most bytes of a name, a key, or what stands around them.
const MAX_HEAD: usize = 1024;

fn search(marks: &[&str]) -> StopSearch {
    let marks: Vec<String> = marks.iter().map(ToString::to_string).collect();
    StopSearch::new(Arc::new(StopStrings::new(&marks)))
}
