//! What this machine can do at most: a plain read of memory, and multiplications that touch registers only.

use std::time::Duration;
#[cfg(target_arch = "x86_64")]
use std::time::Instant;

use perihelion_cpu::Pool;
use perihelion_cpu::limits::{f32_operations, read_bandwidth};

/// Bytes that the read goes over.
const STREAM: usize = 768 << 20;
/// How long each limit is looked for.
const TIME: Duration = Duration::from_millis(300);

/// Measures and prints the limits.
pub(crate) fn print(pool: &Pool) {
    println!("limit  read {:.1} GB/s", read_bandwidth(pool, STREAM, TIME) / 1e9);
    #[cfg(target_arch = "x86_64")]
    registers::print(pool);
    if let Some(operations) = f32_operations(pool, TIME) {
        println!("limit  f32 {:.0} GFLOP/s", operations / 1e9);
    }
}

/// Seconds of the fastest of some regions.
#[cfg(target_arch = "x86_64")]
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

    peak!(f32_avx2, "avx2,fma", _mm256_setzero_ps(), |sum, x| _mm256_fmadd_ps(x, x, sum));
    // Products of bytes are added in 16 bits. They depend on the sum, since the compiler would multiply only once otherwise.
    peak!(int8_avx2, "avx2", _mm256_setzero_si256(), |sum, x| _mm256_add_epi16(
        sum,
        _mm256_maddubs_epi16(sum, x)
    ));

    /// Prints the limits of AVX-512 and, with the name of the set, of AVX2.
    pub(super) fn print(pool: &Pool) {
        let chunks = 4 * pool.threads();
        let run = |name: &str, unit: &str, products: usize, body: &(dyn Fn(usize) + Sync)| {
            let operations = 2 * products * SUMS * STEPS * chunks;
            println!("limit  {name} {:.0} {unit}", operations as f64 / fastest(pool, chunks, body) / 1e9);
        };
        if perihelion_cpu::vec::Avx2::available() {
            // SAFETY: the features have just been found.
            run("f32 avx2", "GFLOP/s", 8, &|_| unsafe { f32_avx2() });
            // SAFETY: as above.
            run("int8 avx2", "Gop/s", 32, &|_| unsafe { int8_avx2() });
        }
        if perihelion_cpu::vec::Avx512::available() && is_x86_feature_detected!("avx512vnni") {
            // SAFETY: the features have just been found.
            run("int8", "Gop/s", 64, &|_| unsafe { int8() });
        }
        if perihelion_cpu::vec::Avx512::available() && is_x86_feature_detected!("avx512bf16") {
            // SAFETY: as above.
            run("bf16 avx512", "GFLOP/s", 32, &|_| unsafe { bf16() });
        }
    }
}
