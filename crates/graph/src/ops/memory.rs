//! Whole buffers: created, read into a tensor, overwritten with one.

use super::define::Effect;
use super::prelude::*;
use crate::DeviceRef;

/// A buffer full of zeros: nothing → `mut` of plain elements. Each run of this op makes a new one, which lives until its
/// last use.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateBuffer {
    /// Of the buffer.
    pub dtype: DType,
    /// Of the buffer.
    pub shape: Vec<Dim>,
    /// Where the buffer is.
    pub device: DeviceRef,
}

impl Define for CreateBuffer {
    declare!("create_buffer" { dtype, shape, device = DeviceRef::Cpu });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [] = operands(inputs, [])?;
        refuse_if!(self.dtype.is_block(), "dtype is {}, expected plain elements", self.dtype);
        Ok(vec![Type { device: self.device, ..Type::buffer(self.dtype, self.shape.iter().cloned()) }])
    }

    fn reference(&self, _inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![Tensor::zeros(self.dtype, outputs[0])])
    }
}

/// The contents of a buffer at this point of the program: `mut` of any type → a tensor of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Load;

impl Define for Load {
    declare!("load");

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [buffer] = operands(inputs, ["buffer"])?;
        Ok(vec![buffer.with_dtype(buffer.dtype)])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 0 { Effect::Read } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![inputs[0].contiguous()])
    }
}

/// Overwrites a buffer: `mut` of any type, and a tensor of the same → nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Store;

impl Define for Store {
    declare!("store");

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [buffer, x] = operands(inputs, ["buffer", "x"])?;
        refuse_if!(buffer.with_dtype(buffer.dtype) != *x, "types differ: buffer {buffer}, x {x}");
        Ok(vec![])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 0 { Effect::Write } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![inputs[1].contiguous()])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check_types;
    use super::*;

    #[test]
    fn types() {
        let create =
            |dtype| CreateBuffer { dtype, shape: vec!["n".into(), 2.into()], device: DeviceRef::Cpu };
        check_types(
            create(DType::BF16),
            &[(&[], "mut bf16[n, 2]"), (&["f32[1]"], "create_buffer: takes 0 operands, got 1")],
        );
        let message = "create_buffer: dtype is q8_0, expected plain elements";
        check_types(create(DType::Q8_0), &[(&[], message)]);
        check_types(
            Load,
            &[
                (&["mut f32[n, 2]"], "f32[n, 2]"),
                (&["f32[n, 2]"], "load: operand 0 is f32[n, 2], expected a buffer"),
            ],
        );
        check_types(
            Store,
            &[
                (&["mut f32[n, 2]", "f32[n, 2]"], ""),
                (&["mut f32[n, 2]", "f32[n, 3]"], "store: types differ: buffer mut f32[n, 2], x f32[n, 3]"),
                (
                    &["mut f32[1]", "mut f32[1]"],
                    "store: operand 1 is mut f32[1], expected a tensor (load the buffer first)",
                ),
            ],
        );
    }
}
