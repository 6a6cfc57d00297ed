//! Attention to a paged cache on an adapter: the bits of a sequence depend neither on the batch, nor on the chunks of its
//! prompt, nor on the size of pages.

use std::ops::Range;
use std::sync::Arc;

use engine::{Device, InferenceSession, Model};
use graph::ops::{KvStore, PagedAttention};
use graph::{DeviceRef, Graph, Type};
use tensor::{DType, Tensor};

use crate::adapter::{adapter, brought, compile_there, cpu, least_adapter};

const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const DIMS: usize = 24;
const SEQUENCES: usize = 16;
const POSITIONS: usize = 600;

/// What each call computes: for some sequences, how many tokens more.
type Step = Vec<(usize, usize)>;

fn model(device: &Arc<dyn Device>, op: PagedAttention, dtype: DType, page_size: usize) -> Model {
    let mut graph = Graph::new("attention");
    let page = page_size * DIMS;
    let cache = graph.input(
        "cache",
        Type::buffer(dtype, ["pages".into(), 2.into(), 2.into(), KV_HEADS.into(), graph::Dim::from(page)]),
    );
    let rows = |heads: usize| Type::new(DType::F32, ["tokens".into(), heads.into(), graph::Dim::from(DIMS)]);
    let [q, k, v] =
        [("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)].map(|(name, heads)| graph.input(name, rows(heads)));
    let lists = [
        ("row_offsets", "u32[batch + 1]"),
        ("cache_lengths", "u32[batch]"),
        ("page_table", "u32[batch, max_pages]"),
    ]
    .map(|(name, ty)| graph.input(name, ty.parse().unwrap()));
    let store = KvStore { layer: op.layer };
    graph.push(store.into(), &[&[cache, k, v], &lists[..]].concat()).unwrap();
    let y = graph.push_one(op.into(), &[&[q, cache], &lists[..]].concat()).unwrap();
    graph.set_outputs(&[y]);
    let session = InferenceSession::new([Arc::clone(device), cpu()]).unwrap();
    session.init(&compile_there(&session, &graph), &|_: &str| None).unwrap()
}

/// Numbers without pattern for tokens of sequences, `[tokens, heads, DIMS]`: the same for a token in whichever call.
fn rows(tokens: &[(usize, Range<usize>)], heads: usize, seed: usize) -> Tensor {
    let mut values: Vec<f32> = Vec::new();
    for (sequence, position) in
        tokens.iter().flat_map(|(sequence, range)| range.clone().map(move |position| (sequence, position)))
    {
        let first = ((sequence * POSITIONS + position) * 3 + seed) * HEADS * DIMS;
        values.extend(
            (first..first + heads * DIMS)
                .map(|i| ((i as f64 * 12.9898).sin() * 43758.5453).fract() as f32 * 2.0),
        );
    }
    Tensor::from_slice([values.len() / (heads * DIMS), heads, DIMS], &values)
}

/// Runs calls one after the other; gives the results of each sequence, of all its tokens.
fn run(
    device: &Arc<dyn Device>,
    op: PagedAttention,
    dtype: DType,
    page_size: usize,
    steps: &[Step],
) -> Vec<Vec<f32>> {
    let model = model(device, op, dtype, page_size);
    let there = |tensor: &Tensor, place| brought(tensor, place, &**device);
    let pages = SEQUENCES * POSITIONS.div_ceil(page_size);
    let places: Vec<DeviceRef> = model.input_devices().into_iter().collect();
    let cache = there(&Tensor::zeros(dtype, [pages, 2, 2, KV_HEADS, page_size * DIMS]), places[0]);
    let (mut lengths, mut results) = ([0; SEQUENCES], vec![Vec::new(); SEQUENCES]);
    for step in steps {
        let tokens: Vec<_> = step
            .iter()
            .map(|&(sequence, new)| (sequence, lengths[sequence]..lengths[sequence] + new))
            .collect();
        let (mut offsets, mut cached, mut table) = (vec![0u32], Vec::new(), Vec::new());
        let longest = tokens.iter().map(|(_, range)| range.end.div_ceil(page_size)).max().unwrap();
        let max_pages = longest.next_power_of_two();
        for (sequence, range) in &tokens {
            offsets.push(offsets[offsets.len() - 1] + range.len() as u32);
            cached.push(range.start as u32);
            // What is behind the end of a sequence is never read.
            let used = range.end.div_ceil(page_size);
            table
                .extend((0..max_pages).map(|i| if i < used { (i * SEQUENCES + sequence) as u32 } else { 0 }));
        }
        let [q, k, v] =
            [(HEADS, 0), (KV_HEADS, 1), (KV_HEADS, 2)].map(|(heads, seed)| rows(&tokens, heads, seed));
        let lists = [
            Tensor::from_slice([offsets.len()], &offsets),
            Tensor::from_slice([cached.len()], &cached),
            Tensor::from_slice([cached.len(), max_pages], &table),
        ];
        let mut inputs = vec![cache.clone()];
        let values = [q, k, v].into_iter().chain(lists);
        inputs.extend(values.zip(&places[1..]).map(|(tensor, place)| there(&tensor, *place)));
        let y: Vec<f32> = model.execute(&inputs).unwrap()[0].to_tensor().unwrap().to_vec();
        for ((sequence, range), part) in tokens.iter().zip(offsets.windows(2)) {
            results[*sequence].extend(&y[part[0] as usize * HEADS * DIMS..part[1] as usize * HEADS * DIMS]);
            lengths[*sequence] = range.end;
        }
    }
    results
}

/// The tokens of a sequence's prompt.
fn prompt(sequence: usize) -> usize {
    [530, 256, 255].get(sequence).copied().unwrap_or(sequence)
}

fn check(device: &Arc<dyn Device>, op: PagedAttention, dtype: DType) {
    let decoded = |sequence: usize| SEQUENCES - sequence;
    // Each sequence alone: its prompt, then a token at a time.
    let alone = (0..SEQUENCES).flat_map(|sequence| {
        let tokens = std::iter::repeat_n(1, decoded(sequence));
        std::iter::once(prompt(sequence)).chain(tokens).map(move |new| vec![(sequence, new)])
    });
    let alone: Vec<Step> = alone.collect();
    let expected = run(device, op, dtype, 16, &alone);
    let host = run(&cpu(), op, dtype, 16, &alone);
    for (got, expected) in expected.iter().zip(&host) {
        testdata::check_gpu_results("attention", got, expected, 1e-5);
    }
    // All prompts in one batch, then batches of 16 down to 1.
    let mut together: Vec<Step> = vec![(0..SEQUENCES).map(|sequence| (sequence, prompt(sequence))).collect()];
    together.extend((1..=SEQUENCES).rev().map(|batch| (0..batch).map(|sequence| (sequence, 1)).collect()));
    // Chunks of prompts among decode steps of others.
    let mut chunks: Vec<Step> = Vec::new();
    let (mut left, sizes) = (
        (0..SEQUENCES).map(|sequence| prompt(sequence) + decoded(sequence)).collect::<Vec<_>>(),
        [1usize, 254, 1, 3, 100, 15],
    );
    for size in sizes.into_iter().cycle() {
        let step = left.iter_mut().enumerate().filter(|(_, left)| **left > 0).map(|(sequence, left)| {
            let new = if sequence % 3 == 1 { size.div_ceil(2) } else { size }.min(*left);
            *left -= new;
            (sequence, new)
        });
        chunks.push(step.rev().collect());
        if left.iter().all(|left| *left == 0) {
            break;
        }
    }
    for (what, page_size, steps) in
        [("batches", 16, &together), ("pages of 64", 64, &together), ("chunks", 32, &chunks)]
    {
        let got = run(device, op, dtype, page_size, steps);
        for (sequence, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert!(bits(got) == bits(expected), "{what}: other bits for sequence {sequence}");
        }
    }
}

#[test]
fn bits_depend_on_the_sequence_alone() {
    let (Some(device), Some(least)) = (adapter(), least_adapter()) else { return };
    let all =
        PagedAttention { layer: 1, scale: 0.25, window: None, chunk: None, softcap: None, values: None };
    check(&device, all, DType::F16);
    check(&least, PagedAttention { window: Some(300), softcap: Some(20.0), ..all }, DType::BF16);
    check(&least, PagedAttention { chunk: Some(100), ..all }, DType::F32);
}
