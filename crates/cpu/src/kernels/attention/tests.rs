//! Attention against a slow f64 reference, and against itself under every division of the work.

use super::*;
use crate::kernels::kv_cache::{KvLayout, store, store_rows};

/// Logical contents of one layer and head count: what the cache should mean, whatever its pages.
struct Sequence {
    /// `[positions, kv_heads, head_dim]`
    k: Vec<f32>,
    v: Vec<f32>,
    /// `[positions, heads, head_dim]`
    q: Vec<f32>,
    positions: usize,
}

#[derive(Clone, Copy)]
struct Shape {
    kv_heads: usize,
    head_dim: usize,
    attention: Attention<'static>,
}

fn shape(heads: usize, kv_heads: usize, head_dim: usize) -> Shape {
    let scale = 1.0 / (head_dim as f32).sqrt();
    let (window, chunk, softcap, sinks, biases) = (None, None, None, None, None);
    let attention =
        Attention { heads, scale, window, chunk, softcap, sinks, biases, values: None, chosen: None };
    Shape { kv_heads, head_dim, attention }
}

/// Rows of one head, whose first dims are values.
fn shape_of_rows(heads: usize, head_dim: usize, values: usize) -> Shape {
    let plain = shape(heads, 1, head_dim);
    Shape { attention: Attention { values: Some(values), ..plain.attention }, ..plain }
}

fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    }
}

impl Sequence {
    fn new(shape: Shape, positions: usize, seed: u64) -> Sequence {
        let mut next = noise(seed + 1);
        let mut fill = |heads: usize| (0..positions * heads * shape.head_dim).map(|_| next()).collect();
        let (k, v, q) = (fill(shape.kv_heads), fill(shape.kv_heads), fill(shape.attention.heads));
        Sequence { k, v, q, positions }
    }
}

/// `softmax(scale · q kᵀ) v`, in f64, one query row after the other.
fn reference(shape: Shape, sequence: &Sequence) -> Vec<f64> {
    let Attention { heads, scale, window, chunk, softcap, sinks, biases, values, .. } = shape.attention;
    let (dims, group) = (shape.head_dim, heads / shape.kv_heads);
    let held = if values.is_some() { &sequence.k } else { &sequence.v };
    let mut out = Vec::new();
    for position in 0..sequence.positions {
        let first = (0..=position)
            .find(|&past| {
                window.is_none_or(|window| position - past < window)
                    && chunk.is_none_or(|chunk| position / chunk == past / chunk)
            })
            .unwrap();
        for head in 0..heads {
            let q = &sequence.q[(position * heads + head) * dims..][..dims];
            let at = |values: &[f32], past: usize, dim: usize| {
                f64::from(values[(past * shape.kv_heads + head / group) * dims + dim])
            };
            let score = |past: usize| {
                let dot: f64 = (0..dims).map(|dim| f64::from(q[dim]) * at(&sequence.k, past, dim)).sum();
                let score = dot * f64::from(scale);
                let score = softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh());
                score + biases.map_or(0.0, |biases| f64::from(biases[head * (biases.len() / heads) + past]))
            };
            let scores: Vec<f64> = (first..=position).map(score).collect();
            let sink = sinks.map_or(f64::NEG_INFINITY, |sinks| sinks[head].into());
            let largest = scores.iter().copied().fold(sink, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum = weights.iter().sum::<f64>() + (sink - largest).exp();
            let value = |dim| -> f64 {
                weights.iter().zip(first..).map(|(weight, past)| weight / sum * at(held, past, dim)).sum()
            };
            out.extend((0..values.unwrap_or(dims)).map(value));
        }
    }
    out
}

/// How to run some sequences through the kernel.
#[derive(Clone)]
struct How {
    variant: usize,
    threads: usize,
    page_size: usize,
    /// New tokens of each sequence in each call, as long as it has some.
    chunk: usize,
}

/// Attends over sequences side by side, chunk after chunk; returns each one's output.
fn run<T: CacheElement>(shape: Shape, sequences: &[&Sequence], how: &How) -> Vec<Vec<f32>> {
    let values = shape.attention.values;
    let layout = if values.is_some() { KvLayout::of_rows } else { KvLayout::new };
    let layout = layout(2, shape.kv_heads, shape.head_dim, how.page_size).unwrap();
    let longest = sequences.iter().map(|sequence| sequence.positions).max().unwrap();
    let max_pages = longest.div_ceil(how.page_size);
    let pages = max_pages * sequences.len();
    // Pages in an order that neither rises nor falls, in a cache of NaN: reading what no one wrote shows.
    let page_table: Vec<u32> =
        (0..pages).map(|i| ((i * 7 + 3) % pages.next_power_of_two().max(8)) as u32).collect();
    let pages = pages.next_power_of_two().max(8);
    let mut cache = vec![T::from_f32(f32::NAN); pages * layout.page_len()];
    let pool = Pool::new(how.threads);
    let (kv_row, q_row) = (shape.kv_heads * shape.head_dim, shape.attention.heads * shape.head_dim);
    let out_row = shape.attention.heads * values.unwrap_or(shape.head_dim);
    let mut out = vec![Vec::new(); sequences.len()];
    for start in (0..longest).step_by(how.chunk) {
        let part =
            |sequence: &Sequence| start.min(sequence.positions)..(start + how.chunk).min(sequence.positions);
        let (mut offsets, mut k, mut v, mut q) = (vec![0], Vec::new(), Vec::new(), Vec::new());
        for sequence in sequences {
            let part = part(sequence);
            k.extend(&sequence.k[part.start * kv_row..part.end * kv_row]);
            v.extend(&sequence.v[part.start * kv_row..part.end * kv_row]);
            q.extend(&sequence.q[part.start * q_row..part.end * q_row]);
            offsets.push(offsets[offsets.len() - 1] + part.len() as u32);
        }
        let lengths: Vec<u32> = sequences.iter().map(|sequence| part(sequence).start as u32).collect();
        let batch = RaggedBatch::new(layout, pages, &offsets, &lengths, &page_table).unwrap();
        match values {
            None => store(&pool, &batch, 1, &mut cache, &k, &v).unwrap(),
            Some(_) => store_rows(&pool, &batch, 1, &mut cache, &k).unwrap(),
        }
        let mut y = vec![0f32; q.len() / q_row * out_row];
        let variant = &T::VARIANTS[how.variant];
        attention_with(variant, &pool, &shape.attention, &batch, 1, &cache, &q, &mut y).unwrap();
        for (sequence, out) in out.iter_mut().enumerate() {
            let rows = batch.rows(sequence);
            out.extend(&y[rows.start * out_row..rows.end * out_row]);
        }
    }
    out
}

fn available<T: CacheElement>() -> Vec<usize> {
    (0..T::VARIANTS.len()).filter(|&variant| (T::VARIANTS[variant].available)()).collect()
}

fn plain(variant: usize) -> How {
    How { variant, threads: 2, page_size: 16, chunk: usize::MAX / 2 }
}

fn check(shape: Shape, positions: usize) {
    let sequence = Sequence::new(shape, positions, 1);
    let want = reference(shape, &sequence);
    for variant in available::<f32>() {
        let got = &run::<f32>(shape, &[&sequence], &plain(variant))[0];
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let name = f32::VARIANTS[variant].name;
            assert!((f64::from(*got) - want).abs() < 4e-6, "{name}: {got} for {want} at {i}");
        }
    }
}

#[test]
fn agrees_with_the_reference_for_any_head_dim() {
    for head_dim in [1, 8, 15, 16, 17, 32, 64, 80, 96, 100, 128, 256] {
        check(shape(4, 2, head_dim), 37);
    }
}

#[test]
fn agrees_with_the_reference_for_any_length_and_group() {
    for positions in [1, 2, 15, 16, 17, 255, 256, 257, 530] {
        check(shape(3, 3, 16), positions);
    }
    for heads in [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 25] {
        check(shape(heads, 1, 24), 70);
    }
}

#[test]
fn agrees_with_the_reference_in_a_window_and_under_a_cap() {
    for window in [1, 2, 15, 16, 17, 100, 256, 300, 1000] {
        let mut shape = shape(2, 1, 20);
        shape.attention.window = Some(window);
        check(shape, 600);
        shape.attention.softcap = Some(1.5);
        check(shape, 90);
    }
}

/// Sinks below, among and above the scores.
const SINKS: [f32; 6] = [-30.0, 0.25, 3.0, f32::NEG_INFINITY, -1.0, 60.0];

#[test]
fn agrees_with_the_reference_in_chunks_and_with_sinks() {
    for chunk in [1, 7, 16, 250, 256, 300] {
        for window in [None, Some(5)] {
            let mut shape = shape(6, 2, 20);
            (shape.attention.chunk, shape.attention.window) = (Some(chunk), window);
            check(shape, 600);
            shape.attention.sinks = Some(&SINKS);
            check(shape, 300);
        }
    }
}

/// Of six heads and 700 positions: those of ALiBi, some of which fall with the position, and noise.
fn biases() -> &'static [f32] {
    let mut next = noise(8);
    // Small enough that scores keep the digits that the tolerance asks for.
    let slopes = [0.03, 0.002, -0.0125, 0.09, 0.0, 0.0078];
    let bias = |i: usize| slopes[i / 700] * (i % 700) as f32 + next() / 4.0;
    (0..6 * 700).map(bias).collect::<Vec<f32>>().leak()
}

#[test]
fn agrees_with_the_reference_with_biases() {
    for (window, softcap) in [(None, None), (Some(100), None), (None, Some(3.0))] {
        let mut shape = shape(6, 2, 20);
        shape.attention = Attention { window, softcap, biases: Some(biases()), ..shape.attention };
        check(shape, 600);
    }
}

#[test]
fn agrees_with_the_reference_where_rows_are_keys_and_values() {
    for (head_dim, values) in [(1, 1), (8, 5), (16, 16), (19, 16), (40, 33), (96, 64), (130, 17)] {
        for heads in [1, 2, 3, 5, 8, 13] {
            check(shape_of_rows(heads, head_dim, values), 37);
        }
        check(shape_of_rows(4, head_dim, values), 530);
    }
    let mut bounded = shape_of_rows(2, 24, 20);
    bounded.attention.window = Some(100);
    bounded.attention.softcap = Some(1.5);
    check(bounded, 300);
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let plain = shape(6, 2, 72);
    same_bits_everywhere(plain);
    same_bits_everywhere(Shape {
        attention: Attention { biases: Some(biases()), ..plain.attention },
        ..plain
    });
    same_bits_everywhere(shape_of_rows(7, 72, 60));
}

fn same_bits_everywhere(shape: Shape) {
    let sequence = Sequence::new(shape, 300, 3);
    let all: Vec<_> =
        available::<f32>().into_iter().map(|v| run::<f32>(shape, &[&sequence], &plain(v))).collect();
    assert!(all.windows(2).all(|pair| same_bits(&pair[0], &pair[1])));
}

fn same_bits(a: &[Vec<f32>], b: &[Vec<f32>]) -> bool {
    let bits = |all: &[Vec<f32>]| -> Vec<Vec<u32>> {
        all.iter().map(|one| one.iter().map(|x| x.to_bits()).collect()).collect()
    };
    bits(a) == bits(b)
}

#[test]
fn bits_depend_on_neither_chunks_nor_pages_nor_threads() {
    divided::<f32>();
    divided::<bf16>();
    divided::<f16>();
}

fn divided<T: CacheElement>() {
    for (mut shape, window, chunk, sinks, biases) in [
        (shape(6, 2, 40), None, None, None, None),
        (shape(6, 2, 40), Some(100), None, Some(&SINKS[..]), None),
        (shape(6, 2, 40), None, Some(90), None, None),
        (shape(6, 2, 40), None, None, None, Some(biases())),
        (shape_of_rows(6, 40, 36), None, None, None, None),
    ] {
        shape.attention = Attention { window, chunk, sinks, biases, ..shape.attention };
        let sequence = Sequence::new(shape, 700, 4);
        for variant in available::<T>() {
            let whole = run::<T>(shape, &[&sequence], &plain(variant));
            for (chunk, page_size, threads) in
                [(700, 32, 1), (700, 512, 4), (1, 16, 4), (3, 512, 3), (64, 32, 2), (257, 16, 1), (5, 128, 1)]
            {
                let how = How { variant, threads, page_size, chunk };
                assert!(
                    same_bits(&whole, &run::<T>(shape, &[&sequence], &how)),
                    "{} in chunks of {chunk}, pages of {page_size}, {threads} threads, window {window:?}",
                    T::VARIANTS[variant].name
                );
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_batch() {
    let shape = shape(4, 1, 32);
    let all: Vec<Sequence> = (0..64).map(|i| Sequence::new(shape, 1 + i * 37 % 291, i as u64)).collect();
    for variant in available::<f32>() {
        let how = How { variant, threads: 4, page_size: 32, chunk: 50 };
        let together = run::<f32>(shape, &all.iter().collect::<Vec<_>>(), &how);
        for (sequence, out) in all.iter().zip(together) {
            let alone = run::<f32>(shape, &[sequence], &How { chunk: 7, threads: 1, ..how.clone() });
            assert!(same_bits(&[out], &alone));
        }
    }
}

#[test]
fn what_a_row_may_not_see_cannot_touch_it() {
    let shape = shape(4, 2, 24);
    let clean = Sequence::new(shape, 40, 5);
    let mut dirty = Sequence::new(shape, 40, 5);
    for values in [&mut dirty.k, &mut dirty.v] {
        values[30 * 48..31 * 48].fill(f32::INFINITY);
        values[33 * 48..34 * 48].fill(f32::NAN);
    }
    for variant in available::<f32>() {
        let clean = run::<f32>(shape, &[&clean], &plain(variant));
        let dirty = run::<f32>(shape, &[&dirty], &plain(variant));
        let row = 4 * 24;
        assert!(same_bits(&[clean[0][..30 * row].to_vec()], &[dirty[0][..30 * row].to_vec()]));
        assert!(dirty[0][33 * row..].iter().all(|x| x.is_nan()));
    }
}

#[test]
fn a_cache_of_halves_is_read_as_what_it_holds() {
    read_as_held::<bf16>();
    read_as_held::<f16>();
}

fn read_as_held<T: CacheElement>() {
    let shapes = [1, 15, 16, 17, 40, 64, 100, 128].map(|head_dim| shape(6, 2, head_dim));
    for shape in shapes.into_iter().chain([shape_of_rows(6, 40, 36), shape_of_rows(3, 15, 15)]) {
        let head_dim = shape.head_dim;
        let mut sequence = Sequence::new(shape, 300, 6);
        for x in sequence.k.iter_mut().chain(&mut sequence.v) {
            *x = T::from_f32(*x).to_f32();
        }
        for variant in available::<f32>() {
            let wide = run::<f32>(shape, &[&sequence], &plain(variant));
            let narrow = run::<T>(shape, &[&sequence], &plain(variant));
            assert!(same_bits(&wide, &narrow), "{} for {head_dim}", f32::VARIANTS[variant].name);
        }
    }
}

#[test]
fn huge_scores_do_not_overflow() {
    let mut shape = shape(1, 1, 16);
    shape.attention.scale = 1e6;
    let sequence = Sequence::new(shape, 40, 7);
    for variant in available::<f32>() {
        assert!(run::<f32>(shape, &[&sequence], &plain(variant))[0].iter().all(|x| x.is_finite()));
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let layout = KvLayout::new(1, 2, 8, 16).unwrap();
    let batch = RaggedBatch::new(layout, 1, &[0, 1], &[0], &[0]).unwrap();
    let call = |attention: Attention<'_>, cache: usize, q: usize, out: usize| {
        let (cache, q, mut out) = (vec![0f32; cache], vec![0f32; q], vec![0f32; out]);
        super::attention(&Pool::new(1), &attention, &batch, 0, &cache, &q, &mut out).unwrap_err().to_string()
    };
    let good = shape(4, 2, 8).attention;
    let heads = Attention { heads: 3, ..good };
    assert_eq!(
        call(heads, 512, 24, 24),
        "attention: heads is 3, which must be a multiple of the cache's kv_heads"
    );
    let window = Attention { window: Some(0), ..good };
    assert_eq!(call(window, 512, 32, 32), "attention: window is 0, which must be at least 1");
    let rows = Attention { values: Some(5), ..good };
    let message = "attention: values is 5, which must be given for a cache of rows, and for no other";
    assert_eq!(call(rows, 512, 32, 20), message);
    let sinks = Attention { sinks: Some(&SINKS), ..good };
    assert_eq!(call(sinks, 512, 32, 32), "attention: sinks has 6 elements where 4 are needed");
    let biases = Attention { biases: Some(&[]), ..good };
    let message = "attention: positions is 1, which must be at most those that have biases";
    assert_eq!(call(biases, 512, 32, 32), message);
    assert_eq!(call(good, 0, 32, 32), "attention: cache has 0 elements where 512 are needed");
    assert_eq!(call(good, 512, 31, 32), "attention: q has 31 elements where 32 are needed");
    assert_eq!(call(good, 512, 32, 40), "attention: out has 40 elements where 32 are needed");
}
