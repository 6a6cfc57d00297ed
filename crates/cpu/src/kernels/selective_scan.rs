//! The state space of Mamba, token by token.
//!
//! A task is up to 32 elements of one head of one sequence. Their states stay in the nearest cache while its tokens pass, one
//! after the other; for each, all `state_dim` states decay, grow, and are summed in four parts, which are added in pairs
//! at the end. No order depends on how a sequence is cut into calls. Prefill is bound by arithmetic: three operations for
//! each element of the state, and an exponential where each has a rate of its own; decode by reading and writing the states.

use std::sync::Arc;

use engine::{Kernel, KernelCall, View};

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, view};
use super::sequence_state::{SequenceRun, SequenceStates};
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Simd, exp, with_scratch};
use crate::{Cpu, Pool};

/// Elements of a head that a task has.
const BLOCK: usize = 2 * LANES;
/// Parts in which the states of an element are summed.
const PARTS: usize = 4;

/// One block of elements of one sequence.
type BlockKernel = unsafe fn(&Scan<'_>, &SequenceRun, usize, &mut [f32]);

variants!(static VARIANTS = scan_block, (
    call: &Scan<'_>,
    run: &SequenceRun,
    block: usize,
    scratch: &mut [f32],
));

/// A call.
struct Scan<'a> {
    heads: usize,
    head_dim: usize,
    groups: usize,
    state_dim: usize,
    /// `[tokens, heads, head_dim]`
    x: &'a [f32],
    /// `[tokens, heads]`, or as `x`.
    dt: &'a [f32],
    /// `[heads]`, or `[heads, state_dim, head_dim]`.
    a: &'a [f32],
    /// Whether `dt` and `a` are those of heads.
    of_heads: bool,
    /// `[tokens, groups, state_dim]`
    b: &'a [f32],
    /// `[tokens, groups, state_dim]`
    c: &'a [f32],
    /// Of each sequence: `[heads, state_dim, head_dim]`
    states: SequenceStates<'a>,
    /// `[tokens, heads, head_dim]`
    out: Disjoint<'a, f32>,
}

impl Scan<'_> {
    /// Blocks of a head.
    fn blocks(&self) -> usize {
        self.head_dim.div_ceil(BLOCK)
    }
}

/// A kernel for one layer of the states.
pub(crate) fn kernel(cpu: &Cpu, layer: usize) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(SelectiveScanKernel { layer, variant: cpu.pick(VARIANTS), pool: Arc::clone(&cpu.pool) }))
}

struct SelectiveScanKernel {
    layer: usize,
    variant: &'static Variant<BlockKernel>,
    pool: Arc<Pool>,
}

impl Kernel for SelectiveScanKernel {
    fn name(&self) -> String {
        format!("selective_scan.{}", self.variant.name)
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[6, 7, 8])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        SequenceStates::check(inputs, 5, self.layer, inputs[0].shape[0])
    }

    fn run(&self, mut call: KernelCall<'_, '_>) -> Result<(), String> {
        let views = [0, 1, 2, 3, 4].map(|position| view(&call, position));
        let (x, b, of_heads) = (views[0].shape, views[3].shape, views[1].shape.rank() == 2);
        let states = SequenceStates::new(&mut call, 5, self.layer, x[0])?;
        let out = Disjoint::new(elements_mut(call.outputs[0].bytes));
        let operands = views.map(|view| elements::<f32>(view.bytes));
        let [values, dt, a, inputs, reads] = operands.each_ref().map(|operand| &operand[..]);
        let call = Scan {
            heads: x[1],
            head_dim: x[2],
            groups: b[1],
            state_dim: b[2],
            x: values,
            dt,
            a,
            of_heads,
            b: inputs,
            c: reads,
            states,
            out,
        };
        let of_sequence = call.heads * call.blocks();
        let task = |task: usize| {
            let run = &call.states.runs[task / of_sequence];
            // SAFETY: the variant is available.
            with_scratch(call.state_dim * BLOCK, |scratch| unsafe {
                (self.variant.run)(&call, run, task % of_sequence, scratch);
            });
        };
        let tasks = call.states.runs.len() * of_sequence;
        // A few small states are done sooner than other threads are called.
        if values.len() * call.state_dim < 16 * 1024 {
            (0..tasks).for_each(task);
        } else {
            self.pool.run(tasks, &task);
        }
        Ok(())
    }
}

/// Up to [`BLOCK`] elements of a head.
#[derive(Clone, Copy)]
struct HeadBlock {
    head: usize,
    /// The first of the elements.
    first: usize,
    /// How many there are.
    count: usize,
}

#[inline(always)]
fn scan_block<S: Simd>(s: S, call: &Scan<'_>, run: &SequenceRun, block: usize, scratch: &mut [f32]) {
    let (head, first) = (block / call.blocks(), block % call.blocks() * BLOCK);
    let part = HeadBlock { head, first, count: BLOCK.min(call.head_dim - first) };
    // [state_dim, BLOCK]
    let state = &mut scratch[..call.state_dim * BLOCK];
    state.fill(0.0);
    let place = |n: usize| {
        let start = (head * call.state_dim + n) * call.head_dim + first;
        start..start + part.count
    };
    for (n, state) in state.chunks_exact_mut(BLOCK).enumerate() {
        // SAFETY: only this task uses these states, and it writes them below.
        if let Some(before) = unsafe { call.states.before(run, place(n)) } {
            state[..part.count].copy_from_slice(before);
        }
    }
    match (call.of_heads, part.count > LANES) {
        (true, true) => scan_rows::<S, 2, true>(s, call, run, part, state),
        (true, false) => scan_rows::<S, 1, true>(s, call, run, part, state),
        (false, true) => scan_rows::<S, 2, false>(s, call, run, part, state),
        (false, false) => scan_rows::<S, 1, false>(s, call, run, part, state),
    }
    for (n, state) in state.chunks_exact(BLOCK).enumerate() {
        // SAFETY: only this task uses these states, and what it read is in `state`.
        unsafe { call.states.after(run, place(n)) }.copy_from_slice(&state[..part.count]);
    }
}

/// `V` vectors of elements, token by token.
#[inline(always)]
fn scan_rows<S: Simd, const V: usize, const OF_HEADS: bool>(
    s: S,
    call: &Scan<'_>,
    run: &SequenceRun,
    part: HeadBlock,
    state: &mut [f32],
) {
    let state_dim = call.state_dim;
    for (i, row) in run.rows.clone().enumerate() {
        let start = (row * call.heads + part.head) * call.head_dim + part.first;
        // SAFETY: only this task writes these elements.
        let out = unsafe { call.out.part(start..start + part.count) };
        if i >= run.counted {
            out.fill(0.0);
            continue;
        }
        let token = Token::<S, V>::read::<OF_HEADS>(s, call, part, row);
        let mut sums = [[s.splat(0.0); V]; PARTS];
        let whole = state_dim / PARTS * PARTS;
        for n in (0..whole).step_by(PARTS) {
            for (i, sums) in sums.iter_mut().enumerate() {
                token.step::<OF_HEADS>(s, call, part, n + i, state, sums);
            }
        }
        for n in whole..state_dim {
            token.step::<OF_HEADS>(s, call, part, n, state, &mut sums[0]);
        }
        for (v, out) in out.chunks_mut(LANES).enumerate() {
            let sum = s.add(s.add(sums[0][v], sums[1][v]), s.add(sums[2][v], sums[3][v]));
            s.store_slice(out, sum);
        }
    }
}

/// What a token does to the states of `V` vectors of elements.
struct Token<'a, S: Simd, const V: usize> {
    /// `dt`
    steps: [S::F32; V],
    /// `dt · x`
    inputs: [S::F32; V],
    /// Of heads: the factor on all states.
    decay: S::F32,
    /// `[state_dim]`
    b: &'a [f32],
    /// `[state_dim]`
    c: &'a [f32],
}

impl<'a, S: Simd, const V: usize> Token<'a, S, V> {
    #[inline(always)]
    fn read<const OF_HEADS: bool>(s: S, call: &Scan<'a>, part: HeadBlock, row: usize) -> Token<'a, S, V> {
        let HeadBlock { head, first, count } = part;
        let at = row * call.heads + head;
        let start = at * call.head_dim + first;
        let mut inputs = load::<S, V>(s, &call.x[start..start + count]);
        let (steps, decay) = if OF_HEADS {
            let step = s.splat(call.dt[at]);
            ([step; V], exp(s, s.mul(step, s.splat(call.a[head]))))
        } else {
            (load::<S, V>(s, &call.dt[start..start + count]), s.splat(0.0))
        };
        for (input, step) in inputs.iter_mut().zip(steps) {
            *input = s.mul(*input, step);
        }
        let shared = (row * call.groups + head / (call.heads / call.groups)) * call.state_dim;
        let (b, c) = (&call.b[shared..][..call.state_dim], &call.c[shared..][..call.state_dim]);
        Token { steps, inputs, decay, b, c }
    }

    /// Changes the `n`-th states, and adds what is read of them.
    #[inline(always)]
    fn step<const OF_HEADS: bool>(
        &self,
        s: S,
        call: &Scan<'_>,
        part: HeadBlock,
        n: usize,
        state: &mut [f32],
        sums: &mut [S::F32; V],
    ) {
        let mut decays = [self.decay; V];
        if !OF_HEADS {
            let place = (part.head * call.state_dim + n) * call.head_dim + part.first;
            let rates = load::<S, V>(s, &call.a[place..place + part.count]);
            for v in 0..V {
                decays[v] = exp(s, s.mul(self.steps[v], rates[v]));
            }
        }
        let (b, c) = (s.splat(self.b[n]), s.splat(self.c[n]));
        let state = &mut state[n * BLOCK..][..BLOCK];
        for v in 0..V {
            let state = state[v * LANES..][..LANES].as_mut_ptr();
            // SAFETY: the slice has sixteen values.
            unsafe {
                let next = s.fma(self.inputs[v], b, s.mul(decays[v], s.load(state)));
                s.store(state, next);
                sums[v] = s.fma(next, c, sums[v]);
            }
        }
    }
}

/// `V` vectors, of which the last may be shorter.
#[inline(always)]
fn load<S: Simd, const V: usize>(s: S, from: &[f32]) -> [S::F32; V] {
    let mut vectors = [s.splat(0.0); V];
    for (vector, from) in vectors.iter_mut().zip(from.chunks(LANES)) {
        *vector = s.load_slice(from);
    }
    vectors
}
