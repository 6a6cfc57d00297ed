//! `log_softmax(x) = x - max x - ln Σ exp(x - max x)` over the last axis. Bound by memory, as `softmax`.

use std::sync::Arc;

use engine::KernelCall;
use tensor::DType;

use super::floats::{self, is_float};
use super::operands::{elements, elements_mut, view};
use super::softmax::{RowKernel, largest, softmax_with, weights};
use crate::variant::{Variant, variants};
use crate::vec::{self, LANES, Simd};
use crate::{Cpu, Pool};

variants! {
    /// The logarithm of the softmax of rows.
    pub(crate) static VARIANTS = rows, (dims: usize, x: &[f32], out: &mut [f32])
}

/// The kernel of the op, for a dtype.
pub(crate) fn kernel(cpu: &Cpu, axis: usize, dtype: DType) -> Option<Arc<dyn engine::Kernel>> {
    let (rows, pool) = (cpu.pick(VARIANTS), Arc::clone(&cpu.pool));
    let known = is_float(dtype) || dtype == DType::F64;
    if known { Some(Arc::new(LogSoftmaxKernel { axis, dtype, rows, pool })) } else { None }
}

struct LogSoftmaxKernel {
    axis: usize,
    dtype: DType,
    rows: &'static Variant<RowKernel>,
    pool: Arc<Pool>,
}

impl engine::Kernel for LogSoftmaxKernel {
    fn name(&self) -> String {
        let variant = if self.dtype == DType::F64 { "portable" } else { self.rows.name };
        format!("log_softmax[{}].{variant}", self.dtype)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (dims, inner) = (x.shape[self.axis], x.shape[self.axis + 1..].iter().product());
        if x.bytes.is_empty() {
            return Ok(());
        }
        if self.dtype == DType::F64 {
            let (x, out) = (elements(x.bytes), elements_mut(call.outputs[0].bytes));
            lanes(&self.pool, dims, inner, &x, out, row_of_f64);
            return Ok(());
        }
        let x = floats::read(x)?;
        floats::write(&mut call.outputs[0], |out| match inner {
            1 => softmax_with(self.rows, &self.pool, dims, &x, out),
            _ => lanes(&self.pool, dims, inner, &x, out, |x, out| {
                // SAFETY: the variant was chosen because this machine has it.
                unsafe { (self.rows.run)(dims, x, out) };
            }),
        })?;
        Ok(())
    }
}

/// Calls `row` with each lane along an axis, gathered, and scatters what it gives.
fn lanes<T: Copy + Default + Send + Sync>(
    pool: &Pool,
    dims: usize,
    inner: usize,
    x: &[T],
    out: &mut [T],
    row: impl Fn(&[T], &mut [T]) + Sync,
) {
    pool.run_on_pieces(out, dims * inner, &|index, out| {
        let x = &x[index * dims * inner..][..dims * inner];
        let mut lane = vec![T::default(); 2 * dims];
        let (from, to) = lane.split_at_mut(dims);
        for first in 0..inner {
            from.iter_mut().zip(x[first..].iter().step_by(inner)).for_each(|(to, x)| *to = *x);
            row(from, to);
            out[first..].iter_mut().step_by(inner).zip(&*to).for_each(|(out, y)| *out = *y);
        }
    });
}

fn row_of_f64(x: &[f64], out: &mut [f64]) {
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let logarithm = x.iter().map(|x| (x - largest).exp()).sum::<f64>().ln();
    out.iter_mut().zip(x).for_each(|(out, x)| *out = x - largest - logarithm);
}

#[inline(always)]
fn rows<S: Simd>(s: S, dims: usize, x: &[f32], out: &mut [f32]) {
    for (x, out) in x.chunks_exact(dims).zip(out.chunks_exact_mut(dims)) {
        let largest = largest(s, x);
        let logarithm = s.splat(vec::ln(weights(s, x, largest, out)));
        let largest = s.splat(largest);
        for (x, out) in x.chunks(LANES).zip(out.chunks_mut(LANES)) {
            s.store_slice(out, s.sub(s.sub(s.load_slice(x), largest), logarithm));
        }
    }
}
