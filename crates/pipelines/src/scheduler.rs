//! Who runs in the next step. A pure state machine: commands in, batches out; no clock, no threads.
//!
//! Running sequences come first, oldest first, each with the tokens it still has to run (one when it decodes).
//! What is left of the token budget goes to waiting sequences in the order they came, so a long prompt is
//! prefilled in chunks beside others that decode. When pages run out, the newest running sequence gives its
//! pages back and waits at the front of the queue; its tokens, generated ones included, run again later.

use std::collections::VecDeque;

use crate::batch::{Batch, Slice};
use crate::page_pool::PagePool;
use crate::sequence::{Sequence, SequenceId};

/// What bounds a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tokens in a step, prompt and decode together.
    pub max_batch_tokens: usize,
    /// Sequences that run at once.
    pub max_sequences: usize,
}

/// Why a sequence can never run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sequence may grow to {max_tokens} tokens, but the KV cache holds {capacity}: ask for fewer new tokens or a larger cache"
)]
pub struct TooLong {
    /// Tokens the sequence may need.
    pub max_tokens: usize,
    /// Tokens the whole cache holds.
    pub capacity: usize,
}

/// Waiting and running sequences, and the pages they share.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    pages: PagePool,
    waiting: VecDeque<Sequence>,
    /// Oldest first.
    running: Vec<Sequence>,
    preemptions: usize,
}

impl Scheduler {
    /// A scheduler with nothing to do.
    ///
    /// # Panics
    /// If a limit is 0: nothing could ever run.
    pub fn new(limits: Limits, pages: PagePool) -> Scheduler {
        assert!(limits.max_batch_tokens > 0 && limits.max_sequences > 0, "{limits:?} lets nothing run");
        Scheduler { limits, pages, waiting: VecDeque::new(), running: Vec::new(), preemptions: 0 }
    }

    /// Queues a sequence.
    ///
    /// # Errors
    /// If the cache could not hold it even if it were alone.
    pub fn add(&mut self, sequence: Sequence) -> Result<(), TooLong> {
        // The last token is never run, so it needs no room.
        let needed = sequence.max_tokens.max(sequence.tokens.len() + 1) - 1;
        if self.pages.pages_for(needed) > self.pages.num_pages() {
            let capacity = self.pages.num_pages() * self.pages.page_size();
            return Err(TooLong { max_tokens: sequence.max_tokens, capacity });
        }
        self.waiting.push_back(sequence);
        Ok(())
    }

    /// Takes a sequence out, wherever it is, and frees its pages.
    pub fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
        let mut sequence = if let Some(position) = self.running.iter().position(|s| s.id == id) {
            self.running.remove(position)
        } else {
            let position = self.waiting.iter().position(|s| s.id == id)?;
            self.waiting.remove(position)?
        };
        self.pages.release(&mut sequence.pages);
        Some(sequence)
    }

    /// The next step's batch; empty only if there are no sequences.
    pub fn schedule(&mut self) -> Batch {
        let mut batch = Batch::default();
        let mut budget = self.limits.max_batch_tokens;
        let mut next = 0;
        while next < self.running.len() && budget > 0 {
            let count = self.running[next].pending().min(budget);
            if self.make_room(next, count) {
                batch.slices.push(Slice::of(&self.running[next], count));
                budget -= count;
                next += 1;
            }
        }
        // A sequence that was just preempted waits at least until someone else has finished or grown.
        while budget > 0 && self.running.len() < self.limits.max_sequences && next == self.running.len() {
            let Some(sequence) = self.waiting.front_mut() else { break };
            let count = sequence.pending().min(budget);
            if !self.pages.grow(&mut sequence.pages, sequence.cached + count) {
                break;
            }
            batch.slices.push(Slice::of(sequence, count));
            budget -= count;
            self.running.extend(self.waiting.pop_front());
            next += 1;
        }
        batch
    }

    /// Takes note of what a step did: its tokens are cached, and each sequence that it predicted for grows by
    /// its token of `predicted`, which is in the order of [`Batch::predicting`].
    ///
    /// # Panics
    /// If `predicted` has another length.
    pub fn advance(&mut self, batch: &Batch, predicted: &[u32]) {
        assert_eq!(batch.predicting().count(), predicted.len(), "a token for each sequence that predicts");
        let mut predicted = predicted.iter();
        for slice in &batch.slices {
            let token = if slice.predicts { predicted.next() } else { None };
            // A sequence that was aborted meanwhile is gone.
            if let Some(sequence) = self.running.iter_mut().find(|s| s.id == slice.id) {
                sequence.cached = slice.cached + slice.tokens.len();
                sequence.tokens.extend(token);
            }
        }
    }

    /// A sequence that is waiting or running.
    pub fn get(&self, id: SequenceId) -> Option<&Sequence> {
        self.running.iter().chain(&self.waiting).find(|sequence| sequence.id == id)
    }

    /// Whether there is nothing left to run.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// How often a running sequence had to give its pages back.
    pub fn preemptions(&self) -> usize {
        self.preemptions
    }

    /// The pages and how many of them are free.
    pub fn pages(&self) -> &PagePool {
        &self.pages
    }

    /// Grows the pages of `running[index]` for `count` more tokens, preempting newer sequences as needed. When
    /// even that is not enough, because `index` itself is the newest, it is preempted. Says whether it may run.
    fn make_room(&mut self, index: usize, count: usize) -> bool {
        loop {
            let sequence = &mut self.running[index];
            if self.pages.grow(&mut sequence.pages, sequence.cached + count) {
                return true;
            }
            let mut newest = self.running.pop().expect("running[index] exists");
            self.pages.release(&mut newest.pages);
            newest.cached = 0;
            self.waiting.push_front(newest);
            self.preemptions += 1;
            if index == self.running.len() {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script: `(batch tokens, sequences, pages, page size)`, then steps until idle. Each line of the
    /// result is a step: `id:cached+count`, with `!` where the next token is predicted. The token predicted is
    /// always 9; sequences end at `max_tokens`.
    fn check(limits: (usize, usize), pages: (usize, usize), sequences: &[(usize, usize)], expected: &str) {
        let limits = Limits { max_batch_tokens: limits.0, max_sequences: limits.1 };
        let mut scheduler = Scheduler::new(limits, PagePool::new(pages.0, pages.1));
        for (id, &(prompt, max_tokens)) in sequences.iter().enumerate() {
            scheduler.add(Sequence::new(SequenceId(id as u64), vec![1; prompt], max_tokens)).unwrap();
        }
        let mut lines = Vec::new();
        while !scheduler.is_idle() {
            let batch = scheduler.schedule();
            assert!(!batch.is_empty(), "no progress after {lines:?}");
            assert!(
                batch.num_tokens() <= limits.max_batch_tokens && batch.slices.len() <= limits.max_sequences
            );
            let text = |s: &Slice| {
                format!("{}:{}+{}{}", s.id.0, s.cached, s.tokens.len(), if s.predicts { "!" } else { "" })
            };
            lines.push(batch.slices.iter().map(text).collect::<Vec<_>>().join(" "));
            let predicting: Vec<SequenceId> = batch.predicting().collect();
            scheduler.advance(&batch, &vec![9; predicting.len()]);
            for id in predicting {
                let sequence = scheduler.get(id).unwrap();
                if sequence.tokens.len() >= sequence.max_tokens {
                    scheduler.remove(id);
                }
            }
        }
        assert_eq!(scheduler.pages().num_free(), pages.0, "all pages come back");
        assert_eq!(lines.join("\n"), expected.trim().lines().map(str::trim).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn a_prompt_is_prefilled_then_decoded() {
        check((8, 4), (4, 16), &[(5, 7)], "0:0+5!\n0:5+1!");
    }

    #[test]
    fn long_prompts_run_in_chunks_beside_decoding_ones() {
        check(
            (4, 4),
            (8, 16),
            &[(2, 5), (7, 8)],
            "0:0+2! 1:0+2
             0:2+1! 1:2+3
             0:3+1! 1:5+2!",
        );
    }

    #[test]
    fn no_more_sequences_than_allowed() {
        check((8, 1), (8, 16), &[(2, 4), (2, 3)], "0:0+2!\n0:2+1!\n1:0+2!");
    }

    #[test]
    fn the_newest_gives_its_pages_to_the_oldest() {
        // Three pages of 16: both start with one, sequence 0 takes the third at 17 tokens, and 1 must yield
        // when it wants a second as well. It then waits until 0 is done, and runs all its tokens again.
        check(
            (64, 4),
            (3, 16),
            &[(16, 35), (16, 18)],
            &[
                "0:0+16! 1:0+16!".to_string(),
                "0:16+1!".to_string(),
                (17..34).map(|n| format!("0:{n}+1!")).collect::<Vec<_>>().join("\n"),
                "1:0+17!".to_string(),
            ]
            .join("\n"),
        );
    }

    #[test]
    fn what_never_fits_is_refused() {
        let limits = Limits { max_batch_tokens: 8, max_sequences: 2 };
        let mut scheduler = Scheduler::new(limits, PagePool::new(2, 16));
        let error = scheduler.add(Sequence::new(SequenceId(0), vec![1], 34)).unwrap_err();
        assert_eq!(error, TooLong { max_tokens: 34, capacity: 32 });
        assert!(scheduler.add(Sequence::new(SequenceId(1), vec![1], 33)).is_ok());
    }

    #[test]
    fn aborting_frees_pages_at_once() {
        let limits = Limits { max_batch_tokens: 8, max_sequences: 2 };
        let mut scheduler = Scheduler::new(limits, PagePool::new(2, 16));
        scheduler.add(Sequence::new(SequenceId(0), vec![1, 2], 9)).unwrap();
        let batch = scheduler.schedule();
        assert_eq!(scheduler.pages().num_free(), 1);
        assert!(scheduler.remove(SequenceId(0)).is_some());
        assert_eq!(scheduler.pages().num_free(), 2);
        scheduler.advance(&batch, &[3]);
        assert!(scheduler.is_idle() && scheduler.schedule().is_empty());
    }
}
