//! Normalization over the last axis: by the root of the mean square, or to mean 0 and variance 1.
//!
//! Bound by memory: a row is read from the nearest cache the second time. Sums run in four vectors of sixteen lanes in
//! turn (element `i` in lane `i mod 64`), which are added pairwise at the end: an order fixed by the length alone.

use std::sync::Arc;

use engine::{Kernel, KernelCall};

use super::operands::{elements, elements_mut, view};
use super::rows::each_part;
use crate::variant::{Variant, fastest, variants};
use crate::vec::{LANES, Simd};
use crate::{Cpu, Pool};

/// What to do with each row.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// Added to the mean square, or to the variance.
    pub eps: f32,
    /// `[dims]`, multiplied in after normalization; its length is the length of the rows.
    pub weight: &'a [f32],
    /// `[dims]`, added last.
    pub bias: Option<&'a [f32]>,
}

/// Some whole rows of `x` into as many of `out`.
pub type RowKernel = unsafe fn(&Norm<'_>, &[f32], &mut [f32]);

variants! {
    /// `x / sqrt(mean(x²) + eps) · weight (+ bias)`.
    pub static RMS_VARIANTS = rms_rows, (norm: &Norm<'_>, x: &[f32], out: &mut [f32])
}
variants! {
    /// `(x - mean(x)) / sqrt(variance(x) + eps) · weight (+ bias)`.
    pub static LAYER_VARIANTS = layer_rows, (norm: &Norm<'_>, x: &[f32], out: &mut [f32])
}

/// `x / sqrt(mean(x²) + eps) · weight` for each row of `x[rows, dims]`.
///
/// # Panics
/// When the lengths disagree.
pub fn rms_norm(pool: &Pool, norm: &Norm, x: &[f32], out: &mut [f32]) {
    norm_with(fastest(RMS_VARIANTS), pool, norm, x, out);
}

/// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias` for each row of `x[rows, dims]`; the variance is that of the row
/// itself (divided by `dims`).
///
/// # Panics
/// When the lengths disagree.
pub fn layer_norm(pool: &Pool, norm: &Norm, x: &[f32], out: &mut [f32]) {
    norm_with(fastest(LAYER_VARIANTS), pool, norm, x, out);
}

/// Either norm, by a variant of the caller's choice.
///
/// # Panics
/// When the lengths disagree, or this machine cannot run the variant.
pub fn norm_with(variant: &Variant<RowKernel>, pool: &Pool, norm: &Norm, x: &[f32], out: &mut [f32]) {
    assert!((variant.available)(), "norm: this machine cannot run {}", variant.name);
    let dims = norm.weight.len();
    if let Some(bias) = norm.bias {
        assert_eq!(bias.len(), dims, "norm: length of bias");
    }
    // SAFETY: the variant is available.
    each_part("norm", pool, dims, x, out, &|x, out| unsafe { (variant.run)(norm, x, out) });
}

#[inline(always)]
fn rms_rows<S: Simd>(s: S, norm: &Norm<'_>, x: &[f32], out: &mut [f32]) {
    let dims = norm.weight.len();
    for (x, out) in x.chunks_exact(dims).zip(out.chunks_exact_mut(dims)) {
        let mean_square = sum::<S, true>(s, x, 0.0) / dims as f32;
        scale(s, norm, x, 0.0, 1.0 / (mean_square + norm.eps).sqrt(), out);
    }
}

#[inline(always)]
fn layer_rows<S: Simd>(s: S, norm: &Norm<'_>, x: &[f32], out: &mut [f32]) {
    let dims = norm.weight.len();
    for (x, out) in x.chunks_exact(dims).zip(out.chunks_exact_mut(dims)) {
        let mean = sum::<S, false>(s, x, 0.0) / dims as f32;
        let variance = sum::<S, true>(s, x, mean) / dims as f32;
        scale(s, norm, x, mean, 1.0 / (variance + norm.eps).sqrt(), out);
    }
}

/// The sum of `x - mean`, or of its `SQUARED` elements.
#[inline(always)]
pub(super) fn sum<S: Simd, const SQUARED: bool>(s: S, x: &[f32], mean: f32) -> f32 {
    let mean = s.splat(mean);
    let mut sums = [s.splat(0.0); 4];
    let mut groups = x.chunks_exact(4 * LANES);
    for group in &mut groups {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a group has four vectors.
            let value = s.sub(unsafe { s.load(group.as_ptr().add(i * LANES)) }, mean);
            *sum = if SQUARED { s.fma(value, value, *sum) } else { s.add(*sum, value) };
        }
    }
    for (chunk, sum) in groups.remainder().chunks(LANES).zip(&mut sums) {
        // The mean is partial too, so that lanes beyond stay 0.
        let mut means = [0f32; LANES];
        s.store_slice(&mut means[..chunk.len()], mean);
        let value = s.sub(s.load_slice(chunk), s.load_slice(&means));
        *sum = if SQUARED { s.fma(value, value, *sum) } else { s.add(*sum, value) };
    }
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

/// `(x - mean) · factor · weight + bias`.
#[inline(always)]
fn scale<S: Simd>(s: S, norm: &Norm<'_>, x: &[f32], mean: f32, factor: f32, out: &mut [f32]) {
    let (mean, factor) = (s.splat(mean), s.splat(factor));
    let dims = norm.weight.len();
    assert!(x.len() == dims && out.len() == dims);
    for start in (0..dims).step_by(LANES) {
        let part = start..dims.min(start + LANES);
        let centered = s.sub(s.load_slice(&x[part.clone()]), mean);
        let mut y = s.mul(s.mul(centered, factor), s.load_slice(&norm.weight[part.clone()]));
        if let Some(bias) = norm.bias {
            y = s.add(y, s.load_slice(&bias[part.clone()]));
        }
        s.store_slice(&mut out[part], y);
    }
}

/// `x / sqrt(mean(x²) + eps) · weight`.
pub(crate) fn rms_kernel(cpu: &Cpu, eps: f32) -> Option<Arc<dyn Kernel>> {
    let variant = cpu.pick(RMS_VARIANTS);
    Some(Arc::new(NormKernel { op: "rms_norm", eps, variant, pool: Arc::clone(&cpu.pool) }))
}

/// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias`.
pub(crate) fn layer_kernel(cpu: &Cpu, eps: f32) -> Option<Arc<dyn Kernel>> {
    let variant = cpu.pick(LAYER_VARIANTS);
    Some(Arc::new(NormKernel { op: "layer_norm", eps, variant, pool: Arc::clone(&cpu.pool) }))
}

struct NormKernel {
    op: &'static str,
    eps: f32,
    variant: &'static Variant<RowKernel>,
    pool: Arc<Pool>,
}

impl Kernel for NormKernel {
    fn name(&self) -> String {
        format!("{}.{}", self.op, self.variant.name)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, weight) = (elements(view(&call, 0).bytes), elements(view(&call, 1).bytes));
        let bias = (call.inputs.len() > 2).then(|| elements(view(&call, 2).bytes));
        let norm = Norm { eps: self.eps, weight: &weight, bias: bias.as_deref() };
        norm_with(self.variant, &self.pool, &norm, &x, elements_mut(call.outputs[0].bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(dims: usize, offset: f32) -> Vec<f32> {
        (0..dims).map(|i| ((i * 7919 + 13) % 1000) as f32 / 250.0 - 2.0 + offset).collect()
    }

    fn reference(norm: &Norm, x: &[f32], centered: bool) -> Vec<f64> {
        let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let count = x.len() as f64;
        let mean = if centered { x.iter().sum::<f64>() / count } else { 0.0 };
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
        let factor = 1.0 / (variance + f64::from(norm.eps)).sqrt();
        let bias = |i: usize| norm.bias.map_or(0.0, |bias| f64::from(bias[i]));
        let one = |(i, x): (usize, &f64)| (x - mean) * factor * f64::from(norm.weight[i]) + bias(i);
        x.iter().enumerate().map(one).collect()
    }

    fn check(list: &[Variant<RowKernel>], centered: bool) {
        for dims in [1, 2, 15, 16, 17, 63, 64, 65, 80, 130, 1000, 4096] {
            let weight: Vec<f32> = (0..dims).map(|i| 1.0 + i as f32 / dims as f32).collect();
            let bias: Vec<f32> = (0..dims).map(|i| i as f32 / dims as f32 - 0.5).collect();
            let x: Vec<f32> =
                [0.0, 3.0, -0.5, 0.25, 8.0].iter().flat_map(|offset| row(dims, *offset)).collect();
            for bias in [None, Some(&bias[..])] {
                let norm = Norm { eps: 1e-5, weight: &weight, bias };
                for variant in list.iter().filter(|variant| (variant.available)()) {
                    let mut out = vec![f32::NAN; x.len()];
                    norm_with(variant, &Pool::new(3), &norm, &x, &mut out);
                    for (x, out) in x.chunks(dims).zip(out.chunks(dims)) {
                        for (got, want) in out.iter().zip(reference(&norm, x, centered)) {
                            let off = (f64::from(*got) - want).abs();
                            assert!(off < 2e-5, "{} {dims}: {got} for {want}", variant.name);
                        }
                        let mut alone = vec![f32::NAN; dims];
                        norm_with(variant, &Pool::new(1), &norm, x, &mut alone);
                        assert!(alone.iter().zip(out).all(|(a, b)| a.to_bits() == b.to_bits()));
                    }
                }
            }
        }
    }

    #[test]
    fn rms_norm_agrees_with_the_reference() {
        check(RMS_VARIANTS, false);
    }

    #[test]
    fn layer_norm_agrees_with_the_reference() {
        check(LAYER_VARIANTS, true);
    }

    #[test]
    fn no_rows_are_no_work() {
        let norm = Norm { eps: 1e-5, weight: &[1.0], bias: None };
        rms_norm(&Pool::new(2), &norm, &[], &mut []);
        layer_norm(&Pool::new(2), &Norm { weight: &[], ..norm }, &[], &mut []);
    }

    #[test]
    #[should_panic(expected = "norm: 3 elements in rows of 2")]
    fn parts_of_rows_panic() {
        rms_norm(&Pool::new(1), &Norm { eps: 0.0, weight: &[1.0; 2], bias: None }, &[0.0; 3], &mut [0.0; 3]);
    }
}
