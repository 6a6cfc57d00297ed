//! Divisions of memory: what fits, and what is said of what does not.

use super::*;

/// 100 bytes a token, pages of 16, 10 000 bytes of weights, 100 000 free, 90 % of them usable: 80 000 of cache.
const REQUEST: MemoryRequest = MemoryRequest {
    weights: 10_000,
    cache_bytes_per_token: 100,
    bytes_per_slot: 0,
    page_size: 16,
    strategy: KVCacheStrategy::Continuous,
    caches_prefixes: false,
    pad_to_multiple_of: 1,
    free: Some(100_000),
    utilization: 0.9,
    cache_limit: None,
    model_length: 4096,
    max_length: Auto::At(160),
    max_batch: Auto::At(1),
    on_host: true,
};

/// The length, sequences and bytes of cache of a request that fits.
fn fits(request: MemoryRequest) -> (usize, usize, u64) {
    let plan = request.plan().unwrap();
    (plan.max_length, plan.max_batch, plan.cache)
}

fn refusal(request: MemoryRequest) -> String {
    request.plan().unwrap_err().to_string()
}

#[test]
fn what_is_left_open_is_as_large_as_fits() {
    assert_eq!(fits(REQUEST), (160, 1, 16_000));
    assert_eq!(fits(MemoryRequest { max_length: Auto::At(5), ..REQUEST }), (5, 1, 1600), "whole pages");
    let padded = MemoryRequest { pad_to_multiple_of: 48, ..REQUEST };
    assert_eq!(fits(padded), (160, 1, 19_200), "and whole paddings");
    assert_eq!(fits(MemoryRequest { max_length: Auto::Auto, ..padded }), (768, 1, 76_800));
    // 80 000 bytes are 800 tokens.
    assert_eq!(fits(MemoryRequest { max_length: Auto::Auto, ..REQUEST }), (800, 1, 80_000));
    assert_eq!(
        fits(MemoryRequest { max_length: Auto::Auto, max_batch: Auto::At(3), ..REQUEST }),
        (256, 3, 76_800)
    );
    let small = MemoryRequest { model_length: 100, max_length: Auto::Auto, ..REQUEST };
    assert_eq!(fits(small), (100, 1, 11_200), "no longer than the model");
    // A host runs one, or many that share pages; elsewhere it is as many as fit, or a fixed number that share pages.
    let open = MemoryRequest { max_batch: Auto::Auto, ..REQUEST };
    assert_eq!(fits(open), (160, 1, 16_000));
    assert_eq!(fits(MemoryRequest { on_host: false, ..open }), (160, 5, 80_000));
    let shared = MemoryRequest { strategy: KVCacheStrategy::Paged, free: Some(100_000_000), ..open };
    assert_eq!(fits(shared), (160, 64, 64 * 16_000));
    assert_eq!(fits(MemoryRequest { max_length: Auto::At(4096), ..shared }), (4096, 64, 3_276_800));
    let long = MemoryRequest { max_length: Auto::At(65_536), model_length: 1 << 20, ..shared };
    assert_eq!(fits(long), (65_536, 64, 6_553_600), "room for one of them");
    let paged = MemoryRequest { on_host: false, strategy: KVCacheStrategy::Paged, ..open };
    assert_eq!(fits(paged), (160, 512, 80_000));
    assert_eq!(fits(MemoryRequest { max_length: Auto::Auto, ..paged }), (800, 512, 80_000));
}

#[test]
fn pages_need_not_hold_all_sequences_at_full_length() {
    let request = MemoryRequest { strategy: KVCacheStrategy::Paged, max_batch: Auto::At(100), ..REQUEST };
    let plan = request.plan().unwrap();
    assert_eq!((plan.cache, plan.cache_tokens, plan.max_batch), (80_000, 800, 100));
    assert!(plan.warnings[0].starts_with("the cache holds 800 tokens, fewer than"), "{:?}", plan.warnings);
    assert!(
        refusal(MemoryRequest { max_length: Auto::At(801), ..request }).contains("lower max_length to 800")
    );
}

#[test]
fn what_does_not_fit_is_told_what_would() {
    let both = MemoryRequest { max_length: Auto::At(400), max_batch: Auto::At(4), ..REQUEST };
    assert_eq!(
        refusal(both),
        "the weights need 9.77 KiB and the cache for 4 sequences of 400 tokens 156.25 KiB, but 87.89 KiB of the \
         97.66 KiB free may be used: lower max_length to 192, or lower max_cache_batch_size to 2"
    );
    let length = MemoryRequest { max_length: Auto::At(1000), max_batch: Auto::Auto, ..REQUEST };
    assert!(refusal(length).ends_with("may be used: lower max_length to 800"), "{}", refusal(length));
    let batch = MemoryRequest { max_length: Auto::Auto, max_batch: Auto::At(60), ..REQUEST };
    assert!(refusal(batch).ends_with("may be used: lower max_cache_batch_size to 50"), "{}", refusal(batch));
}

#[test]
fn weights_alone_may_be_too_much() {
    let text = refusal(MemoryRequest { weights: 100_001, ..REQUEST });
    assert!(text.contains("use a smaller model or a smaller quantization"), "{text}");
    let text = refusal(MemoryRequest { weights: 89_000, max_length: Auto::Auto, ..REQUEST });
    assert!(text.contains("free may be used: raise gpu_memory_utilization"), "{text}");
}

#[test]
fn pages_and_padding_may_be_too_much() {
    let page = MemoryRequest { page_size: 1 << 40, ..REQUEST };
    assert_eq!(
        refusal(page),
        "kv_cache_page_size is 1099511627776 tokens, but the 78.12 KiB of memory left after the weights are too \
         little for such a step: lower it to 512"
    );
    let padded = MemoryRequest { pad_to_multiple_of: 1_000_000_000_000, ..REQUEST };
    assert!(refusal(padded).ends_with("for such a step: lower it to 800"), "{}", refusal(padded));
    // Not even the smallest page: nothing that lowering could mend.
    let tight = MemoryRequest { weights: 89_000, page_size: 512, ..REQUEST };
    assert!(refusal(tight).contains("free may be used: raise"), "{}", refusal(tight));
}

#[test]
fn models_without_a_cache_take_their_weights_alone() {
    let encoder = MemoryRequest { cache_bytes_per_token: 0, max_length: Auto::Auto, ..REQUEST };
    let plan = encoder.plan().unwrap();
    assert_eq!((plan.cache, plan.cache_tokens, plan.max_length), (0, 0, 4096));
    assert!(plan.to_string().contains("cache                 none\n"), "{plan}");
    let unknown = MemoryRequest { free: None, ..encoder }.plan().unwrap();
    assert_eq!((unknown.cache, unknown.cache_tokens), (0, 0));
    assert!(MemoryRequest { weights: 90_001, ..encoder }.plan().is_err(), "more than may be used");
}

#[test]
fn warnings_tell_of_scarce_and_of_unknown_memory() {
    let tight = MemoryRequest { utilization: 1.0, max_length: Auto::Auto, ..REQUEST };
    let plan = tight.plan().unwrap();
    assert!(plan.warnings.iter().any(|warning| warning.starts_with("weights and cache take")), "{plan:?}");
    assert!(plan.warnings[0].starts_with("max_length is lowered from the model's 4096 to 896"), "{plan:?}");
    let unknown = MemoryRequest { free: None, max_length: Auto::Auto, max_batch: Auto::Auto, ..REQUEST };
    let plan = unknown.plan().unwrap();
    assert_eq!((plan.max_length, plan.max_batch, plan.warnings.len()), (4096, 1, 1));
}

/// A model that keeps 1 000 bytes of each sequence as well.
const RECURRENT: MemoryRequest = MemoryRequest { bytes_per_slot: 1000, ..REQUEST };
const PAGED: MemoryRequest = MemoryRequest { strategy: KVCacheStrategy::Paged, ..RECURRENT };
const PREFIXES: MemoryRequest = MemoryRequest { caches_prefixes: true, ..PAGED };

/// The sequences, tokens, slots and bytes of the cache of a request that fits.
fn slots(request: MemoryRequest) -> (usize, usize, usize, u64) {
    let plan = request.plan().unwrap();
    assert_eq!(plan.states, 1000 * plan.state_slots as u64);
    assert!(plan.cache <= 80_000, "{plan}");
    (plan.max_batch, plan.cache_tokens, plan.state_slots, plan.cache)
}

#[test]
fn each_sequence_has_two_slots_for_its_state() {
    assert_eq!(slots(RECURRENT), (1, 160, 2, 18_000));
    assert_eq!(slots(MemoryRequest { max_batch: Auto::At(4), ..RECURRENT }), (4, 640, 8, 72_000));
    assert_eq!(slots(MemoryRequest { max_batch: Auto::At(3), ..PAGED }), (3, 480, 7, 55_000));
    // 80 000 bytes are 4 times 16 000 of tokens and 2 000 of states.
    let open = MemoryRequest { max_batch: Auto::Auto, on_host: false, ..RECURRENT };
    assert_eq!(slots(open), (4, 640, 8, 72_000));
    // 78 000 bytes are 780 tokens, in pages of 16.
    let long = MemoryRequest { max_length: Auto::Auto, ..RECURRENT };
    assert_eq!((slots(long), long.plan().unwrap().max_length), ((1, 768, 2, 78_800), 768));
}

#[test]
fn slots_of_an_open_number_of_sequences_take_a_quarter() {
    // 20 slots: 9 sequences, and a prompt that is shared; or 5 sequences with as many checkpoints.
    let open = MemoryRequest { max_batch: Auto::Auto, ..PAGED };
    assert_eq!(slots(open), (9, 608, 19, 79_800));
    assert_eq!(slots(MemoryRequest { caches_prefixes: true, ..open }), (5, 592, 20, 79_200));
    let large = MemoryRequest { bytes_per_slot: 10_000, ..open };
    let plan = large.plan().unwrap();
    assert_eq!((plan.max_batch, plan.state_slots), (1, 3), "at least one");
    let unbounded = MemoryRequest { free: Some(100_000_000), ..open }.plan().unwrap();
    assert_eq!((unbounded.max_batch, unbounded.state_slots), (HOST_PAGED_BATCH, 129));
}

#[test]
fn checkpoints_take_no_more_than_the_pages() {
    // Ten pages of 1 600 bytes, which are more than the 2 checkpoints of one sequence, and less than 10 000 bytes a page.
    assert_eq!(slots(PREFIXES), (1, 160, 2 + 10, 28_000));
    let large = MemoryRequest { bytes_per_slot: 4000, ..PREFIXES }.plan().unwrap();
    assert_eq!((large.state_slots, large.states), (2 + 4, 24_000));
    let larger = MemoryRequest { bytes_per_slot: 10_000, ..PREFIXES }.plan().unwrap();
    assert_eq!(larger.state_slots, 4);
    // What the pages leave.
    let long = MemoryRequest { max_length: Auto::At(736), ..PREFIXES };
    assert_eq!(slots(long), (1, 736, 6, 79_600));
    let unknown = MemoryRequest { free: None, ..PREFIXES }.plan().unwrap();
    assert_eq!((unknown.cache, unknown.state_slots), (28_000, 12));
}

#[test]
fn models_may_keep_nothing_of_tokens_but_a_state_of_each_sequence() {
    let request = MemoryRequest { cache_bytes_per_token: 0, ..RECURRENT };
    assert_eq!(slots(MemoryRequest { max_batch: Auto::At(3), ..request }), (3, 480, 6, 6000));
    let open = MemoryRequest { max_length: Auto::Auto, max_batch: Auto::Auto, on_host: false, ..request };
    let plan = open.plan().unwrap();
    assert_eq!((plan.max_length, plan.max_batch, plan.states), (4096, 40, 80_000));
    let paged = MemoryRequest { strategy: KVCacheStrategy::Paged, caches_prefixes: true, ..request };
    assert_eq!(slots(paged), (1, 160, 4, 4000));
    let long = MemoryRequest { max_length: Auto::At(4096), max_batch: Auto::Auto, ..paged };
    assert_eq!(slots(long), (5, 5 * 4096, 20, 20_000), "no sequence waits for pages");
    let text = refusal(MemoryRequest { max_batch: Auto::At(50), ..request });
    assert!(text.ends_with("lower max_cache_batch_size to 40"), "{text}");
}

#[test]
fn too_many_states_are_told_what_would_fit() {
    let request = MemoryRequest { max_batch: Auto::At(100), ..PAGED };
    assert_eq!(
        refusal(request),
        "the weights need 9.77 KiB, the cache for 1 sequence of 160 tokens 15.62 KiB and the states of 100 sequences \
         196.29 KiB, but 87.89 KiB of the 97.66 KiB free may be used: lower max_cache_batch_size to 31"
    );
    assert_eq!(slots(MemoryRequest { max_batch: Auto::At(31), ..request }), (31, 160, 63, 79_000));
    let both = MemoryRequest { max_length: Auto::At(700), max_batch: Auto::At(8), ..PAGED };
    assert!(
        refusal(both).ends_with("lower max_length to 624, or lower max_cache_batch_size to 4"),
        "{}",
        refusal(both)
    );
    let fewer = MemoryRequest { max_batch: Auto::At(4), ..both };
    assert_eq!(slots(fewer), (4, 704, 9, 79_400));
    let shorter = MemoryRequest { max_length: Auto::At(624), ..both };
    assert_eq!(slots(shorter), (8, 624, 17, 79_400));
    let huge = MemoryRequest { bytes_per_slot: 30_000, ..PAGED };
    assert!(refusal(huge).contains("raise gpu_memory_utilization"), "{}", refusal(huge));
}

#[test]
fn plans_print() {
    let plan = MemoryRequest { max_length: Auto::Auto, ..REQUEST }.plan().unwrap();
    assert_eq!(
        plan.to_string(),
        "weights               9.77 KiB\n\
         cache                 78.12 KiB for 800 tokens\n\
         total                 87.89 KiB of 97.66 KiB free\n\
         max_length            800 (auto-inferred)\n\
         max_cache_batch_size  1 (current)"
    );
    let text = RECURRENT.plan().unwrap().to_string();
    let cache =
        "cache                 17.58 KiB: 15.62 KiB for 160 tokens, 1.95 KiB for 2 states of sequences\n";
    assert!(text.contains(cache), "{text}");
}

#[test]
fn a_limit_of_the_cache_lowers_the_sequences_but_not_their_length_down_to_the_least_cache() {
    let shared = MemoryRequest {
        strategy: KVCacheStrategy::Paged,
        caches_prefixes: true,
        free: Some(100_000_000),
        max_length: Auto::Auto,
        max_batch: Auto::Auto,
        ..REQUEST
    };
    for bytes_per_slot in [0, 700, 50_000] {
        let open = MemoryRequest { bytes_per_slot, ..shared };
        let alone = open.plan().unwrap();
        let least = open.least_cache(&alone);
        assert!((409_600..alone.cache / 2).contains(&least), "{bytes_per_slot}: {least} of {}", alone.cache);
        for limit in [least, least + 1, 2 * least, alone.cache] {
            let plan = MemoryRequest { cache_limit: Some(limit), ..open }.plan().unwrap();
            assert!(plan.cache <= limit && plan.max_length == alone.max_length, "{limit}: {plan}");
        }
        let lower = MemoryRequest { cache_limit: Some(409_599), ..open }.plan().unwrap();
        assert!(
            lower.max_length < alone.max_length && lower.warnings[0].starts_with("max_length is lowered")
        );
    }
    let set = MemoryRequest { max_batch: Auto::At(8), ..shared };
    let plan = set.plan().unwrap();
    assert_eq!(set.least_cache(&plan), plan.cache);
    let nothing = MemoryRequest { cache_bytes_per_token: 0, ..shared };
    assert_eq!(nothing.least_cache(&nothing.plan().unwrap()), 0);
}
