//! Sums, means, extremes and products along an axis, and where extremes are.
//!
//! A lane along the axis is cut into segments, as many as its length says. Each gives a partial result, and those of a lane
//! are joined in order.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel, NodeTypes};
use graph::Op;
use graph::ops::{ArgReduceKind, Reduce, ReduceKind};
use tensor::{DType, Shape};

use super::elements::{ElementShader, wgsl_type};
use super::operand;
use super::rows::{ORDER, THREADS, around, is_number, order_constants};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// Elements of a segment at least, and segments at most.
const SEGMENT: usize = 32;
const SEGMENTS: usize = 256;

/// The kernel of a reduction or a search for an extreme. Floats are multiplied in f64, by the host.
pub(crate) fn reduce(node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
    let (dtype, result) = (node.inputs[0].dtype, node.outputs[0].dtype);
    let (axis, kind) = match node.op {
        Op::Reduce(Reduce { kind: ReduceKind::Prod, .. }) if dtype.is_float() => return None,
        Op::Reduce(Reduce { kind, axis }) => (*axis, *kind),
        Op::ArgReduce(op) if op.kind == ArgReduceKind::Max => (op.axis, ReduceKind::Max),
        Op::ArgReduce(op) => (op.axis, ReduceKind::Min),
        _ => return None,
    };
    let finds = matches!(node.op, Op::ArgReduce(_));
    let name = format!("{}[{dtype}].webgpu", node.op.name());
    let kernel = ReduceKernel { name, kind, finds, axis, dtype, result };
    is_number(dtype).then(|| Arc::new(kernel) as Arc<dyn FarKernel>)
}

struct ReduceKernel {
    name: String,
    kind: ReduceKind,
    /// Whether the result is where the extreme is.
    finds: bool,
    axis: usize,
    dtype: DType,
    result: DType,
}

impl ReduceKernel {
    /// The functions of states, pairs of words that partial results are.
    fn join(&self) -> String {
        let join = |joined: &str| {
            format!("fn join(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {{ return {joined}; }}\n")
        };
        match self.kind {
            ReduceKind::Max | ReduceKind::Min => ORDER.to_string() + &join("select(a, b, is_better(b, a))"),
            _ if self.dtype.is_float() => include_str!("join_floats.wgsl").to_string(),
            ReduceKind::Prod => join("a * b"),
            _ => join("a + b"),
        }
    }

    /// What a shader is told of the elements.
    fn constants(&self) -> String {
        let is_smallest = self.kind == ReduceKind::Min;
        let start = match self.kind {
            ReduceKind::Max | ReduceKind::Min => format!("vec2<u32>({:#x}u, 0xffffffffu)", self.worst_key()),
            ReduceKind::Prod => "vec2<u32>(1u, 0u)".to_string(),
            _ => "vec2<u32>(0u, 0u)".to_string(),
        };
        let order = order_constants(is_smallest, self.finds, "0xffffffffu");
        format!("{order}const START = {start};\n")
    }

    /// The key of what any element is at least as good as.
    fn worst_key(&self) -> u32 {
        let is_smallest = self.kind == ReduceKind::Min;
        let signed = |bits: u32| (1u32 << 31) - (1 << (bits - 1));
        let unsigned = |bits: u32| if is_smallest { !(u32::MAX >> (32 - bits)) } else { 0 };
        match self.dtype {
            DType::U8 => unsigned(8),
            DType::U16 => unsigned(16),
            DType::I8 => signed(8),
            DType::I16 => signed(16),
            dtype if dtype.is_float() => 0x007f_ffff,
            _ => 0,
        }
    }

    /// Gives the partial results.
    fn partials(&self) -> Shader {
        let ty = self.element();
        let state = match self.kind {
            ReduceKind::Max | ReduceKind::Min => format!("vec2<u32>(key_{ty}(x(i)), position)"),
            _ => "vec2<u32>(bitcast<u32>(x(i)), 0u)".to_string(),
        };
        let state = format!("fn state_of(i: u32, position: u32) -> vec2<u32> {{ return {state}; }}\n");
        let source = [&self.constants(), &self.join(), &state, include_str!("reduce.wgsl")].concat();
        let bindings = [("x", self.dtype, Access::Memory), ("partials", DType::U64, Access::Memory)];
        Shader::new("reduce", &bindings, &["count", "n", "inner", "segments"], &[], &source)
    }

    /// Gives each result.
    fn results(&self) -> String {
        let ty = self.element();
        let (ty, result) = match self.kind {
            _ if self.finds => ("vec2<u32>", "vec2<u32>(joined.y, 0u)".to_string()),
            ReduceKind::Max | ReduceKind::Min => (ty, format!("value_{ty}(joined.x)")),
            ReduceKind::Mean => (ty, "mean_of(joined, p.n)".to_string()),
            ReduceKind::Sum if self.dtype.is_float() => (ty, "sum_of(joined)".to_string()),
            _ => (ty, format!("bitcast<{ty}>(joined.x)")),
        };
        let result = format!(
            "alias Element = {ty};\nfn finished(joined: vec2<u32>) -> Element {{ return {result}; }}\n"
        );
        [&self.constants(), &self.join(), &result, include_str!("reduce_segments.wgsl")].concat()
    }

    /// The type of an element in a shader.
    fn element(&self) -> &'static str {
        wgsl_type(self.dtype).expect("a number")
    }
}

/// How many segments a lane of `n` elements has.
fn segments(n: usize) -> usize {
    n.div_ceil(SEGMENT).clamp(1, SEGMENTS)
}

impl FarKernel for ReduceKernel {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        let [outer, n, inner] = around(&inputs[0], self.axis);
        outer * segments(n) * inner * size_of::<[u32; 2]>()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let (x, y) = (operand(call, 0)?, &call.outputs[0]);
        let [outer, n, inner] = around(x.shape, self.axis);
        let (segments, recorder) = (segments(n), Recorder::of(recorder)?);
        let Some(partials) = call.scratch.as_ref() else { return Ok(()) };
        let count = outer * segments * inner;
        let params = [count as u32, n as u32, inner as u32, segments as u32];
        let places = [Place::Memory(&x.bytes), Place::Memory(partials)];
        let work = 8 * (outer * n * inner) as u64;
        recorder.dispatch(&self.partials(), &places, &params, count.div_ceil(THREADS), work)?;
        let shader = ElementShader {
            name: "reduce_segments",
            operands: &[("partials", DType::U64)],
            result: self.result,
            params: &["n", "inner", "segments"],
            text: &self.results(),
        };
        let places = [partials, &y.bytes].map(Place::Memory);
        shader.dispatch(recorder, &places, &[n, inner, segments], (outer * inner, 8 * segments as u64))
    }
}
