//! The scheduler and its cache against a machine whose cache slots say what they hold: whatever comes when, and
//! however little room there is, each sequence gets what it would get alone.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::kv_cache::PageCopy;

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
    }
    tokens
}

/// A cache of slots, and a model that reads what it computes with from there.
struct Machine {
    page_size: usize,
    slots: Vec<u64>,
}

impl Machine {
    fn slot(&self, slice: &Slice, position: usize) -> usize {
        slice.pages[position / self.page_size] as usize * self.page_size + position % self.page_size
    }

    /// Copies, stores all new tokens, and only then looks at what is stored: as the kernels do.
    fn run(&mut self, batch: &Batch) -> Vec<u32> {
        for &PageCopy { from, to } in &batch.copies {
            let from = from as usize * self.page_size;
            self.slots.copy_within(from..from + self.page_size, to as usize * self.page_size);
        }
        for slice in &batch.slices {
            let padding = std::iter::repeat_n(VOCAB, slice.padding);
            for (position, token) in (slice.cached..).zip(slice.tokens.iter().copied().chain(padding)) {
                let before = position.checked_sub(1).map_or(0, |before| self.slots[self.slot(slice, before)]);
                let slot = self.slot(slice, position);
                self.slots[slot] = digest(before, token);
            }
        }
        let predict_all = |slice: &Slice| -> Vec<u32> {
            let seen = 0..slice.cached + slice.tokens.len();
            let stored: Vec<u64> = seen.map(|position| self.slots[self.slot(slice, position)]).collect();
            slice.ids().map(|id| predict(id, stored.iter().copied())).collect()
        };
        batch.slices.iter().filter(|slice| slice.predicts).flat_map(predict_all).collect()
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

#[derive(Debug, Clone)]
struct Mix {
    strategy: Sharing,
    limits: Limits,
    page_size: usize,
    spare_pages: usize,
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
    (strategy, limits, page_size, 0..20usize, 0..120usize, prefill, arrivals()).prop_map(
        |(strategy, limits, page_size, spare_pages, reset, prefill, arrivals)| Mix {
            strategy,
            limits,
            page_size,
            spare_pages,
            reset,
            prefill,
            arrivals,
        },
    )
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
        Scheduler::new(self.limits, batching, cache)
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

    fn check(&self) {
        let mut scheduler = self.scheduler();
        let slots = vec![u64::MAX; scheduler.cache().num_pages() * self.page_size];
        let mut machine = Machine { page_size: self.page_size, slots };
        let mut finished: HashMap<SequenceId, Vec<u32>> = HashMap::new();
        let mut started: Vec<SequenceId> = Vec::new();
        for step in 0.. {
            assert!(step < 2000, "it never ends");
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
            let predicted = machine.run(&batch);
            scheduler.advance(&batch, &predicted);
            for id in batch.predicting() {
                if scheduler.get(id).unwrap().remaining() == 0 {
                    finished.insert(id, scheduler.remove(id).unwrap().tokens);
                }
            }
        }
        assert_eq!(scheduler.cache().num_free(), scheduler.cache().num_pages(), "all pages come back");
        for (index, arrival) in self.arrivals.iter().enumerate() {
            for (sibling, id) in arrival.ids(index).enumerate() {
                let Some(tokens) = finished.get(&id) else {
                    let cancelled = arrival.cancelled.is_some_and(|(_, which)| which == sibling);
                    assert!(cancelled, "{id:?} was lost");
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_sequence_gets_what_it_gets_alone(mix in mixes()) {
        mix.check();
    }
}
