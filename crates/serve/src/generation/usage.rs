//! How many tokens the answers to a request took, and how long.

use std::time::{Duration, Instant};

use pipelines::EventKind;

/// Tokens of all answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Each prompt counts once, however many answers it gets.
    pub(crate) prompt_tokens: usize,
    /// Those of them whose keys and values the cache held.
    pub(crate) cached_tokens: usize,
    pub(crate) generated_tokens: usize,
    /// Those of them that are reasoning and its marks.
    pub(crate) reasoning_tokens: usize,
}

/// The tokens of one answer and when they were made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerStats {
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
}

/// When the answers began, and what became of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timings {
    began: Instant,
    /// When the first of them left the queue.
    started: Option<Instant>,
    first_token: Option<Instant>,
    /// When the latest event happened.
    latest: Instant,
}

impl Timings {
    pub(super) fn begin() -> Timings {
        let now = Instant::now();
        Timings { began: now, started: None, first_token: None, latest: now }
    }

    /// Those of no answers at all.
    pub(crate) fn none() -> Timings {
        Timings::begin()
    }

    /// Since the answers left the queue; zero until then.
    pub(crate) fn since_start(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| self.latest.saturating_duration_since(started))
    }

    /// Takes note of an event.
    pub(super) fn note(&mut self, at: Instant, event: &EventKind) {
        match event {
            EventKind::Started { .. } => drop(self.started.get_or_insert(at)),
            EventKind::Token { .. } => drop(self.first_token.get_or_insert(at)),
            _ => {}
        }
        self.latest = self.latest.max(at);
    }

    /// In the queue.
    pub(crate) fn queue(&self) -> Duration {
        self.started.unwrap_or(self.latest).saturating_duration_since(self.began)
    }

    /// From the queue to the first token, or to the end of answers without any.
    pub(crate) fn prompt(&self) -> Duration {
        let end = self.first_token.unwrap_or(self.latest);
        self.started.map_or(Duration::ZERO, |started| end.saturating_duration_since(started))
    }

    /// From the first token to the latest event.
    pub(crate) fn answer(&self) -> Duration {
        self.first_token.map_or(Duration::ZERO, |first| self.latest.saturating_duration_since(first))
    }
}
