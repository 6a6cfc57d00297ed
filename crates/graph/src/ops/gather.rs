//! `y[.., i, ..] = table[.., indices[i], ..]`: picks slices along one axis.

use tensor::{DType, Shape, Tensor};

use super::attributes::required;
use super::check::{INDICES, expect_axis, expect_dtype, expect_plain, expect_weight, operands};
use super::elements::{Lanes, Numbers, from_f64, take};
use super::{Attribute, Attributes, Define};
use crate::{Error, Type, TypeError};

/// Picks slices: `table` of any plain dtype, `indices` u32, i32 or i64 → the table's dtype, with the axes of
/// `indices` in place of the table's axis. A negative index counts from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gather {
    /// Along which axis of the table.
    pub axis: usize,
}

impl Define for Gather {
    const NAMES: &[&str] = &["gather"];

    fn name(&self) -> &'static str {
        "gather"
    }

    fn attributes(&self) -> Attributes {
        Attributes::default().with("axis", Attribute::index(self.axis))
    }

    fn parse(_name: &str, attributes: &mut Attributes) -> Result<Gather, TypeError> {
        Ok(Gather { axis: required("axis", attributes.int("axis")?)? })
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [table, indices] = operands(inputs, ["table", "indices"])?;
        expect_plain("table", table)?;
        expect_dtype("indices", indices, INDICES)?;
        expect_axis("table", table, self.axis)?;
        let (before, after) = (&table.shape[..self.axis], &table.shape[self.axis + 1..]);
        Ok(vec![table.with_shape([before, &indices.shape, after].concat())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let lanes = Lanes::of(inputs[0].shape(), self.axis);
        let indices = indices(self.name(), inputs[1], lanes.len, true)?;
        let positions = (0..lanes.outer).flat_map(|outer| {
            let slice = move |index: &usize| (outer * lanes.len + index) * lanes.inner;
            indices.iter().map(slice).flat_map(|start| start..start + lanes.inner)
        });
        Ok(vec![take(inputs[0], outputs[0], positions)])
    }
}

/// Picks rows and widens them: `table` [rows, columns] of any float or block dtype, `ids` u32, i32 or i64 [..]
/// → f32[.., columns]. An id must be in `0..rows`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Embedding;

impl Define for Embedding {
    const NAMES: &[&str] = &["embedding"];

    fn name(&self) -> &'static str {
        "embedding"
    }

    fn parse(_name: &str, _attributes: &mut Attributes) -> Result<Embedding, TypeError> {
        Ok(Embedding)
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [table, ids] = operands(inputs, ["table", "ids"])?;
        expect_weight("table", table)?;
        expect_dtype("ids", ids, INDICES)?;
        let shape = ids.shape.iter().chain([&table.shape[1]]).cloned();
        Ok(vec![table.with_shape(shape).with_dtype(DType::F32)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [rows, columns] = [inputs[0].shape()[0], inputs[0].shape()[1]];
        let ids = indices(self.name(), inputs[1], rows, false)?;
        let table = inputs[0].to_f64_vec();
        let values: Vec<f64> = ids.iter().flat_map(|id| &table[id * columns..][..columns]).copied().collect();
        Ok(vec![from_f64(DType::F32, outputs[0], &values)])
    }
}

/// Indices into `limit` slices, checked.
fn indices(op: &'static str, tensor: &Tensor, limit: usize, from_end: bool) -> Result<Vec<usize>, Error> {
    let Numbers::Integers(indices) = Numbers::of(tensor) else { unreachable!("indices are integers") };
    let check = |(position, &index): (usize, &i128)| {
        let counted = if index < 0 && from_end { index + limit as i128 } else { index };
        usize::try_from(counted).ok().filter(|&index| index < limit).ok_or_else(|| {
            Error::evaluation(
                op,
                format!("index {index} at position {position} is out of range for {limit} rows"),
            )
        })
    };
    indices.iter().enumerate().map(check).collect()
}
