//! The band around the diagonal of matrices, or what is outside: other elements become 0.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel, NodeTypes};
use graph::ops::BandPart;
use tensor::DType;

use super::elements::{ElementShader, moved_as, wgsl_type};
use super::operand;
use crate::recorder::{Place, Recorder};

/// The kernel that keeps a band.
pub(super) fn kernel(node: &NodeTypes<'_>, op: BandPart) -> Option<Arc<dyn FarKernel>> {
    Some(Arc::new(BandPartKernel { op, dtype: moved_as(node.inputs[0].dtype)? }))
}

struct BandPartKernel {
    op: BandPart,
    /// As what elements are moved.
    dtype: DType,
}

impl FarKernel for BandPartKernel {
    fn name(&self) -> String {
        "band_part.webgpu".to_string()
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let (x, result) = (operand(call, 0)?, &call.outputs[0]);
        let [.., rows, columns] = *result.shape.dims() else {
            return Err(format!("band_part of {}", result.shape));
        };
        let ty = wgsl_type(self.dtype).expect("a dtype to move as");
        let text = format!(
            "fn value(i: u32) -> {ty} {{\nlet row = i / p.columns % p.rows; let column = i % p.columns;\n\
             let inside = row <= column + p.lower && column <= row + p.upper;\n\
             if (inside == (p.exclude != 0u)) {{ return {ty}(); }}\nreturn x(i);\n}}\n"
        );
        let shader = ElementShader {
            name: "band_part",
            operands: &[("x", self.dtype)],
            result: self.dtype,
            params: &["rows", "columns", "lower", "upper", "exclude"],
            text: &text,
        };
        // More diagonals than there are, so that sums stay within 32 bits.
        let [lower, upper] = [self.op.lower, self.op.upper]
            .map(|count| count.map_or(rows + columns, |n| n.min(rows + columns)));
        let params = [rows, columns, lower, upper, usize::from(self.op.exclude)];
        let places = [x, result].map(|array| Place::Memory(&array.bytes));
        shader.dispatch(Recorder::of(recorder)?, &places, &params, (result.shape.elements(), 1))
    }
}
