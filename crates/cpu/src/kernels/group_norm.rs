//! Normalization of groups of channels to mean 0 and variance 1.
//!
//! Bound by memory: a group is read three times, from the nearest cache that holds it. Sums run as those of `norm`.

use std::sync::Arc;

use engine::KernelCall;
use graph::ops;

use super::norm::sum;
use super::operands::{elements, elements_mut, view};
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Simd};
use crate::{Cpu, Pool};

/// What to do with each group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupNorm<'a> {
    /// Added to the variance.
    pub(crate) eps: f32,
    /// How many groups an example has.
    pub(crate) groups: usize,
    /// Elements of a channel.
    pub(crate) plane: usize,
    /// One for each channel.
    pub(crate) weight: &'a [f32],
    /// One for each channel.
    pub(crate) bias: &'a [f32],
}

/// A group with its number.
pub(crate) type GroupKernel = unsafe fn(&GroupNorm<'_>, usize, &[f32], &mut [f32]);

variants! {
    /// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias` of a group.
    pub(crate) static VARIANTS = group, (norm: &GroupNorm<'_>, number: usize, x: &[f32], out: &mut [f32])
}

/// Normalizes each group of `x[examples, channels, plane]`.
///
/// # Panics
/// If lengths disagree, or this machine cannot run the variant.
pub(crate) fn group_norm(
    variant: &Variant<GroupKernel>,
    pool: &Pool,
    norm: &GroupNorm<'_>,
    x: &[f32],
    out: &mut [f32],
) {
    assert!((variant.available)(), "group_norm: this machine cannot run {}", variant.name);
    assert!(x.len() == out.len() && norm.weight.len() == norm.bias.len(), "group_norm: lengths");
    let len = norm.weight.len() / norm.groups * norm.plane;
    if out.is_empty() {
        return;
    }
    pool.run_on_pieces(out, len, &|number, out| {
        // SAFETY: the variant is available.
        unsafe { (variant.run)(norm, number, &x[number * len..][..len], out) };
    });
}

/// The kernel of the op.
pub(crate) fn kernel(cpu: &Cpu, op: ops::GroupNorm) -> Option<Arc<dyn engine::Kernel>> {
    Some(Arc::new(GroupNormKernel { op, variant: cpu.pick(VARIANTS), pool: Arc::clone(&cpu.pool) }))
}

struct GroupNormKernel {
    op: ops::GroupNorm,
    variant: &'static Variant<GroupKernel>,
    pool: Arc<Pool>,
}

impl engine::Kernel for GroupNormKernel {
    fn name(&self) -> String {
        format!("group_norm.{}", self.variant.name)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let [x, weight, bias] = [0, 1, 2].map(|i| elements(view(&call, i).bytes));
        let plane = call.outputs[0].shape[2..].iter().product();
        let ops::GroupNorm { groups, eps } = self.op;
        let norm = GroupNorm { eps, groups, plane, weight: &weight, bias: &bias };
        group_norm(self.variant, &self.pool, &norm, &x, elements_mut(call.outputs[0].bytes));
        Ok(())
    }
}

#[inline(always)]
fn group<S: Simd>(s: S, norm: &GroupNorm<'_>, number: usize, x: &[f32], out: &mut [f32]) {
    let mean = sum::<S, false>(s, x, 0.0) / x.len() as f32;
    let variance = sum::<S, true>(s, x, mean) / x.len() as f32;
    let factor = 1.0 / (variance + norm.eps).sqrt();
    let first = number % norm.groups * (x.len() / norm.plane);
    let channels = x.chunks_exact(norm.plane).zip(out.chunks_exact_mut(norm.plane));
    for (channel, (x, out)) in channels.enumerate() {
        let (scale, shift) = (factor * norm.weight[first + channel], norm.bias[first + channel]);
        let (mean, scale, shift) = (s.splat(mean), s.splat(scale), s.splat(shift));
        for (x, out) in x.chunks(LANES).zip(out.chunks_mut(LANES)) {
            s.store_slice(out, s.fma(s.sub(s.load_slice(x), mean), scale, shift));
        }
    }
}
