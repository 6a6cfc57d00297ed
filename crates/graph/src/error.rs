//! What can be wrong with a graph.

use std::fmt;

use crate::SourceLocation;

/// Why an op refuses its operands: the sentence without the op, which [`Error::Type`] adds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(pub String);

impl TypeError {
    /// An error with a message that states the two facts that disagree.
    pub fn new(message: impl Into<String>) -> TypeError {
        TypeError(message.into())
    }
}

/// A [`TypeError`] with a formatted message.
macro_rules! type_error {
    ($($message:tt)+) => { $crate::TypeError::new(format!($($message)+)) };
}

/// Ends a function with a [`TypeError`] of this message if a condition holds.
macro_rules! refuse_if {
    ($condition:expr, $($message:tt)+) => {
        if $condition {
            return Err(type_error!($($message)+));
        }
    };
}

/// A graph, its text or its inputs are wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An op's operands do not fit it.
    #[error("{op}: {error}{}", At(location))]
    Type {
        /// The op's name.
        op: &'static str,
        /// What does not fit.
        error: TypeError,
        /// Where the program that builds the graph asked for it; `None` for what was read from text.
        location: Option<SourceLocation>,
    },
    /// A tensor has no such axis.
    #[error("{op}: {message}{}", At(location))]
    Axis {
        /// The op's name.
        op: &'static str,
        /// The tensor and the axis.
        message: String,
        /// As in [`Error::Type`].
        location: Option<SourceLocation>,
    },
    /// A structural rule is broken.
    #[error("graph `{graph}`: {message}")]
    Invalid {
        /// The graph's name.
        graph: String,
        /// The rule and the facts that break it.
        message: String,
    },
    /// A call's inputs or weights are not what the graph takes.
    #[error("{0}")]
    Input(String),
    /// A symbol or expression has no size, or an impossible one.
    #[error("{0}")]
    Dim(String),
    /// A reference could not compute its result from the given data.
    #[error("{op}: {message}")]
    Evaluation {
        /// The op's name.
        op: &'static str,
        /// What is wrong with the data.
        message: String,
    },
    /// Graph text that does not parse.
    #[error("line {line}: {message}")]
    Parse {
        /// Counted from 1.
        line: usize,
        /// What was expected and what stands there.
        message: String,
    },
}

impl Error {
    /// An [`Error::Type`] from nowhere in particular.
    pub(crate) fn refuse(op: &'static str, message: impl Into<String>) -> Error {
        Error::Type { op, error: TypeError::new(message), location: None }
    }

    /// This error with the place in the source that caused it, unless it has one.
    pub(crate) fn at(mut self, place: Option<SourceLocation>) -> Error {
        if let Error::Type { location, .. } | Error::Axis { location, .. } = &mut self {
            *location = location.take().or(place);
        }
        self
    }

    /// This error without the place in the source that caused it: what tests compare.
    pub fn without_location(mut self) -> Error {
        if let Error::Type { location, .. } | Error::Axis { location, .. } = &mut self {
            *location = None;
        }
        self
    }

    /// An [`Error::Evaluation`].
    pub(crate) fn evaluation(op: &'static str, message: impl Into<String>) -> Error {
        Error::Evaluation { op, message: message.into() }
    }
}

/// ` (src/model.rs:12:9)`
struct At<'a>(&'a Option<SourceLocation>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |location| write!(f, " ({location})"))
    }
}
