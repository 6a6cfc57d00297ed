//! Normalization over the last axis: by the root of the mean square, or to mean 0 and variance 1.
//!
//! A workgroup of 64 lanes computes a row, with the running sums of the CPU.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel};
use tensor::DType;

use super::operand;
use super::rows::{LANES, ROW_SUMS, around};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// `x / sqrt(mean(x²) + eps) · weight`.
pub(crate) fn rms_norm(eps: f32) -> Option<Arc<dyn FarKernel>> {
    Some(Arc::new(NormKernel { eps, is_centered: false }))
}

/// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias`.
pub(crate) fn layer_norm(eps: f32) -> Option<Arc<dyn FarKernel>> {
    Some(Arc::new(NormKernel { eps, is_centered: true }))
}

struct NormKernel {
    eps: f32,
    /// Whether the mean is taken away, and a bias added.
    is_centered: bool,
}

impl NormKernel {
    fn shader(&self) -> Shader {
        let all = ["x", "weight", "bias"].map(|name| (name, DType::F32, Access::Memory));
        let mut bindings = all[..self.operands()].to_vec();
        bindings.push(("y", DType::F32, Access::Memory));
        let bias = if self.is_centered { "value + bias(i)" } else { "value" };
        let biased = format!("fn biased(value: f32, i: u32) -> f32 {{ return {bias}; }}\n");
        let source = [LANES, ROW_SUMS, &biased, include_str!("norm.wgsl")].concat();
        let centered = [("CENTERED", self.is_centered.to_string())];
        Shader::new(&self.name(), &bindings, &["columns", "eps"], &centered, &source)
    }

    fn operands(&self) -> usize {
        if self.is_centered { 3 } else { 2 }
    }
}

impl FarKernel for NormKernel {
    fn name(&self) -> String {
        let op = if self.is_centered { "layer_norm" } else { "rms_norm" };
        format!("{op}.webgpu")
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let y = &call.outputs[0];
        let [rows, columns, _] = around(y.shape, y.shape.rank() - 1);
        let rows = if columns == 0 { 0 } else { rows };
        let arrays = (0..self.operands()).map(|i| operand(call, i)).chain([Ok(y)]);
        let places =
            arrays.map(|array| Ok(Place::Memory(&array?.bytes))).collect::<Result<Vec<_>, String>>()?;
        let params = [columns as u32, self.eps.to_bits()];
        let work = 8 * (rows * columns) as u64;
        Recorder::of(recorder)?.dispatch(&self.shader(), &places, &params, rows, work)
    }
}
