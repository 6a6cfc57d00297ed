//! How fast linear layers and the pool are, with the limits of this machine.
//!
//! `cargo bench -p perihelion-cpu --bench linear -- [filters]` prints the lines that contain all filters, such as
//! `q4_k`, `8192x2048`, `avx512` or `tokens=1`. `threads=N` sets the pool's size. `*` marks the variant that the
//! dispatcher chooses. Weights rotate through 256 MiB, so a single token reads them from memory, as in a model.

use std::hint::black_box;
use std::time::{Duration, Instant};

use perihelion_cpu::Pool;
use perihelion_cpu::kernels::linear::{
    Activation, Epilogue, Functions, Linear, Norm, PackedMatrix, ROUNDING_VARIANTS, VARIANTS, linear,
    linear_with, scratch_bytes,
};
use perihelion_cpu::variant::{Variant, fastest};
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor};

mod experts;
mod limits;

/// [rows, columns] of the 1B model, and the sizes of a small encoder.
const SHAPES: [(usize, usize); 7] =
    [(2048, 2048), (8192, 2048), (2048, 8192), (128_256, 2048), (4096, 4096), (384, 384), (1536, 384)];
const TOKENS: [usize; 5] = [1, 8, 16, 64, 512];
const DTYPES: [DType; 9] = [
    DType::Q4_0,
    DType::Gptq,
    DType::Q4K,
    DType::Q5_0,
    DType::Q6K,
    DType::Q8_0,
    DType::BF16,
    DType::F16,
    DType::F32,
];
/// Weights to rotate through: far more than the caches hold.
const ROTATION: usize = 256 << 20;
/// How long one figure is measured, its warm-up not counted.
const PATIENCE: Duration = Duration::from_millis(250);

fn main() {
    let mut filters: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let threads = filters.iter().position(|filter| filter.starts_with("threads="));
    let threads = threads.map(|at| filters.remove(at)[8..].parse().expect("threads=N")).unwrap_or(0);
    let pool = Pool::new(threads);
    let wanted = |line: &str| filters.iter().all(|filter| line.split_whitespace().any(|word| word == filter));
    println!("{} threads", pool.threads());
    limits::print(&pool);
    if wanted("pool") {
        bench_pool(&pool);
    }
    if wanted("pack") {
        bench_pack(&pool);
    }
    if wanted("decoder") {
        bench_decoder(&pool);
    }
    if wanted("experts") {
        experts::print(&pool);
    }
    for dtype in DTYPES {
        for (rows, columns) in SHAPES {
            if !columns.is_multiple_of(dtype.block().elements) {
                continue;
            }
            let line = |tokens: usize, name: &str| {
                format!("linear {dtype:<6} {:<12} tokens={tokens:<4} {name:<11}", format!("{rows}x{columns}"))
            };
            let tokens = TOKENS.into_iter().filter(|&tokens| rows < 100_000 || tokens == 1);
            let rounding = if dtype == DType::BF16 { ROUNDING_VARIANTS } else { &[] };
            let variants = || rounding.iter().chain(VARIANTS).filter(|variant| (variant.available)());
            let lines: Vec<_> = tokens
                .flat_map(|tokens| variants().map(move |variant| (tokens, variant)))
                .filter(|(tokens, variant)| wanted(&line(*tokens, variant.name)))
                .collect();
            if lines.is_empty() {
                continue;
            }
            let matrices = rotation(dtype, rows, columns, &pool);
            for (tokens, variant) in lines {
                let time = bench_linear(variant, &pool, &matrices, tokens);
                let chosen = if std::ptr::eq(variant, fastest(VARIANTS)) { "*" } else { " " };
                println!(
                    "{}{chosen} {:>9.1} us {:>7.1} GB/s {:>8.1} Gop/s",
                    line(tokens, variant.name),
                    time * 1e6,
                    matrices[0].bytes() as f64 / time / 1e9,
                    2.0 * (rows * columns * tokens) as f64 / time / 1e9
                );
            }
        }
    }
}

/// Seconds per call: the fastest of several runs, each of which goes through the given work `calls` times.
fn best_time(calls: usize, mut work: impl FnMut()) -> f64 {
    work();
    let start = Instant::now();
    let mut best = f64::INFINITY;
    let mut rounds = 0;
    while start.elapsed() < PATIENCE || rounds < 3 {
        let round = Instant::now();
        work();
        best = best.min(round.elapsed().as_secs_f64() / calls as f64);
        rounds += 1;
    }
    best
}

/// A weight whose every bit pattern is harmless: small numbers, whatever the dtype.
fn weight(dtype: DType, rows: usize, columns: usize) -> Tensor {
    let mut bytes = AlignedBytes::zeroed(dtype.bytes_for(rows * columns).expect("whole blocks"));
    bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index * 7 % 32) as u8);
    Tensor::from_bytes(dtype, Shape::new(&[rows, columns]), Bytes::new(bytes)).expect("bytes fit")
}

fn rotation(dtype: DType, rows: usize, columns: usize, pool: &Pool) -> Vec<PackedMatrix> {
    let weight = weight(dtype, rows, columns);
    let first = PackedMatrix::pack(&weight, pool).expect("a dtype that can be packed");
    let copies = (ROTATION / first.bytes()).max(1);
    let others = (1..copies).map(|_| PackedMatrix::pack(&weight, pool).expect("as the first"));
    std::iter::once(first).chain(others).collect()
}

fn bench_linear(variant: &Variant<Functions>, pool: &Pool, matrices: &[PackedMatrix], tokens: usize) -> f64 {
    let (rows, columns) = (matrices[0].rows(), matrices[0].columns());
    let input: Vec<f32> = (0..tokens * columns).map(|index| (index % 101) as f32 / 50.0 - 1.0).collect();
    let mut output = vec![0.0; tokens * rows];
    let mut scratch = AlignedBytes::zeroed(scratch_bytes(tokens, &[&matrices[0]], false));
    // One round is a few milliseconds of work, or once through all matrices.
    let calls = (20_000_000_000 / (rows * columns * tokens)).clamp(1, matrices.len());
    let mut next = 0;
    best_time(calls, || {
        for _ in 0..calls {
            let weights = &[&matrices[next]];
            next = (next + 1) % matrices.len();
            let call = Linear {
                input: &input,
                tokens,
                norm: None,
                weights,
                biases: &[],
                epilogue: Epilogue::Plain,
                residual: None,
                exact: false,
                outputs: &mut [&mut output],
                scratch: &mut scratch,
            };
            linear_with(&variant.run, pool, call);
        }
        black_box(&mut output);
    })
}

/// A layer's call: its input and norm, weights, epilogue, and residual.
type Layer<'a> = (&'a [f32], Option<Norm<'a>>, &'a [&'a PackedMatrix], Epilogue, Option<&'a [f32]>);

fn call(pool: &Pool, tokens: usize, scratch: &mut [u8], layer: Layer, outputs: &mut [&mut [f32]]) {
    let (input, norm, weights, epilogue, residual) = layer;
    let (biases, exact) = (&[][..], false);
    linear(
        pool,
        Linear { input, tokens, norm, weights, biases, epilogue, residual, exact, outputs, scratch },
    );
}

/// The linear layers of a decoder of the 1B shape, as a model calls them: norm with q, k, v; output with residual;
/// norm with gate and up; down with residual.
fn bench_decoder(pool: &Pool) {
    const LAYERS: usize = 16;
    for (dtype, value_dtype) in
        [(DType::Q4_0, DType::Q4_0), (DType::Q4K, DType::Q6K), (DType::BF16, DType::BF16)]
    {
        let pack =
            |dtype, rows, columns| PackedMatrix::pack(&weight(dtype, rows, columns), pool).expect("packs");
        let layers: Vec<[PackedMatrix; 7]> = (0..LAYERS)
            .map(|layer| {
                // As in q4_k_m files, every other layer has some matrices of higher precision.
                let better = if layer % 2 == 0 { value_dtype } else { dtype };
                [
                    pack(dtype, 2048, 2048),
                    pack(dtype, 512, 2048),
                    pack(better, 512, 2048),
                    pack(dtype, 2048, 2048),
                    pack(dtype, 8192, 2048),
                    pack(dtype, 8192, 2048),
                    pack(better, 2048, 8192),
                ]
            })
            .collect();
        let bytes: usize = layers.iter().flatten().map(PackedMatrix::bytes).sum();
        for tokens in TOKENS {
            let norm = vec![1.0; 2048];
            let norm = Some(Norm { weight: &norm, eps: 1e-5 });
            let stream = vec![0.5f32; tokens * 2048];
            let mut q = vec![0.0f32; tokens * 2048];
            let (mut k, mut v) = (vec![0.0f32; tokens * 512], vec![0.0f32; tokens * 512]);
            let (mut attended, mut wide) = (vec![0.0f32; tokens * 2048], vec![0.0f32; tokens * 8192]);
            let mut scratch = AlignedBytes::zeroed(2 * scratch_bytes(tokens, &[&layers[0][6]], false));
            let time = best_time(1, || {
                for [wq, wk, wv, wo, gate, up, down] in &layers {
                    let (plain, gated) = (Epilogue::Plain, Epilogue::Gate(Activation::Silu));
                    let s = &mut scratch[..];
                    let qkv = (&stream[..], norm, &[wq, wk, wv][..], plain, None);
                    call(pool, tokens, s, qkv, &mut [&mut q, &mut k, &mut v]);
                    call(pool, tokens, s, (&q, None, &[wo], plain, Some(&stream)), &mut [&mut attended]);
                    call(pool, tokens, s, (&attended, norm, &[gate, up], gated, None), &mut [&mut wide]);
                    call(pool, tokens, s, (&wide, None, &[down], plain, Some(&attended)), &mut [&mut q]);
                }
            });
            let products: usize =
                layers.iter().flatten().map(|matrix| matrix.rows() * matrix.columns()).sum();
            println!(
                "decoder {dtype:<6} 16 layers   tokens={tokens:<4}            {:>9.1} us {:>7.1} GB/s {:>8.1} Gop/s",
                time * 1e6,
                bytes as f64 / time / 1e9,
                2.0 * (products * tokens) as f64 / time / 1e9
            );
        }
    }
}

fn bench_pool(pool: &Pool) {
    let work = |time: Duration| {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    };
    for micros in [0, 5, 50] {
        let chunks = pool.threads();
        let time = best_time(1000, || {
            for _ in 0..1000 {
                pool.run(chunks, &|_| work(Duration::from_micros(micros)));
            }
        });
        println!("pool   {chunks} chunks of {micros} us: {:.2} us per region", time * 1e6);
    }
}

fn bench_pack(pool: &Pool) {
    for dtype in DTYPES {
        let weight = weight(dtype, 16384, 8192);
        let bytes = weight.bytes().len();
        let time = best_time(1, || {
            black_box(PackedMatrix::pack(&weight, pool).expect("a dtype that can be packed"));
        });
        println!("pack   {dtype:<6} {:.2} GB/s of the file", bytes as f64 / time / 1e9);
    }
}
