//! What choosing a token costs. Prints the best of several runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use perihelion_pipelines::sampler::{Row, Sampler, SamplingParams, TokenCounts};
use tensor::philox::uniform;

/// Llama 3's.
const VOCABULARY: usize = 128_256;

fn main() {
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
