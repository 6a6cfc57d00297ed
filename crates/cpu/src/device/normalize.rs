//! Norms and softmax as kernels of the device.

use std::sync::Arc;

use engine::{Call, Kernel, NodeTypes};
use tensor::{DType, Shape, bf16, f16};

use super::{Cpu, kernel};
use crate::Pool;
use crate::kernels::convert::Half;
use crate::kernels::norm::{self, Norm};
use crate::kernels::operands::{elements, elements_mut, view};
use crate::kernels::variant::Variant;
use crate::kernels::{softmax, softmax_columns};
use crate::vec::with_scratch;

/// `x / sqrt(mean(x²) + eps) · weight`.
pub(super) fn rms_norm(cpu: &Cpu, eps: f32) -> Option<Arc<dyn Kernel>> {
    let variant = cpu.pick(norm::RMS_VARIANTS);
    kernel(NormKernel { op: "rms_norm", eps, variant, pool: Arc::clone(&cpu.pool) })
}

/// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias`.
pub(super) fn layer_norm(cpu: &Cpu, eps: f32) -> Option<Arc<dyn Kernel>> {
    let variant = cpu.pick(norm::LAYER_VARIANTS);
    kernel(NormKernel { op: "layer_norm", eps, variant, pool: Arc::clone(&cpu.pool) })
}

/// `e^(x_i) / Σ_j e^(x_j)` along an axis.
pub(super) fn softmax(cpu: &Cpu, axis: usize, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
    let (x, pool) = (node.inputs[0], Arc::clone(&cpu.pool));
    let rows = cpu.pick(softmax::VARIANTS);
    match x.dtype {
        DType::F32 => {
            kernel(SoftmaxKernel { axis, rows, columns: cpu.pick(softmax_columns::VARIANTS), pool })
        }
        DType::F16 => kernel(LaneSoftmaxKernel::<f16> { axis, softmax: softmax_half::<f16>, rows, pool }),
        DType::BF16 => kernel(LaneSoftmaxKernel::<bf16> { axis, softmax: softmax_half::<bf16>, rows, pool }),
        DType::F64 => kernel(LaneSoftmaxKernel::<f64> { axis, softmax: softmax_f64, rows, pool }),
        _ => None,
    }
}

struct NormKernel {
    op: &'static str,
    eps: f32,
    variant: &'static Variant<norm::Kernel>,
    pool: Arc<Pool>,
}

impl Kernel for NormKernel {
    fn name(&self) -> String {
        format!("{}.{}", self.op, self.variant.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let (x, weight) = (elements(view(&call, 0).bytes), elements(view(&call, 1).bytes));
        let bias = (call.inputs.len() > 2).then(|| elements(view(&call, 2).bytes));
        let norm = Norm { eps: self.eps, weight: &weight, bias: bias.as_deref() };
        norm::norm_with(self.variant, &self.pool, &norm, &x, elements_mut(call.outputs[0].bytes));
        Ok(())
    }
}

/// Of f32.
struct SoftmaxKernel {
    axis: usize,
    rows: &'static Variant<softmax::Kernel>,
    columns: &'static Variant<softmax_columns::Kernel>,
    pool: Arc<Pool>,
}

impl Kernel for SoftmaxKernel {
    fn name(&self) -> String {
        format!("softmax[f32].{}", self.rows.name)
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (n, inner) = axis_sizes(&x.shape, self.axis);
        let (x, out) = (elements(x.bytes), elements_mut(call.outputs[0].bytes));
        match inner {
            1 => softmax::softmax_with(self.rows, &self.pool, n, &x, out),
            _ => softmax_columns::softmax(self.columns, &self.pool, n, inner, &x, out),
        }
        Ok(())
    }
}

/// Softmax of a lane, which is gathered into a row and scattered again.
type LaneSoftmax<T> = fn(&Variant<softmax::Kernel>, Lane, &[T], &mut [T]);

/// Of the other floats.
struct LaneSoftmaxKernel<T> {
    axis: usize,
    softmax: LaneSoftmax<T>,
    rows: &'static Variant<softmax::Kernel>,
    pool: Arc<Pool>,
}

/// Elements along an axis.
#[derive(Clone, Copy)]
struct Lane {
    first: usize,
    stride: usize,
    len: usize,
}

impl Lane {
    fn positions(self) -> impl Iterator<Item = usize> {
        (0..self.len).map(move |i| self.first + i * self.stride)
    }
}

impl<T: tensor::Element> Kernel for LaneSoftmaxKernel<T> {
    fn name(&self) -> String {
        format!("softmax[{}].{}", T::DTYPE, if T::DTYPE == DType::F64 { "portable" } else { self.rows.name })
    }

    fn run(&self, call: Call<'_, '_>) -> Result<(), String> {
        let x = view(&call, 0);
        let (len, stride) = axis_sizes(&x.shape, self.axis);
        let (x, out) = (elements::<T>(x.bytes), elements_mut::<T>(call.outputs[0].bytes));
        if !out.is_empty() {
            self.pool.run_on_pieces(out, len * stride, &|index, out| {
                let x = &x[index * len * stride..][..len * stride];
                (0..stride).for_each(|first| (self.softmax)(self.rows, Lane { first, stride, len }, x, out));
            });
        }
        Ok(())
    }
}

fn softmax_half<T: Half>(rows: &Variant<softmax::Kernel>, lane: Lane, x: &[T], out: &mut [T]) {
    with_scratch(2 * lane.len, |scratch| {
        let (row, result) = scratch.split_at_mut(lane.len);
        for (slot, i) in row.iter_mut().zip(lane.positions()) {
            T::widen(&x[i..=i], std::slice::from_mut(slot));
        }
        // SAFETY: the variant was chosen because this machine has it.
        unsafe { (rows.run)(lane.len, row, result) };
        for (value, i) in result.iter().zip(lane.positions()) {
            T::narrow(std::slice::from_ref(value), &mut out[i..=i]);
        }
    });
}

fn softmax_f64(_rows: &Variant<softmax::Kernel>, lane: Lane, x: &[f64], out: &mut [f64]) {
    let largest = lane.positions().map(|i| x[i]).fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for i in lane.positions() {
        out[i] = (x[i] - largest).exp();
        sum += out[i];
    }
    lane.positions().for_each(|i| out[i] /= sum);
}

/// The size of an axis, and the elements under one index of it.
fn axis_sizes(shape: &Shape, axis: usize) -> (usize, usize) {
    (shape[axis], shape[axis + 1..].iter().product())
}
