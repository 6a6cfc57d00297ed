//! What the machine itself reaches: reading memory, and multiplying numbers in registers.
//!
//! Both are the best of several rounds, since whatever else runs only ever makes a round slower.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::Pool;

/// Words that each chunk of a read has: small enough that all threads end together.
const CHUNK: usize = 1 << 17;
/// Sums that are under way at once when reading.
const READ_SUMS: usize = 16;

/// Bytes a second that all threads together read from `bytes` bytes of memory, for about as long as `time`, and for one
/// round at least. What the last-level cache holds is read from there: give several times its size.
pub fn read_bandwidth(pool: &Pool, bytes: usize, time: Duration) -> f64 {
    let mut words = vec![0u64; (bytes / size_of::<u64>()).max(1)];
    // Writing from all threads gives each page a frame, which a read alone would not.
    pool.run_on_pieces(&mut words, CHUNK, &|index, piece| piece.fill(index as u64));
    let words = &words;
    let read = |index: usize| {
        let first = index * CHUNK;
        black_box(sum(&words[first..words.len().min(first + CHUNK)]));
    };
    let seconds = fastest(pool, words.len().div_ceil(CHUNK), time, &read);
    size_of_val(&words[..]) as f64 / seconds
}

/// f32 operations a second of all threads together, a fused multiply-add being two, with the widest vectors that the
/// machine has. `None` where it has none that are known here.
pub fn f32_operations(pool: &Pool, time: Duration) -> Option<f64> {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    return registers::f32_operations(pool, time);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = (pool, time);
        None
    }
}

fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; READ_SUMS];
    let (lines, rest) = words.as_chunks::<READ_SUMS>();
    for line in lines {
        for (sum, word) in sums.iter_mut().zip(line) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(rest).fold(0, |total, word| total.wrapping_add(*word))
}

/// Seconds that the fastest round takes.
fn fastest(pool: &Pool, chunks: usize, time: Duration, body: &(dyn Fn(usize) + Sync)) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    loop {
        let round = Instant::now();
        pool.run(chunks, body);
        best = best.min(round.elapsed().as_secs_f64());
        if start.elapsed() >= time {
            return best.max(1e-9);
        }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod registers {
    #[cfg(target_arch = "aarch64")]
    use std::arch::aarch64::*;
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::*;
    use std::hint::black_box;
    use std::time::Duration;

    use super::fastest;
    use crate::Pool;
    #[cfg(target_arch = "x86_64")]
    use crate::vec::{Avx2, Avx512};

    const STEPS: usize = 200_000;
    /// Independent sums, enough to hide the latency of each: four cycles in each of up to four units on ARM.
    const SUMS: usize = if cfg!(target_arch = "aarch64") { 16 } else { 12 };

    /// A loop of `SUMS` independent multiply-adds.
    macro_rules! multiply_add {
        ($name:ident, $features:literal, $zero:expr, $step:path) => {
            #[target_feature(enable = $features)]
            fn $name() {
                let (mut sums, x) = ([$zero; SUMS], black_box($zero));
                for _ in 0..STEPS {
                    for sum in &mut sums {
                        *sum = $step(x, x, *sum);
                    }
                }
                black_box(sums);
            }
        };
    }

    #[cfg(target_arch = "x86_64")]
    multiply_add!(avx512, "avx512f", _mm512_setzero_ps(), _mm512_fmadd_ps);
    #[cfg(target_arch = "x86_64")]
    multiply_add!(avx2, "avx2,fma", _mm256_setzero_ps(), _mm256_fmadd_ps);
    #[cfg(target_arch = "aarch64")]
    multiply_add!(neon, "neon", vdupq_n_f32(0.0), add_product);

    #[cfg(target_arch = "aarch64")]
    #[target_feature(enable = "neon")]
    #[inline]
    fn add_product(a: float32x4_t, b: float32x4_t, sum: float32x4_t) -> float32x4_t {
        vfmaq_f32(sum, a, b)
    }

    pub(super) fn f32_operations(pool: &Pool, time: Duration) -> Option<f64> {
        let chunks = 4 * pool.threads();
        let rate = |lanes: usize, body: &(dyn Fn(usize) + Sync)| {
            (2 * lanes * SUMS * STEPS * chunks) as f64 / fastest(pool, chunks, time, body)
        };
        #[cfg(target_arch = "x86_64")]
        if Avx512::available() {
            // SAFETY: the features have just been found.
            return Some(rate(16, &|_| unsafe { avx512() }));
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        return Avx2::available().then(|| rate(8, &|_| unsafe { avx2() }));
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the feature has been found.
        return crate::vec::Neon::available().then(|| rate(4, &|_| unsafe { neon() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        for length in [0, 1, 15, 16, 17, 1000] {
            let words: Vec<u64> = (0..length).collect();
            assert_eq!(sum(&words), (0..length).sum::<u64>());
        }
    }

    #[test]
    fn limits_are_numbers() {
        let pool = Pool::new(2);
        let bandwidth = read_bandwidth(&pool, 3 * CHUNK, Duration::ZERO);
        assert!(bandwidth.is_finite() && bandwidth > 0.0);
        let operations = f32_operations(&pool, Duration::ZERO);
        assert!(operations.is_none_or(|rate| rate.is_finite() && rate > 0.0));
    }
}
