//! Running sums along an axis, of elements of 32 bits.
//!
//! The axis is cut into segments. An element is the sum of all segments before its own, plus the sum of its own up to it.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel};
use graph::ops::CumSum;
use tensor::{DType, Shape};

use super::elements::wgsl_type;
use super::operand;
use super::rows::{THREADS, around};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// Elements of a segment.
const SEGMENT: usize = 512;

/// The kernel of the op, for a dtype.
pub(crate) fn cumsum(op: CumSum, dtype: DType) -> Option<Arc<dyn FarKernel>> {
    let is_known = matches!(dtype, DType::F32 | DType::I32 | DType::U32);
    is_known.then(|| Arc::new(CumSumKernel { op, dtype }) as Arc<dyn FarKernel>)
}

struct CumSumKernel {
    op: CumSum,
    dtype: DType,
}

impl CumSumKernel {
    fn shader(&self, is_total: bool) -> Shader {
        let ty = wgsl_type(self.dtype).expect("a number");
        let join = match self.dtype {
            DType::F32 => include_str!("join_floats.wgsl").to_string(),
            _ => format!(
                "fn join(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {{ return a + b; }}\n\
                 fn sum_of(state: vec2<u32>) -> {ty} {{ return bitcast<{ty}>(state.x); }}\n"
            ),
        };
        let flags =
            [("IS_TOTAL", is_total), ("IS_REVERSE", self.op.reverse), ("IS_EXCLUSIVE", self.op.exclusive)];
        let mut constants = flags.map(|(name, flag)| (name, flag.to_string())).to_vec();
        constants.push(("SEGMENT", format!("{SEGMENT}u")));
        let bindings = [("x", self.dtype), ("totals", DType::U64), ("y", self.dtype)];
        let bindings = bindings.map(|(name, dtype)| (name, dtype, Access::Memory));
        let source = join + include_str!("cumsum.wgsl");
        Shader::new("cumsum", &bindings, &["count", "n", "inner", "segments"], &constants, &source)
    }
}

impl FarKernel for CumSumKernel {
    fn name(&self) -> String {
        format!("cumsum[{}].webgpu", self.dtype)
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        let [outer, n, inner] = around(&inputs[0], self.op.axis);
        outer * n.div_ceil(SEGMENT) * inner * size_of::<[u32; 2]>()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let (x, y) = (operand(call, 0)?, &call.outputs[0]);
        let [outer, n, inner] = around(x.shape, self.op.axis);
        let (segments, recorder) = (n.div_ceil(SEGMENT), Recorder::of(recorder)?);
        let Some(totals) = call.scratch.as_ref() else { return Ok(()) };
        let count = outer * segments * inner;
        let params = [count as u32, n as u32, inner as u32, segments as u32];
        // Nothing is before a single segment.
        let passes = if segments > 1 { &[true, false][..] } else { &[false] };
        for is_total in passes {
            let places = [&x.bytes, totals, &y.bytes].map(Place::Memory);
            let work = 16 * (outer * n * inner) as u64;
            recorder.dispatch(&self.shader(*is_total), &places, &params, count.div_ceil(THREADS), work)?;
        }
        Ok(())
    }
}
