//! Every variant of attention, matmul, the norms and softmax: GFLOP/s or GB/s, the best of some runs.
//!
//! `cargo bench -p perihelion-cpu --bench attention -- [filter] [threads]`; the variant marked `*` is the one chosen.

use std::hint::black_box;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use perihelion_cpu::Pool;
use perihelion_cpu::kernels::attention::{Attention, CacheElement, attention_with};
use perihelion_cpu::kernels::kv_cache::{KvLayout, RaggedBatch, store};
use perihelion_cpu::kernels::matmul::{self, MatmulShape, Matrix, matmul_with};
use perihelion_cpu::kernels::norm::{self, Norm, norm_with};
use perihelion_cpu::kernels::softmax::{self, softmax_with};
use perihelion_cpu::variant::Variant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|x| !x.starts_with("--")).collect();
    let threads = arguments.iter().find_map(|x| x.parse().ok()).unwrap_or(0);
    let filter = arguments.iter().find(|x| x.parse::<usize>().is_err());
    let bench = Bench { pool: Pool::new(threads), filter: filter.cloned().unwrap_or_default() };
    println!("{} threads", bench.pool.threads());
    prefill::<f32>(&bench);
    prefill::<f16>(&bench);
    latent::<f32>(&bench);
    latent::<bf16>(&bench);
    latent::<f16>(&bench);
    decode::<f32>(&bench);
    decode::<bf16>(&bench);
    decode::<f16>(&bench);
    products(&bench);
    rows(&bench);
}

struct Bench {
    pool: Pool,
    filter: String,
}

impl Bench {
    /// Runs `body` with every variant that this machine has; `work` is billions of operations or bytes a call.
    fn each<F>(
        &self,
        name: &str,
        list: &[Variant<F>],
        work: f64,
        unit: &str,
        mut body: impl FnMut(&Variant<F>),
    ) {
        let mut mark = "*";
        for variant in list.iter().filter(|variant| (variant.available)()) {
            self.one(&format!("{name} {}{mark}", variant.name), work, unit, || body(variant));
            mark = "";
        }
    }

    fn one(&self, name: &str, work: f64, unit: &str, mut body: impl FnMut()) {
        if !name.contains(&self.filter) {
            return;
        }
        let (mut best, begun) = (Duration::MAX, Instant::now());
        let mut runs = 0;
        while runs < 5 || (begun.elapsed() < Duration::from_millis(600) && runs < 1000) {
            let start = Instant::now();
            body();
            best = best.min(start.elapsed());
            runs += 1;
        }
        let seconds = best.as_secs_f64();
        println!("{name:<56} {:>9.1} us {:>8.1} {unit}", seconds * 1e6, work / seconds);
    }
}

fn noise(len: usize) -> Vec<f32> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 7 & 0xffff) as f32 / 32768.0 - 1.0).collect()
}

/// One sequence of 512 new tokens, alone and after 2048 others.
fn prefill<T: CacheElement>(bench: &Bench) {
    for (past, page_size) in [(0, 128), (0, 512), (2048, 128)] {
        for (heads, kv_heads, head_dim) in [(32, 8, 64), (32, 8, 128), (9, 3, 64)] {
            let tokens = 512;
            let layout = KvLayout::new(1, kv_heads, head_dim, page_size).expect("a layout");
            let mut case = Case::<T>::new(1, past, tokens, heads, None, layout);
            let pairs = tokens * past + tokens * (tokens + 1) / 2;
            let work = 4.0 * (pairs * heads * head_dim) as f64 / 1e9;
            let name =
                format!("prefill {} {tokens}+{past} {heads}/{kv_heads}x{head_dim} page {page_size}", T::NAME);
            bench.each(&name, T::VARIANTS, work, "GFLOP/s", |variant| case.run(bench, variant));
        }
    }
}

/// Heads that share one row for keys and values: a prompt, the end of a longer one, and a decode step.
fn latent<T: CacheElement>(bench: &Bench) {
    for (tokens, past) in [(512, 0), (256, 4096), (1, 4096)] {
        for (heads, dims, values) in [(16, 576, 512), (128, 576, 512), (4, 40, 32)] {
            let layout = KvLayout::of_rows(1, 1, dims, 128).expect("a layout");
            let mut case = Case::<T>::new(1, past, tokens, heads, Some(values), layout);
            let pairs = tokens * past + tokens * (tokens + 1) / 2;
            let work = 2.0 * (pairs * heads * (dims + values)) as f64 / 1e9;
            let name = format!("latent {} {tokens}+{past} {heads}x{dims}/{values}", T::NAME);
            bench.each(&name, T::VARIANTS, work, "GFLOP/s", |variant| case.run(bench, variant));
        }
    }
}

/// One new token a sequence.
fn decode<T: CacheElement>(bench: &Bench) {
    for (batch, past, page_size) in
        [(1, 512, 128), (1, 4096, 128), (1, 32768, 512), (1, 32768, 16), (16, 4096, 128)]
    {
        for (heads, kv_heads, head_dim) in [(32, 8, 64), (8, 1, 128), (16, 16, 64)] {
            let layout = KvLayout::new(1, kv_heads, head_dim, page_size).expect("a layout");
            let mut case = Case::<T>::new(batch, past, 1, heads, None, layout);
            let work = (2 * batch * (past + 1) * kv_heads * head_dim * size_of::<T>()) as f64 / 1e9;
            let name =
                format!("decode {} {batch}x{past} {heads}/{kv_heads}x{head_dim} page {page_size}", T::NAME);
            bench.each(&name, T::VARIANTS, work, "GB/s", |variant| case.run(bench, variant));
        }
    }
}

struct Case<T> {
    layout: KvLayout,
    attention: Attention<'static>,
    cache: Vec<T>,
    pages: usize,
    offsets: Vec<u32>,
    lengths: Vec<u32>,
    page_table: Vec<u32>,
    q: Vec<f32>,
    out: Vec<f32>,
}

impl<T: CacheElement> Case<T> {
    fn new(
        batch: usize,
        past: usize,
        tokens: usize,
        heads: usize,
        values: Option<usize>,
        layout: KvLayout,
    ) -> Case<T> {
        let head_dim = layout.head_dim();
        let pages = batch * (past + tokens).div_ceil(layout.page_size());
        let scale = 1.0 / (head_dim as f32).sqrt();
        let cache = noise(pages * layout.page_len()).into_iter().map(T::from_f32).collect();
        Case {
            layout,
            attention: Attention {
                heads,
                scale,
                window: None,
                chunk: None,
                softcap: None,
                sinks: None,
                biases: None,
                values,
                chosen: None,
            },
            cache,
            pages,
            offsets: (0..=batch).map(|i| (i * tokens) as u32).collect(),
            lengths: vec![past as u32; batch],
            page_table: (0..pages as u32).rev().collect(),
            q: noise(batch * tokens * heads * head_dim),
            out: vec![0.0; batch * tokens * heads * values.unwrap_or(head_dim)],
        }
    }

    fn run(&mut self, bench: &Bench, variant: &Variant<perihelion_cpu::kernels::attention::TaskKernel<T>>) {
        let batch = RaggedBatch::new(self.layout, self.pages, &self.offsets, &self.lengths, &self.page_table);
        let batch = batch.expect("a batch");
        let (cache, q, out) = (&self.cache, &self.q, &mut self.out);
        attention_with(variant, &bench.pool, &self.attention, &batch, 0, cache, q, out).expect("attention");
    }
}

fn products(bench: &Bench) {
    let cases = [
        (1, 1024, 1024, 1024),
        (1, 2048, 2048, 2048),
        (1, 512, 2048, 512),
        (12, 128, 64, 128),
        (384, 128, 64, 128),
        (1, 1, 4096, 4096),
        (1, 8, 4096, 4096),
    ];
    for (batch, m, k, n) in cases {
        let (a, b) = (noise(batch * m * k), noise(batch * k * n));
        let mut out = vec![0f32; batch * m * n];
        let work = 2.0 * (batch * m * k * n) as f64 / 1e9;
        let shape = MatmulShape { batch: &[batch], m, k, n };
        let left = Matrix { data: &a, strides: &[m * k, k, 1] };
        for (side, strides) in [("", [k * n, n, 1]), (" transposed", [k * n, 1, k])] {
            let right = Matrix { data: &b, strides: &strides };
            let name = format!("matmul {batch}x{m}x{k}x{n}{side}");
            bench.each(&name, matmul::VARIANTS, work, "GFLOP/s", |variant| {
                matmul_with(variant, &bench.pool, shape, left, right, &mut out);
            });
        }
        let parallelism = gemm::Parallelism::Rayon(bench.pool.threads());
        bench.one(&format!("matmul {batch}x{m}x{k}x{n} the gemm crate"), work, "GFLOP/s", || {
            for item in 0..batch {
                let (a, b, c) = (&a[item * m * k..], &b[item * k * n..], &mut out[item * m * n..]);
                let (rows, inner) = (n as isize, k as isize);
                // SAFETY: the strides are those of the slices.
                unsafe {
                    gemm::gemm(
                        m,
                        n,
                        k,
                        c.as_mut_ptr(),
                        1,
                        rows,
                        false,
                        a.as_ptr(),
                        1,
                        inner,
                        b.as_ptr(),
                        1,
                        rows,
                        0.0,
                        1.0,
                        false,
                        false,
                        false,
                        parallelism,
                    );
                }
            }
        });
    }
}

fn rows(bench: &Bench) {
    for (rows, dims) in [(4096, 4096), (512, 2048), (1, 2048)] {
        let x = noise(rows * dims);
        let mut out = vec![0f32; rows * dims];
        let (weight, bias) = (noise(dims), noise(dims));
        let work = (2 * 4 * rows * dims) as f64 / 1e9;
        bench.each(&format!("softmax {rows}x{dims}"), softmax::VARIANTS, work, "GB/s", |variant| {
            softmax_with(variant, &bench.pool, dims, &x, &mut out);
        });
        for (name, list, bias) in
            [("rms_norm", norm::RMS_VARIANTS, None), ("layer_norm", norm::LAYER_VARIANTS, Some(&bias[..]))]
        {
            let norm = Norm { eps: 1e-5, weight: &weight, bias };
            bench.each(&format!("{name} {rows}x{dims}"), list, work, "GB/s", |variant| {
                norm_with(variant, &bench.pool, &norm, &x, &mut out);
            });
        }
        black_box(&out);
    }
    storing(bench);
}

fn storing(bench: &Bench) {
    let layout = KvLayout::new(1, 8, 64, 128).expect("a layout");
    let (k, v) = (noise(512 * 512), noise(512 * 512));
    let mut cache = vec![0f32; 4 * layout.page_len()];
    let batch = RaggedBatch::new(layout, 4, &[0, 512], &[0], &[3, 2, 1, 0]).expect("a batch");
    bench.one("store 512 tokens 8x64", (16 * 512 * 512) as f64 / 1e9, "GB/s", || {
        store(&bench.pool, &batch, 0, &mut cache, &k, &v).expect("to store");
    });
}
