//! Indices into axes, and where the elements of a result come from.

use tensor::{Shape, Tensor};

use super::elements::Numbers;
use crate::Error;

/// The elements of an operand of an integer dtype.
pub(super) fn integers(tensor: &Tensor) -> Vec<i128> {
    let Numbers::Integers(integers) = Numbers::of(tensor) else {
        unreachable!("the type rule asks for integers")
    };
    integers
}

/// An index, from the end if it is negative, of an axis of `limit` elements; or an error that names position,
/// value and limit.
pub(super) fn resolve(
    op: &'static str,
    (position, index): (usize, i128),
    limit: usize,
    axis: usize,
) -> Result<usize, Error> {
    let from_start = if index < 0 { index + limit as i128 } else { index };
    usize::try_from(from_start).ok().filter(|&index| index < limit).ok_or_else(|| {
        let limit = format!("the {limit} elements of axis {axis}");
        Error::evaluation(op, format!("index {index} at position {position} is out of range for {limit}"))
    })
}

/// Where the elements of `to` come from, axis by axis: `source(axis, index)` is the index along an axis of `from`, or
/// `None` where nothing comes.
pub(super) fn mapped(
    from: &Shape,
    to: &Shape,
    source: impl Fn(usize, usize) -> Option<usize>,
) -> Vec<Option<usize>> {
    let strides = from.row_major_strides();
    let position = |mut element: usize| {
        let mut position = 0;
        for axis in (0..to.rank()).rev() {
            position += source(axis, element % to[axis])? * strides[axis] as usize;
            element /= to[axis];
        }
        Some(position)
    };
    (0..to.elements()).map(position).collect()
}
