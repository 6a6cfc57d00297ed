//! Language models on an adapter: the texts and logits of the CPU, and the same bits in chunks and in batches.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use engine::{CompileOptions, Device, InferenceSession, Model, Placement};
use graph::{Graph, Op};
use models::{Checkpoint, CheckpointOptions, Output};
use pipelines::{Batch, Page, Runner, SequenceId, Slice};
use tensor::{DType, Tensor};

use crate::adapter::{adapter, cpu, least_adapter};

const PAGE_SIZE: usize = 16;
const PAGES: usize = 64;
/// Sequences are this long at most.
const LENGTH: usize = 96;
/// The tokens whose logits are compared, and how they are cut.
const TOKENS: usize = 45;
const CHUNKS: &[&[usize]] = &[&[1, 44], &[16, 16, 13], &[7, 3, 20, 1, 1, 13]];
const BATCHES: std::ops::RangeInclusive<usize> = 1..=16;

/// Dense decoders: with norms of heads; with windows, soft caps and gates of gelu; with biases and blocks side by side.
const DENSE: &[&str] = &["qwen3", "gemma2", "gpt_neox"];
/// How far apart the two likeliest tokens are where rounding does not turn them: the CPU's own products are off by as much.
const MARGIN: f32 = 0.06;

/// A model that runs on one device, or on the host for all that the device does not do.
struct Loaded {
    model: Model,
    vocab: usize,
}

impl Loaded {
    fn new(path: &Path, cache_dtype: DType, device: &Arc<dyn Device>) -> Loaded {
        let options = CheckpointOptions { max_length: Some(LENGTH), ..CheckpointOptions::default() };
        let checkpoint = Checkpoint::open_with(path, None, options).unwrap();
        let graph = checkpoint.graph(Output::Logits, PAGE_SIZE, cache_dtype).unwrap();
        let session = InferenceSession::new([Arc::clone(device), cpu()]).unwrap();
        let options = CompileOptions { placement: Placement::On(device.spec()), ..CompileOptions::default() };
        let model = session.load_with(&graph, &weights(&checkpoint, &graph), &options).unwrap();
        Loaded { model, vocab: checkpoint.decoder().unwrap().vocab }
    }

    /// Runs on the CPU.
    fn here(path: &Path, cache_dtype: DType) -> Loaded {
        Loaded::new(path, cache_dtype, &cpu())
    }

    fn runner(&self) -> Runner {
        Runner::new(self.model.clone(), PAGES, self.vocab).unwrap()
    }

    /// The logits of every token of a sequence, run in chunks, each in the middle of a batch with the beginnings of others.
    fn logits(&self, sequence: &[u32], chunks: &[usize], others: &[Vec<u32>]) -> Vec<f32> {
        let (mut runner, mut logits, mut done) = (self.runner(), Vec::new(), 0);
        for &chunk in chunks {
            let beginning = |(i, tokens): (usize, &Vec<u32>)| {
                let len = 1 + (i * 5 + done) % tokens.len();
                slice(i + 1, 0, &tokens[..len], &[20 + i as Page])
            };
            let mut slices: Vec<Slice> = others.iter().enumerate().map(beginning).collect();
            let position = slices.len() / 2;
            let first: usize = slices[..position].iter().map(|slice| slice.tokens.len()).sum();
            slices.insert(position, slice(0, done, &sequence[done..done + chunk], &[7, 2, 5, 3, 9, 11]));
            let rows = runner.run(&Batch { slices, ..Batch::default() }).unwrap();
            (first..first + chunk).for_each(|row| logits.extend_from_slice(rows.row(row)));
            done += chunk;
        }
        logits
    }

    /// The likeliest continuation.
    fn greedy(&self, prompt: &[u32], count: usize) -> Vec<u32> {
        let (mut runner, mut tokens) = (self.runner(), prompt.to_vec());
        let mut cached = 0;
        while tokens.len() < prompt.len() + count {
            let slice = slice(0, cached, &tokens[cached..], &[7, 2, 5, 3, 9, 11]);
            let last = slice.tokens.len() - 1;
            let rows = runner.run(&Batch { slices: vec![slice], ..Batch::default() }).unwrap();
            cached = tokens.len();
            tokens.push(best(rows.row(last)));
        }
        tokens.split_off(prompt.len())
    }
}

fn slice(id: usize, cached: usize, tokens: &[u32], pages: &[Page]) -> Slice {
    Slice {
        id: SequenceId(id as u64),
        cached,
        tokens: tokens.to_vec(),
        pages: pages.to_vec(),
        predicts: true,
        outputs: tokens.len(),
        ..Slice::default()
    }
}

/// The weights that a graph needs.
fn weights(checkpoint: &Checkpoint, graph: &Graph) -> HashMap<String, Tensor> {
    let names = graph.nodes().filter_map(|(_, node)| match &node.op {
        Op::Weight(weight) => Some(weight.name.clone()),
        _ => None,
    });
    names.map(|name| (name.clone(), checkpoint.tensor(&name).unwrap().unwrap())).collect()
}

fn best(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32
}

/// Tokens that differ from sequence to sequence.
fn tokens(seed: usize, len: usize, vocab: usize) -> Vec<u32> {
    (0..len).map(|i| ((seed * 31 + i * i * 7 + i * 13 + 3) % vocab) as u32).collect()
}

/// The Kullback-Leibler divergence of the distribution of `logits` from that of `expected`, in nats.
fn divergence(expected: &[f32], logits: &[f32]) -> f64 {
    let logarithms = |logits: &[f32]| {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mass: f64 = logits.iter().map(|&logit| f64::from(logit - largest).exp()).sum();
        logits.iter().map(|&logit| f64::from(logit - largest) - mass.ln()).collect::<Vec<f64>>()
    };
    let (p, q) = (logarithms(expected), logarithms(logits));
    p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// The model writes with the CPU's logits, and the same bits in chunks and in batches.
fn check(name: &str, path: &Path, cache_dtype: DType, device: &Arc<dyn Device>) {
    let there = Loaded::new(path, cache_dtype, device);
    let sequence = tokens(1, TOKENS, there.vocab);
    let whole = there.logits(&sequence, &[TOKENS], &[]);
    let expected = Loaded::here(path, cache_dtype).logits(&sequence, &[TOKENS], &[]);
    let rows = expected.chunks(there.vocab).zip(whole.chunks(there.vocab));
    let worst = rows.map(|(expected, logits)| divergence(expected, logits)).fold(0.0, f64::max);
    assert!(worst <= 1e-4, "{name}: the distributions diverge by {worst} nats");
    let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
    for chunks in CHUNKS {
        let chunked = there.logits(&sequence, chunks, &[]);
        assert!(bits(&chunked) == bits(&whole), "{name}: other bits in chunks of {chunks:?}");
    }
    for batch in BATCHES {
        let others: Vec<Vec<u32>> = (1..batch).map(|i| tokens(i + 1, 1 + i % 11, there.vocab)).collect();
        let chunks = CHUNKS[batch % CHUNKS.len()];
        let together = there.logits(&sequence, chunks, &others);
        assert!(bits(&together) == bits(&whole), "{name}: other bits in a batch of {batch}");
    }
}

#[test]
fn the_storyteller_tells_the_story_of_the_cpu() {
    let Some(device) = adapter() else { return };
    let path = testdata::asset("storyteller/model.gguf");
    // "Once upon a time".
    let mut story = vec![0, 2352, 607, 260, 527];
    let beginning = story.len();
    story.extend(Loaded::here(&path, DType::F16).greedy(&story, 64));
    let there = Loaded::new(&path, DType::F16, &device);
    let logits = there.logits(&story, &[story.len()], &[]);
    for (token, row) in story[beginning..].iter().zip(logits.chunks(there.vocab).skip(beginning - 1)) {
        let margin = row[best(row) as usize] - row[*token as usize];
        assert!(margin <= MARGIN, "{token} is {margin} below the likeliest token");
    }
}

#[test]
fn dense_decoders_give_the_same_bits_in_chunks_and_batches() {
    let Some(device) = least_adapter() else { return };
    for name in DENSE {
        let path = format!("perihelion/tests/models/goldens/{name}/model.safetensors");
        check(name, &testdata::asset(&path), DType::F32, &device);
    }
}
