//! Walks over the elements of arrays with strides.

use crate::{MAX_RANK, Shape};

/// Whether elements with these strides lie in row-major order without gaps. Strides of axes of one do not matter.
pub(crate) fn is_contiguous(shape: &Shape, strides: &[isize; MAX_RANK]) -> bool {
    let expected = shape.row_major_strides();
    shape.contains(&0) || (0..shape.rank()).all(|axis| shape[axis] == 1 || strides[axis] == expected[axis])
}

/// The position of each element in row-major order, in the unit of the strides.
///
/// # Panics
/// If the number of elements overflows.
pub(crate) fn positions(
    shape: Shape,
    strides: [isize; MAX_RANK],
    first: isize,
) -> impl Iterator<Item = usize> {
    let mut index = [0usize; MAX_RANK];
    let mut position = first;
    (0..shape.elements()).map(move |_| {
        let current = position as usize;
        for axis in (0..shape.rank()).rev() {
            index[axis] += 1;
            position += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            position -= strides[axis] * shape[axis] as isize;
            index[axis] = 0;
        }
        current
    })
}

/// How many elements in a row lie without gaps, and the axes that step from one such run to the next.
pub(crate) fn runs(shape: &Shape, strides: &[isize; MAX_RANK]) -> (usize, Shape) {
    let mut run = 1;
    let mut axes = shape.rank();
    while axes > 0 && (strides[axes - 1] == run as isize || shape[axes - 1] == 1) {
        axes -= 1;
        run *= shape[axes];
    }
    (run, Shape::new(&shape[..axes]))
}
