//! The k largest, or smallest, along an axis, in order: of equal ones the lower index first, NaN above all numbers.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel};
use graph::ops::TopK;
use tensor::DType;

use super::elements::{ElementShader, wgsl_type};
use super::operand;
use super::rows::{ORDER, THREADS, around, is_number, order_constants};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// The most elements that a lane is searched for, once for each.
const MOST: usize = 1024;

/// The kernel of the op, for a dtype.
pub(crate) fn top_k(op: TopK, dtype: DType) -> Option<Arc<dyn FarKernel>> {
    (is_number(dtype) && op.k <= MOST).then(|| Arc::new(TopKKernel { op, dtype }) as Arc<dyn FarKernel>)
}

struct TopKKernel {
    op: TopK,
    dtype: DType,
}

impl TopKKernel {
    /// Gives where the elements are.
    fn indices(&self) -> Shader {
        let ty = self.element();
        let order =
            order_constants(self.op.smallest, true, if self.op.smallest { "0u" } else { "0xffffffffu" });
        let key = format!("fn key(value: {ty}) -> u32 {{ return key_{ty}(value); }}\n");
        let source = [&order, ORDER, &key, include_str!("top_k.wgsl")].concat();
        let bindings = [("x", self.dtype, Access::Memory), ("indices", DType::I64, Access::Memory)];
        Shader::new("top_k", &bindings, &["k", "n", "inner"], &[], &source)
    }

    /// The type of an element in a shader.
    fn element(&self) -> &'static str {
        wgsl_type(self.dtype).expect("a number")
    }
}

impl FarKernel for TopKKernel {
    fn name(&self) -> String {
        format!("{}[{}].webgpu", graph::Op::from(self.op).name(), self.dtype)
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let (x, y, indices) = (operand(call, 0)?, &call.outputs[0], &call.outputs[1]);
        let TopK { k, axis, .. } = self.op;
        let [outer, n, inner] = around(x.shape, axis);
        let (lanes, elements, recorder) = (outer * inner, outer * k * inner, Recorder::of(recorder)?);
        if elements == 0 {
            return Ok(());
        }
        let sizes = [k as u32, n as u32, inner as u32];
        let places = [&x.bytes, &indices.bytes].map(Place::Memory);
        let work = 8 * (elements * n.next_multiple_of(THREADS)) as u64;
        recorder.dispatch(&self.indices(), &places, &sizes, lanes, work)?;
        let shader = ElementShader {
            name: "top_k_values",
            operands: &[("x", self.dtype), ("indices", DType::I64)],
            result: self.dtype,
            params: &["k", "n", "inner"],
            text: &format!("alias Element = {};\n{}", self.element(), include_str!("top_k_values.wgsl")),
        };
        let places = [&x.bytes, &indices.bytes, &y.bytes].map(Place::Memory);
        shader.dispatch(recorder, &places, &[k, n, inner], (elements, 2))
    }
}
