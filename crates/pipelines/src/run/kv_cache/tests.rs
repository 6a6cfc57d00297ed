//! Prefix caching: what is found, what is kept, what is copied.

use super::*;
use crate::run::kv_cache::SequenceId;

const PAGE: usize = 4;

fn sequence(tokens: impl IntoIterator<Item = u32>) -> Sequence {
    Sequence::new(SequenceId(0), tokens.into_iter().collect(), 100)
}

/// Starts a sequence and runs all its tokens; how many it found in the cache, and which copies it asked for.
fn start(cache: &mut KvCache, sequence: &mut Sequence) -> (usize, Vec<PageCopy>) {
    assert!(cache.start(sequence));
    let found = sequence.cached;
    sequence.cached = sequence.tokens.len();
    cache.publish(sequence);
    (found, cache.take_copies())
}

/// Starts a sequence, runs it and lets it go.
fn visit(cache: &mut KvCache, tokens: impl IntoIterator<Item = u32>) -> usize {
    let mut sequence = sequence(tokens);
    let (found, _) = start(cache, &mut sequence);
    cache.release(&mut sequence);
    found
}

#[test]
fn full_pages_are_shared_and_the_next_is_copied() {
    let mut cache = KvCache::with_prefix_caching(8, PAGE);
    let mut first = sequence(0..12);
    assert_eq!(start(&mut cache, &mut first), (0, vec![]));
    // The second page is shared, and two tokens of the third.
    let mut second = sequence((0..10).chain([90, 91, 92]));
    assert_eq!(start(&mut cache, &mut second), (10, vec![PageCopy { from: 2, to: 3 }]));
    assert_eq!(second.pages, [0, 1, 3, 4]);
    assert_eq!((cache.num_free(), second.cached_prompt), (3, Some(10)));
    assert_eq!(cache.prefix_stats(), PrefixStats { prompt_tokens: 25, cached_tokens: 10 });
    cache.release(&mut first);
    assert_eq!(cache.num_free(), 4, "the shared pages are still held");
    cache.release(&mut second);
    assert_eq!(cache.num_free(), 8);
}

#[test]
fn the_last_token_always_runs() {
    let mut cache = KvCache::with_prefix_caching(8, PAGE);
    assert_eq!(visit(&mut cache, 0..8), 0);
    assert_eq!(visit(&mut cache, 0..8), 7, "one page, and three tokens of the next");
    assert_eq!(visit(&mut cache, 0..9), 8);
    assert_eq!(visit(&mut cache, 0..1), 0);
}

#[test]
fn generated_pages_are_published_too() {
    let mut cache = KvCache::with_prefix_caching(8, PAGE);
    let mut talker = sequence(0..3);
    start(&mut cache, &mut talker);
    for token in 3..9 {
        talker.tokens.push(token);
        assert!(cache.grow(&mut talker, token as usize + 1));
        talker.cached += 1;
        cache.publish(&mut talker);
    }
    assert_eq!(visit(&mut cache, 0..20), 8, "while it still talks");
    cache.release(&mut talker);
    assert_eq!(visit(&mut cache, (0..7).chain([70])), 7);
}

#[test]
fn the_same_page_is_kept_once() {
    let mut cache = KvCache::with_prefix_caching(8, PAGE);
    let (mut a, mut b) = (sequence(0..9), sequence(0..9));
    // Both start before either has run.
    assert!(cache.start(&mut a) && cache.start(&mut b));
    assert_eq!(cache.num_free(), 2);
    for sequence in [&mut a, &mut b] {
        sequence.cached = 9;
        cache.publish(sequence);
    }
    assert_eq!((&a.pages[..2], cache.num_free()), (&b.pages[..2], 4));
    assert_ne!(a.pages[2], b.pages[2], "which is not full");
    cache.release(&mut a);
    cache.release(&mut b);
    assert_eq!(cache.num_free(), 8);
}

#[test]
fn salts_share_nothing_with_each_other() {
    let mut cache = KvCache::with_prefix_caching(16, PAGE);
    let mut visit = |salt: Option<&str>| {
        let mut sequence = sequence(0..9);
        sequence.cache_salt = salt.map(Into::into);
        let (found, _) = start(&mut cache, &mut sequence);
        cache.release(&mut sequence);
        found
    };
    let visits = [None, Some(""), Some("a"), Some("b"), None, Some(""), Some("b")].map(&mut visit);
    assert_eq!(visits, [0, 0, 0, 0, 8, 8, 8]);
}

#[test]
fn a_sequence_that_wants_all_logits_computes_all() {
    let mut cache = KvCache::with_prefix_caching(8, PAGE);
    visit(&mut cache, 0..9);
    let mut scored = sequence((0..9).chain([50, 51, 52]));
    scored.compute_all = true;
    assert_eq!(start(&mut cache, &mut scored), (0, vec![]));
    cache.release(&mut scored);
    assert_eq!(visit(&mut cache, (0..9).chain([50, 51, 52, 53])), 12, "others profit from it");
}

#[test]
fn what_was_used_last_is_kept_longest_and_tails_go_first() {
    let mut cache = KvCache::with_prefix_caching(6, PAGE);
    visit(&mut cache, 0..9); // Two full pages, and one that begins.
    visit(&mut cache, 100..109); // Three more.
    visit(&mut cache, 0..9); // The first two again.
    visit(&mut cache, 200..208); // The last two of the second visitor's.
    assert_eq!(visit(&mut cache, (100..109).chain([0])), 4);
    let mut cache = KvCache::with_prefix_caching(6, PAGE);
    visit(&mut cache, 0..9);
    visit(&mut cache, 100..109);
    visit(&mut cache, 0..9);
    visit(&mut cache, 200..208);
    assert_eq!(visit(&mut cache, 0..9), 8);
}

#[test]
fn too_little_room_takes_nothing() {
    let mut cache = KvCache::with_prefix_caching(4, PAGE);
    visit(&mut cache, 0..9);
    let mut other = sequence(100..105);
    start(&mut cache, &mut other);
    // Two pages are found, both free; a third is blank or kept, and two more are needed.
    let mut long = sequence(0..13);
    assert!(!cache.start(&mut long));
    assert!(long.pages.is_empty() && long.cached == 0 && long.cached_prompt.is_none());
    assert_eq!((cache.num_free(), cache.prefix_stats().prompt_tokens), (2, 14));
    cache.release(&mut other);
    assert!(cache.start(&mut long));
}

#[test]
fn forgetting_reaches_those_that_run() {
    let mut cache = KvCache::with_prefix_caching(8, PAGE);
    visit(&mut cache, 50..59);
    let mut running = sequence(0..9);
    start(&mut cache, &mut running);
    cache.reset_prefixes();
    assert_eq!(cache.prefix_stats(), PrefixStats::default());
    assert_eq!((visit(&mut cache, 50..59), visit(&mut cache, 50..59)), (0, 8));
    running.tokens.extend(9..13);
    assert!(cache.grow(&mut running, 13));
    running.cached = 13;
    cache.publish(&mut running);
    cache.release(&mut running);
    assert_eq!(cache.num_free(), 8);
    assert_eq!(visit(&mut cache, 0..13), 0);
}

#[test]
fn a_copy_may_take_the_place_of_its_source() {
    let mut cache = KvCache::with_prefix_caching(1, PAGE);
    visit(&mut cache, 0..4);
    let mut again = sequence(0..3);
    assert_eq!(start(&mut cache, &mut again), (2, vec![]));
    assert_eq!(again.pages, [0]);
}

#[test]
fn a_page_that_was_left_unfilled_is_copied() {
    let mut cache = KvCache::with_prefix_caching(8, PAGE);
    visit(&mut cache, 0..7);
    let mut next = sequence(0..12);
    assert_eq!(start(&mut cache, &mut next), (7, vec![PageCopy { from: 1, to: 2 }]));
    cache.release(&mut next);
    assert_eq!(visit(&mut cache, 0..3), 2, "of the first page, which is full");
    assert_eq!(visit(&mut cache, [50, 51]), 0);
    assert_eq!(visit(&mut cache, [50, 51, 52]), 2);
}

/// Why a sequence that starts finds no more tokens in the cache.
fn end(cache: &mut KvCache, mut sequence: Sequence) -> PrefixEnd {
    assert!(cache.start(&mut sequence));
    cache.release(&mut sequence);
    sequence.prefix_end
}

#[test]
fn sequences_know_why_they_share_no_more_tokens() {
    let mut cache = KvCache::with_prefix_caching(16, PAGE);
    assert_eq!(end(&mut cache, sequence(0..9)), PrefixEnd::NothingCached);
    visit(&mut cache, 0..10);
    assert_eq!(end(&mut cache, sequence(0..10)), PrefixEnd::LastToken);
    assert_eq!(end(&mut cache, sequence(0..12)), PrefixEnd::NothingCached);
    assert_eq!(end(&mut cache, sequence((0..9).chain([90, 91]))), PrefixEnd::OtherTokens);
    assert_eq!(end(&mut cache, sequence((0..8).chain([90, 91]))), PrefixEnd::OtherTokens);
    assert_eq!(end(&mut cache, sequence(50..60)), PrefixEnd::OtherTokens);
    let salted = Sequence { cache_salt: Some("salt".into()), ..sequence(0..10) };
    assert_eq!(end(&mut cache, salted), PrefixEnd::NothingCached);
    let whole = Sequence { compute_all: true, ..sequence(0..10) };
    assert_eq!(end(&mut cache, whole), PrefixEnd::PromptLogits);
    assert_eq!(end(&mut KvCache::paged(16, PAGE), sequence(0..10)), PrefixEnd::Off);

    let mut cache = with_states(16, 8);
    pass(&mut cache, 0..30);
    assert_eq!(end(&mut cache, sequence(0..29)), PrefixEnd::LastToken);
    assert_eq!(end(&mut cache, sequence((0..27).chain([90, 91]))), PrefixEnd::OtherTokens);
    let kept_before = PrefixEnd::NoState { matching: 20 };
    assert_eq!(end(&mut cache, sequence((0..23).chain([90, 91]))), kept_before);
}

/// A cache that keeps states in so many slots, those of prompts at every three pages.
fn with_states(num_pages: usize, num_slots: usize) -> KvCache {
    let cache = KvCache::with_prefix_caching(num_pages, PAGE);
    cache.with_states(num_slots).with_checkpoint_interval(3 * PAGE)
}

/// Runs the pending tokens of a sequence in slices that end where checkpoints are made. Gives the lengths of the slices.
fn read(cache: &mut KvCache, sequence: &mut Sequence) -> Vec<usize> {
    let mut slices = Vec::new();
    while sequence.pending() > 0 {
        let count = cache.until_checkpoint(sequence, sequence.pending());
        assert!(cache.grow(sequence, sequence.cached + count));
        let (from, to) = sequence.state_slots();
        assert!(sequence.cached == 0 || from != to, "a slot that is read is not written");
        sequence.cached += count;
        cache.publish(sequence);
        slices.push(count);
    }
    slices
}

/// Starts a sequence, reads it and lets it go: how many tokens it found in the cache, and the slices of the others.
fn pass(cache: &mut KvCache, tokens: impl IntoIterator<Item = u32>) -> (usize, Vec<usize>) {
    let mut sequence = sequence(tokens);
    assert!(cache.start(&mut sequence));
    let found = sequence.cached;
    let slices = read(cache, &mut sequence);
    cache.release(&mut sequence);
    (found, slices)
}

#[test]
fn slices_of_a_prompt_end_where_its_state_is_kept() {
    let mut cache = with_states(16, 8);
    // At every twelve tokens, and at the last border before the end.
    assert_eq!(pass(&mut cache, 0..30), (0, vec![12, 12, 4, 2]));
    assert_eq!(cache.num_cached_state_slots(), 3);
    assert_eq!(pass(&mut cache, 0..30), (28, vec![2]));
    assert_eq!(pass(&mut cache, (0..30).chain(90..95)), (28, vec![4, 3]));
    // 27 tokens are shared, 24 of them up to a checkpoint.
    assert_eq!(pass(&mut cache, (0..27).chain([90, 91])), (24, vec![4, 1]));
    assert_eq!(pass(&mut cache, (0..23).chain([90, 91])), (12, vec![12, 1]));
    assert_eq!(pass(&mut cache, 0..11), (0, vec![8, 3]));
    // Where the prompt ends with a page, its end is kept as well: an answer follows there.
    assert_eq!(pass(&mut cache, 50..58), (0, vec![4, 4]));
    assert_eq!(pass(&mut cache, 50..59), (8, vec![1]));
    assert_eq!(pass(&mut cache, 50..58), (4, vec![4]));
    assert_eq!(cache.num_free_state_slots(), 8);
}

#[test]
fn answers_keep_the_state_of_their_last_page() {
    let mut cache = with_states(16, 4);
    let mut talker = sequence(0..5);
    assert!(cache.start(&mut talker));
    read(&mut cache, &mut talker);
    for token in 5..30 {
        talker.tokens.push(token);
        assert_eq!(read(&mut cache, &mut talker), [1]);
        // One checkpoint at the end of the prompt, and one at the last page border that the sequence has left.
        let kept = 1 + usize::from(token >= 8 && !talker.cached.is_multiple_of(PAGE));
        assert_eq!(cache.num_cached_state_slots(), kept, "after {token}");
    }
    cache.release(&mut talker);
    assert_eq!(pass(&mut cache, 0..40).0, 28, "of 29 tokens that were run");
    assert_eq!(pass(&mut cache, (0..20).chain([70])).0, 4, "of the prompt");
}

#[test]
fn tokens_that_run_together_are_cut_at_their_last_border() {
    let mut cache = with_states(16, 4);
    let mut talker = sequence(0..5);
    assert!(cache.start(&mut talker));
    assert_eq!(read(&mut cache, &mut talker), [4, 1]);
    talker.tokens.extend(5..20);
    assert_eq!(read(&mut cache, &mut talker), [7, 4, 4], "at the interval, and before the last");
    cache.release(&mut talker);
    assert_eq!(pass(&mut cache, 0..40).0, 16 + 4);
}

#[test]
fn checkpoints_are_given_up_first_those_used_longest_ago() {
    let mut cache = with_states(32, 4);
    for start in [0, 100, 200] {
        assert_eq!(pass(&mut cache, start..start + 6), (0, vec![4, 2]));
    }
    assert_eq!(cache.num_cached_state_slots(), 3, "one slot of four is enough for who reads");
    assert_eq!(pass(&mut cache, 0..6), (4, vec![2]));
    // Two that run need four slots, so two checkpoints go, and the third when one of the two keeps another.
    let (mut a, mut b) = (sequence(300..303), sequence(400..403));
    assert!(cache.start(&mut a) && cache.start(&mut b));
    read(&mut cache, &mut a);
    read(&mut cache, &mut b);
    assert_eq!(cache.num_cached_state_slots(), 2);
    a.tokens.push(7);
    b.tokens.push(7);
    assert!(cache.prepare(&mut a) && cache.prepare(&mut b));
    assert_eq!(cache.num_cached_state_slots(), 0, "each holds a slot to read and one to write");
    assert!(!cache.start(&mut sequence(500..503)), "and a third has none");
    cache.release(&mut a);
    cache.release(&mut b);
    assert_eq!(cache.num_free_state_slots(), 4);
    assert_eq!(pass(&mut cache, 0..6).0, 0);
}

#[test]
fn a_page_that_is_used_again_frees_its_checkpoint() {
    let mut cache = with_states(3, 8);
    assert_eq!(pass(&mut cache, 0..6), (0, vec![4, 2]));
    assert_eq!(cache.num_cached_state_slots(), 1);
    assert_eq!(pass(&mut cache, 100..112), (0, vec![8, 4]));
    assert_eq!(cache.num_cached_state_slots(), 2, "those of the second alone");
    assert_eq!(pass(&mut cache, 0..6), (0, vec![4, 2]));
    cache.reset_prefixes();
    assert_eq!((cache.num_cached_state_slots(), cache.num_free_state_slots()), (0, 8));
    assert_eq!(pass(&mut cache, 0..6).0, 0);
}

#[test]
fn sequences_share_the_state_of_their_prompt() {
    let mut cache = KvCache::paged(8, PAGE).with_states(4);
    let mut first = sequence(0..6);
    assert!(cache.start(&mut first));
    assert_eq!(read(&mut cache, &mut first), [6], "nothing is kept without prefix caching");
    let mut second = cache.fork(&first, SequenceId(1));
    let (prompt, _) = first.state_slots();
    first.tokens.push(6);
    read(&mut cache, &mut first);
    second.tokens.push(7);
    assert!(cache.start(&mut second));
    assert_eq!(second.state_slots().0, prompt);
    assert_ne!(second.state_slots().1, first.state_slots().0);
    read(&mut cache, &mut second);
    // From then on each has two slots, which it uses in turn.
    let alternates = |sequence: &mut Sequence, cache: &mut KvCache| {
        let mut used = Vec::new();
        for _ in 0..4 {
            sequence.tokens.push(8);
            assert!(cache.grow(sequence, sequence.tokens.len()));
            used.push(sequence.state_slots());
            read(cache, sequence);
        }
        used[0] == used[2] && used[1] == used[3] && used[1] == (used[0].1, used[0].0)
    };
    assert!(alternates(&mut first, &mut cache) && alternates(&mut second, &mut cache));
    cache.release(&mut first);
    cache.release(&mut second);
    assert_eq!(cache.num_free_state_slots(), 4);
}

#[test]
fn forgetting_reaches_states_of_those_that_run() {
    let mut cache = with_states(8, 4);
    let mut running = sequence(0..9);
    assert!(cache.start(&mut running));
    read(&mut cache, &mut running);
    cache.reset_prefixes();
    running.tokens.extend(9..14);
    read(&mut cache, &mut running);
    assert_eq!(cache.num_cached_state_slots(), 0);
    cache.release(&mut running);
    assert_eq!(pass(&mut cache, 0..14).0, 0);
}
