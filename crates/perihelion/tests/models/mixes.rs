//! Random mixes of requests, over every way to share the cache and the steps: each request gets the tokens, and the
//! bits of their log-probabilities and its prompt's, that it gets alone.
//!
//! `PERIHELION_MIXES` is the number of mixes. To run many of them with optimized code:
//!
//! ```text
//! PERIHELION_MIXES=1000 cargo test --profile bench -p perihelion --test models mixes
//! ```

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use perihelion::driver::DType;
use perihelion::pipelines::config::{KVCacheStrategy, PipelineConfig};
use perihelion::pipelines::{EventKind, Generator, Plan, Request, SamplingOptions, SequenceId, TextModel};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use tempfile::TempDir;

use crate::support::{golden_with_tokenizer, load_as};

/// The default number of mixes.
const MIXES: u32 = 75;

/// Tokens of the texts with which many prompts begin.
const TEXT: usize = 56;

/// A small model of each kind of state: convolutions, state spaces with a number for each channel and for each head, and gated
/// delta nets, with attention and without it; latents, with indexers too; shared keys and values; sinks; chunks.
pub(crate) const KINDS: [&str; 9] =
    ["lfm2", "jamba", "mamba2", "qwen3_next", "deepseek_v3", "deepseek_v32", "gemma3n", "gpt_oss", "llama4"];

/// A request, when it comes, and when it is cancelled if it is.
#[derive(Debug, Clone)]
struct Arrival {
    step: usize,
    cancelled: Option<usize>,
    request: Request,
}

#[derive(Debug, Clone)]
struct Mix {
    model: usize,
    threads: usize,
    page_size: usize,
    /// Tokens that the cache holds in addition to the longest sequence.
    spare: usize,
    /// Those of the generator; those of the model are its own.
    settings: PipelineConfig,
    arrivals: Vec<Arrival>,
}

/// The events of one request, printed, without the number of cached tokens. Numbers print with enough digits to be exact.
type Answer = Vec<String>;

/// The result of a mix.
struct Outcome {
    answers: Vec<Answer>,
    /// How often a sequence had to give back its pages.
    preemptions: usize,
    /// Tokens of prompts that did not have to run.
    cached_tokens: u64,
}

/// Models by file with what their caches keep, threads and page size; loaded when first asked for.
struct Models {
    files: Vec<(PathBuf, DType)>,
    /// Where some of them are.
    _folders: Vec<TempDir>,
    loaded: HashMap<(usize, usize, usize), Arc<TextModel>>,
}

impl Models {
    /// Floats and quantized weights, with caches of full and of half precision, and states.
    fn new() -> Models {
        let storyteller = testdata::asset("storyteller/model.gguf");
        let mut files = vec![(storyteller.clone(), DType::F32), (storyteller, DType::BF16)];
        if let Some(folder) = testdata::shared("stories260k/gguf") {
            let more = [("F32", DType::F32), ("BF16", DType::BF16), ("Q8_0", DType::F32)];
            files.extend(more.map(|(name, dtype)| (folder.join(format!("stories260K-{name}.gguf")), dtype)));
        }
        let folders: Vec<TempDir> = KINDS.iter().map(|name| golden_with_tokenizer(name)).collect();
        files.extend(folders.iter().map(|folder| (folder.path().to_path_buf(), DType::F32)));
        Models { files, _folders: folders, loaded: HashMap::new() }
    }

    fn get(&mut self, model: usize, threads: usize, page_size: usize) -> Arc<TextModel> {
        let load = || {
            let (path, cache_dtype) = &self.files[model];
            Arc::new(load_as(path, None, threads, page_size, *cache_dtype).unwrap())
        };
        Arc::clone(self.loaded.entry((model, threads, page_size)).or_insert_with(load))
    }
}

fn sampling() -> impl Strategy<Value = SamplingOptions> {
    let temperature = prop::sample::select(vec![0.0, 0.8, 1.4]);
    let filters = (prop::option::of(1..40usize), prop::sample::select(vec![1.0, 0.9]));
    (temperature, filters, prop::sample::select(vec![1.0, 1.3])).prop_map(
        |(temperature, (top_k, top_p), repetition_penalty)| SamplingOptions {
            temperature: Some(temperature),
            top_k,
            top_p: Some(top_p),
            repetition_penalty: Some(repetition_penalty),
            ..SamplingOptions::default()
        },
    )
}

/// Requests for a model of a vocabulary of at least 400 tokens; [`Mix::within`] makes them fit another.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let beginning = (0..3u32, 0..TEXT)
        .prop_map(|(text, len)| (0..len as u32).map(|i| (i * i + text * (i / 20) * 31) % 400).collect());
    let prompt = (beginning, prop::collection::vec(0..400u32, 1..10))
        .prop_map(|(beginning, end): (Vec<u32>, Vec<u32>)| [beginning, end].concat());
    let salt = prop::sample::select(vec![None, None, None, Some("salt".to_string())]);
    let stop = prop::sample::select(vec![vec![], vec![], vec!["e".to_string()], vec![" th".to_string()]]);
    let ends = (1..14usize, any::<bool>(), stop);
    let echo = (prop::bool::weighted(0.2), prop::option::weighted(0.2, 0..3usize));
    let request = (prompt, ends, echo, (sampling(), any::<u64>()), salt).prop_map(
        |(prompt, (max_new, ignore_eos, stop), (echo, prompt_logprobs), (sampling, seed), cache_salt)| {
            Request {
                prompt,
                sampling,
                seed,
                logprobs: Some(3),
                max_new_tokens: Some(max_new),
                ignore_eos,
                stop,
                echo,
                prompt_logprobs,
                cache_salt,
                ..Request::default()
            }
        },
    );
    let arrival =
        (0..16usize, prop::option::weighted(0.15, 0..10usize), request).prop_map(|(step, after, request)| {
            Arrival { step, cancelled: after.map(|after| step + after), request }
        });
    prop::collection::vec(arrival, 1..8)
}

fn settings() -> impl Strategy<Value = PipelineConfig> {
    let strategy = prop_oneof![
        1 => Just((KVCacheStrategy::Paged, false)),
        3 => Just((KVCacheStrategy::Paged, true)),
        1 => Just((KVCacheStrategy::Continuous, false)),
        1 => Just((KVCacheStrategy::Naive, false)),
    ];
    let budget = prop::sample::select(vec![1, 5, 16, 33, 100, 512]);
    (strategy, 1..7usize, 1..4usize, budget, 1..7i64, 1..20usize).prop_map(
        |(strategy, max_cache_batch_size, max_ce_batch_size, max_batch_tokens, max_num_steps, pad)| {
            PipelineConfig::default()
                .cache_strategy(strategy.0)
                .enable_prefix_caching(strategy.1)
                .max_cache_batch_size(max_cache_batch_size)
                .max_ce_batch_size(max_ce_batch_size)
                .max_batch_tokens(max_batch_tokens)
                .max_num_steps(max_num_steps)
                .pad_to_multiple_of(pad)
                .enable_echo(true)
        },
    )
}

fn mixes(models: usize) -> impl Strategy<Value = Mix> {
    let page_size = prop::sample::select(vec![16, 32, 64]);
    (0..models, 1..=4usize, page_size, 0..160usize, settings(), arrivals()).prop_map(
        |(model, threads, page_size, spare, settings, arrivals)| Mix {
            model,
            threads,
            page_size,
            spare,
            settings,
            arrivals,
        },
    )
}

/// The tokens of the longest sequence that some requests can make.
fn longest<'a>(requests: impl Iterator<Item = &'a Request>) -> usize {
    let length = |request: &Request| request.prompt.len() + request.max_new_tokens.unwrap_or(0);
    requests.map(length).max().unwrap_or(0)
}

/// The plan of a model under the settings of a generator.
fn plan(model: &TextModel, settings: PipelineConfig) -> Plan {
    let change = |own: PipelineConfig| PipelineConfig {
        huggingface_repo_id: own.huggingface_repo_id,
        weight_path: own.weight_path,
        architecture: own.architecture,
        quantization_encoding: own.quantization_encoding,
        device_specs: own.device_specs,
        kv_cache_page_size: own.kv_cache_page_size,
        cache_dtype: own.cache_dtype,
        ..settings
    };
    model.plan().with(change).unwrap()
}

impl Mix {
    /// The same with tokens of a vocabulary of so many.
    fn within(mut self, vocab: usize) -> Mix {
        let prompts = self.arrivals.iter_mut().flat_map(|arrival| &mut arrival.request.prompt);
        prompts.for_each(|token| *token %= vocab as u32);
        self
    }

    fn generator(&self, model: Arc<TextModel>) -> Generator {
        let longest = longest(self.arrivals.iter().map(|arrival| &arrival.request));
        let padded = longest.next_multiple_of(self.settings.pad_to_multiple_of);
        let plan = plan(&model, self.settings.clone().max_length(longest));
        Generator::with_plan(model, &plan.with_cache_tokens(padded + self.spare)).unwrap()
    }

    /// The answer of each request; that of a cancelled one ends there.
    fn run(&self, model: Arc<TextModel>) -> Outcome {
        let mut generator = self.generator(model);
        let mut ids: Vec<Option<SequenceId>> = vec![None; self.arrivals.len()];
        let mut answers: BTreeMap<SequenceId, Answer> = BTreeMap::new();
        let mut step = 0;
        while !generator.is_idle() || self.arrivals.iter().any(|arrival| arrival.step >= step) {
            for (id, arrival) in ids.iter_mut().zip(&self.arrivals) {
                if arrival.step == step {
                    let added = generator.add(arrival.request.clone()).unwrap();
                    answers.insert(added, Answer::new());
                    *id = Some(added);
                }
                if arrival.cancelled == Some(step) {
                    generator.abort(id.expect("it is cancelled after it came"));
                }
            }
            take(&mut generator, &mut answers);
            step += 1;
        }
        let scheduler = generator.scheduler();
        let cache = scheduler.cache();
        assert_eq!(cache.num_free(), cache.num_pages(), "all pages come back");
        assert_eq!(cache.num_free_state_slots(), cache.num_state_slots(), "all slots come back");
        let answer =
            |id: &Option<SequenceId>| answers.remove(&id.expect("all came")).expect("all are answered");
        Outcome {
            answers: ids.iter().map(answer).collect(),
            preemptions: scheduler.preemptions(),
            cached_tokens: cache.prefix_stats().cached_tokens,
        }
    }
}

/// Runs a step, and adds its events to the answers.
fn take(generator: &mut Generator, answers: &mut BTreeMap<SequenceId, Answer>) {
    for event in generator.step().unwrap() {
        if !matches!(event.kind, EventKind::Started { .. }) {
            let answer = answers.get_mut(&event.id).expect("only those that were added");
            answer.push(format!("{:?}", event.kind));
        }
    }
}

/// The answer of a request that runs alone, in one chunk, with pages in order.
fn alone(model: &Arc<TextModel>, request: &Request) -> Answer {
    let length = longest(std::iter::once(request));
    let plan = plan(model, PipelineConfig::default().max_length(length).enable_echo(true));
    let mut generator = Generator::with_plan(Arc::clone(model), &plan).unwrap();
    let id = generator.add(request.clone()).unwrap();
    let mut answers = BTreeMap::from([(id, Answer::new())]);
    while !generator.is_idle() {
        take(&mut generator, &mut answers);
    }
    answers.remove(&id).expect("it was asked for")
}

fn check(mix: &Mix, models: &mut Models) -> Result<Outcome, TestCaseError> {
    let reference = models.get(mix.model, 1, 64);
    let mix = mix.clone().within(reference.vocab());
    let outcome = mix.run(models.get(mix.model, mix.threads, mix.page_size));
    for (index, (arrival, answer)) in mix.arrivals.iter().zip(&outcome.answers).enumerate() {
        let expected = alone(&reference, &arrival.request);
        match arrival.cancelled {
            None => prop_assert_eq!(answer, &expected, "request {}", index),
            Some(_) => prop_assert!(expected.starts_with(answer), "request {}: {:?}", index, answer),
        }
    }
    Ok(outcome)
}

#[test]
fn each_request_gets_the_same_bits_alone_and_in_a_mix() {
    let models = Models::new();
    let cases = match std::env::var("PERIHELION_MIXES") {
        Ok(count) => count.parse().expect("PERIHELION_MIXES is a number"),
        Err(_) => MIXES,
    };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 300, ..Config::default() };
    let strategy = mixes(models.files.len());
    let models = std::cell::RefCell::new(models);
    match TestRunner::new(config).run(&strategy, |mix| check(&mix, &mut models.borrow_mut()).map(drop)) {
        Err(TestError::Fail(reason, mix)) => panic!("{reason}\n{mix:#?}"),
        result => result.unwrap(),
    }
}

/// Four requests that begin alike, each for 24 tokens, so many steps after each other.
fn alike(steps: usize) -> Vec<Arrival> {
    let request = |index: u32| Request {
        prompt: (300..320).chain([index]).collect(),
        logprobs: Some(3),
        max_new_tokens: Some(24),
        ignore_eos: true,
        prompt_logprobs: (index == 3).then_some(1),
        ..Request::default()
    };
    (0..4)
        .map(|index| Arrival { step: index as usize * steps, cancelled: None, request: request(index) })
        .collect()
}

/// The cases that mixes reach by chance, each on purpose.
#[test]
fn every_cache_strategy_gives_the_bits_of_a_request_alone() {
    let mut models = Models::new();
    let paged = PipelineConfig::default()
        .cache_strategy(KVCacheStrategy::Paged)
        .max_cache_batch_size(4)
        .enable_echo(true);
    let of = |strategy| paged.clone().cache_strategy(strategy).pad_to_multiple_of(7_usize);
    let prefixes = paged.clone().enable_prefix_caching(true);
    let several = paged.clone().max_num_steps(4).max_batch_tokens(13);
    // Spare tokens, steps between requests; whether sequences are preempted, and whether prefixes are found.
    let ways = [
        ("naive", of(KVCacheStrategy::Naive), 200, 1, false, false),
        ("continuous", of(KVCacheStrategy::Continuous), 200, 1, false, false),
        ("paged", paged.clone(), 200, 1, false, false),
        ("several steps, prompts in chunks", several, 200, 0, false, false),
        ("prefixes", prefixes.clone(), 200, 8, false, true),
        ("preemption", paged, 16, 0, true, false),
        ("preemption and prefixes", prefixes, 16, 2, true, true),
    ];
    for model in 0..models.files.len() {
        for (name, settings, spare, steps, preempts, hits) in &ways {
            let arrivals = alike(*steps);
            let settings = settings.clone();
            let mix = Mix { model, threads: 2, page_size: 16, spare: *spare, settings, arrivals };
            let outcome = check(&mix, &mut models).unwrap_or_else(|error| panic!("{name}: {error}"));
            let seen = (outcome.preemptions > 0, outcome.cached_tokens > 0);
            assert_eq!(seen, (*preempts, *hits), "{name}, model {model}: what it is called");
        }
    }
}
