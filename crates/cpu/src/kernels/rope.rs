//! Rotary position embedding: each pair of dims turns by an angle that grows with the position.
//!
//! Bound by memory; plain loops, which the compiler turns into vectors.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};
use std::sync::Arc;

use engine::{Kernel, KernelCall};
use graph::ops::RopeStyle;

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, view};
use crate::{Cpu, Pool};

/// Cosines and sines for some positions, `[positions, 2, inverse_frequencies]`: a row of cosines, then a row of sines.
///
/// The angle is `position · inverse_frequency`, all in f64; `scale` multiplies both (the attention factor of YaRN, else 1).
pub fn rope_table(positions: &[u32], inverse_frequencies: &[f32], scale: f32) -> Vec<f32> {
    let (pairs, scale) = (inverse_frequencies.len(), f64::from(scale));
    let mut table = vec![0.0; positions.len() * 2 * pairs];
    for (row, &position) in table.chunks_exact_mut((2 * pairs).max(1)).zip(positions) {
        let (cosines, sines) = row.split_at_mut(pairs);
        for ((cosine, sine), &frequency) in cosines.iter_mut().zip(sines).zip(inverse_frequencies) {
            let (sin, cos) = sin_cos(f64::from(position) * f64::from(frequency));
            (*cosine, *sine) = ((cos * scale) as f32, (sin * scale) as f32);
        }
    }
    table
}

/// Sine and cosine of an angle up to 2³², within two ulp, the same on every system: C libraries differ in the last bit.
fn sin_cos(angle: f64) -> (f64, f64) {
    // π/2 minus the nearest f64.
    const REST: f64 = 6.123_233_995_736_766e-17;
    let quarters = (angle * FRAC_2_PI).round_ties_even();
    // |r| <= π/4; the first step is exact.
    let r = quarters.mul_add(-REST, quarters.mul_add(-FRAC_PI_2, angle));
    let square = r * r;
    // Taylor's series, until terms are below an ulp.
    let series =
        |factors: &[f64; 8]| factors.iter().rev().fold(0.0, |sum, factor| (1.0 - sum) * (square * factor));
    let (sin, cos) = (r - r * series(&const { factors(2) }), 1.0 - series(&const { factors(1) }));
    match quarters as i64 & 3 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// From each term of a series to the next: `1 / (n (n + 1))`.
const fn factors(first: usize) -> [f64; 8] {
    let (mut factors, mut i) = ([0.0; 8], 0);
    while i < 8 {
        let n = (first + 2 * i) as f64;
        factors[i] = 1.0 / (n * (n + 1.0));
        i += 1;
    }
    factors
}

/// The sizes of a call to [`rope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeShape {
    /// Rows of `x` and of the table.
    pub tokens: usize,
    /// Heads of a token.
    pub heads: usize,
    /// Dims of a head.
    pub head_dim: usize,
    /// Pairs that turn: at most half of `head_dim`. The dims after them are copied.
    pub pairs: usize,
}

/// Turns `x[tokens, heads, head_dim]` by `table[tokens, 2, pairs]` into `out`.
///
/// # Panics
/// When a length is not what the shape says, or more pairs turn than a head has.
pub fn rope(pool: &Pool, shape: RopeShape, style: RopeStyle, table: &[f32], x: &[f32], out: &mut [f32]) {
    let RopeShape { tokens, heads, head_dim, pairs } = shape;
    let row = heads * head_dim;
    assert!(2 * pairs <= head_dim, "rope: {pairs} pairs of {head_dim} dims");
    assert_eq!(table.len(), tokens * 2 * pairs, "rope: length of table for {shape:?}");
    assert_eq!(x.len(), tokens * row, "rope: length of x for {shape:?}");
    assert_eq!(out.len(), x.len(), "rope: length of out for {shape:?}");
    if x.is_empty() {
        return;
    }
    let tokens_a_chunk = (4096 / row).max(1);
    let out = Disjoint::new(out);
    pool.run(tokens.div_ceil(tokens_a_chunk), &|chunk| {
        for token in chunk * tokens_a_chunk..tokens.min((chunk + 1) * tokens_a_chunk) {
            let (cos, sin) = table[token * 2 * pairs..][..2 * pairs].split_at(pairs);
            // SAFETY: chunks have tokens of their own.
            let out = unsafe { out.part(token * row..(token + 1) * row) };
            let x = &x[token * row..][..row];
            for (x, out) in x.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)) {
                out[2 * pairs..].copy_from_slice(&x[2 * pairs..]);
                match style {
                    RopeStyle::Interleaved => interleaved(cos, sin, &x[..2 * pairs], &mut out[..2 * pairs]),
                    RopeStyle::HalfSplit => half_split(cos, sin, &x[..2 * pairs], &mut out[..2 * pairs]),
                }
            }
        }
    });
}

fn interleaved(cos: &[f32], sin: &[f32], x: &[f32], out: &mut [f32]) {
    for (((x, out), c), s) in x.chunks_exact(2).zip(out.chunks_exact_mut(2)).zip(cos).zip(sin) {
        out[0] = x[0] * c - x[1] * s;
        out[1] = x[1] * c + x[0] * s;
    }
}

fn half_split(cos: &[f32], sin: &[f32], x: &[f32], out: &mut [f32]) {
    let pairs = cos.len();
    let (x0, x1) = x.split_at(pairs);
    let (out0, out1) = out.split_at_mut(pairs);
    let (sin, x1, out0, out1) = (&sin[..pairs], &x1[..pairs], &mut out0[..pairs], &mut out1[..pairs]);
    for i in 0..pairs {
        out0[i] = x0[i] * cos[i] - x1[i] * sin[i];
        out1[i] = x1[i] * cos[i] + x0[i] * sin[i];
    }
}

/// The cosines and sines of positions.
pub(crate) fn table_kernel(cpu: &Cpu, scale: f32) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(RopeTableKernel { scale, pool: Arc::clone(&cpu.pool) }))
}

/// Turns pairs by the angles of a table.
pub(crate) fn kernel_for(cpu: &Cpu, style: RopeStyle) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(RopeKernel { style, pool: Arc::clone(&cpu.pool) }))
}

struct RopeTableKernel {
    scale: f32,
    pool: Arc<Pool>,
}

impl Kernel for RopeTableKernel {
    fn name(&self) -> String {
        "rope_table".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        /// Positions that one thread takes at a time.
        const POSITIONS: usize = 16;
        let (positions, frequencies) =
            (elements(view(&call, 0).bytes), elements::<f32>(view(&call, 1).bytes));
        let table = elements_mut::<f32>(call.outputs[0].bytes);
        if !table.is_empty() {
            self.pool.run_on_pieces(table, POSITIONS * 2 * frequencies.len(), &|index, rows| {
                let count = rows.len() / (2 * frequencies.len());
                let positions = &positions[index * POSITIONS..][..count];
                rows.copy_from_slice(&rope_table(positions, &frequencies, self.scale));
            });
        }
        Ok(())
    }
}

struct RopeKernel {
    style: RopeStyle,
    pool: Arc<Pool>,
}

impl Kernel for RopeKernel {
    fn name(&self) -> String {
        "rope".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, table) = (view(&call, 0), view(&call, 1));
        let [tokens, heads, head_dim] = [0, 1, 2].map(|axis| x.shape[axis]);
        let shape = RopeShape { tokens, heads, head_dim, pairs: table.shape[2] };
        let out = elements_mut(call.outputs[0].bytes);
        rope(&self.pool, shape, self.style, &elements(table.bytes), &elements(x.bytes), out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pair's rotation in f64, by the definition.
    fn reference(
        shape: RopeShape,
        style: RopeStyle,
        angle: impl Fn(usize, usize) -> f64,
        x: &[f32],
    ) -> Vec<f64> {
        let mut out: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        for token in 0..shape.tokens {
            for head in 0..shape.heads {
                let start = (token * shape.heads + head) * shape.head_dim;
                for pair in 0..shape.pairs {
                    let (i, j) = match style {
                        RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
                        RopeStyle::HalfSplit => (pair, pair + shape.pairs),
                    };
                    let (a, b) = (f64::from(x[start + i]), f64::from(x[start + j]));
                    let (sin, cos) = angle(token, pair).sin_cos();
                    out[start + i] = a * cos - b * sin;
                    out[start + j] = a * sin + b * cos;
                }
            }
        }
        out
    }

    #[test]
    fn turns_pairs_and_copies_the_rest() {
        let positions = [0u32, 1, 7, 100_000, 4, 5, 6];
        for style in [RopeStyle::Interleaved, RopeStyle::HalfSplit] {
            for (heads, head_dim, pairs) in [(3, 8, 4), (1, 80, 10), (2, 5, 0), (4, 128, 64), (2, 34, 17)] {
                let shape = RopeShape { tokens: positions.len(), heads, head_dim, pairs };
                let frequencies: Vec<f32> =
                    (0..pairs).map(|i| 10_000f32.powf(-(i as f32) / pairs as f32)).collect();
                let x: Vec<f32> = (0..positions.len() * heads * head_dim)
                    .map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0)
                    .collect();
                let angle =
                    |token: usize, pair: usize| f64::from(positions[token]) * f64::from(frequencies[pair]);
                let want = reference(shape, style, angle, &x);
                let table = rope_table(&positions, &frequencies, 1.0);
                for threads in [1, 4] {
                    let mut out = vec![f32::NAN; x.len()];
                    rope(&Pool::new(threads), shape, style, &table, &x, &mut out);
                    for (got, want) in out.iter().zip(&want) {
                        assert!(
                            (f64::from(*got) - want).abs() < 3e-7,
                            "{style:?} {shape:?}: {got} for {want}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn sines_and_cosines_are_within_two_ulp() {
        let frequencies = (0..64).map(|i| 10_000f32.powf(-i as f32 / 64.0)).chain([0.0, 1.5, 1e-30]);
        for frequency in frequencies {
            for position in (0..200u32).chain((0..200).map(|i| i * i * i * 500)).chain([u32::MAX]) {
                let angle = f64::from(position) * f64::from(frequency);
                let ((sin, cos), (want_sin, want_cos)) = (sin_cos(angle), angle.sin_cos());
                for (got, want) in [(sin, want_sin), (cos, want_cos)] {
                    let near = (got - want).abs() <= 2.0 * f64::EPSILON * want.abs() + 1e-22 * angle;
                    assert!(near, "{angle}: {got} for {want}");
                }
            }
        }
    }

    #[test]
    fn the_table_is_cosines_then_sines_scaled() {
        assert_eq!(rope_table(&[0, 0], &[1.0, 0.5], 2.0), [2.0, 2.0, 0.0, 0.0, 2.0, 2.0, 0.0, 0.0]);
        let table = rope_table(&[3], &[0.5, 0.25], 1.0);
        assert_eq!(table, [1.5f64.cos(), 0.75f64.cos(), 1.5f64.sin(), 0.75f64.sin()].map(|x| x as f32));
    }

    #[test]
    #[should_panic(expected = "rope: 3 pairs of 4 dims")]
    fn more_pairs_than_dims_panic() {
        let shape = RopeShape { tokens: 1, heads: 1, head_dim: 4, pairs: 3 };
        rope(&Pool::new(1), shape, RopeStyle::Interleaved, &[0.0; 6], &[0.0; 4], &mut [0.0; 4]);
    }
}
