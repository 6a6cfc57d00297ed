//! The gated delta rule: linear attention whose state forgets, and replaces what it holds for a key.
//!
//! Columns of a head's state do not depend on each other: a task takes 32 of them through all rows of a sequence, with its
//! part of the state, [key_dim, 32], in the nearest cache. Each row reads the part twice, once for what it holds for the
//! key and once to change it, and multiplies in order of key dims, so that the bits do not depend on how a sequence is cut
//! into calls. A call with few rows is bound by the memory of the states, one with many by arithmetic.

use std::sync::Arc;

use engine::{Kernel, KernelCall, View};
use graph::ops::GatedDeltaRule;

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, view};
use super::sequence_state::{SequenceRun, SequenceStates};
use crate::variant::{Variant, variants};
use crate::vec::{LANES, Simd, with_scratch};
use crate::{Cpu, Pool};

/// Vectors of columns in a task.
const VECTORS: usize = 2;
/// Columns of a task.
const BLOCK: usize = VECTORS * LANES;

/// One block of columns of a head, for one sequence; the last operand holds `key_dim · BLOCK` elements.
type BlockKernel = unsafe fn(&Rule<'_>, &SequenceRun, &Columns, &mut [f32]);

variants!(static VARIANTS = rule_block, (
    rule: &Rule<'_>,
    run: &SequenceRun,
    columns: &Columns,
    state: &mut [f32],
));

/// A call.
struct Rule<'a> {
    key_heads: usize,
    key_dim: usize,
    value_heads: usize,
    value_dim: usize,
    tiled: bool,
    /// `[tokens, key_heads, key_dim]`
    q: &'a [f32],
    /// The same.
    k: &'a [f32],
    /// `[tokens, value_heads, value_dim]`
    v: &'a [f32],
    /// `[tokens, value_heads]`
    decay: &'a [f32],
    /// The same.
    beta: &'a [f32],
    /// Of each sequence: `[value_heads, key_dim, value_dim]`
    states: SequenceStates<'a>,
    /// `[tokens, value_heads, value_dim]`
    out: Disjoint<'a, f32>,
}

/// Neighbouring columns of a head.
struct Columns {
    head: usize,
    first: usize,
    /// At most [`BLOCK`].
    count: usize,
}

/// A kernel for one layer of the states.
pub(crate) fn kernel(cpu: &Cpu, op: GatedDeltaRule) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(GatedDeltaRuleKernel { op, variant: cpu.pick(VARIANTS), pool: Arc::clone(&cpu.pool) }))
}

struct GatedDeltaRuleKernel {
    op: GatedDeltaRule,
    variant: &'static Variant<BlockKernel>,
    pool: Arc<Pool>,
}

impl Kernel for GatedDeltaRuleKernel {
    fn name(&self) -> String {
        format!("gated_delta_rule.{}", self.variant.name)
    }

    fn checked(&self) -> Option<&'static [usize]> {
        Some(&[6, 7, 8])
    }

    fn check(&self, inputs: &[View<'_>]) -> Result<(), String> {
        SequenceStates::check(inputs, 5, self.op.layer, inputs[0].shape[0])
    }

    fn run(&self, mut call: KernelCall<'_, '_>) -> Result<(), String> {
        let [q, k, v, decay, beta] = [0, 1, 2, 3, 4].map(|position| view(&call, position));
        let states = SequenceStates::new(&mut call, 5, self.op.layer, q.shape[0])?;
        let ([key_heads, key_dim], [value_heads, value_dim]) =
            ([1, 2].map(|axis| q.shape[axis]), [1, 2].map(|axis| v.shape[axis]));
        let [q, k, v, decay, beta] = [q, k, v, decay, beta].map(|operand| elements(operand.bytes));
        let out = Disjoint::new(elements_mut(call.outputs[0].bytes));
        let (q, k, v, decay, beta) = (&q[..], &k[..], &v[..], &decay[..], &beta[..]);
        let tiled = self.op.tiled;
        let rule =
            Rule { key_heads, key_dim, value_heads, value_dim, tiled, q, k, v, decay, beta, states, out };
        let blocks = value_dim.div_ceil(BLOCK);
        self.pool.run(rule.states.runs.len() * value_heads * blocks, &|task| {
            let run = &rule.states.runs[task / blocks / value_heads];
            let first = task % blocks * BLOCK;
            let count = BLOCK.min(value_dim - first);
            let columns = Columns { head: task / blocks % value_heads, first, count };
            // SAFETY: the variant is available.
            with_scratch(key_dim * BLOCK, |state| unsafe {
                (self.variant.run)(&rule, run, &columns, state);
            });
        });
        Ok(())
    }
}

#[inline(always)]
fn rule_block<S: Simd>(s: S, rule: &Rule<'_>, run: &SequenceRun, columns: &Columns, state: &mut [f32]) {
    let &Columns { head, first, count } = columns;
    let row_of_state = |i: usize| {
        let start = (head * rule.key_dim + i) * rule.value_dim + first;
        start..start + count
    };
    for (i, to) in state.chunks_exact_mut(BLOCK).enumerate() {
        to.fill(0.0);
        // SAFETY: only this task writes these columns, and not before it has read them.
        if let Some(from) = unsafe { rule.states.before(run, row_of_state(i)) } {
            to[..count].copy_from_slice(from);
        }
    }
    let key_head =
        if rule.tiled { head % rule.key_heads } else { head / (rule.value_heads / rule.key_heads) };
    for (index, row) in run.rows.clone().enumerate() {
        let place = row * rule.value_heads + head;
        let range = place * rule.value_dim + first..place * rule.value_dim + first + count;
        // SAFETY: only this task writes these columns of this sequence's rows.
        let y = unsafe { rule.out.part(range.clone()) };
        if index >= run.counted {
            y.fill(0.0);
            continue;
        }
        let start = (row * rule.key_heads + key_head) * rule.key_dim;
        let [q, k] = [rule.q, rule.k].map(|x| &x[start..start + rule.key_dim]);
        let change = change(s, state, k, &rule.v[range], rule.decay[place], rule.beta[place]);
        let sums = update(s, state, q, k, change, rule.decay[place]);
        store(s, sums, y);
    }
    for (i, from) in state.chunks_exact(BLOCK).enumerate() {
        // SAFETY: only this task refers to these columns.
        unsafe { rule.states.after(run, row_of_state(i)) }.copy_from_slice(&from[..count]);
    }
}

/// `beta · (v - decay · Sᵀk)`: what is added to the value that the state holds for the key.
#[inline(always)]
fn change<S: Simd>(s: S, state: &[f32], k: &[f32], v: &[f32], decay: f32, beta: f32) -> [S::F32; VECTORS] {
    // Of even and of odd rows, so that no addition waits for the one before.
    let mut sums = [[s.splat(0.0); VECTORS]; 2];
    let pairs = state.chunks_exact(2 * BLOCK).zip(k.chunks_exact(2));
    for (state, k) in pairs {
        for (half, sums) in sums.iter_mut().enumerate() {
            add_product(s, &state[half * BLOCK..], k[half], sums);
        }
    }
    if k.len() % 2 == 1 {
        add_product(s, &state[(k.len() - 1) * BLOCK..], k[k.len() - 1], &mut sums[0]);
    }
    let (decay, beta) = (s.splat(decay), s.splat(beta));
    let mut result = [s.splat(0.0); VECTORS];
    for (n, result) in result.iter_mut().enumerate() {
        let held = s.mul(decay, s.add(sums[0][n], sums[1][n]));
        let v = s.load_slice(v.get(n * LANES..).unwrap_or_default());
        *result = s.mul(beta, s.sub(v, held));
    }
    result
}

/// Adds a row of the state times a factor.
#[inline(always)]
fn add_product<S: Simd>(s: S, row: &[f32], factor: f32, sums: &mut [S::F32; VECTORS]) {
    let (row, factor) = (&row[..BLOCK], s.splat(factor));
    for (n, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the row has so many vectors.
        *sum = s.fma(unsafe { s.load(row.as_ptr().add(n * LANES)) }, factor, *sum);
    }
}

/// `S ← decay · S + k ⊗ change`, and `Sᵀq` of the new state.
#[inline(always)]
fn update<S: Simd>(
    s: S,
    state: &mut [f32],
    q: &[f32],
    k: &[f32],
    change: [S::F32; VECTORS],
    decay: f32,
) -> [S::F32; VECTORS] {
    let decay = s.splat(decay);
    let mut sums = [s.splat(0.0); VECTORS];
    for ((row, q), k) in state.chunks_exact_mut(BLOCK).zip(q).zip(k) {
        let (q, k) = (s.splat(*q), s.splat(*k));
        for n in 0..VECTORS {
            // SAFETY: the row has so many vectors.
            unsafe {
                let place = row.as_mut_ptr().add(n * LANES);
                let new = s.fma(k, change[n], s.mul(decay, s.load(place)));
                s.store(place, new);
                sums[n] = s.fma(new, q, sums[n]);
            }
        }
    }
    sums
}

/// Writes as many lanes as there is room for.
#[inline(always)]
fn store<S: Simd>(s: S, lanes: [S::F32; VECTORS], to: &mut [f32]) {
    for (to, lanes) in to.chunks_mut(LANES).zip(lanes) {
        s.store_slice(to, lanes);
    }
}
