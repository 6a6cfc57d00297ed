//! A layer of 8 experts, of which each token gets 2, compared with a dense layer of as many rows as those 2 have.

use std::hint::black_box;

use perihelion_cpu::Pool;
use perihelion_cpu::kernels::linear::{
    Epilogue, ExpertLinear, PackedMatrix, VARIANTS, expert_linear_with, expert_scratch_bytes_for,
    scratch_bytes,
};
use perihelion_cpu::variant::fastest;
use tensor::{AlignedBytes, DType};

use crate::{best_time, call, weight};

const EXPERTS: usize = 8;
const PER_TOKEN: usize = 2;
const ROWS: usize = 8192;
const COLUMNS: usize = 2048;

/// Prints for each dtype and number of tokens: bytes of the weights that a single token reads per second, or of all
/// that many tokens do, and operations per second.
pub(crate) fn print(pool: &Pool) {
    for dtype in [DType::Q4_0, DType::Q4K, DType::Q8_0, DType::BF16] {
        let all = weight(dtype, EXPERTS * ROWS, COLUMNS).reshape([EXPERTS, ROWS, COLUMNS]);
        let experts = PackedMatrix::pack(&all, pool).expect("a dtype that can be packed");
        let dense: Vec<PackedMatrix> = (0..EXPERTS / PER_TOKEN)
            .map(|_| PackedMatrix::pack(&weight(dtype, PER_TOKEN * ROWS, COLUMNS), pool).expect("as above"))
            .collect();
        for tokens in [1, 16, 512] {
            let line = |what: &str, time: f64, read: usize| {
                let products = tokens * PER_TOKEN * ROWS * COLUMNS;
                println!(
                    "{what} {dtype:<6} tokens={tokens:<4} {:>9.1} us {:>7.1} GB/s {:>8.1} Gop/s",
                    time * 1e6,
                    read as f64 / time / 1e9,
                    2.0 * products as f64 / time / 1e9
                );
            };
            let touched = (tokens * PER_TOKEN).min(EXPERTS);
            line("experts", time_experts(pool, &experts, tokens), experts.bytes() / EXPERTS * touched);
            line("dense  ", time_dense(pool, &dense, tokens), dense[0].bytes());
        }
    }
}

fn input(tokens: usize) -> Vec<f32> {
    (0..tokens * COLUMNS).map(|index| (index % 101) as f32 / 50.0 - 1.0).collect()
}

/// Tokens go to experts in turn; from call to call to others, so that a single token reads weights from memory.
fn time_experts(pool: &Pool, experts: &PackedMatrix, tokens: usize) -> f64 {
    let (input, rows) = (input(tokens), tokens * PER_TOKEN);
    let mut output = vec![0.0; rows * ROWS];
    let scratch = expert_scratch_bytes_for(rows, COLUMNS, [experts.dtype()].into_iter(), false);
    let mut scratch = AlignedBytes::zeroed(scratch);
    let mut first = 0;
    best_time(EXPERTS / PER_TOKEN, || {
        for _ in 0..EXPERTS / PER_TOKEN {
            first += PER_TOKEN;
            let layer = ExpertLinear {
                input: &input,
                rows,
                per_row: PER_TOKEN,
                expert: &|row| (first + row) % EXPERTS,
                weights: &[experts],
                epilogue: Epilogue::Plain,
                exact: false,
                output: &mut output,
                scratch: &mut scratch,
            };
            expert_linear_with(&fastest(VARIANTS).run, pool, layer);
        }
        black_box(&mut output);
    })
}

fn time_dense(pool: &Pool, matrices: &[PackedMatrix], tokens: usize) -> f64 {
    let input = input(tokens);
    let mut output = vec![0.0; tokens * PER_TOKEN * ROWS];
    let mut scratch = AlignedBytes::zeroed(scratch_bytes(tokens, &[&matrices[0]], false));
    best_time(matrices.len(), || {
        for matrix in matrices {
            let layer = (&input[..], None, &[matrix][..], Epilogue::Plain, None);
            call(pool, tokens, &mut scratch, layer, &mut [&mut output]);
        }
        black_box(&mut output);
    })
}
