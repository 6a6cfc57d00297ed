//! The real signals of half spectra, along any axis: mixed radices or Bluestein's algorithm, as the length asks for.

use std::sync::{Arc, Mutex, PoisonError};

use engine::{Kernel, KernelCall};
use graph::ops;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner};

use super::disjoint::Disjoint;
use super::operands::{elements, elements_mut, view};
use crate::{Cpu, Pool};

/// The kernel of the op.
pub(crate) fn kernel(cpu: &Cpu, op: &ops::Irfft) -> Option<Arc<dyn Kernel>> {
    Some(Arc::new(IrfftKernel { op: op.clone(), plans: Plans::default(), pool: Arc::clone(&cpu.pool) }))
}

struct IrfftKernel {
    op: ops::Irfft,
    plans: Plans,
    pool: Arc<Pool>,
}

impl Kernel for IrfftKernel {
    fn name(&self) -> String {
        "irfft".to_string()
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let (x, axis) = (view(&call, 0), self.op.axis);
        let result = &mut call.outputs[0];
        let sizes = Spectra {
            outer: result.shape[..axis].iter().product(),
            bins: x.shape[axis],
            inner: result.shape[axis + 1..].iter().product(),
            length: result.shape[axis],
        };
        let factor = self.op.norm.factor(sizes.length) as f32;
        inverse(&self.plans, &self.pool, sizes, factor, &elements(x.bytes), elements_mut(result.bytes));
        Ok(())
    }
}

/// Plans of transforms, kept for the next call.
#[derive(Default)]
struct Plans(Mutex<RealFftPlanner<f32>>);

/// Spectra [outer, bins, inner, 2] and signals [outer, length, inner].
#[derive(Debug, Clone, Copy)]
struct Spectra {
    outer: usize,
    bins: usize,
    inner: usize,
    length: usize,
}

impl Plans {
    fn inverse(&self, length: usize) -> Arc<dyn ComplexToReal<f32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).plan_fft_inverse(length)
    }
}

/// Writes the signal of each spectrum, times a factor.
fn inverse(plans: &Plans, pool: &Pool, sizes: Spectra, factor: f32, x: &[f32], out: &mut [f32]) {
    let Spectra { outer, bins, inner, length } = sizes;
    if out.is_empty() {
        return;
    }
    let plan = plans.inverse(length);
    let (lanes, per_chunk) = (outer * inner, (16 * 1024 / length).max(1));
    let out = Disjoint::new(out);
    pool.run(lanes.div_ceil(per_chunk), &|chunk| {
        let (mut spectrum, mut signal) = (plan.make_input_vec(), plan.make_output_vec());
        let mut scratch = plan.make_scratch_vec();
        for lane in chunk * per_chunk..lanes.min((chunk + 1) * per_chunk) {
            let (o, i) = (lane / inner, lane % inner);
            for (k, slot) in spectrum.iter_mut().enumerate() {
                let at = 2 * ((o * bins + k) * inner + i);
                *slot = if k < bins { Complex::new(x[at], x[at + 1]) } else { Complex::default() };
            }
            // Parts that a real signal does not have.
            spectrum[0].im = 0.0;
            if length.is_multiple_of(2) {
                spectrum[length / 2].im = 0.0;
            }
            plan.process_with_scratch(&mut spectrum, &mut signal, &mut scratch)
                .expect("arrays made by the plan, of a real signal's spectrum");
            for (t, value) in signal.iter().enumerate() {
                let at = (o * length + t) * inner + i;
                // SAFETY: each lane belongs to one chunk.
                unsafe { *out.pointer(at..at + 1) = value * factor };
            }
        }
    });
}
