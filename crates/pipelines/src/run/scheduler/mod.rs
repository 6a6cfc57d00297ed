//! Who runs in the next step. A pure state machine: commands in, batches out; no clock, no threads.
//!
//! Running sequences come first, oldest first, each with the tokens it still has to run (one when it decodes).
//! What is left of the token budget goes to waiting sequences, whose tenants take turns ([`waiting`]), so a long prompt
//! is prefilled in chunks while others decode. When pages run out, the newest running sequence gives its
//! pages back; its tokens, generated ones included, run again later, before any sequence that has not started.
//!
//! A model may keep a state of each sequence. There are slots for the states of all that may run, and a slice ends where a
//! state is to be kept for prefix caching.
//!
//! Sequences with one prompt are read as one, their siblings; when its first token is chosen, the others start from the
//! pages of the prompt. Until there is room for them they wait with those that were preempted, and give the pages back
//! before any that runs has to.
//!
//! So those that run and those that were preempted, one after the other, are always in the order in which they started.
//! The first of them runs in every step, and keeps its pages: it ends after finitely many steps, whatever comes
//! after it, and then another is first. So all that have started end, which makes room for those that wait, and each of
//! these is passed by a bounded number of others. So no sequence starves.

mod waiting;

use std::collections::VecDeque;

use crate::error::TooLong;
use crate::limits::SLOTS_PER_SEQUENCE;
use crate::run::batch::{Batch, Slice};
use crate::run::kv_cache::{KvCache, PrefixCache, Sequence, SequenceId};
pub use waiting::MAX_PASSES;
use waiting::Waiting;

/// What bounds a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tokens in a step, prompt and decode together.
    pub max_batch_tokens: usize,
    /// Sequences that run at once.
    pub max_cache_batch_size: usize,
    /// Sequences of which a step runs prompt tokens.
    pub max_ce_batch_size: usize,
    /// Decode steps that follow each other without a look at who waits.
    pub max_num_steps: usize,
}

/// When a waiting sequence may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batching {
    /// As soon as there is room for it, whatever stage others are in.
    Continuous,
    /// When nothing else runs: those that start together run until the last of them has ended. Their prompts run
    /// in one step, padded to a common length.
    Homogenous {
        /// The common length is a multiple of this, unless it is 1.
        pad_to_multiple_of: usize,
    },
}

/// Waiting and running sequences, and the cache they share.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    batching: Batching,
    cache: KvCache,
    waiting: Waiting,
    /// Have started and wait for room to go on; oldest first.
    preempted: VecDeque<Sequence>,
    /// Oldest first.
    running: Vec<Sequence>,
    /// Decode steps that follow the last one without planning: room for their tokens is reserved.
    steps_left: usize,
    preemptions: usize,
}

impl Scheduler {
    /// A scheduler with nothing to do.
    ///
    /// # Panics
    /// If a limit, or what prompts are padded to, is 0, or there are states of fewer sequences than may run: some could
    /// never run.
    pub fn new(limits: Limits, batching: Batching, cache: KvCache) -> Scheduler {
        let Limits { max_batch_tokens, max_cache_batch_size, max_ce_batch_size, max_num_steps } = limits;
        let least = max_batch_tokens.min(max_cache_batch_size).min(max_ce_batch_size).min(max_num_steps);
        assert!(least > 0, "{limits:?} lets nothing run");
        assert!(batching != Batching::Homogenous { pad_to_multiple_of: 0 }, "{batching:?} has no multiples");
        let (slots, needed) = (cache.num_state_slots(), SLOTS_PER_SEQUENCE * max_cache_batch_size);
        assert!(slots == 0 || slots >= needed, "{slots} slots for states, of which {needed} are needed");
        let (waiting, preempted, running) = (Waiting::default(), VecDeque::new(), Vec::new());
        Scheduler { limits, batching, cache, waiting, preempted, running, steps_left: 0, preemptions: 0 }
    }

    /// Queues a sequence.
    ///
    /// # Errors
    /// If the cache could not hold it even if it were alone.
    pub fn add(&mut self, mut sequence: Sequence) -> Result<(), TooLong> {
        TooLong::check(sequence.tokens.len(), sequence.max_tokens, self.cache.capacity())?;
        while !self.cache.shares_pages()
            && let Some(alone) = sequence.part(sequence.id)
        {
            self.waiting.push(alone);
        }
        self.waiting.push(sequence);
        Ok(())
    }

    /// Takes a sequence out, wherever it is, and frees its pages; siblings keep theirs.
    pub fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
        let parted = {
            let mut all = self.running.iter_mut().chain(&mut self.preempted).chain(self.waiting.iter_mut());
            all.find_map(|sequence| sequence.part(id))
        };
        if parted.is_some() {
            return parted;
        }
        let mut sequence = if let Some(position) = self.running.iter().position(|s| s.id == id) {
            self.running.remove(position)
        } else if let Some(position) = self.preempted.iter().position(|s| s.id == id) {
            self.preempted.remove(position)?
        } else {
            self.waiting.remove(id)?
        };
        self.cache.release(&mut sequence);
        Some(sequence)
    }

    /// Forgets all sequences and what the cache holds, whatever state they are in.
    pub(crate) fn clear(&mut self) {
        self.waiting = Waiting::default();
        self.preempted.clear();
        self.running.clear();
        self.steps_left = 0;
        self.cache = self.cache.emptied();
    }

    /// The next step's batch; empty only if there are no sequences. It must be run before the next is asked for,
    /// or its sequences removed.
    pub fn schedule(&mut self) -> Batch {
        self.schedule_beside_decodes(usize::MAX)
    }

    /// As [`Scheduler::schedule`], with at most `prefill` tokens of sequences that do not decode yet, and at least one of
    /// the first of them, if another sequence decodes in the step: who decodes does not wait longer.
    pub fn schedule_beside_decodes(&mut self, prefill: usize) -> Batch {
        let counts = self.decode_again().unwrap_or_else(|| self.plan(prefill));
        let running = self.running.iter().zip(&counts).filter(|&(_, &count)| count > 0);
        let slices = running.map(|(sequence, &count)| Slice::from_sequence(sequence, count)).collect();
        let mut batch = Batch { slices, copies: self.cache.take_copies() };
        if let Batching::Homogenous { pad_to_multiple_of } = self.batching {
            self.pad(&mut batch, pad_to_multiple_of);
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
            let tokens = predicted.by_ref().take(if slice.predicts { slice.ids().count() } else { 0 });
            let tokens: Vec<(SequenceId, u32)> = slice.ids().zip(tokens.copied()).collect();
            // A sequence that was aborted meanwhile is gone.
            if let Some(index) = self.running.iter().position(|s| s.id == slice.id) {
                self.running[index].cached = slice.cached + slice.tokens.len();
                self.cache.publish(&mut self.running[index]);
                self.grow(index, &tokens);
            }
        }
    }

    /// Adds a token to a running sequence, and to each of its siblings, which become sequences by themselves.
    fn grow(&mut self, index: usize, tokens: &[(SequenceId, u32)]) {
        let Some((&(_, first), others)) = tokens.split_first() else { return };
        let sequence = &mut self.running[index];
        for &(id, token) in others.iter().filter(|(id, _)| sequence.siblings.contains(id)) {
            let mut sibling = self.cache.fork(sequence, id);
            sibling.tokens.push(token);
            self.preempted.push_back(sibling);
        }
        sequence.siblings.clear();
        sequence.tokens.push(first);
    }

    /// Adds tokens that follow the last one of a sequence in any case. They run together in its next step.
    pub fn append(&mut self, id: SequenceId, tokens: &[u32]) {
        let mut sequences = self.running.iter_mut().chain(&mut self.preempted);
        if let Some(sequence) = sequences.find(|sequence| sequence.id == id) {
            sequence.tokens.extend_from_slice(tokens);
        }
    }

    /// A sequence that is waiting or running; the one that is read in its place if it is a sibling.
    pub fn get(&self, id: SequenceId) -> Option<&Sequence> {
        self.running.iter().chain(self.queued()).find(|sequence| sequence.ids().any(|other| other == id))
    }

    /// Whether there is nothing left to run.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.queued().next().is_none()
    }

    /// Sequences that run.
    pub fn num_running(&self) -> usize {
        self.running.iter().map(|sequence| sequence.ids().count()).sum()
    }

    /// Sequences that wait for room.
    pub fn num_waiting(&self) -> usize {
        self.queued().map(|sequence| sequence.ids().count()).sum()
    }

    /// Tokens that waiting sequences have to run before they can go on.
    pub fn queued_tokens(&self) -> usize {
        self.queued().map(Sequence::pending).sum()
    }

    /// How often a running sequence had to give its pages back.
    pub fn preemptions(&self) -> usize {
        self.preemptions
    }

    /// The cache, and how much of it is free.
    pub fn cache(&self) -> &KvCache {
        &self.cache
    }

    /// The sequences that gave their pages back since the last call: see [`KvCache::by_sequence`].
    pub(crate) fn take_released(&mut self) -> Vec<SequenceId> {
        self.cache.take_released()
    }

    /// The pages that sequences which begin alike share, if they do.
    pub(crate) fn prefixes_mut(&mut self) -> Option<&mut PrefixCache> {
        self.cache.prefixes_mut()
    }

    /// Forgets what pages hold: see [`KvCache::reset_prefixes`].
    pub fn reset_prefixes(&mut self) {
        self.cache.reset_prefixes();
    }

    /// Those that wait for room, in no order that means anything.
    fn queued(&self) -> impl Iterator<Item = &Sequence> {
        self.preempted.iter().chain(self.waiting.iter())
    }

    /// Starts the sequence that is next, if there is room for it and it has `few_enough` tokens to run.
    fn start_next(&mut self, few_enough: impl FnOnce(usize) -> bool) -> bool {
        if let Some(sequence) = self.preempted.front() {
            if !few_enough(sequence.pending()) {
                return false;
            }
            while !self.cache.start(&mut self.preempted[0]) {
                // If nothing runs, no other pages ever become free.
                if !self.running.is_empty() || !self.take_back(1) {
                    return false;
                }
            }
            self.running.extend(self.preempted.pop_front());
            return true;
        }
        let Some(index) = self.waiting.next() else { return false };
        let sequence = self.waiting.get_mut(index);
        let starts = few_enough(sequence.pending()) && self.cache.start(sequence);
        if starts {
            self.running.extend(self.waiting.start(index));
        }
        starts
    }

    /// Takes the pages of the last of those that wait with pages, but for the first `spared` that wait.
    fn take_back(&mut self, spared: usize) -> bool {
        let mut waiting = self.preempted.iter_mut().skip(spared);
        let Some(last) = waiting.rfind(|sequence| !sequence.pages.is_empty()) else { return false };
        self.cache.release(last);
        self.preemptions += 1;
        true
    }

    /// A decode step of those that still run, if the last plan was for one more, and each has one token to run.
    fn decode_again(&mut self) -> Option<Vec<usize>> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        let decode = !self.running.is_empty() && self.running.iter().all(Sequence::decodes);
        let ready = decode && self.running.iter_mut().all(|sequence| self.cache.prepare(sequence));
        ready.then(|| vec![1; self.running.len()])
    }

    /// Decides who runs, and gives the number of tokens for each of the first of those that run.
    fn plan(&mut self, prefill: usize) -> Vec<usize> {
        self.steps_left = 0;
        let mut counts = Vec::new();
        let decodes = self.running.iter().any(Sequence::decodes);
        let prefill = if decodes { prefill.max(1) } else { usize::MAX };
        let mut budget = Budget { tokens: self.limits.max_batch_tokens, prefill };
        self.plan_running(&mut counts, &mut budget);
        match self.batching {
            Batching::Continuous => self.start_beside(&mut counts, budget),
            Batching::Homogenous { pad_to_multiple_of } if self.running.is_empty() => {
                self.start_together(&mut counts, pad_to_multiple_of);
            }
            Batching::Homogenous { .. } => (),
        }
        self.reserve_steps(counts.len());
        counts
    }

    fn plan_running(&mut self, counts: &mut Vec<usize>, budget: &mut Budget) {
        while counts.len() < self.running.len() && budget.tokens > 0 {
            let next = counts.len();
            let count = self.cache.until_checkpoint(&self.running[next], budget.allows(&self.running[next]));
            if count == 0 {
                counts.push(0);
            } else if self.make_room(next, count) {
                budget.spend(&self.running[next], count);
                counts.push(count);
            }
        }
    }

    /// Starts those that wait, as long as there is room and budget. One that was just preempted finds no room
    /// until someone else has ended: an older sequence has taken some of what it needs.
    fn start_beside(&mut self, counts: &mut Vec<usize>, mut budget: Budget) {
        let mut prefilling = self.running.iter().filter(|sequence| !sequence.decodes()).count();
        while budget.tokens > 0
            && (budget.prefill > 0 || self.preempted.front().is_some_and(Sequence::decodes))
            && counts.len() == self.running.len()
            && self.running.len() < self.limits.max_cache_batch_size
            && prefilling < self.limits.max_ce_batch_size
            && self.start_next(|_| true)
        {
            let started = &self.running[counts.len()];
            let count = self.cache.until_checkpoint(started, budget.allows(started));
            budget.spend(started, count);
            counts.push(count);
            prefilling += usize::from(!started.decodes());
        }
    }

    /// Starts as many of those that wait as fit the budget when all are as long as the longest, and at least one.
    fn start_together(&mut self, counts: &mut Vec<usize>, multiple: usize) {
        let budget = self.limits.max_batch_tokens;
        let most = self.limits.max_cache_batch_size.min(self.limits.max_ce_batch_size);
        let mut longest = 0;
        while self.running.len() < most {
            let together = self.running.len() + 1;
            let fits = |pending: usize| {
                longest = pending.max(longest);
                together == 1 || padded(longest, multiple).saturating_mul(together) <= budget
            };
            if !self.start_next(fits) {
                break;
            }
        }
        counts.extend(self.running.iter().map(|sequence| sequence.pending().min(budget)));
    }

    /// Pads slices to a common length, as far as the budget and the room that each sequence has in the cache go.
    fn pad(&self, batch: &mut Batch, multiple: usize) {
        let longest = batch.slices.iter().map(|slice| slice.tokens.len()).max().unwrap_or(0);
        let share = self.limits.max_batch_tokens / batch.slices.len().max(1);
        // A longer slice leaves less for the others.
        let length = if longest > share { 0 } else { padded(longest, multiple).min(share) };
        for slice in &mut batch.slices {
            let room = slice.pages.len() * self.cache.page_size() - slice.cached;
            slice.padding = length.min(room).saturating_sub(slice.tokens.len());
        }
    }

    /// Grows the pages of `running[index]` for `count` more tokens, preempting newer sequences as needed. When
    /// even that is not enough, because `index` itself is the newest, it is preempted. Says whether it may run.
    fn make_room(&mut self, index: usize, count: usize) -> bool {
        loop {
            let sequence = &mut self.running[index];
            if self.cache.grow(sequence, sequence.cached + count) {
                return true;
            }
            if self.take_back(0) {
                continue;
            }
            let mut newest = self.running.pop().expect("running[index] exists");
            self.cache.release(&mut newest);
            self.preempted.push_front(newest);
            self.preemptions += 1;
            if index == self.running.len() {
                return false;
            }
        }
    }

    /// If all running sequences decode, and no waiting one can start: lends them the pages for as many further steps
    /// as allowed, wanted and free. Preempts no sequence for that.
    fn reserve_steps(&mut self, planned: usize) {
        let running = &mut self.running;
        if planned < running.len() || !running.iter().all(Sequence::decodes) {
            return;
        }
        let longest = running.iter().map(Sequence::remaining).max().unwrap_or(0);
        let mut steps = self.limits.max_num_steps.min(longest);
        let room = |sequence: &Sequence, steps: usize| sequence.cached + steps.min(sequence.remaining());
        let missing = |steps| running.iter().map(|s| self.cache.missing(s, room(s, steps))).sum::<usize>();
        while steps > 1 && missing(steps) > self.cache.num_free() {
            steps /= 2;
        }
        if steps < 2 {
            return;
        }
        for sequence in running {
            let grown = self.cache.grow(sequence, room(sequence, steps));
            debug_assert!(grown, "the pages that are missing were counted");
        }
        self.steps_left = steps - 1;
    }
}

/// What is left of a step's tokens.
struct Budget {
    tokens: usize,
    /// For sequences that do not decode.
    prefill: usize,
}

impl Budget {
    /// How many of a sequence's tokens may run.
    fn allows(&self, sequence: &Sequence) -> usize {
        let most = if sequence.decodes() { self.tokens } else { self.tokens.min(self.prefill) };
        sequence.pending().min(most)
    }

    fn spend(&mut self, sequence: &Sequence, count: usize) {
        self.tokens -= count;
        if !sequence.decodes() {
            self.prefill -= count;
        }
    }
}

/// The length to which prompts are padded of which the longest has `longest` tokens.
fn padded(longest: usize, multiple: usize) -> usize {
    if longest > 1 { longest.checked_next_multiple_of(multiple).unwrap_or(usize::MAX) } else { longest }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
