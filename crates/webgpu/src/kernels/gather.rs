//! Slabs of a table along an axis, by index. The host has checked the indices.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel, NodeTypes};
use tensor::DType;

use super::elements::{ElementShader, moved_as, wgsl_type};
use super::operand;
use crate::recorder::{Place, Recorder};

/// The kernel that looks up along an axis.
pub(super) fn kernel(node: &NodeTypes<'_>, axis: usize) -> Option<Arc<dyn FarKernel>> {
    let (dtype, indices) = (moved_as(node.inputs[0].dtype)?, node.inputs[1].dtype);
    Some(Arc::new(GatherKernel { axis, dtype, indices }))
}

struct GatherKernel {
    axis: usize,
    /// As what elements are moved.
    dtype: DType,
    /// Of the indices.
    indices: DType,
}

impl GatherKernel {
    fn text(&self) -> String {
        let signed = match self.indices {
            DType::U32 => "return indices(i);",
            DType::I64 => "let index = bitcast<i32>(indices(i).x);",
            _ => "let index = indices(i);",
        };
        let from_end = match self.indices {
            DType::U32 => "",
            _ => " return bitcast<u32>(index) + select(0u, p.rows, index < 0);",
        };
        let ty = wgsl_type(self.dtype).expect("a dtype to move as");
        format!(
            "alias TYPE = {ty};\nfn index_of(i: u32) -> u32 {{ {signed}{from_end} }}\n{}",
            include_str!("gather.wgsl")
        )
    }
}

impl FarKernel for GatherKernel {
    fn name(&self) -> String {
        "gather.webgpu".to_string()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let (table, indices, result) = (operand(call, 0)?, operand(call, 1)?, &call.outputs[0]);
        let rows = table.shape[self.axis];
        let inner = table.shape[self.axis + 1..].iter().product();
        let shader = ElementShader {
            name: "gather",
            operands: &[("table", self.dtype), ("indices", self.indices)],
            result: self.dtype,
            params: &["inner", "indices", "rows"],
            text: &self.text(),
        };
        let places = [table, indices, result].map(|array| Place::Memory(&array.bytes));
        let params = [inner, indices.shape.elements(), rows];
        shader.dispatch(Recorder::of(recorder)?, &places, &params, (result.shape.elements(), 1))
    }
}
