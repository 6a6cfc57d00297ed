//! The sizes and strides of an array, and walks over its elements.

use std::sync::Arc;

use crate::{MAX_RANK, Shape};

/// How the elements of an array lie in memory. Shared by clones, so that arrays themselves are small.
#[derive(PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    /// In elements. Row-major where nothing is ever stepped along: for axes of one, and for empty arrays.
    strides: Box<[isize]>,
    contiguous: bool,
}

impl Layout {
    pub(crate) fn row_major(shape: Shape) -> Arc<Layout> {
        let strides = shape.row_major_strides()[..shape.rank()].into();
        Arc::new(Layout { shape, strides, contiguous: true })
    }

    /// A layout with a stride for each axis.
    pub(crate) fn strided(shape: Shape, strides: &[isize]) -> Arc<Layout> {
        let mut all = shape.row_major_strides();
        let mut contiguous = true;
        if !shape.contains(&0) {
            for (axis, &stride) in strides.iter().enumerate().filter(|&(axis, _)| shape[axis] > 1) {
                contiguous &= all[axis] == stride;
                all[axis] = stride;
            }
        }
        Arc::new(Layout { shape, strides: all[..shape.rank()].into(), contiguous })
    }

    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Whether the elements lie in row-major order without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// The position of each element in row-major order, in elements.
    ///
    /// # Panics
    /// If the number of elements overflows.
    pub(crate) fn positions(&self, first: isize) -> impl Iterator<Item = usize> {
        positions(self.shape, &self.strides, first)
    }

    /// How many elements in a row lie without gaps, and the position of each such run.
    pub(crate) fn runs(&self) -> (usize, impl Iterator<Item = usize>) {
        let mut run = 1;
        let mut axes = self.shape.rank();
        while axes > 0 && (self.strides[axes - 1] == run as isize || self.shape[axes - 1] == 1) {
            axes -= 1;
            run *= self.shape[axes];
        }
        (run, positions(Shape::new(&self.shape[..axes]), &self.strides, 0))
    }
}

fn positions(shape: Shape, given: &[isize], first: isize) -> impl Iterator<Item = usize> + use<> {
    let mut strides = [0isize; MAX_RANK];
    strides[..given.len()].copy_from_slice(given);
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
