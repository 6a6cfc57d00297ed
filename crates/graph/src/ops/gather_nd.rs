//! `y[b.., i.., ..] = x[b.., indices[b.., i.., 0], …, indices[b.., i.., k - 1], ..]`: slices at tuples of indices.

use super::indexing::{integers, resolve};
use super::prelude::*;

/// Picks slices: `x` [b.., n_0, …, n_(k-1), s..] of any plain dtype, `indices` [b.., i.., k] of u32, i32 or i64 →
/// [b.., i.., s..]. A negative index counts from the end of its axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GatherNd {
    /// How many axes `b` both operands have in common.
    pub batch_dims: usize,
}

impl Define for GatherNd {
    declare!("gather_nd" { batch_dims = 0 });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, indices] = operands(inputs, ["x", "indices"])?;
        expect_plain("x", x)?;
        let depth = depth(indices)?;
        let batch = self.batch_dims;
        if batch >= indices.rank() || batch.saturating_add(depth) > x.rank() {
            let message =
                format!("batch_dims {batch} and {depth} indices do not fit x {x}, indices {indices}");
            return Err(TypeError::new(message));
        }
        refuse_if!(
            x.shape[..batch] != indices.shape[..batch],
            "the first {batch} axes differ: x {x}, indices {indices}"
        );
        let tuples = &indices.shape[..indices.rank() - 1];
        Ok(vec![x.with_shape([tuples, &x.shape[batch + depth..]].concat())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        if inputs[1].elements() == 0 && outputs[0].contains(&0) {
            // Tuples of no indices, which there may be any number of.
            return Ok(vec![Tensor::zeros(inputs[0].dtype(), outputs[0])]);
        }
        let batches: usize = inputs[0].shape()[..self.batch_dims].iter().product();
        let rows = rows("gather_nd", inputs[0].shape(), inputs[1], self.batch_dims)?;
        let depth = inputs[1].shape()[inputs[1].shape().rank() - 1];
        let (per_batch, slab) = extents(inputs[0].shape(), self.batch_dims, depth);
        let tuples = rows.len() / batches.max(1);
        let positions = rows.iter().enumerate().flat_map(|(tuple, row)| {
            let start = (tuple / tuples * per_batch + row) * slab;
            start..start + slab
        });
        Ok(vec![take(inputs[0], outputs[0], positions)])
    }
}

/// How many indices make a tuple: the last axis of `indices`, a number.
pub(super) fn depth(indices: &Type) -> Result<usize, TypeError> {
    expect_dtype("indices", indices, INDICES)?;
    let depth = last_axis("indices", indices)?;
    let message = || format!("indices is {indices}, whose last axis must be a number");
    Dim::as_static(depth).ok_or_else(|| TypeError::new(message()))
}

/// The rows that tuples of indices pick in a batch, and the elements of each.
fn extents(shape: &Shape, batch: usize, depth: usize) -> (usize, usize) {
    (shape[batch..batch + depth].iter().product(), shape[batch + depth..].iter().product())
}

/// The row, within its batch, that each tuple picks.
pub(super) fn rows(
    op: &'static str,
    shape: &Shape,
    indices: &Tensor,
    batch: usize,
) -> Result<Vec<usize>, Error> {
    let tuples = indices.shape()[..indices.shape().rank() - 1].iter().product();
    let depth = indices.shape()[indices.shape().rank() - 1];
    let values = integers(indices);
    let row = |tuple: usize| {
        (0..depth).try_fold(0, |row, k| {
            let (position, axis) = (tuple * depth + k, batch + k);
            Ok(row * shape[axis] + resolve(op, (position, values[position]), shape[axis], axis)?)
        })
    };
    (0..tuples).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;

    #[test]
    fn types() {
        check_types(
            GatherNd { batch_dims: 0 },
            &[
                (&["f16[2, n, 3]", "i32[4, 5, 2]"], "f16[4, 5, 3]"),
                (&["f16[2, n, 3]", "i32[3]"], "f16[]"),
                (&["f16[2]", "i32[0]"], "f16[2]"),
                (
                    &["f16[2]", "i32[2]"],
                    "gather_nd: batch_dims 0 and 2 indices do not fit x f16[2], indices i32[2]",
                ),
                (&["f16[2]", "i32[n]"], "gather_nd: indices is i32[n], whose last axis must be a number"),
            ],
        );
        check_types(
            GatherNd { batch_dims: 1 },
            &[
                (&["f16[b, n, 3]", "i64[b, 4, 1]"], "f16[b, 4, 3]"),
                (
                    &["f16[b, n, 3]", "i64[c, 4, 1]"],
                    "gather_nd: the first 1 axes differ: x f16[b, n, 3], indices i64[c, 4, 1]",
                ),
            ],
        );
    }

    #[test]
    fn values() {
        let x = Tensor::from_slice([2, 2, 2], &[0i8, 1, 2, 3, 4, 5, 6, 7]);
        let pairs = Tensor::from_slice([2, 2], &[1i64, 0, -2, -1]);
        assert_eq!(numbers(GatherNd { batch_dims: 0 }, &[&x, &pairs]), [4., 5., 2., 3.]);
        let each = Tensor::from_slice([2, 1], &[1i32, 0]);
        assert_eq!(numbers(GatherNd { batch_dims: 1 }, &[&x, &each]), [2., 3., 4., 5.]);
        let error = run(GatherNd { batch_dims: 0 }, &[&x, &Tensor::from_slice([2], &[1i64, 2])]).unwrap_err();
        let message = "gather_nd: index 2 at position 1 is out of range for the 2 elements of axis 1";
        assert_eq!(error.to_string(), message);
    }
}
