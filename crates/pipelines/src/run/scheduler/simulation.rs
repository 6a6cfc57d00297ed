//! The scheduler and its cache against a machine whose cache slots say what they hold: whatever comes when, whatever fails, and
//! however little room there is, each sequence gets what it would get alone.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use super::*;
use crate::run::kv_cache::PageCopy;

/// Tokens that the machine knows; few, so that texts often begin alike.
const VOCAB: u32 = 3;

/// What a slot holds, if the token there and all before it are those of `tokens`.
fn digest(before: u64, token: u32) -> u64 {
    (before ^ u64::from(token + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// The next token of a sequence, from the slots of all tokens so far.
fn predict(id: SequenceId, slots: impl Iterator<Item = u64>) -> u32 {
    let all = slots.fold(id.0, |sum, slot| sum.wrapping_mul(31).wrapping_add(slot));
    ((all >> 32) % u64::from(VOCAB)) as u32
}

/// What a prompt is continued with, alone.
fn continuation(id: SequenceId, prompt: &[u32], max_tokens: usize) -> Vec<u32> {
    let (mut tokens, mut slots, mut last) = (prompt.to_vec(), Vec::new(), 0);
    while tokens.len() < max_tokens {
        for &token in &tokens[slots.len()..] {
            last = digest(last, token);
            slots.push(last);
        }
        tokens.push(predict(id, slots.iter().copied()));
        tokens.extend(forced(id, &tokens, max_tokens));
    }
    tokens
}

/// Tokens that follow those of every other sequence in any case, as a grammar says.
fn forced(id: SequenceId, tokens: &[u32], max_tokens: usize) -> Vec<u32> {
    let forces = id.0.is_multiple_of(2) && tokens.last() == Some(&2);
    let count = if forces { max_tokens.saturating_sub(tokens.len()).min(5) } else { 0 };
    [0, 1, 2, 0, 0][..count].to_vec()
}

/// The state of a sequence of these tokens.
fn state_of(tokens: &[u32]) -> u64 {
    tokens.iter().fold(0, |before, &token| digest(before, token))
}

/// A cache of slots, the states of sequences, and a model that reads what it computes with from there.
struct Machine {
    page_size: usize,
    slots: Vec<u64>,
    states: Vec<u64>,
}

impl Machine {
    fn slot(&self, slice: &Slice, position: usize) -> usize {
        slice.pages[position / self.page_size] as usize * self.page_size + position % self.page_size
    }

    fn copy(&mut self, copies: &[PageCopy]) {
        for &PageCopy { from, to } in copies {
            let from = from as usize * self.page_size;
            self.slots.copy_within(from..from + self.page_size, to as usize * self.page_size);
        }
    }

    /// Stores all new tokens and the states after them, and only then looks at what is stored: as the kernels do.
    fn run(&mut self, batch: &Batch) -> Vec<u32> {
        for slice in &batch.slices {
            let padding = std::iter::repeat_n(VOCAB, slice.padding);
            for (position, token) in (slice.cached..).zip(slice.tokens.iter().copied().chain(padding)) {
                let before = position.checked_sub(1).map_or(0, |before| self.slots[self.slot(slice, before)]);
                let slot = self.slot(slice, position);
                self.slots[slot] = digest(before, token);
            }
            if !self.states.is_empty() {
                let before = if slice.cached == 0 { 0 } else { self.states[slice.state_from as usize] };
                let after = slice.tokens.iter().fold(before, |before, &token| digest(before, token));
                self.states[slice.state_to as usize] = after;
            }
        }
        let predict_all = |slice: &Slice| -> Vec<u32> {
            let seen = 0..slice.cached + slice.tokens.len();
            let stored: Vec<u64> = seen.map(|position| self.slots[self.slot(slice, position)]).collect();
            slice.ids().map(|id| predict(id, stored.iter().copied())).collect()
        };
        batch.slices.iter().filter(|slice| slice.predicts).flat_map(predict_all).collect()
    }

    /// Runs slices, whose pages were copied, and tells the scheduler.
    fn advance(&mut self, scheduler: &mut Scheduler, slices: Vec<Slice>) {
        let batch = Batch { slices, ..Batch::default() };
        self.check_states(&batch, scheduler);
        let predicted = self.run(&batch);
        scheduler.advance(&batch, &predicted);
    }

    /// Runs a step that fails and leaves anything where it writes.
    fn fail(&mut self, batch: &Batch) {
        for slice in &batch.slices {
            for position in slice.cached..slice.cached + slice.tokens.len() {
                let slot = self.slot(slice, position);
                self.slots[slot] = u64::MAX - position as u64;
            }
            if let Some(state) = self.states.get_mut(slice.state_to as usize) {
                *state = u64::MAX;
            }
        }
    }

    /// Checks that each slice reads the state after the tokens before it, and that no other slice writes what it reads or writes.
    fn check_states(&self, batch: &Batch, scheduler: &Scheduler) {
        if self.states.is_empty() {
            assert!(batch.slices.iter().all(|slice| (slice.state_from, slice.state_to) == (0, 0)));
            return;
        }
        let mut written = HashSet::new();
        for slice in &batch.slices {
            let tokens = &scheduler.get(slice.id).unwrap().tokens[..slice.cached];
            let state = self.states[slice.state_from as usize];
            assert!(tokens.is_empty() || state == state_of(tokens), "{:?} reads another state", slice.id);
            assert!(written.insert(slice.state_to), "{:?} writes where another does", slice.id);
        }
        let reads = |slice: &Slice| slice.cached > 0 && written.contains(&slice.state_from);
        assert!(!batch.slices.iter().any(reads), "a slot is read and written");
    }
}

/// A sequence, when it comes, and when it is cancelled if it is.
#[derive(Debug, Clone)]
struct Arrival {
    step: usize,
    /// How many others have the same prompt.
    siblings: usize,
    /// When one of them is cancelled, and which.
    cancelled: Option<(usize, usize)>,
    prompt: Vec<u32>,
    max_new: usize,
    salt: Option<&'static str>,
    tenant: Option<&'static str>,
    priority: i32,
    compute_all: bool,
}

#[derive(Debug, Clone, Copy)]
enum Sharing {
    Paged,
    Prefixes,
    Continuous,
    Naive(usize),
}

/// How a step fails.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// As a whole: it is tried again.
    All,
    /// As a whole, and its halves do not.
    Halves,
    /// Because of one of its slices.
    One(usize),
}

#[derive(Debug, Clone)]
struct Mix {
    strategy: Sharing,
    limits: Limits,
    page_size: usize,
    spare_pages: usize,
    /// Slots for states beyond those that the sequences need at once, and tokens between checkpoints; `None` of models without
    /// states.
    states: Option<(usize, usize)>,
    /// How steps fail, in turn.
    faults: Vec<Option<Fault>>,
    reset: usize,
    /// The limit of prefill tokens in each step that also decodes.
    prefill: Vec<usize>,
    arrivals: Vec<Arrival>,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let beginning = (0..3usize, 0..24usize).prop_map(|(text, len)| {
        // Three texts that everyone quotes, the third of which begins like the second.
        (0..len)
            .map(|i| if text == 2 && i > 9 { 1 } else { (i * (text.min(1) + 2) % 7) as u32 % VOCAB })
            .collect()
    });
    let prompt = (beginning, prop::collection::vec(0..VOCAB, 1..6))
        .prop_map(|(beginning, end): (Vec<u32>, Vec<u32>)| [beginning, end].concat());
    let siblings = prop_oneof![2 => Just(0), 1 => 1..5usize];
    let cancelled = prop::option::weighted(0.3, (0..20usize, 0..5usize));
    let salt = prop::sample::select(vec![None, None, Some("a"), Some("")]);
    let turn = (prop::sample::select(vec![None, None, Some("a"), Some("b")]), -1..2i32);
    let arrival =
        ((0..30usize, siblings), cancelled, prompt, 1..20usize, salt, turn, prop::bool::weighted(0.2))
            .prop_map(|((step, siblings), after, prompt, max_new, salt, (tenant, priority), compute_all)| {
                let cancelled = after.map(|(after, which)| (step + after, which % (siblings + 1)));
                Arrival { step, siblings, cancelled, prompt, max_new, salt, tenant, priority, compute_all }
            });
    prop::collection::vec(arrival, 1..12)
}

fn mixes() -> impl Strategy<Value = Mix> {
    let strategy = prop_oneof![
        1 => Just(Sharing::Paged),
        4 => Just(Sharing::Prefixes),
        1 => Just(Sharing::Continuous),
        1 => (1..9usize).prop_map(Sharing::Naive),
    ];
    let limits = (1..40usize, 1..6usize, 1..4usize, 1..6usize).prop_map(
        |(max_batch_tokens, max_cache_batch_size, max_ce_batch_size, max_num_steps)| Limits {
            max_batch_tokens,
            max_cache_batch_size,
            max_ce_batch_size,
            max_num_steps,
        },
    );
    let page_size = prop::sample::select(vec![1, 2, 4, 16]);
    let prefill = prop_oneof![Just(vec![usize::MAX]), prop::collection::vec(0..12usize, 1..9)];
    let fault = prop_oneof![Just(Fault::All), Just(Fault::Halves), (0..6usize).prop_map(Fault::One)];
    let faults = prop::collection::vec(prop::option::weighted(0.15, fault), 0..30);
    let room = (0..20usize, prop::option::weighted(0.7, (0..12usize, 1..20usize)));
    let steps = (0..120usize, faults, prefill);
    (strategy, limits, page_size, room, steps, arrivals()).prop_map(
        |(strategy, limits, page_size, (spare_pages, states), (reset, faults, prefill), arrivals)| Mix {
            strategy,
            limits,
            page_size,
            spare_pages,
            states,
            faults,
            reset,
            prefill,
            arrivals,
        },
    )
}

/// What happened in mixes.
#[derive(Debug, Default)]
struct Counts {
    preemptions: usize,
    /// Tokens of prompts that did not have to run, of models without and with states.
    cached_tokens: [u64; 2],
    /// Checkpoints that were left at the end.
    checkpoints: usize,
    failed: usize,
}

impl Mix {
    /// A scheduler whose cache has room for the longest sequence, and a little more.
    fn scheduler(&self) -> Scheduler {
        let longest = self.arrivals.iter().map(|a| a.prompt.len() + a.max_new).max().unwrap();
        let padded = match self.strategy {
            Sharing::Naive(multiple) => longest.next_multiple_of(multiple),
            _ => longest,
        };
        let num_pages = padded.div_ceil(self.page_size) + self.spare_pages;
        let (batching, cache) = match self.strategy {
            Sharing::Paged => (Batching::Continuous, KvCache::paged(num_pages, self.page_size)),
            Sharing::Prefixes => {
                (Batching::Continuous, KvCache::with_prefix_caching(num_pages, self.page_size))
            }
            Sharing::Continuous => (Batching::Continuous, KvCache::slots(num_pages, self.page_size, longest)),
            Sharing::Naive(pad_to_multiple_of) => (
                Batching::Homogenous { pad_to_multiple_of },
                KvCache::slots(num_pages, self.page_size, padded),
            ),
        };
        let cache = match self.states {
            Some((spare, interval)) => {
                let needed = SLOTS_PER_SEQUENCE * self.limits.max_cache_batch_size;
                cache.with_states(needed + spare).with_checkpoint_interval(interval)
            }
            None => cache,
        };
        Scheduler::new(self.limits, batching, cache)
    }

    /// Runs a batch as the generator does. Gives the sequences of the slice that fails, if one does.
    fn run(
        &self,
        step: usize,
        machine: &mut Machine,
        scheduler: &mut Scheduler,
        mut batch: Batch,
    ) -> Vec<SequenceId> {
        machine.copy(&std::mem::take(&mut batch.copies));
        let Some(fault) = self.faults.get(step % (self.faults.len() + 1)).copied().flatten() else {
            machine.advance(scheduler, batch.slices);
            return Vec::new();
        };
        machine.fail(&batch);
        let mut slices = batch.slices;
        match fault {
            _ if slices.is_empty() => Vec::new(),
            Fault::All => Vec::new(),
            Fault::Halves => {
                let half = slices.split_off(slices.len() / 2);
                [slices, half].into_iter().for_each(|slices| machine.advance(scheduler, slices));
                Vec::new()
            }
            Fault::One(index) => {
                let failed = slices.remove(index % slices.len());
                machine.advance(scheduler, slices);
                failed.ids().collect()
            }
        }
    }

    /// `started` follows those that stand for their siblings from now on.
    fn add_and_cancel(&self, step: usize, scheduler: &mut Scheduler, started: &mut [SequenceId]) {
        for (index, arrival) in self.arrivals.iter().enumerate() {
            let ids: Vec<SequenceId> = arrival.ids(index).collect();
            if arrival.step == step {
                let max_tokens = arrival.prompt.len() + arrival.max_new;
                let mut sequence = Sequence::new(ids[0], arrival.prompt.clone(), max_tokens);
                sequence.siblings = ids[1..].to_vec();
                sequence.cache_salt = arrival.salt.map(Into::into);
                sequence.compute_all = arrival.compute_all;
                sequence.tenant = arrival.tenant.map(Into::into);
                sequence.priority = arrival.priority;
                scheduler.add(sequence).unwrap();
            }
            let Some((_, which)) = arrival.cancelled.filter(|&(when, _)| when == step) else { continue };
            let next = scheduler.get(ids[which]).and_then(|s| s.siblings.first().copied());
            scheduler.remove(ids[which]);
            for place in started.iter_mut().filter(|id| **id == ids[which]) {
                *place = next.unwrap_or(*place);
            }
        }
    }

    fn check(&self, counts: &mut Counts) {
        let mut scheduler = self.scheduler();
        let slots = vec![u64::MAX; scheduler.cache().num_pages() * self.page_size];
        let states = vec![u64::MAX; scheduler.cache().num_state_slots()];
        let mut machine = Machine { page_size: self.page_size, slots, states };
        let mut finished: HashMap<SequenceId, Vec<u32>> = HashMap::new();
        let mut failed: HashSet<SequenceId> = HashSet::new();
        let mut started: Vec<SequenceId> = Vec::new();
        for step in 0.. {
            assert!(step < 4000, "it never ends");
            self.add_and_cancel(step, &mut scheduler, &mut started);
            if step == self.reset {
                scheduler.reset_prefixes();
            }
            if scheduler.is_idle() && self.arrivals.iter().all(|arrival| arrival.step < step) {
                break;
            }
            let prefill = self.prefill[step % self.prefill.len()];
            let decodes = scheduler.running.iter().any(Sequence::decodes);
            let batch = scheduler.schedule_beside_decodes(prefill);
            let beside = batch.slices.iter().filter(|slice| !scheduler.get(slice.id).unwrap().decodes());
            let beside: usize = beside.map(|slice| slice.tokens.len()).sum();
            assert!(!decodes || beside <= prefill.max(1), "who decodes waits for no more than that");
            let first = scheduler.running.first().map(|sequence| sequence.id);
            assert_eq!(batch.slices.first().map(|slice| slice.id), first, "the first runs in every step");
            assert!(batch.slices.iter().all(|slice| !slice.tokens.is_empty()), "each that runs gets further");
            let going: Vec<SequenceId> =
                scheduler.running.iter().chain(&scheduler.preempted).map(|sequence| sequence.id).collect();
            let new: Vec<SequenceId> = going.iter().filter(|id| !started.contains(id)).copied().collect();
            started.extend(new);
            let order = |id: &SequenceId| started.iter().position(|other| other == id);
            assert!(going.iter().map(order).is_sorted(), "those that started first are first");
            assert!(batch.num_tokens() <= self.limits.max_batch_tokens);
            assert!(batch.slices.len() <= self.limits.max_cache_batch_size);
            let predicting: Vec<SequenceId> = batch.predicting().collect();
            for id in self.run(step, &mut machine, &mut scheduler, batch) {
                scheduler.remove(id);
                failed.insert(id);
            }
            for id in predicting {
                // A sequence may have failed, and one whose step did not run has no new token.
                let grew = scheduler.get(id).filter(|sequence| sequence.decodes());
                let forced = grew.map(|sequence| forced(id, &sequence.tokens, sequence.max_tokens));
                scheduler.append(id, &forced.unwrap_or_default());
                if scheduler.get(id).is_some_and(|sequence| sequence.remaining() == 0) {
                    finished.insert(id, scheduler.remove(id).unwrap().tokens);
                }
            }
        }
        let cache = scheduler.cache();
        assert_eq!(cache.num_free(), cache.num_pages(), "all pages come back");
        assert_eq!(cache.num_free_state_slots(), cache.num_state_slots(), "all slots come back");
        counts.preemptions += scheduler.preemptions();
        counts.cached_tokens[usize::from(self.states.is_some())] += cache.prefix_stats().cached_tokens;
        counts.checkpoints += cache.num_cached_state_slots();
        counts.failed += failed.len();
        for (index, arrival) in self.arrivals.iter().enumerate() {
            for (sibling, id) in arrival.ids(index).enumerate() {
                let Some(tokens) = finished.get(&id) else {
                    let cancelled = arrival.cancelled.is_some_and(|(_, which)| which == sibling);
                    assert!(cancelled || failed.contains(&id), "{id:?} was lost");
                    continue;
                };
                let expected = continuation(id, &arrival.prompt, arrival.prompt.len() + arrival.max_new);
                assert_eq!(*tokens, expected, "{id:?}");
            }
        }
    }
}

impl Arrival {
    /// The names of the sequence and its siblings.
    fn ids(&self, index: usize) -> impl Iterator<Item = SequenceId> + use<> {
        (0..=self.siblings as u64).map(move |sibling| SequenceId(10 * index as u64 + sibling))
    }
}

#[test]
fn each_sequence_gets_what_it_gets_alone() {
    let config = Config { cases: 4000, failure_persistence: None, ..Config::default() };
    let counts = RefCell::new(Counts::default());
    let check = |mix: Mix| {
        mix.check(&mut counts.borrow_mut());
        Ok(())
    };
    match TestRunner::new(config).run(&mixes(), check) {
        Err(TestError::Fail(reason, mix)) => panic!("{reason}\n{mix:#?}"),
        result => result.unwrap(),
    }
    let Counts { preemptions, cached_tokens: [without, with], checkpoints, failed } = counts.into_inner();
    let least = [preemptions, without as usize, with as usize, checkpoints, failed].into_iter().min();
    assert!(
        least > Some(1000),
        "{preemptions} {without} {with} {checkpoints} {failed}: the mixes show little"
    );
}
