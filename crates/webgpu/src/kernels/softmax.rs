//! Softmax along an axis, and its logarithm: the largest value and the sum of each lane first, then all elements.
//!
//! Sums run as the CPU's do: in 64 lanes that are folded, but in order for softmax of f32 along an axis that is not the last.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel};
use tensor::{DType, Shape};

use super::elements::ElementShader;
use super::operand;
use super::rows::{LANES, ORDER, THREADS, around, order_constants};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// `e^(x_i) / Σ_j e^(x_j)` along an axis.
pub(crate) fn softmax(axis: usize, dtype: DType) -> Option<Arc<dyn FarKernel>> {
    kernel(SoftmaxKernel { axis, dtype, is_logarithm: false })
}

/// `x_i - ln Σ_j e^(x_j)` along an axis.
pub(crate) fn log_softmax(axis: usize, dtype: DType) -> Option<Arc<dyn FarKernel>> {
    kernel(SoftmaxKernel { axis, dtype, is_logarithm: true })
}

fn kernel(kernel: SoftmaxKernel) -> Option<Arc<dyn FarKernel>> {
    let is_known = matches!(kernel.dtype, DType::F32 | DType::F16 | DType::BF16);
    is_known.then(|| Arc::new(kernel) as Arc<dyn FarKernel>)
}

struct SoftmaxKernel {
    axis: usize,
    dtype: DType,
    is_logarithm: bool,
}

impl SoftmaxKernel {
    /// Whether sums run in order, a thread for each lane along the axis.
    fn is_in_columns(&self, inner: usize) -> bool {
        inner > 1 && self.dtype == DType::F32 && !self.is_logarithm
    }

    /// Gives the statistics of each lane.
    fn statistics(&self, is_in_columns: bool) -> Shader {
        let order = order_constants(false, true, "0xffffffffu") + ORDER;
        let share = match (self.is_logarithm, is_in_columns) {
            (true, _) => "log_(sum)",
            (_, true) => "sum",
            _ => "1.0 / sum",
        };
        let share = format!("fn share_of_sum(sum: f32) -> f32 {{ return {share}; }}\n");
        let all = [include_str!("math.wgsl"), &order, &share, include_str!("softmax_share.wgsl")].concat();
        let bindings = [("x", self.dtype, Access::Memory), ("statistics", DType::U64, Access::Memory)];
        if is_in_columns {
            let source = all + include_str!("softmax_columns.wgsl");
            Shader::new("softmax_columns", &bindings, &["columns", "n", "inner"], &[], &source)
        } else {
            let source = all + LANES + include_str!("softmax_rows.wgsl");
            Shader::new("softmax_rows", &bindings, &["n", "inner"], &[], &source)
        }
    }

    /// Gives each element.
    fn elements(&self, is_in_columns: bool) -> String {
        let result = match (self.is_logarithm, is_in_columns) {
            (true, _) => "below - share",
            (_, true) => "exp_(below) / share",
            _ => "exp_(below) * share",
        };
        let result = format!("fn result(below: f32, share: f32) -> f32 {{ return {result}; }}\n");
        [include_str!("math.wgsl"), &result, include_str!("softmax.wgsl")].concat()
    }
}

impl FarKernel for SoftmaxKernel {
    fn name(&self) -> String {
        let op = if self.is_logarithm { "log_softmax" } else { "softmax" };
        format!("{op}[{}].webgpu", self.dtype)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        let [outer, _, inner] = around(&inputs[0], self.axis);
        outer * inner * size_of::<[f32; 2]>()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let (x, y) = (operand(call, 0)?, &call.outputs[0]);
        let [outer, n, inner] = around(x.shape, self.axis);
        let (lanes, elements) = (outer * inner, outer * n * inner);
        let Some(statistics) = call.scratch.as_ref().filter(|_| elements > 0) else { return Ok(()) };
        let (is_in_columns, work) = (self.is_in_columns(inner), 32 * elements as u64);
        let recorder = Recorder::of(recorder)?;
        let sizes = [lanes as u32, n as u32, inner as u32];
        let (sizes, groups) =
            if is_in_columns { (&sizes[..], lanes.div_ceil(THREADS)) } else { (&sizes[1..], lanes) };
        let places = [Place::Memory(&x.bytes), Place::Memory(statistics)];
        recorder.dispatch(&self.statistics(is_in_columns), &places, sizes, groups, work)?;
        let shader = ElementShader {
            name: "softmax",
            operands: &[("x", self.dtype), ("statistics", DType::U64)],
            result: self.dtype,
            params: &["n", "inner"],
            text: &self.elements(is_in_columns),
        };
        let places = [&x.bytes, statistics, &y.bytes].map(Place::Memory);
        shader.dispatch(recorder, &places, &[n, inner], (elements, 32))
    }
}
