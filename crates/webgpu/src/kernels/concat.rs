//! Operands one after another along an axis, all in one dispatch, as a word of the result may hold elements of several.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel, NodeTypes};
use tensor::DType;

use super::elements::{ElementShader, OPERANDS, moved_as, wgsl_type};
use super::operand;
use crate::recorder::{Place, Recorder};

/// The kernel of a concatenation along an axis.
pub(super) fn kernel(node: &NodeTypes<'_>, axis: usize) -> Option<Arc<dyn FarKernel>> {
    let (count, dtype) = (node.inputs.len(), moved_as(node.inputs[0].dtype)?);
    (count <= OPERANDS).then(|| Arc::new(ConcatKernel { axis, count, dtype }) as Arc<dyn FarKernel>)
}

struct ConcatKernel {
    axis: usize,
    /// Of operands.
    count: usize,
    /// As what elements are moved.
    dtype: DType,
}

impl ConcatKernel {
    /// Reads the operand in whose part of a row an element lies; a row is all that lies under one index of the axes outside
    /// the axis.
    fn text(&self) -> String {
        let ty = wgsl_type(self.dtype).expect("a dtype to move as");
        let mut text = format!("fn value(i: u32) -> {ty} {{\nlet row = i / p.row; var j = i % p.row;\n");
        for position in 0..self.count - 1 {
            text += &format!("if (j < p.n{position}) {{ return x{position}(row * p.n{position} + j); }}\n");
            text += &format!("j -= p.n{position};\n");
        }
        let last = self.count - 1;
        text + &format!("return x{last}(row * p.n{last} + j);\n}}\n")
    }
}

impl FarKernel for ConcatKernel {
    fn name(&self) -> String {
        "concat.webgpu".to_string()
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let result = &call.outputs[0];
        let arrays = (0..self.count).map(|i| operand(call, i)).collect::<Result<Vec<_>, _>>()?;
        let in_row = |dims: &[usize]| dims[self.axis..].iter().product::<usize>();
        let lengths = arrays.iter().map(|array| in_row(array.shape.dims()));
        let params: Vec<usize> = [in_row(result.shape.dims())].into_iter().chain(lengths).collect();
        let names: Vec<[String; 2]> = (0..self.count).map(|i| [format!("x{i}"), format!("n{i}")]).collect();
        let operands: Vec<(&str, DType)> = names.iter().map(|[x, _]| (&x[..], self.dtype)).collect();
        let param_names: Vec<&str> = ["row"].into_iter().chain(names.iter().map(|[_, n]| &n[..])).collect();
        let text = &self.text()[..];
        let shader = ElementShader {
            name: "concat",
            operands: &operands,
            result: self.dtype,
            params: &param_names,
            text,
        };
        let places = arrays.into_iter().chain([result]).map(|array| Place::Memory(&array.bytes));
        let places: Vec<Place<'_>> = places.collect();
        shader.dispatch(Recorder::of(recorder)?, &places, &params, (result.shape.elements(), 1))
    }
}
