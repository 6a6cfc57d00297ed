//! `y[.., i, ..] = table[.., indices[i], ..]`: picks slices along one axis.

use super::indexing::integers;
use super::prelude::*;

/// Picks slices: `table` of any plain dtype, `indices` u32, i32 or i64 → the table's dtype, with the axes of
/// `indices` in place of the table's axis. A negative index counts from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gather {
    /// Along which axis of the table.
    pub axis: usize,
}

impl Define for Gather {
    declare!("gather" { axis });

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
        let check = |(position, index): (usize, i128)| {
            let from_start = if index < 0 { index + lanes.len as i128 } else { index };
            within(from_start, lanes.len).ok_or_else(|| {
                let limit = format!("{} slices of axis {}", lanes.len, self.axis);
                let message = format!("index {index} at position {position} is out of range for {limit}");
                Error::evaluation("gather", message)
            })
        };
        let indices =
            integers(inputs[1]).into_iter().enumerate().map(check).collect::<Result<Vec<_>, _>>()?;
        let positions = (0..lanes.outer).flat_map(|outer| {
            let slice = move |index: &usize| (outer * lanes.len + index) * lanes.inner;
            indices.iter().map(slice).flat_map(|start| start..start + lanes.inner)
        });
        Ok(vec![take(inputs[0], outputs[0], positions)])
    }
}

/// Picks rows and widens them: `table` [rows, columns] of any float or block dtype, `ids` u32, i32 or i64
/// [..] → `f32[.., columns]`. An id must be in `0..rows`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Embedding;

impl Define for Embedding {
    declare!("embedding");

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [table, ids] = operands(inputs, ["table", "ids"])?;
        expect_weight("table", table)?;
        expect_dtype("ids", ids, INDICES)?;
        let shape = ids.shape.iter().chain([&table.shape[1]]).cloned();
        Ok(vec![table.with_shape(shape).with_dtype(DType::F32)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [rows, columns] = [inputs[0].shape()[0], inputs[0].shape()[1]];
        let check = |(position, id): (usize, i128)| {
            let message = || format!("id {id} at position {position} is out of range for {rows} rows");
            within(id, rows).ok_or_else(|| Error::evaluation("embedding", message()))
        };
        let ids = integers(inputs[1]).into_iter().enumerate().map(check).collect::<Result<Vec<_>, _>>()?;
        let table = inputs[0].to_f64_vec();
        let values: Vec<f64> = ids.iter().flat_map(|id| &table[id * columns..][..columns]).copied().collect();
        Ok(vec![from_f64(DType::F32, outputs[0], &values)])
    }
}

/// An index below `limit`.
fn within(index: i128, limit: usize) -> Option<usize> {
    usize::try_from(index).ok().filter(|&index| index < limit)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;

    #[test]
    fn types() {
        check_types(
            Gather { axis: 1 },
            &[
                (&["f16[2, n, 3]", "i32[4, 5]"], "f16[2, 4, 5, 3]"),
                (&["f16[2]", "i32[4]"], "gather: table f16[2] has no axis 1"),
                (&["f16[2, 3]", "f32[4]"], "gather: indices is f32[4], expected u32, i32 or i64"),
            ],
        );
        check_types(
            Embedding,
            &[
                (&["q6_k[100, 256]", "u32[tokens]"], "f32[tokens, 256]"),
                (&["f32[100]", "u32[tokens]"], "embedding: table is f32[100], expected 2 axes"),
                (
                    &["i32[100, 2]", "u32[tokens]"],
                    "embedding: table is i32[100, 2], expected a float or block dtype",
                ),
            ],
        );
    }

    #[test]
    fn values() {
        let table = Tensor::from_slice([2, 3], &[1i16, 2, 3, 4, 5, 6]);
        let last = Tensor::from_slice([2], &[-1i64, 0]);
        assert_eq!(numbers(Gather { axis: 1 }, &[&table, &last]), [3.0, 1.0, 6.0, 4.0]);
        assert_eq!(numbers(Gather { axis: 0 }, &[&table, &last]), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
        let error = run(Gather { axis: 0 }, &[&table, &Tensor::from_slice([2], &[0i64, -3])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "gather: index -3 at position 1 is out of range for 2 slices of axis 0"
        );
        let rows = Tensor::from_slice([2, 1], &[0.5f32, -2.0]);
        assert_eq!(numbers(Embedding, &[&rows, &Tensor::from_slice([3], &[1u32, 0, 1])]), [-2.0, 0.5, -2.0]);
        for wrong in [2i32, -1] {
            let error = run(Embedding, &[&rows, &Tensor::from_slice([2], &[0, wrong])]).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("embedding: id {wrong} at position 1 is out of range for 2 rows")
            );
        }
    }
}
