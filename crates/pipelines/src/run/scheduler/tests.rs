//! The scheduler as a script: sequences in, batches out.

use super::*;
use crate::run::kv_cache::PageCopy;

/// Limits that bind nothing but the tokens of a step.
fn limits(max_batch_tokens: usize) -> Limits {
    Limits { max_batch_tokens, max_cache_batch_size: 64, max_ce_batch_size: 64, max_num_steps: 1 }
}

fn continuous(limits: Limits, cache: KvCache) -> Scheduler {
    Scheduler::new(limits, Batching::Continuous, cache)
}

fn naive(limits: Limits, cache: KvCache, pad_to_multiple_of: usize) -> Scheduler {
    Scheduler::new(limits, Batching::Homogenous { pad_to_multiple_of }, cache)
}

/// A sequence whose tokens are all different from each other and from those of other sequences.
fn distinct(id: u64, prompt: usize, max_tokens: usize) -> Sequence {
    let tokens = (0..prompt as u32).map(|i| 1000 * (id as u32 + 1) + i).collect();
    Sequence::new(SequenceId(id), tokens, max_tokens)
}

/// What happens before a step.
enum Command {
    Add(Box<Sequence>),
    Cancel(u64),
}

/// A script in the making: what was commanded when, and what ran.
struct Script {
    scheduler: Scheduler,
    commands: Vec<(usize, Command)>,
    steps: Vec<String>,
    copies: Vec<PageCopy>,
    /// The limit of prefill tokens in steps that also decode.
    prefill: usize,
}

impl Script {
    /// Sequences of `(prompt, max_tokens)`, all there from the start.
    fn new(scheduler: Scheduler, sequences: &[(usize, usize)]) -> Script {
        let add = |(id, &(prompt, max_tokens)): (usize, &(usize, usize))| {
            (0, Command::Add(Box::new(distinct(id as u64, prompt, max_tokens))))
        };
        let commands = sequences.iter().enumerate().map(add).collect();
        Script { scheduler, commands, steps: Vec::new(), copies: Vec::new(), prefill: usize::MAX }
    }

    /// Before step `step`, counted from 0.
    fn at(mut self, step: usize, command: Command) -> Script {
        self.commands.push((step, command));
        self
    }

    /// Steps until nothing is left to do. The token predicted is always 9; sequences end at `max_tokens`.
    fn run(mut self) -> Script {
        while !self.scheduler.is_idle() || !self.commands.is_empty() {
            let now = self.steps.len();
            let (due, later) = self.commands.drain(..).partition(|&(step, _)| step <= now);
            self.commands = later;
            let due: Vec<(usize, Command)> = due;
            for (_, command) in due {
                match command {
                    Command::Add(sequence) => self.scheduler.add(*sequence).unwrap(),
                    Command::Cancel(id) => drop(self.scheduler.remove(SequenceId(id)).unwrap()),
                }
            }
            self.step();
        }
        let cache = self.scheduler.cache();
        assert_eq!(cache.num_free(), cache.num_pages(), "all pages come back");
        assert_eq!(cache.num_free_state_slots(), cache.num_state_slots(), "all slots come back");
        self
    }

    fn step(&mut self) {
        let Limits { max_batch_tokens, max_cache_batch_size, .. } = self.scheduler.limits;
        let batch = self.scheduler.schedule_beside_decodes(self.prefill);
        assert!(!batch.is_empty() || self.scheduler.is_idle(), "no progress after {:?}", self.steps);
        assert!(batch.num_tokens() <= max_batch_tokens && batch.slices.len() <= max_cache_batch_size);
        self.steps.push(batch.slices.iter().map(print).collect::<Vec<_>>().join(" "));
        self.copies.extend(&batch.copies);
        let predicting: Vec<SequenceId> = batch.predicting().collect();
        self.scheduler.advance(&batch, &vec![9; predicting.len()]);
        for id in predicting {
            let sequence = self.scheduler.get(id).unwrap();
            if sequence.tokens.len() >= sequence.max_tokens {
                self.scheduler.remove(id);
            }
        }
    }

    #[track_caller]
    fn prints(self, expected: &str) -> Script {
        let lines: Vec<&str> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(self.steps, lines);
        self
    }
}

/// `id:cached+count`, with `~n` for n rows of padding, and `!` where the next token is predicted.
fn print(slice: &Slice) -> String {
    let padding = if slice.padding > 0 { format!("~{}", slice.padding) } else { String::new() };
    let predicts = if slice.predicts { "!" } else { "" };
    format!("{}:{}+{}{padding}{predicts}", slice.id.0, slice.cached, slice.tokens.len())
}

/// Steps in which one sequence decodes alone, from `cached` tokens to the end of `range`.
fn alone(id: u64, cached: std::ops::Range<usize>) -> String {
    cached.map(|n| format!("{id}:{n}+1!")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_prompt_is_prefilled_then_decoded() {
    let scheduler = continuous(limits(8), KvCache::paged(4, 16));
    Script::new(scheduler, &[(5, 7)]).run().prints("0:0+5!\n0:5+1!");
}

#[test]
fn long_prompts_run_in_chunks_beside_decoding_ones() {
    let scheduler = continuous(limits(4), KvCache::paged(8, 16));
    Script::new(scheduler, &[(2, 5), (7, 8)]).run().prints(
        "0:0+2! 1:0+2
         0:2+1! 1:2+3
         0:3+1! 1:5+2!",
    );
}

#[test]
fn no_more_sequences_than_allowed() {
    let limits = Limits { max_cache_batch_size: 1, ..limits(8) };
    let scheduler = continuous(limits, KvCache::paged(8, 16));
    Script::new(scheduler, &[(2, 4), (2, 3)]).run().prints("0:0+2!\n0:2+1!\n1:0+2!");
}

#[test]
fn no_more_prompts_in_a_step_than_allowed() {
    let limits = Limits { max_ce_batch_size: 2, ..limits(8) };
    let scheduler = continuous(limits, KvCache::paged(8, 16));
    Script::new(scheduler, &[(2, 5), (2, 5), (2, 4), (9, 10)]).run().prints(
        "0:0+2! 1:0+2!
         0:2+1! 1:2+1! 2:0+2! 3:0+4
         0:3+1! 1:3+1! 2:2+1! 3:4+5!",
    );
}

#[test]
fn the_newest_gives_its_pages_to_the_oldest() {
    // Three pages of 16: both start with one, sequence 0 takes the third at 17 tokens, and 1 must yield
    // when it wants a second as well. It then waits until 0 is done, and runs all its tokens again.
    let scheduler = continuous(limits(64), KvCache::paged(3, 16));
    let script = Script::new(scheduler, &[(16, 35), (16, 18)]).run();
    assert_eq!(script.scheduler.preemptions(), 1);
    script.prints(&format!("0:0+16! 1:0+16!\n0:16+1!\n{}\n1:0+17!", alone(0, 17..34)));
}

#[test]
fn what_never_fits_is_refused() {
    let mut scheduler = continuous(limits(8), KvCache::paged(2, 16));
    let error = scheduler.add(distinct(0, 1, 34)).unwrap_err();
    assert_eq!(error, TooLong { max_tokens: 34, capacity: 32 });
    assert!(scheduler.add(distinct(1, 1, 33)).is_ok());
    // A slot is all that a sequence ever gets.
    let mut scheduler = continuous(limits(8), KvCache::slots(4, 16, 20));
    assert_eq!(scheduler.add(distinct(0, 1, 34)), Err(TooLong { max_tokens: 34, capacity: 32 }));
}

#[test]
fn aborting_frees_pages_at_once() {
    let mut scheduler = continuous(limits(8), KvCache::paged(2, 16));
    scheduler.add(distinct(0, 2, 9)).unwrap();
    let batch = scheduler.schedule();
    assert_eq!(scheduler.cache().num_free(), 1);
    assert!(scheduler.remove(SequenceId(0)).is_some());
    assert_eq!(scheduler.cache().num_free(), 2);
    scheduler.advance(&batch, &[3]);
    assert!(scheduler.is_idle() && scheduler.schedule().is_empty());
}

#[test]
fn a_slot_is_claimed_whole_and_never_taken_away() {
    // Two slots of two pages each: the third waits for the end of the first, however few tokens all have.
    let scheduler = continuous(limits(64), KvCache::slots(5, 16, 20));
    let mut script = Script::new(scheduler, &[(2, 4), (3, 20), (2, 3)]);
    script.scheduler.add(distinct(3, 1, 20)).unwrap();
    let batch = script.scheduler.schedule();
    assert_eq!(batch.slices[0].pages, [0, 1]);
    assert_eq!(script.scheduler.cache().num_free(), 2);
    script.scheduler.remove(SequenceId(3));
    assert_eq!(script.scheduler.cache().num_free(), 4);
    let script = script.run();
    assert_eq!(script.scheduler.preemptions(), 0);
    script.prints(&format!(
        "0:0+2! 1:0+3!
         0:2+1! 1:3+1!
         1:4+1! 2:0+2!
         {}",
        alone(1, 5..19)
    ));
}

#[test]
fn naive_batches_run_to_completion_together() {
    // Sequence 3 fits the third step, as 1 has ended, and still waits for 0. It was there from the start, and 4
    // is only there later; they share the next batch all the same.
    let limits = Limits { max_cache_batch_size: 3, ..limits(64) };
    let scheduler = naive(limits, KvCache::slots(3, 16, 16), 4);
    Script::new(scheduler, &[(5, 8), (2, 3), (1, 3), (1, 2)])
        .at(1, Command::Add(Box::new(distinct(4, 3, 4))))
        .run()
        .prints(
            "0:0+5~3! 1:0+2~6! 2:0+1~7!
             0:5+1! 2:1+1!
             0:6+1!
             3:0+1~3! 4:0+3~1!",
        );
}

#[test]
fn naive_prompts_of_one_token_are_not_padded() {
    let scheduler = naive(limits(64), KvCache::slots(4, 16, 16), 8);
    Script::new(scheduler, &[(1, 3), (1, 2)]).run().prints("0:0+1! 1:0+1!\n0:1+1!");
}

#[test]
fn naive_padding_counts_against_the_budget() {
    // Three prompts padded to 4 are 12 rows, of which 11 are allowed.
    let scheduler = naive(limits(11), KvCache::slots(4, 16, 16), 4);
    Script::new(scheduler, &[(1, 2), (2, 3), (3, 4)]).run().prints("0:0+1~3! 1:0+2~2!\n2:0+3~1!");
    // A prompt beyond the budget runs alone, in chunks.
    let scheduler = naive(limits(5), KvCache::slots(4, 16, 16), 4);
    Script::new(scheduler, &[(11, 12), (1, 2)]).run().prints("0:0+5\n0:5+5\n0:10+1!\n1:0+1!");
    let scheduler = naive(limits(6), KvCache::slots(4, 16, 16), 4);
    Script::new(scheduler, &[(9, 10), (1, 2)]).run().prints("0:0+6\n0:6+3~1!\n1:0+1!");
}

#[test]
fn tokens_that_follow_in_any_case_are_not_padded_beyond_the_budget() {
    let mut scheduler = naive(limits(7), KvCache::slots(2, 16, 16), 1);
    scheduler.add(distinct(0, 1, 9)).unwrap();
    scheduler.add(distinct(1, 1, 9)).unwrap();
    let batch = scheduler.schedule();
    scheduler.advance(&batch, &[9, 9]);
    scheduler.append(SequenceId(0), &[1, 2, 3]);
    let slices = |batch: &Batch| batch.slices.iter().map(print).collect::<Vec<_>>().join(" ");
    let batch = scheduler.schedule();
    assert_eq!(slices(&batch), "0:1+4! 1:1+1!");
    scheduler.advance(&batch, &[9, 9]);
    scheduler.append(SequenceId(0), &[1, 2]);
    assert_eq!(slices(&scheduler.schedule()), "0:5+3! 1:2+1~2!");
}

#[test]
fn naive_padding_stays_in_the_slot() {
    let scheduler = naive(limits(256), KvCache::slots(2, 16, 16), 64);
    Script::new(scheduler, &[(10, 11), (3, 4)]).run().prints("0:0+10~6! 1:0+3~13!");
}

#[test]
fn several_decode_steps_follow_each_other() {
    // The plan of step 1 is for four decode steps. Sequence 2 comes meanwhile and waits for their end; sequence 1
    // ends in the middle and gives its page back at once.
    let limits = Limits { max_num_steps: 4, ..limits(64) };
    let scheduler = continuous(limits, KvCache::paged(8, 16));
    let script =
        Script::new(scheduler, &[(2, 9), (3, 6)]).at(2, Command::Add(Box::new(distinct(2, 1, 3)))).run();
    script.prints(
        "0:0+2! 1:0+3!
         0:2+1! 1:3+1!
         0:3+1! 1:4+1!
         0:4+1!
         0:5+1!
         0:6+1! 2:0+1!
         0:7+1! 2:1+1!",
    );
}

#[test]
fn pages_for_all_decode_steps_are_reserved() {
    let limits = Limits { max_num_steps: 40, ..limits(64) };
    let mut scheduler = continuous(limits, KvCache::paged(4, 16));
    scheduler.add(distinct(0, 2, 100)).unwrap_err();
    scheduler.add(distinct(0, 2, 60)).unwrap();
    let free_after_step = |scheduler: &mut Scheduler| {
        let batch = scheduler.schedule();
        scheduler.advance(&batch, &[9]);
        scheduler.cache().num_free()
    };
    // Positions 2 to 41 take three pages.
    assert_eq!([1, 2, 3].map(|_| free_after_step(&mut scheduler)), [3, 1, 1]);
    assert!(scheduler.remove(SequenceId(0)).is_some());
    assert_eq!(scheduler.cache().num_free(), 4);
    // Two that would need four pages more have two: they take as many steps as those hold, and preempt no other.
    scheduler.add(distinct(1, 16, 50)).unwrap();
    scheduler.add(distinct(2, 16, 50)).unwrap();
    for _ in 0..12 {
        let batch = scheduler.schedule();
        assert_eq!(batch.slices.len(), 2);
        scheduler.advance(&batch, &[9, 9]);
    }
    assert_eq!((scheduler.cache().num_free(), scheduler.preemptions()), (0, 0));
}

#[test]
fn cancelling_ends_decode_steps_early() {
    let limits = Limits { max_num_steps: 8, ..limits(64) };
    let scheduler = continuous(limits, KvCache::paged(8, 16));
    Script::new(scheduler, &[(2, 12), (2, 12)])
        .at(2, Command::Add(Box::new(distinct(2, 2, 4))))
        .at(3, Command::Cancel(0))
        .at(4, Command::Cancel(1))
        .run()
        .prints(
            "0:0+2! 1:0+2!
             0:2+1! 1:2+1!
             0:3+1! 1:3+1!
             1:4+1!
             2:0+2!
             2:2+1!",
        );
}

/// Sequences of one token each that start one a step, in their order of `(tenant, priority)`.
fn starts(sequences: &[(&str, i32)]) -> Vec<u64> {
    let mut scheduler = continuous(Limits { max_cache_batch_size: 1, ..limits(8) }, KvCache::paged(8, 16));
    for (id, &(tenant, priority)) in sequences.iter().enumerate() {
        let tenant = (!tenant.is_empty()).then(|| tenant.into());
        scheduler.add(Sequence { tenant, priority, ..distinct(id as u64, 1, 2) }).unwrap();
    }
    let mut order = Vec::new();
    while !scheduler.is_idle() {
        let batch = scheduler.schedule();
        scheduler.advance(&batch, &[9]);
        order.push(batch.slices[0].id.0);
        scheduler.remove(batch.slices[0].id);
    }
    order
}

#[test]
fn tenants_take_turns() {
    assert_eq!(starts(&[("a", 0), ("a", 0), ("a", 0), ("b", 0), ("", 0), ("b", 0)]), [0, 3, 4, 1, 5, 2]);
}

#[test]
fn low_priority_numbers_start_first_among_those_of_a_tenant() {
    assert_eq!(starts(&[("a", 5), ("a", 0), ("b", 9), ("a", -1), ("a", 0)]), [3, 2, 1, 4, 0]);
}

#[test]
fn none_is_passed_more_often_than_allowed() {
    let mut sequences = vec![("a", 1), ("a", 2)];
    sequences.extend([("a", 0); 200]);
    let order = starts(&sequences);
    let place = |id| order.iter().position(|&other| other == id).unwrap();
    assert_eq!((place(0), place(1)), (MAX_PASSES, MAX_PASSES + 1));
}

#[test]
fn the_preempted_go_on_before_others_start() {
    // As above, where 1 is preempted by 0 at 17 tokens; 2 of another tenant would fit all the time, and waits for 1.
    let scheduler = continuous(limits(64), KvCache::paged(3, 16));
    let other = Sequence { tenant: Some("a".into()), ..distinct(2, 1, 2) };
    let script = Script::new(scheduler, &[(16, 35), (16, 18)]).at(2, Command::Add(Box::new(other))).run();
    script.prints(&format!("0:0+16! 1:0+16!\n0:16+1!\n{}\n1:0+17! 2:0+1!", alone(0, 17..34)));
}

#[test]
fn few_prompt_tokens_run_beside_those_that_decode() {
    // Nothing decodes in the first step, and nothing in the last two.
    let scheduler = continuous(limits(64), KvCache::paged(8, 16));
    let script = Script::new(scheduler, &[(20, 24)]).at(1, Command::Add(Box::new(distinct(1, 40, 41))));
    Script { prefill: 3, ..script }.run().prints(
        "0:0+20!
         0:20+1! 1:0+3
         0:21+1! 1:3+3
         0:22+1! 1:6+3
         1:9+31!",
    );
}

#[test]
fn prompts_get_a_token_a_step_however_slow_decoding_is() {
    let scheduler = continuous(limits(64), KvCache::paged(8, 16));
    let script = Script::new(scheduler, &[(1, 5)])
        .at(1, Command::Add(Box::new(distinct(1, 2, 3))))
        .at(1, Command::Add(Box::new(distinct(2, 2, 3))));
    Script { prefill: 0, ..script }.run().prints(
        "0:0+1!
         0:1+1! 1:0+1
         0:2+1! 1:1+1!
         0:3+1! 2:0+1
         2:1+1!",
    );
}

/// A sequence with siblings of the next numbers.
fn with_siblings(sequence: Sequence, count: u64) -> Sequence {
    let first = sequence.id.0;
    Sequence { siblings: (first + 1..=first + count).map(SequenceId).collect(), ..sequence }
}

#[test]
fn siblings_read_their_prompt_once_and_share_its_pages() {
    // 20 tokens are two pages, of which the second is copied for each of the others.
    let mut scheduler = continuous(limits(16), KvCache::paged(8, 16));
    scheduler.add(with_siblings(distinct(0, 20, 22), 2)).unwrap();
    let script = Script::new(scheduler, &[]);
    let script = Script { prefill: 1, ..script }.run();
    let copy = |to| PageCopy { from: 1, to };
    assert_eq!(script.copies, [copy(2), copy(3)]);
    script.prints("0:0+16\n0:16+4!\n0:20+1! 1:20+1! 2:20+1!");
    // A prompt that fills its pages needs no copies.
    let mut scheduler = continuous(limits(64), KvCache::paged(8, 16));
    scheduler.add(with_siblings(distinct(0, 16, 18), 1)).unwrap();
    let script = Script::new(scheduler, &[]).run();
    assert!(script.copies.is_empty());
    script.prints("0:0+16!\n0:16+1! 1:16+1!");
}

#[test]
fn siblings_wait_with_their_pages_and_give_them_back_first() {
    // One place: the others wait with the pages, and the last of them takes the page that is left to it as its own.
    let limits = Limits { max_cache_batch_size: 1, ..limits(64) };
    let mut scheduler = continuous(limits, KvCache::paged(3, 16));
    scheduler.add(with_siblings(distinct(0, 20, 23), 2)).unwrap();
    let script = Script::new(scheduler, &[]).run();
    assert_eq!((script.scheduler.preemptions(), script.copies.len()), (0, 1));
    script.prints("0:0+20!\n0:20+1!\n0:21+1!\n1:20+1!\n1:21+1!\n2:20+1!\n2:21+1!");
    // An older one needs pages: siblings that wait give theirs back first, and read all their tokens again.
    let limits = Limits { max_cache_batch_size: 2, ..limits };
    let mut scheduler = continuous(limits, KvCache::paged(3, 16));
    scheduler.add(distinct(9, 15, 19)).unwrap();
    scheduler.add(with_siblings(distinct(0, 20, 24), 1)).unwrap();
    let script = Script::new(scheduler, &[]).run();
    assert_eq!(script.scheduler.preemptions(), 2);
    script.prints(
        "9:0+15! 0:0+20!
         9:15+1! 0:20+1!
         9:16+1!
         9:17+1!
         0:0+22!
         0:22+1!
         1:0+21!
         1:21+1!
         1:22+1!",
    );
}

#[test]
fn siblings_without_shared_pages_run_by_themselves() {
    let mut scheduler = continuous(limits(64), KvCache::slots(4, 16, 16));
    scheduler.add(with_siblings(distinct(0, 4, 5), 2)).unwrap();
    assert_eq!((scheduler.num_waiting(), scheduler.queued_tokens()), (3, 12));
    Script::new(scheduler, &[]).run().prints("0:0+4! 1:0+4! 2:0+4!");
}

#[test]
fn a_sibling_that_is_cancelled_leaves_the_others() {
    for cancelled in 0..3 {
        let mut scheduler = continuous(limits(4), KvCache::paged(8, 16));
        scheduler.add(with_siblings(distinct(0, 6, 8), 2)).unwrap();
        let script = Script::new(scheduler, &[]).at(1, Command::Cancel(cancelled)).run();
        let left: Vec<u64> = (0..3).filter(|&id| id != cancelled).collect();
        let (one, other) = (left[0], left[1]);
        script.prints(&format!("0:0+4\n{one}:4+2!\n{one}:6+1! {other}:6+1!"));
    }
}

#[test]
fn slices_end_where_states_are_kept() {
    let limits = Limits { max_cache_batch_size: 2, ..limits(64) };
    let cache = KvCache::with_prefix_caching(16, 16).with_states(8).with_checkpoint_interval(48);
    // The second prompt begins as the first does, whose answer passes a border meanwhile.
    let next = Sequence { id: SequenceId(1), ..distinct(0, 70, 72) };
    let other = Sequence { id: SequenceId(2), ..distinct(0, 60, 61) };
    let script = Script::new(continuous(limits, cache), &[(40, 51)])
        .at(12, Command::Add(Box::new(next)))
        .at(16, Command::Add(Box::new(other)));
    script.run().prints(&format!(
        "0:0+32\n0:32+8!\n{}
         1:32+16
         1:48+16
         1:64+6!
         1:70+1!
         2:48+12!",
        alone(0, 40..50)
    ));
}

#[test]
fn a_preempted_sequence_goes_on_from_its_deepest_checkpoint() {
    // Sequence 1 yields at 33 tokens, having kept the states of two pages. Sequence 0 takes the second of these later.
    let limits = Limits { max_cache_batch_size: 2, ..limits(64) };
    let cache = KvCache::with_prefix_caching(5, 16).with_states(8);
    let script = Script::new(continuous(limits, cache), &[(16, 51), (17, 36)]).run();
    assert_eq!(script.scheduler.preemptions(), 1);
    let both: Vec<String> = (16..32).map(|n| format!("0:{n}+1! 1:{n}+1!")).collect();
    let (both, first, second) = (both.join("\n"), alone(0, 32..50), alone(1, 33..35));
    script.prints(&format!("0:0+16! 1:0+16\n{both}\n{first}\n1:16+16\n1:32+1!\n{second}"));
}

#[test]
fn siblings_share_a_state_as_long_as_there_is_a_slot_for_it() {
    let run = |slots| {
        let limits = Limits { max_cache_batch_size: 1, ..limits(64) };
        let cache = KvCache::paged(8, 16).with_states(slots);
        let mut scheduler = continuous(limits, cache);
        scheduler.add(with_siblings(distinct(0, 20, 23), 2)).unwrap();
        Script::new(scheduler, &[]).run()
    };
    run(3).prints("0:0+20!\n0:20+1!\n0:21+1!\n1:20+1!\n1:21+1!\n2:20+1!\n2:21+1!");
    let tight = run(2);
    assert_eq!(tight.scheduler.preemptions(), 2);
    tight.prints("0:0+20!\n0:20+1!\n0:21+1!\n1:0+21!\n1:21+1!\n2:0+21!\n2:21+1!");
}
