//! Rotary position embedding: a thread for each pair of elements that turns, or for each element after them.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel};
use graph::ops::RopeStyle;
use tensor::DType;

use super::operand;
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// Threads of a workgroup.
const THREADS: usize = 128;

/// Turns pairs by the angles of a table.
pub(crate) fn rope(style: RopeStyle) -> Option<Arc<dyn FarKernel>> {
    Some(Arc::new(Rope { style }))
}

struct Rope {
    style: RopeStyle,
}

impl Rope {
    fn shader(&self) -> Shader {
        let pair = match self.style {
            RopeStyle::Interleaved => "vec2<u32>(2u * i, 2u * i + 1u)",
            RopeStyle::HalfSplit => "vec2<u32>(i, i + p.pairs)",
        };
        let pair = format!("fn pair_of(i: u32) -> vec2<u32> {{ return {pair}; }}\n");
        let bindings = ["x", "table", "y"].map(|name| (name, DType::F32, Access::Memory));
        let params = ["heads", "heads_of_token", "head_dim", "pairs"];
        Shader::new("rope", &bindings, &params, &[], &(pair + include_str!("rope.wgsl")))
    }
}

impl FarKernel for Rope {
    fn name(&self) -> String {
        "rope.webgpu".to_string()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let (x, table, y) = (operand(call, 0)?, operand(call, 1)?, &call.outputs[0]);
        let [tokens, heads, head_dim] = [0, 1, 2].map(|axis| x.shape[axis]);
        let pairs = table.shape[2];
        let items = tokens * heads * (head_dim - pairs);
        let places = [x, table, y].map(|array| Place::Memory(&array.bytes));
        let params = [tokens * heads, heads, head_dim, pairs].map(|size| size as u32);
        let groups = items.div_ceil(THREADS);
        Recorder::of(recorder)?.dispatch(&self.shader(), &places, &params, groups, 16 * items as u64)
    }
}
