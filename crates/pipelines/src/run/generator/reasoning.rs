//! Reasoning within a budget: once it is spent, the tokens that end the reasoning are forced.

use std::collections::VecDeque;
use std::sync::Arc;

use text::answer::ReasoningFormat;
use text::stop_strings::{StopSearch, StopStrings};
use text::{ReasoningPhase, Tokenizer};

use crate::Error;

/// How long a model may reason before it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningBudget {
    tokens: usize,
    format: &'static ReasoningFormat,
    phase: ReasoningPhase,
    /// The tokens that are forced once the budget is spent.
    cut: Vec<u32>,
}

impl ReasoningBudget {
    /// Up to so many tokens of reasoning between the marks of a format. Then come [`ReasoningFormat::cut_tokens`]; where a
    /// constraint does not allow them, it says how the answer goes on. `phase` is where the prompt ends
    /// ([`ReasoningFormat::phase`]).
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn new(
        tokens: usize,
        format: &'static ReasoningFormat,
        phase: ReasoningPhase,
        tokenizer: &Tokenizer,
    ) -> Result<ReasoningBudget, Error> {
        Ok(ReasoningBudget { tokens, format, phase, cut: format.cut_tokens(tokenizer)? })
    }
}

/// A sequence's way through its budget.
pub(super) struct ReasoningLimit {
    budget: ReasoningBudget,
    tokenizer: Arc<Tokenizer>,
    state: State,
}

enum State {
    /// The answer has not begun, and looks for the mark of reasoning.
    Before(StopSearch),
    /// So many tokens were spent; looks for the mark of the end.
    Inside(StopSearch, usize),
    /// These tokens are forced.
    Cut(VecDeque<u32>),
    Over,
}

impl ReasoningLimit {
    pub(super) fn new(budget: ReasoningBudget, tokenizer: &Arc<Tokenizer>) -> ReasoningLimit {
        let mut limit = ReasoningLimit { budget, tokenizer: Arc::clone(tokenizer), state: State::Over };
        limit.state = match limit.budget.phase {
            ReasoningPhase::Before => {
                let mut begin = search(limit.budget.format.begin);
                // The prompt ends with the lead.
                begin.push(limit.budget.format.lead);
                State::Before(begin)
            }
            ReasoningPhase::Inside => limit.inside(),
            ReasoningPhase::After => State::Over,
        };
        limit
    }

    /// The token that must come next, if one must.
    pub(super) fn forced(&self) -> Option<u32> {
        if let State::Cut(tokens) = &self.state { tokens.front().copied() } else { None }
    }

    /// Forces nothing more.
    pub(super) fn give_up(&mut self) {
        self.state = State::Over;
    }

    /// Counts a token that was chosen, and the text that is complete with it.
    pub(super) fn accept(&mut self, token: u32, piece: &str) {
        let name = self.tokenizer.token(token).filter(|_| self.tokenizer.is_special(token));
        let text = name.as_deref().unwrap_or(piece).to_owned();
        match &mut self.state {
            State::Before(begin) => match begin.push(&text) {
                (_, Some(_)) => self.state = self.inside(),
                (certain, None) if !certain.trim().is_empty() => self.state = State::Over,
                _ => {}
            },
            State::Inside(end, used) => {
                *used += 1;
                if end.push(&text).1.is_some() {
                    self.state = State::Over;
                } else if *used >= self.budget.tokens {
                    self.state = self.cut();
                }
            }
            State::Cut(tokens) => {
                if tokens.pop_front() != Some(token) || tokens.is_empty() {
                    self.state = State::Over;
                }
            }
            State::Over => {}
        }
    }

    fn inside(&self) -> State {
        match self.budget.tokens {
            0 => self.cut(),
            _ => State::Inside(search(self.budget.format.end), 0),
        }
    }

    fn cut(&self) -> State {
        State::Cut(self.budget.cut.iter().copied().collect())
    }
}

fn search(mark: &str) -> StopSearch {
    StopSearch::new(Arc::new(StopStrings::new(&[mark.to_owned()])))
}
