//! What this machine can do at most: a plain read of memory, and multiplications that touch registers only.

use std::hint::black_box;
use std::time::Instant;

use perihelion_cpu::Pool;
use tensor::AlignedBytes;

/// Bytes that the read goes over.
const STREAM: usize = 768 << 20;

/// Measures and prints the limits.
pub(crate) fn print(pool: &Pool) {
    let mut stream = AlignedBytes::zeroed(STREAM);
    pool.run_on_pieces(&mut stream, 1 << 20, &|_, piece| piece.fill(1));
    let read = fastest(pool, STREAM >> 18, &|chunk| {
        let words: &[u64] = bytemuck::cast_slice(&stream[chunk << 18..(chunk + 1) << 18]);
        let mut lanes = [0u64; 32];
        for words in words.as_chunks::<32>().0 {
            lanes.iter_mut().zip(words).for_each(|(lane, word)| *lane ^= word);
        }
        black_box(lanes);
    });
    println!("limit  read {:.1} GB/s", STREAM as f64 / read / 1e9);
    #[cfg(target_arch = "x86_64")]
    registers::print(pool);
}

/// Seconds of the fastest of some regions.
fn fastest(pool: &Pool, chunks: usize, body: &(dyn Fn(usize) + Sync)) -> f64 {
    let time = |_| {
        let start = Instant::now();
        pool.run(chunks, body);
        start.elapsed().as_secs_f64()
    };
    (0..7).map(time).fold(f64::INFINITY, f64::min)
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    use super::fastest;
    use perihelion_cpu::Pool;

    const STEPS: usize = 1_000_000;
    /// Independent sums, enough to hide the latency of each.
    const SUMS: usize = 12;

    /// A loop of `SUMS` independent instructions.
    macro_rules! peak {
        ($name:ident, $features:literal, $start:expr, $step:expr) => {
            #[target_feature(enable = $features)]
            fn $name() {
                let (mut sums, x) = ([$start; SUMS], black_box($start));
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = $step(*sum, x);
                    }
                }
                black_box(sums);
            }
        };
    }

    peak!(int8, "avx512f,avx512vnni", _mm512_setzero_si512(), |sum, x| _mm512_dpbusd_epi32(sum, x, x));
    peak!(bf16, "avx512f,avx512bf16", _mm512_setzero_ps(), |sum, x: __m512| {
        // SAFETY: both are 64 bytes without invalid values.
        let x = unsafe { std::mem::transmute::<__m512, __m512bh>(x) };
        _mm512_dpbf16_ps(sum, x, x)
    });
    peak!(fma, "avx2,fma", _mm256_setzero_ps(), |sum, x| _mm256_fmadd_ps(x, x, sum));

    pub(super) fn print(pool: &Pool) {
        let chunks = 4 * pool.threads();
        let run = |name: &str, unit: &str, products: usize, body: &(dyn Fn(usize) + Sync)| {
            let operations = 2 * products * SUMS * STEPS * chunks;
            println!("limit  {name} {:.0} {unit}", operations as f64 / fastest(pool, chunks, body) / 1e9);
        };
        if perihelion_cpu::vec::Avx512::available() && is_x86_feature_detected!("avx512vnni") {
            // SAFETY: the features have just been found.
            run("int8", "Gop/s", 64, &|_| unsafe { int8() });
        }
        if perihelion_cpu::vec::Avx512::available() && is_x86_feature_detected!("avx512bf16") {
            // SAFETY: as above.
            run("bf16", "GFLOP/s", 32, &|_| unsafe { bf16() });
        }
        if perihelion_cpu::vec::Avx2::available() {
            // SAFETY: as above.
            run("f32", "GFLOP/s", 8, &|_| unsafe { fma() });
        }
    }
}
