//! Elements and slices of a tensor replaced, or combined with updates, at indices.

use super::gather_nd::{depth, rows};
use super::indexing::{integers, resolve};
use super::prelude::*;

/// What becomes of an element that an update meets. Updates are applied in the order of their indices, so that the
/// last one stays where several replace an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScatterKind {
    /// The update replaces it.
    Set,
    /// Their sum; integers wrap around.
    Add,
    /// The larger; NaN if either is.
    Max,
    /// The smaller; NaN if either is.
    Min,
    /// Their product; integers wrap around.
    Mul,
}

impl ScatterKind {
    /// Every kind.
    pub const ALL: &[ScatterKind] =
        &[ScatterKind::Set, ScatterKind::Add, ScatterKind::Max, ScatterKind::Min, ScatterKind::Mul];

    fn expect_operands(self, x: &Type, updates: &Type, indices: &Type) -> Result<(), TypeError> {
        match self {
            ScatterKind::Set => expect_plain("x", x)?,
            _ => expect_number("x", x)?,
        }
        expect_same_dtype(("x", x), ("updates", updates))?;
        expect_dtype("indices", indices, INDICES)
    }

    fn floats(self, x: f64, update: f64) -> f64 {
        match self {
            ScatterKind::Set => update,
            ScatterKind::Add => x + update,
            ScatterKind::Mul => x * update,
            _ if x.is_nan() || update.is_nan() => f64::NAN,
            ScatterKind::Max => x.max(update),
            ScatterKind::Min => x.min(update),
        }
    }

    fn integers(self, x: i128, update: i128) -> i128 {
        match self {
            ScatterKind::Set => update,
            ScatterKind::Add => x.wrapping_add(update),
            ScatterKind::Mul => x.wrapping_mul(update),
            ScatterKind::Max => x.max(update),
            ScatterKind::Min => x.min(update),
        }
    }

    /// `x` after update `u` of `slab` elements has met the slab at `targets[u]`, one after another.
    fn apply(self, x: &Tensor, updates: &Tensor, targets: &[usize], slab: usize) -> Tensor {
        let pairs = targets
            .iter()
            .enumerate()
            .flat_map(|(u, &target)| (0..slab).map(move |k| (target * slab + k, u * slab + k)));
        if self == ScatterKind::Set {
            let (x, updates) = (x.contiguous(), updates.contiguous());
            let (size, mut bytes) = (x.dtype().block().bytes, x.bytes().to_vec());
            for (to, from) in pairs {
                bytes[to * size..][..size].copy_from_slice(&updates.bytes()[from * size..][..size]);
            }
            return from_bytes(x.dtype(), *x.shape(), &bytes);
        }
        match (Numbers::of(x), Numbers::of(updates)) {
            (Numbers::Floats(mut values), Numbers::Floats(updates)) => {
                pairs.for_each(|(to, from)| values[to] = self.floats(values[to], updates[from]));
                from_f64(x.dtype(), *x.shape(), &values)
            }
            (Numbers::Integers(mut values), Numbers::Integers(updates)) => {
                pairs.for_each(|(to, from)| values[to] = self.integers(values[to], updates[from]));
                from_i128(x.dtype(), *x.shape(), &values)
            }
            _ => unreachable!("operands of one dtype"),
        }
    }
}

/// One index for each update, along an axis: element [.., j, ..] of `updates` meets element [.., `indices[.., j, ..]`,
/// ..] of `x`.
///
/// `x` of any plain dtype (a number where they are combined), `updates` of that dtype and `indices` (u32, i32 or i64)
/// of one shape, which is no larger than that of `x` along the other axes → the type of `x`. A negative index counts
/// from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// What becomes of the elements.
    pub kind: ScatterKind,
    /// Along which axis.
    pub axis: usize,
}

const NAMES: &[&str] = &["scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul"];

impl Scatter {
    /// Refuses more updates along another axis than there are elements.
    ///
    /// # Errors
    /// With both sizes, in words.
    pub fn check(&self, axis: usize, size: usize, updates: usize) -> Result<(), String> {
        if axis == self.axis || updates <= size {
            Ok(())
        } else {
            Err(format!("updates has {updates} elements along axis {axis}, x has {size}"))
        }
    }
}

impl Define for Scatter {
    declare!(NAMES[kind in ScatterKind::ALL] { axis });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, updates, indices] = operands(inputs, ["x", "updates", "indices"])?;
        self.kind.expect_operands(x, updates, indices)?;
        expect_axis("x", x, self.axis)?;
        expect_rank("updates", updates, x.rank())?;
        refuse_if!(updates.shape != indices.shape, "shapes differ: updates {updates}, indices {indices}");
        for (axis, (size, count)) in x.shape.iter().zip(&updates.shape).enumerate() {
            if let (Some(size), Some(count)) = (size.as_static(), count.as_static()) {
                self.check(axis, size, count).map_err(TypeError::new)?;
            }
        }
        Ok(vec![x.with_shape(x.shape.clone())])
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let [shape, counts] = [inputs[0].shape(), inputs[2].shape()];
        for axis in 0..shape.rank() {
            let checked = self.check(axis, shape[axis], counts[axis]);
            checked.map_err(|message| Error::evaluation(self.name(), message))?;
        }
        let strides = shape.row_major_strides();
        let target = |(position, index): (usize, i128)| {
            let (mut rest, mut target) = (position, 0);
            for axis in (0..shape.rank()).rev() {
                let along = if axis == self.axis {
                    resolve(self.name(), (position, index), shape[axis], axis)?
                } else {
                    rest % counts[axis]
                };
                target += along * strides[axis] as usize;
                rest /= counts[axis];
            }
            Ok(target)
        };
        let targets = integers(inputs[2]).into_iter().enumerate().map(target);
        let targets = targets.collect::<Result<Vec<usize>, Error>>()?;
        Ok(vec![self.kind.apply(inputs[0], inputs[1], &targets, 1)])
    }
}

/// A tuple of indices for each update: `updates[i.., ..]` meets `x[indices[i.., 0], …, indices[i.., k - 1], ..]`.
///
/// `x` [n_0, …, n_(k-1), s..] of any plain dtype (a number where they are combined), `updates` [i.., s..] of that dtype,
/// `indices` [i.., k] of u32, i32 or i64 → the type of `x`. A negative index counts from the end of its axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScatterNd {
    /// What becomes of the elements.
    pub kind: ScatterKind,
}

const ND_NAMES: &[&str] =
    &["scatter_nd", "scatter_nd_add", "scatter_nd_max", "scatter_nd_min", "scatter_nd_mul"];

impl Define for ScatterNd {
    declare!(ND_NAMES[kind in ScatterKind::ALL]);

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, updates, indices] = operands(inputs, ["x", "updates", "indices"])?;
        self.kind.expect_operands(x, updates, indices)?;
        let depth = depth(indices)?;
        let Some(slices) = x.shape.get(depth..) else {
            return Err(type_error!("indices is {indices}, but x {x} has {} axes", x.rank()));
        };
        let expected = x.with_shape([&indices.shape[..indices.rank() - 1], slices].concat());
        refuse_if!(updates.shape != expected.shape, "updates is {updates}, expected {expected}");
        Ok(vec![x.with_shape(x.shape.clone())])
    }

    fn reference(&self, inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        if inputs[1].elements() == 0 && inputs[2].elements() == 0 {
            // Tuples of no indices, which there may be any number of.
            return Ok(vec![inputs[0].contiguous()]);
        }
        let depth = inputs[2].shape()[inputs[2].shape().rank() - 1];
        let rows = rows(self.name(), inputs[0].shape(), inputs[2], 0)?;
        let slab = inputs[0].shape()[depth..].iter().product();
        Ok(vec![self.kind.apply(inputs[0], inputs[1], &rows, slab)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_types, numbers, run};
    use super::*;

    #[test]
    fn types() {
        check_types(
            Scatter { kind: ScatterKind::Set, axis: 1 },
            &[
                (&["bool[n, 4]", "bool[n, 9]", "i32[n, 9]"], "bool[n, 4]"),
                (
                    &["f32[2, 4]", "f32[3, 9]", "i32[3, 9]"],
                    "scatter: updates has 3 elements along axis 0, x has 2",
                ),
                (
                    &["f32[2, 4]", "f32[2, 9]", "i32[2, 8]"],
                    "scatter: shapes differ: updates f32[2, 9], indices i32[2, 8]",
                ),
                (
                    &["f32[2, 4]", "f16[2, 9]", "i32[2, 9]"],
                    "scatter: dtypes differ: x f32[2, 4], updates f16[2, 9]",
                ),
                (&["f32[2, 4]", "f32[2]", "i32[2]"], "scatter: updates is f32[2], expected 2 axes"),
            ],
        );
        let add = ScatterKind::Add;
        check_types(
            Scatter { kind: add, axis: 0 },
            &[(
                &["bool[4]", "bool[9]", "i32[9]"],
                "scatter_add: x is bool[4], expected a float or an integer",
            )],
        );
        check_types(
            ScatterNd { kind: add },
            &[
                (&["f16[2, n, 3]", "f16[m, 3]", "i64[m, 2]"], "f16[2, n, 3]"),
                (
                    &["f16[2, n, 3]", "f16[m]", "i64[m, 2]"],
                    "scatter_nd_add: updates is f16[m], expected f16[m, 3]",
                ),
                (
                    &["f16[2]", "f16[m]", "i64[m, 2]"],
                    "scatter_nd_add: indices is i64[m, 2], but x f16[2] has 1 axes",
                ),
            ],
        );
    }

    #[test]
    fn duplicates_are_applied_in_order() {
        let x = Tensor::from_slice([2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let updates = Tensor::from_slice([1, 3], &[10.0f32, 20.0, f32::NAN]);
        let indices = Tensor::from_slice([1, 3], &[1i64, -2, 2]);
        let of = |kind| numbers(Scatter { kind, axis: 1 }, &[&x, &updates, &indices]);
        assert_eq!(of(ScatterKind::Set)[..2], [1.0, 20.0]);
        assert_eq!(of(ScatterKind::Add)[..2], [1.0, 32.0]);
        assert_eq!(of(ScatterKind::Mul)[..2], [1.0, 400.0]);
        assert_eq!(of(ScatterKind::Min)[..2], [1.0, 2.0]);
        assert!(of(ScatterKind::Max)[2].is_nan());
        assert_eq!(of(ScatterKind::Max)[3..], [4.0, 5.0, 6.0]);
        let down = numbers(
            Scatter { kind: ScatterKind::Set, axis: 0 },
            &[&x, &updates, &Tensor::zeros(tensor::DType::I32, [1, 3])],
        );
        assert_eq!((&down[..2], &down[3..]), (&[10.0, 20.0][..], &[4.0, 5.0, 6.0][..]));
        let wrong = Tensor::from_slice([1, 3], &[1i64, 3, 2]);
        let error = run(Scatter { kind: ScatterKind::Set, axis: 1 }, &[&x, &updates, &wrong]).unwrap_err();
        let message = "scatter: index 3 at position 1 is out of range for the 3 elements of axis 1";
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn slices_at_tuples() {
        let x = Tensor::from_slice([2, 2], &[250u8, 2, 3, 4]);
        let rows = Tensor::from_slice([2, 2], &[10u8, 20, 30, 40]);
        let twice = Tensor::from_slice([2, 1], &[0i32, -2]);
        let of = |kind| numbers(ScatterNd { kind }, &[&x, &rows, &twice]);
        assert_eq!(of(ScatterKind::Set), [30., 40., 3., 4.]);
        assert_eq!(of(ScatterKind::Add), [34., 62., 3., 4.]);
        let single = Tensor::from_slice([1], &[7u8]);
        let corner = Tensor::from_slice([1, 2], &[1i64, 1]);
        assert_eq!(
            numbers(ScatterNd { kind: ScatterKind::Max }, &[&x, &single, &corner]),
            [250., 2., 3., 7.]
        );
    }
}
