//! How a model runs: lengths, batches, caches, steps, and how tokens are chosen.

use perihelion::pipelines::config::{Auto, KVCacheStrategy, Machine, PipelineConfig, machine};
use perihelion::pipelines::{Error, EventKind, FinishReason, Generator, Request, SamplingOptions, Warning};

use crate::support::{answer, generator, request, storyteller, text, text_generator};

/// A request for 10 tokens after a prompt of five, the first of which is given.
fn ten(first: u32) -> Request {
    Request {
        prompt: (first..first + 5).collect(),
        max_new_tokens: Some(10),
        ignore_eos: true,
        ..Request::default()
    }
}

/// How many sequences start, and how many tokens are made, in one step.
fn step(generator: &mut Generator) -> (usize, usize) {
    let events = generator.step().unwrap();
    let count = |is: fn(&EventKind) -> bool| events.iter().filter(|event| is(&event.kind)).count();
    (
        count(|kind| matches!(kind, EventKind::Started { .. })),
        count(|kind| matches!(kind, EventKind::Token { .. })),
    )
}

#[test]
fn length_limits_end_answers() {
    let made = |config: &PipelineConfig, max_new_tokens| {
        let answer = text_generator(config).unwrap().generate(request(max_new_tokens)).unwrap();
        assert_eq!(answer.reason, FinishReason::Length);
        (answer.usage.prompt_tokens, answer.usage.generated_tokens)
    };
    let short = storyteller().max_length(32);
    assert_eq!(made(&short, None), (5, 27));
    assert_eq!(made(&short.clone().max_length(24), None), (5, 19));
    assert_eq!(made(&short.clone().max_new_tokens(7), None), (5, 7));
    assert_eq!(made(&short.clone().max_new_tokens(7), Some(9)), (5, 9), "a request overrides it");
    let long = text_generator(&short).unwrap().generate(vec![300; 40]).unwrap_err();
    assert!(matches!(long, Error::PromptBeyondMaxLength { tokens: 40, limit: 32 }), "{long}");
}

#[test]
fn batch_limits_bound_each_step() {
    let starts = |cached: usize, read: usize| {
        let config = storyteller().max_length(64).max_cache_batch_size(cached).max_ce_batch_size(read);
        let mut generator = generator(&config);
        for first in 300..305 {
            generator.add(ten(first)).unwrap();
        }
        let starts = [(); 3].map(|_| step(&mut generator).0);
        (starts, generator.scheduler().num_running())
    };
    assert_eq!(starts(1, 32), ([1, 0, 0], 1));
    assert_eq!(starts(3, 32), ([3, 0, 0], 3));
    assert_eq!(starts(3, 2), ([2, 1, 0], 3));
    assert_eq!(starts(5, 1), ([1, 1, 1], 3));
}

#[test]
fn cache_strategies_allocate_differently_and_answer_the_same() {
    // How many sequences a second request starts while the first runs; how many pages are free before it, and in all.
    let shared = |strategy, pad: usize| {
        let config = storyteller()
            .cache_strategy(strategy)
            .max_length(64)
            .max_cache_batch_size(2)
            .kv_cache_page_size(16_usize)
            .pad_to_multiple_of(pad);
        let mut generator = generator(&config);
        generator.add(ten(300)).unwrap();
        step(&mut generator);
        let cache = generator.scheduler().cache();
        let (free, pages) = (cache.num_free(), cache.num_pages());
        generator.add(ten(310)).unwrap();
        (step(&mut generator).0, free, pages)
    };
    assert_eq!(shared(KVCacheStrategy::Naive, 2), (0, 4, 8), "the batch runs to its end, in whole slots");
    assert_eq!(shared(KVCacheStrategy::Naive, 40), (0, 5, 10), "slots have room for the padding");
    assert_eq!(shared(KVCacheStrategy::Continuous, 40), (1, 4, 8), "others pad nothing");
    assert_eq!(shared(KVCacheStrategy::Paged, 2), (1, 7, 8), "pages are taken when they are needed");
    assert_eq!(shared(KVCacheStrategy::ModelDefault, 2), (1, 7, 8));
    let expected = answer(&storyteller());
    for &strategy in KVCacheStrategy::ALL {
        assert_eq!(answer(&storyteller().cache_strategy(strategy)), expected, "{strategy}");
    }
}

#[test]
fn max_num_steps_delays_new_sequences() {
    // When one starts that comes after another's first step of several.
    let starts = |steps| {
        let mut generator = generator(&storyteller().max_cache_batch_size(2).max_num_steps(steps));
        generator.add(ten(300)).unwrap();
        assert_eq!([(); 2].map(|_| step(&mut generator)), [(1, 1), (0, 1)]);
        generator.add(ten(310)).unwrap();
        [(); 4].map(|_| step(&mut generator).0)
    };
    assert_eq!(starts(1), [1, 0, 0, 0]);
    assert_eq!(starts(3), [0, 0, 1, 0]);
    assert_eq!(answer(&storyteller().max_num_steps(3)), answer(&storyteller()));
}

#[test]
fn common_prefixes_share_pages() {
    let paged = storyteller().cache_strategy(KVCacheStrategy::Paged).max_length(128);
    let twice = |config: &PipelineConfig| {
        let generator = text_generator(config).unwrap();
        let mut again = request(Some(4));
        again.prompt = (300..350).collect::<Vec<u32>>().into();
        let (first, second) =
            (generator.generate(again.clone()).unwrap(), generator.generate(again).unwrap());
        assert_eq!(text(&first), text(&second), "the same bits");
        assert_eq!(first.usage.cached_tokens, 0);
        (generator.status().unwrap().num_pages, second.usage.cached_tokens)
    };
    assert_eq!(twice(&paged.clone().kv_cache_page_size(16_usize)), (8, 0));
    assert_eq!(twice(&paged.clone().kv_cache_page_size(64_usize)), (2, 0));
    // All but the last token, which always runs.
    let prefixes = paged.enable_prefix_caching(true);
    assert_eq!(twice(&prefixes.clone().kv_cache_page_size(16_usize)), (8, 49));
    assert_eq!(twice(&prefixes.kv_cache_page_size(32_usize)), (4, 49));
}

#[test]
fn free_memory_bounds_open_limits() {
    const FREE: u64 = 12 << 20;
    let small = Machine { free_memory: Some(FREE), ..machine() };
    let open = storyteller().kv_cache_page_size(16_usize).max_length(Auto::Auto);
    let plan = |config: &PipelineConfig| config.plan(small).unwrap().memory().unwrap().clone();
    let token = 4096;
    assert_eq!(plan(&open).max_length, 512, "what the model was made for");
    let half = plan(&open.clone().gpu_memory_utilization(0.5));
    let workspace = FREE / 2 - half.weights;
    assert_eq!(half.max_length as u64, workspace / token / 16 * 16);
    assert_eq!(half.cache, half.max_length as u64 * token);
    // Pages need not hold all sequences at their full length.
    let paged = open.cache_strategy(KVCacheStrategy::Paged).max_cache_batch_size(100);
    let cache = plan(&paged.gpu_memory_utilization(0.5)).cache;
    assert_eq!(cache, workspace / (16 * token) * (16 * token));
}

#[test]
fn top_k_and_requests_choose_the_sampling() {
    let asked = |config: PipelineConfig, seed, sampling| {
        let mut request = request(Some(16));
        (request.parameters.sampling, request.parameters.seed) = (sampling, seed);
        text_generator(&config).unwrap().generate(request).unwrap().tokens
    };
    let drawn = |config, seed| asked(config, seed, SamplingOptions::default());
    let greedy = drawn(storyteller(), 1);
    assert_eq!(drawn(storyteller(), 2), greedy);
    assert_eq!(drawn(storyteller().top_k(1), 2), greedy, "one candidate is the likeliest");
    assert_ne!(drawn(storyteller().top_k(40), 1), drawn(storyteller().top_k(40), 2));
    assert_ne!(drawn(storyteller().top_k(0), 3), drawn(storyteller().top_k(2), 3));
    assert_eq!(asked(storyteller().top_k(40), 2, SamplingOptions::GREEDY), greedy, "requests come first");
    let own = SamplingOptions { top_k: Some(2), ..SamplingOptions::default() };
    assert_eq!(asked(storyteller(), 3, own), drawn(storyteller().top_k(2), 3));
}

#[test]
fn enable_echo_scores_prompts() {
    let scored = |config: &PipelineConfig| {
        let mut request = request(Some(4));
        request.parameters.prompt_logprobs = Some(1);
        text_generator(config).unwrap().generate(request).unwrap()
    };
    let (with, without) = (scored(&storyteller().enable_echo(true)), scored(&storyteller()));
    assert!(with.warnings.is_empty() && with.prompt.len() == 5);
    assert!(with.prompt[1..].iter().all(|token| token.logprobs.is_some()));
    assert_eq!(without.warnings, [Warning::EchoDisabled]);
    assert!(without.prompt.iter().all(|token| token.logprobs.is_none()));
    assert_eq!(text(&with), text(&without), "the answer is the same");
}
