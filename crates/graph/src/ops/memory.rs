//! Whole buffers: read into a tensor, overwritten with one.

use super::define::Effect;
use super::prelude::*;

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
