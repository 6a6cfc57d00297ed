//! What text costs: building a tokenizer, encoding, choosing a token. Prints the best of several runs.

use std::collections::HashSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

use perihelion_pipelines::sampler::{Row, Sampler, SamplingParams, TokenCounts};
use perihelion_pipelines::tokenizer::GgufVocabulary;
use perihelion_pipelines::{AddSpecial, ParseSpecial, Tokenizer};
use tensor::philox::uniform;

/// Llama 3's.
const VOCABULARY: usize = 128_256;

fn main() {
    tokenizers();
    sampling();
}

fn best(what: &str, runs: usize, mut run: impl FnMut()) {
    let times = (0..runs).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    let best: Duration = times.min().expect("at least one run");
    println!("{what:<44} {:>10.1} us", best.as_secs_f64() * 1e6);
}

fn tokenizers() {
    let tokens = tokens(128_000);
    let merges = merges(&tokens, 280_000);
    let build = || {
        let vocabulary = GgufVocabulary {
            model: "gpt2",
            pre: "qwen2",
            tokens: tokens.iter().map(|token| token.into()).collect(),
            merges: merges.iter().map(|merge| merge.into()).collect(),
            ..Default::default()
        };
        Tokenizer::from_gguf_vocabulary(&vocabulary).expect("a sound vocabulary")
    };
    best("build: 128,000 tokens, 280,000 merges", 5, || drop(black_box(build())));
    let tokenizer = build();
    let text = "The quick brown fox jumps over the lazy dog; badge facade cafe. ".repeat(2000);
    best(&format!("encode: {} bytes", text.len()), 5, || {
        black_box(tokenizer.encode(&text, AddSpecial::No, ParseSpecial::No).expect("text"));
    });
}

fn sampling() {
    let logits: Vec<f32> = (0..VOCABULARY).map(|i| 8.0 * uniform(3, i as u64) as f32).collect();
    let history = TokenCounts::new(&(0..1000).collect::<Vec<_>>());
    let warm = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let cases = [
        ("sample: greedy", SamplingParams::default()),
        (
            "sample: greedy, 20 log-probabilities",
            SamplingParams { logprobs: Some(20), ..SamplingParams::default() },
        ),
        ("sample: top-k 40", SamplingParams { top_k: Some(40), ..warm.clone() }),
        (
            "sample: top-k 40, penalties",
            SamplingParams { top_k: Some(40), repetition_penalty: 1.1, ..warm.clone() },
        ),
        ("sample: top-k 1000", SamplingParams { top_k: Some(1000), ..warm.clone() }),
        ("sample: top-k 20,000", SamplingParams { top_k: Some(20_000), ..warm.clone() }),
        (
            "sample: top-k 100,000, top-p 0.9",
            SamplingParams { top_k: Some(100_000), top_p: 0.9, ..warm.clone() },
        ),
        ("sample: top-p 0.95 of even logits", SamplingParams { top_p: 0.95, ..warm.clone() }),
        (
            "sample: top-p 0.95 of steep logits",
            SamplingParams { top_p: 0.95, temperature: 0.01, ..warm.clone() },
        ),
        (
            "sample: top-p 0.95 of flat logits",
            SamplingParams { top_p: 0.95, temperature: 100.0, ..warm.clone() },
        ),
        ("sample: top-p 0.95, min-p 0.01", SamplingParams { top_p: 0.95, min_p: 0.01, ..warm.clone() }),
        ("sample: min-p 0.05", SamplingParams { min_p: 0.05, ..warm.clone() }),
        ("sample: whole vocabulary", warm),
    ];
    for (what, params) in cases {
        let (mut sampler, mut position) = (Sampler::default(), 0);
        best(what, 100, || {
            let row = Row {
                logits: &logits,
                params: &params,
                history: &history,
                position,
                allowed: None,
                forbidden: &[],
            };
            black_box(sampler.sample(&row).expect("a token"));
            position += 1;
        });
    }
}

/// The 256 bytes, then strings of eight letters by length.
fn tokens(count: usize) -> Vec<String> {
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let (shown, hidden): (Vec<u32>, Vec<u32>) = (0..256).partition(|&byte| printable(byte));
    let stand_ins = (256..).take(hidden.len());
    let bytes = shown.into_iter().chain(stand_ins).filter_map(char::from_u32);
    let mut tokens: Vec<String> = bytes.map(String::from).collect();
    let mut longest: Vec<String> = ('a'..='h').map(String::from).collect();
    while tokens.len() < count {
        longest = longest.iter().flat_map(|text| ('a'..='h').map(move |c| format!("{text}{c}"))).collect();
        tokens.extend(longest.iter().take(count - tokens.len()).cloned());
    }
    tokens
}

/// Ways to make a token of two others, as vocabularies list them.
fn merges(tokens: &[String], count: usize) -> Vec<String> {
    let known: HashSet<&str> = tokens.iter().map(String::as_str).collect();
    let cuts =
        tokens.iter().flat_map(|token| token.char_indices().skip(1).map(|(cut, _)| token.split_at(cut)));
    let pairs = cuts.filter(|(left, right)| known.contains(left) && known.contains(right));
    pairs.map(|(left, right)| format!("{left} {right}")).take(count).collect()
}
