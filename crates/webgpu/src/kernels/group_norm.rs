//! Normalization of groups of channels to mean 0 and variance 1: a workgroup for each group, with the sums of `norm`.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel};
use graph::ops;
use tensor::DType;

use super::operand;
use super::rows::{LANES, ROW_SUMS};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// `(x - mean(x)) / sqrt(variance(x) + eps) · weight + bias` of each group.
pub(crate) fn group_norm(op: ops::GroupNorm) -> Option<Arc<dyn FarKernel>> {
    Some(Arc::new(GroupNormKernel(op)))
}

struct GroupNormKernel(ops::GroupNorm);

impl FarKernel for GroupNormKernel {
    fn name(&self) -> String {
        "group_norm.webgpu".to_string()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let (y, ops::GroupNorm { groups, eps }) = (&call.outputs[0], self.0);
        let plane: usize = y.shape[2..].iter().product();
        let count = y.shape[1] / groups * plane;
        let all = if count == 0 { 0 } else { y.shape[0] * groups };
        let bindings = ["x", "weight", "bias", "y"].map(|name| (name, DType::F32, Access::Memory));
        let params = ["count", "plane", "in_example", "eps"];
        let source = [LANES, ROW_SUMS, include_str!("group_norm.wgsl")].concat();
        let shader = Shader::new(&self.name(), &bindings, &params, &[], &source);
        let [x, weight, bias] = [operand(call, 0)?, operand(call, 1)?, operand(call, 2)?];
        let places = [x, weight, bias, y].map(|array| Place::Memory(&array.bytes));
        let params = [count as u32, plane as u32, groups as u32, eps.to_bits()];
        Recorder::of(recorder)?.dispatch(&shader, &places, &params, all, 8 * (all * count) as u64)
    }
}
