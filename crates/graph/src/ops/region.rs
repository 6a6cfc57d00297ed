//! A box of elements, every so many along each axis, whose place may follow from data: of tensors and of buffers.

use super::define::Effect;
use super::indexing::{integers, mapped};
use super::prelude::*;

/// Reads a box of a buffer: `mut` [d..] of any plain dtype, `starts: i64[rank]` → [shape..].
///
/// Element `i` along an axis is that at `start + i · step` of the buffer; a negative start counts from the end. A box
/// that leaves the buffer is an error of the call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoadSlice {
    /// The size of the box along each axis.
    pub shape: Vec<Dim>,
    /// The distance between its elements along each axis, at least 1.
    pub steps: Vec<usize>,
}

/// Overwrites a box of a buffer: `mut` [d..] of any plain dtype, `x` of that dtype and rank, `starts: i64[rank]` →
/// nothing. The box has the shape of `x`, and lies as that of a [`LoadSlice`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StoreSlice {
    /// The distance between the elements of the box along each axis, at least 1.
    pub steps: Vec<usize>,
}

/// The first index of a box along each axis, from the start.
///
/// # Errors
/// If the box leaves the whole, in words.
pub fn box_starts(
    whole: &Shape,
    part: &Shape,
    starts: &[i64],
    steps: &[usize],
) -> Result<Vec<usize>, String> {
    let start = |(axis, &start): (usize, &i64)| {
        let (size, count) = (whole[axis] as i128, part[axis] as i128);
        let from = if start < 0 { i128::from(start) + size } else { start.into() };
        let last = from + (count - 1).max(0) * steps[axis] as i128;
        if from >= 0 && (last < size || (count == 0 && from <= size)) {
            Ok(from as usize)
        } else {
            Err(format!(
                "{count} elements from {start} by {} do not fit the {size} elements of axis {axis}",
                steps[axis]
            ))
        }
    };
    starts.iter().enumerate().map(start).collect()
}

fn expect_box(buffer: &Type, starts: &Type, rank: usize, steps: &[usize]) -> Result<(), TypeError> {
    expect_plain("buffer", buffer)?;
    expect_type("starts", starts, DType::I64, &[&Dim::from(buffer.rank())])?;
    for (name, count) in [("shape", rank), ("steps", steps.len())] {
        if count != buffer.rank() {
            let message =
                format!("{name} has {count} elements, expected one for each axis of buffer {buffer}");
            return Err(TypeError::new(message));
        }
    }
    refuse_if!(steps.contains(&0), "steps is {steps:?}, expected at least 1");
    Ok(())
}

/// The row-major positions, in the whole, of the elements of a box.
fn positions(
    op: &'static str,
    whole: &Shape,
    part: &Shape,
    starts: &Tensor,
    steps: &[usize],
) -> Result<Vec<usize>, Error> {
    let starts: Vec<i64> = integers(starts).into_iter().map(|start| start as i64).collect();
    let starts = box_starts(whole, part, &starts, steps).map_err(|message| Error::evaluation(op, message))?;
    let positions = mapped(whole, part, |axis, index| Some(starts[axis] + index * steps[axis]));
    Ok(positions.into_iter().flatten().collect())
}

impl Define for LoadSlice {
    declare!("load_slice" { shape, steps });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [buffer, starts] = operands(inputs, ["buffer", "starts"])?;
        expect_box(buffer, starts, self.shape.len(), &self.steps)?;
        Ok(vec![buffer.with_shape(self.shape.iter().cloned())])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 0 { Effect::Read } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let positions = positions("load_slice", inputs[0].shape(), &outputs[0], inputs[1], &self.steps)?;
        Ok(vec![take(inputs[0], outputs[0], positions)])
    }
}

impl Define for StoreSlice {
    declare!("store_slice" { steps });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [buffer, x, starts] = operands(inputs, ["buffer", "x", "starts"])?;
        expect_dtype("starts", starts, &[DType::I64])?;
        expect_same_dtype(("buffer", buffer), ("x", x))?;
        refuse_if!(x.rank() != buffer.rank(), "ranks differ: buffer {buffer}, x {x}");
        expect_box(buffer, starts, x.rank(), &self.steps)?;
        Ok(vec![])
    }

    fn effect(&self, position: usize) -> Effect {
        if position == 0 { Effect::Write } else { Effect::None }
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [buffer, x] = [inputs[0].contiguous(), inputs[1].contiguous()];
        let positions = positions("store_slice", buffer.shape(), x.shape(), inputs[2], &self.steps)?;
        let (size, mut bytes) = (x.dtype().block().bytes, buffer.bytes().to_vec());
        for (position, element) in positions.into_iter().zip(x.bytes().chunks_exact(size)) {
            bytes[position * size..][..size].copy_from_slice(element);
        }
        Ok(vec![from_bytes(x.dtype(), *buffer.shape(), &bytes)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers};
    use super::*;
    use crate::dims;

    #[test]
    fn types() {
        let load = LoadSlice { shape: dims![2, "m"].to_vec(), steps: vec![1, 1] };
        check_types(
            load,
            &[
                (&["mut bool[n, 9]", "i64[2]"], "bool[2, m]"),
                (
                    &["mut f32[n]", "i64[1]"],
                    "load_slice: shape has 2 elements, expected one for each axis of buffer mut f32[n]",
                ),
                (&["mut f32[n, 9]", "i64[1]"], "load_slice: starts is i64[1], expected i64[2]"),
            ],
        );
        check_types(
            StoreSlice { steps: vec![1, 2] },
            &[
                (&["mut f32[n, 9]", "f32[2, 3]", "i64[2]"], ""),
                (
                    &["mut f32[n, 9]", "f16[2, 3]", "i64[2]"],
                    "store_slice: dtypes differ: buffer mut f32[n, 9], x f16[2, 3]",
                ),
                (
                    &["mut f32[n, 9]", "f32[3]", "i64[2]"],
                    "store_slice: ranks differ: buffer mut f32[n, 9], x f32[3]",
                ),
            ],
        );
        check_types(
            StoreSlice { steps: vec![0] },
            &[(&["mut f32[9]", "f32[3]", "i64[1]"], "store_slice: steps is [0], expected at least 1")],
        );
    }

    #[test]
    fn values() {
        let buffer = Tensor::from_slice([2, 4], &[1i8, 2, 3, 4, 5, 6, 7, 8]);
        let starts = Tensor::from_slice([2], &[0i64, -3]);
        let load = LoadSlice { shape: dims![2, 2].to_vec(), steps: vec![1, 2] };
        assert_eq!(numbers(load, &[&buffer, &starts]), [2., 4., 6., 8.]);
        let x = Tensor::from_slice([1, 2], &[-1i8, -2]);
        let store = StoreSlice { steps: vec![1, 1] };
        assert_eq!(numbers(store.clone(), &[&buffer, &x, &starts]), [1., -1., -2., 4., 5., 6., 7., 8.]);
        let far = Tensor::from_slice([2], &[1i64, 3]);
        let error = store.reference(&[&buffer, &x, &far], &[]).unwrap_err();
        let message = "store_slice: 2 elements from 3 by 1 do not fit the 4 elements of axis 1";
        assert_eq!(error.to_string(), message);
        let shape = |dims: &[usize]| Shape::new(dims);
        assert_eq!(box_starts(&shape(&[4]), &shape(&[0]), &[4], &[1]), Ok(vec![4]));
        assert!(box_starts(&shape(&[4]), &shape(&[0]), &[5], &[1]).is_err());
        assert!(box_starts(&shape(&[4]), &shape(&[1]), &[i64::MIN], &[usize::MAX]).is_err());
    }
}
