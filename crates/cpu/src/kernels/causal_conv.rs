//! Causal convolution of each channel over the tokens of each sequence.
//!
//! Sixteen channels go through the rows of their sequence together: each result is the sum of its taps, oldest first, so
//! its bits do not depend on how a sequence is cut into calls. Threads share sequences and blocks of channels. Bound by
//! memory: a row is read from the nearest cache by all but the first of its taps.

use std::sync::Arc;

use engine::{Kernel, KernelCall, View};

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, view};
use super::sequence_state::{SequenceRun, SequenceStates};
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Simd, with_scratch};
use crate::{Cpu, Pool};

/// Channels of a task.
const BLOCK: usize = 4 * LANES;

/// One block of channels of one sequence.
type BlockKernel = unsafe fn(&Convolution<'_>, &SequenceRun, usize, &mut [f32]);

variants!(static VARIANTS = convolve_block, (
    call: &Convolution<'_>,
    run: &SequenceRun,
    first: usize,
    scratch: &mut [f32],
));

/// A call.
struct Convolution<'a> {
    channels: usize,
    width: usize,
    /// `[tokens, channels]`
    x: &'a [f32],
    /// `[channels, width]`
    weight: &'a [f32],
    /// Of each sequence: `[channels, width - 1]`
    states: SequenceStates<'a>,
    /// `[tokens, channels]`
    out: Disjoint<'a, f32>,
}

/// A kernel for one layer of the states.
pub(crate) fn kernel(cpu: &Cpu, layer: usize) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(CausalConvKernel { layer, variant: cpu.pick(VARIANTS), pool: Arc::clone(&cpu.pool) }))
}

struct CausalConvKernel {
    layer: usize,
    variant: &'static Variant<BlockKernel>,
    pool: Arc<Pool>,
}

impl Kernel for CausalConvKernel {
    fn name(&self) -> String {
        format!("causal_conv.{}", self.variant.name)
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[3, 4, 5])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        SequenceStates::check(inputs, 2, self.layer, inputs[0].shape[0])
    }

    fn run(&self, mut call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, weight) = (view(&call, 0), view(&call, 1));
        let (tokens, channels, width) = (x.shape[0], x.shape[1], weight.shape[1]);
        let states = SequenceStates::new(&mut call, 2, self.layer, tokens)?;
        let (x, weight) = (elements(x.bytes), elements(weight.bytes));
        let out = Disjoint::new(elements_mut(call.outputs[0].bytes));
        let call = Convolution { channels, width, x: &x, weight: &weight, states, out };
        let blocks = channels.div_ceil(BLOCK);
        let task = |task: usize| {
            let (run, first) = (&call.states.runs[task / blocks], task % blocks * BLOCK);
            // SAFETY: the variant is available.
            with_scratch((2 * width - 1) * BLOCK, |scratch| unsafe {
                (self.variant.run)(&call, run, first, scratch);
            });
        };
        let tasks = call.states.runs.len() * blocks;
        // A few tokens are done sooner than other threads are called.
        if tokens * channels < 16 * 1024 {
            (0..tasks).for_each(task);
        } else {
            self.pool.run(tasks, &task);
        }
        Ok(())
    }
}

#[inline(always)]
fn convolve_block<S: Simd>(
    s: S,
    call: &Convolution<'_>,
    run: &SequenceRun,
    first: usize,
    scratch: &mut [f32],
) {
    let &Convolution { channels, width, .. } = call;
    let (count, kept) = (BLOCK.min(channels - first), width - 1);
    let (weight, past) = scratch.split_at_mut(width * BLOCK); // [width, BLOCK], [kept, BLOCK]
    transpose(Some(&call.weight[first * width..][..count * width]), width, weight);
    let part = first * kept..(first + count) * kept;
    // SAFETY: only this task uses this part, and it writes it below.
    transpose(unsafe { call.states.before(run, part.clone()) }, kept, past);
    for lane in (0..count).step_by(LANES) {
        let block = Lanes { first, lane, count: LANES.min(count - lane), weight, past };
        convolve_lanes(s, call, run, &block);
    }
    // SAFETY: only this task uses this part, and what it read is in `past`.
    let after = unsafe { call.states.after(run, part) };
    for (channel, after) in after.chunks_exact_mut(kept.max(1)).enumerate() {
        for (i, after) in after.iter_mut().enumerate() {
            // Row `counted - kept + i`, of this call or of the past.
            *after = match (run.counted + i).checked_sub(kept) {
                Some(row) => call.x[(run.rows.start + row) * channels + first + channel],
                None => past[(run.counted + i) * BLOCK + channel],
            };
        }
    }
}

/// `[channels, width]` → `[width, BLOCK]`, or zeros.
#[inline(always)]
fn transpose(from: Option<&[f32]>, width: usize, to: &mut [f32]) {
    to.fill(0.0);
    for (channel, from) in from.unwrap_or(&[]).chunks_exact(width.max(1)).enumerate() {
        for (i, from) in from.iter().enumerate() {
            to[i * BLOCK + channel] = *from;
        }
    }
}

/// Up to sixteen channels of a block.
struct Lanes<'a> {
    /// The block's first channel.
    first: usize,
    /// The first of these channels in the block.
    lane: usize,
    /// How many there are.
    count: usize,
    /// `[width, BLOCK]`
    weight: &'a [f32],
    /// `[width - 1, BLOCK]`
    past: &'a [f32],
}

#[inline(always)]
fn convolve_lanes<S: Simd>(s: S, call: &Convolution<'_>, run: &SequenceRun, block: &Lanes<'_>) {
    let &Convolution { channels, width, x, .. } = call;
    let &Lanes { first, lane, count, weight, past } = block;
    let kept = width - 1;
    for (i, row) in run.rows.clone().enumerate() {
        let mut sum = s.splat(0.0);
        for tap in 0..if i < run.counted { width } else { 0 } {
            // Row `i - kept + tap`, of this call or of the past. Slices check what is read.
            let input = match (i + tap).checked_sub(kept) {
                Some(i) => &x[(run.rows.start + i) * channels + first + lane..][..count],
                None => &past[(i + tap) * BLOCK + lane..][..count],
            };
            let factor = &weight[tap * BLOCK + lane..][..LANES];
            sum = s.fma(s.load_slice(input), s.load_slice(factor), sum);
        }
        let start = row * channels + first + lane;
        // SAFETY: only this task writes these channels of this sequence's rows.
        s.store_slice(unsafe { call.out.part(start..start + count) }, sum);
    }
}
